"""Describe an engine without opening it, by the record beside its file.

Only the library can read an engine, on a GPU of the kind it was built for. So the build writes `engine.json` beside it,
and every run compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.engine.settings import EngineSettings, ProfileShapes
from paritygate.errors import InputFileError
from paritygate.files import corrupt_errors, read_json, write_json_atomically
from paritygate.precision import Precision
from paritygate.signature import Signature

ENGINE_FILE = "model.plan"
RECORD_FILE = "engine.json"
_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRecord:
    """The facts that the build of an engine recorded."""

    library: str  # tensorrt or tensorrt-rtx
    version: str
    precision: Precision  # requested, and found in the network
    signature: Signature  # in the engine's order, with the declared sizes of symbolic dims
    profile: Mapping[str, ProfileShapes]  # shapes by input
    tf32: bool  # TF32 may replace FP32
    settings: EngineSettings
    dtype_counts: Mapping[str, Mapping[str, int]]  # outputs of layers: {"HALF": {"CONVOLUTION": 53}}
    built_on: Mapping[str, Any] | None  # a `Gpu`; None if built ahead of time
    targets: str  # for people, such as `compute capability 8.9`

    def save(self, engine: Path) -> None:
        """Write the record beside the engine."""
        data = {"schema_version": _SCHEMA_VERSION, **to_data(self)}
        write_json_atomically(engine.parent / RECORD_FILE, data)

    @classmethod
    def load(cls, engine: Path) -> EngineRecord:
        """Return the record beside the engine; raise InputFileError if it is missing or corrupt."""
        path = engine.parent / RECORD_FILE
        if not path.is_file():
            msg = f"{engine} has no {RECORD_FILE} beside it, which lists its inputs, precision and versions"
            raise InputFileError(msg, hint="give an unchanged engine", command="convert-and-validate build --run DIR")
        with corrupt_errors(path, hint="build the engine again", command="convert-and-validate build --run DIR"):
            return from_data(cls, read_json(path))
