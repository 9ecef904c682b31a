"""Whether an engine is sound: file and record agree, and, on a GPU it runs on, what the library reads from it too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.engine.engine_check import read_engine, why_not_loaded
from paritygate.engine.record import EngineRecord
from paritygate.errors import ConversionError

__all__ = ["check"]

_HINT = "build the engine again: convert-and-validate build --run DIR"


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the signature promised, once the files have proved sound.

    Raises:
        ConversionError: They are not.
        MissingBackendError: The library is not installed.
    """
    path = job.folder / conversion.main
    if not path.is_file() or not path.stat().st_size:
        msg = f"the engine {path.name} is missing or empty"
        raise ConversionError(msg, hint=_HINT)
    with our_file():
        record = EngineRecord.load(path)
    for what, wanted, found in (
        ("precision", job.precision, record.precision),
        ("settings", job.engine, record.settings),
        ("signature", conversion.signature, record.signature),
    ):
        if wanted != found:
            msg = f"the record of the engine says {what} {found}, and it was built with {wanted}"
            raise ConversionError(msg, hint=_HINT)
    reason = why_not_loaded(record)
    facts: dict[str, Any]
    if reason is None:
        facts = read_engine(path, record)
    else:
        # What this machine cannot load is no failure of the build: where it runs is where it is proved.
        facts = {"not_loaded_here": reason}
        conversion = replace(conversion, notes=(*conversion.notes, f"the engine was not loaded here: {reason}"))
    return as_promised(job, conversion, record.signature, facts, keeps_names=True)
