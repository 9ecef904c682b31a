"""The settings that were measured for a view: kept beside it, and used whenever the same files are served."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.codec import from_data
from paritygate.errors import InputFileError
from paritygate.files import parse_json
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.triton.settings import Settings

__all__ = ["TUNED_FILE", "Tuned", "read_tuned"]

TUNED_FILE = "tuned.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """Settings, and what they were measured for: the digest of a variant."""

    digest: str
    settings: Settings


def read_tuned(place: Place, name: str) -> Tuned | None:
    """Return the settings that were measured for a view; None where none were.

    Raises:
        InputFileError: The file is damaged.
    """
    content = place.read(f"{name}/{TUNED_FILE}")
    if content is None:
        return None
    try:
        data = parse_json(content)
        return from_data(Tuned, {"digest": data["digest"], "settings": data["settings"]})
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{name}/{TUNED_FILE} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint="remove it, or measure again with tune") from err
