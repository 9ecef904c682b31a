"""Check that an engine's file and record agree, also with the library's view on a GPU that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.gpu_fit import check_gpu
from paritygate.engine.inspecting import check_engine, inspect_engine, load_engine
from paritygate.engine.library import open_library
from paritygate.engine.record import EngineRecord
from paritygate.errors import BackendError, ConversionError
from paritygate.machine import gpu_of_machine

_HINT = "build the engine again: convert-and-validate build --run DIR"


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the files are proved sound, or raise ConversionError."""
    path = job.folder / conversion.main
    if not path.is_file() or not path.stat().st_size:
        raise ConversionError(f"the engine {path.name} is missing or empty", hint=_HINT)
    with our_file():
        record = EngineRecord.load(path)
    for what, wanted, actual in (
        ("precision", job.precision, record.precision),
        ("settings", job.engine, record.settings),
        ("signature", conversion.signature, record.signature),
    ):
        if wanted != actual:
            msg = f"the engine's record has {what} {actual}, but it was built with {wanted}"
            raise ConversionError(msg, hint=_HINT)
    reason = _why_not_loaded(record)
    facts: dict[str, Any]
    if reason is None:
        facts = _read(path, record)
    else:
        # Not a failure of the build, because the engine is proved where it runs.
        facts = {"not_loaded_here": reason}
        conversion = replace(conversion, notes=(*conversion.notes, f"the engine was not loaded here: {reason}"))
    return as_promised(job, conversion, record.signature, facts, keeps_names=True)


def _why_not_loaded(record: EngineRecord) -> str | None:
    """Return why the engine cannot be loaded on this machine; None if it can."""
    gpu = gpu_of_machine()
    if gpu is None:
        return "engines are loaded on a GPU, and there is none here"
    try:
        check_gpu(record, gpu, capabilities_of(open_library(record.library)).compute_capabilities)
    except BackendError as err:
        return str(err)
    return None


def _read(path: Path, record: EngineRecord) -> dict[str, Any]:
    """Return the library's facts on the engine; raise ConversionError if it fails to load or contradicts its record."""
    library = open_library(record.library)
    try:
        loaded = load_engine(path, library)
        check_engine(loaded.cuda_engine, record)
    except BackendError as err:
        raise ConversionError(str(err), hint=_HINT) from err
    return {"loaded_in": f"{library.name} {library.version}", "engine_layers": inspect_engine(loaded)}
