"""What is known of an engine without opening it: the record beside its file.

An engine says its inputs, its precision and its versions only to the library, on a GPU of the kind it was built for. So
what the build saw lies beside it, in `engine.json`, and whoever runs the engine holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.engine.settings import EngineSettings, ProfileShapes
from paritygate.errors import InputFileError
from paritygate.files import read_json, write_json_atomically
from paritygate.precision import Precision
from paritygate.signature import Signature

ENGINE_FILE = "model.plan"
RECORD_FILE = "engine.json"
_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRecord:
    """What the build of an engine saw.

    Attributes:
        library: `tensorrt` or `tensorrt-rtx`.
        version: Its version.
        precision: What was asked for, and found in the network.
        signature: Inputs and outputs, in the engine's order, with the declared sizes of symbolic dims.
        profile: The shapes of each input.
        tf32: Whether TF32 may be used in place of FP32.
        settings: How it was built.
        dtype_counts: How many outputs of layers there are, by the dtype that they compute in and the type of layer:
            `{"HALF": {"CONVOLUTION": 53}}`, in the library's words.
        built_on: The GPU it was built on, as `Gpu` has it; None if it was built ahead of time.
        targets: What it was built to run on, in words, such as `compute capability 8.9`.
    """

    library: str
    version: str
    precision: Precision
    signature: Signature
    profile: Mapping[str, ProfileShapes]
    tf32: bool
    settings: EngineSettings
    dtype_counts: Mapping[str, Mapping[str, int]]
    built_on: Mapping[str, Any] | None
    targets: str

    def save(self, engine: Path) -> None:
        """Write the record beside the engine."""
        data = {"schema_version": _SCHEMA_VERSION, **to_data(self)}
        write_json_atomically(engine.parent / RECORD_FILE, data)

    @classmethod
    def load(cls, engine: Path) -> EngineRecord:
        """Return the record beside the engine.

        Raises:
            InputFileError: There is none, or it is corrupt.
        """
        path = engine.parent / RECORD_FILE
        if not path.is_file():
            msg = f"{engine} has no {RECORD_FILE} beside it, which says its inputs, its precision and its versions"
            raise InputFileError(msg, hint="give an unchanged engine", command="convert-and-validate build --run DIR")
        try:
            data = read_json(path)
            # Version 0.1.0 called it so.
            if isinstance(data, dict) and "census" in data:
                data = {"dtype_counts": data["census"], **data}
            return from_data(cls, data)
        except ValueError as err:
            msg = f"{path} is corrupt: {type(err).__name__}: {err}"
            raise InputFileError(
                msg, hint="build the engine again", command="convert-and-validate build --run DIR"
            ) from err
