"""The settings that were measured for a view: kept beside it, and used for whatever has the same inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.codec import from_data
from paritygate.errors import InputFileError
from paritygate.files import parse_json
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.triton.settings import Settings, TunedSettings, TunedUse
from paritygate.signature import Signature

TUNED_FILE = "tuned.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """Settings, and what they were measured for.

    Attributes:
        digest: The digest of the variant.
        settings: The settings.
        signature: Its inputs and outputs, as the server has them; None where an older version of `tune` wrote it.
        version: The release; None likewise.
    """

    digest: str
    settings: Settings
    signature: Signature | None = None
    version: int | None = None

    def for_variant(self, digest: str, signature: Signature) -> TunedSettings:
        """Return the settings with whether they count for a variant: it has the same files, or inputs and outputs.

        Args:
            digest: The digest of the variant.
            signature: Its inputs and outputs, as the server has them.
        """
        use = TunedUse.CARRIED_OVER if self.signature == signature else TunedUse.LEFT_OUT
        use = TunedUse.MEASURED if self.digest == digest else use
        return TunedSettings(use=use, settings=self.settings, version=self.version)


def read_tuned(place: Place, name: str) -> Tuned | None:
    """Return the settings that were measured for a view; None where none were.

    Raises:
        InputFileError: The file is corrupt.
    """
    content = place.read(f"{name}/{TUNED_FILE}")
    if content is None:
        return None
    try:
        data = parse_json(content)
        known = {name: data.get(name) for name in ("signature", "version")}
        return from_data(Tuned, {"digest": data["digest"], "settings": data["settings"], **known})
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{name}/{TUNED_FILE} is corrupt: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint="remove it, or measure again with tune") from err
