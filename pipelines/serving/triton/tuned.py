"""Read the settings that were measured for a view, and decide for which variants they count."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.codec import from_data
from paritygate.files import corrupt_errors, parse_json
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.triton.settings import Settings, TunedSettings, TunedUse
from paritygate.signature import Signature

TUNED_FILE = "tuned.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """Measured settings, and the variant that they were measured for."""

    digest: str  # of the variant
    settings: Settings
    signature: Signature  # under the server's names
    version: int  # the release

    def for_variant(self, digest: str, signature: Signature) -> TunedSettings:
        """Return the settings and their use for a variant, by its files, or its inputs and outputs on servers."""
        use = TunedUse.CARRIED_OVER if self.signature == signature else TunedUse.LEFT_OUT
        use = TunedUse.MEASURED if self.digest == digest else use
        return TunedSettings(use=use, settings=self.settings, version=self.version)


def read_tuned(place: Place, name: str) -> Tuned | None:
    """Return the settings that were measured for a view, or None; raise InputFileError if the file is corrupt."""
    content = place.read(f"{name}/{TUNED_FILE}")
    if content is None:
        return None
    with corrupt_errors(f"{name}/{TUNED_FILE}", hint="remove it, or measure again with tune"):
        return from_data(Tuned, parse_json(content))
