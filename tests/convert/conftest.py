"""What the tests of converters share: jobs in short, and running what was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.models.source import ModelRef, SourceKind
from paritygate.signature import Dim, Signature, TensorSpec


class Lazy:
    """A framework that is imported when it is first used: collecting tests must not take seconds."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of the framework's
        # Pytest looks for its own attributes at all that a module of tests holds.
        if name.startswith(("_", "pytest")):
            raise AttributeError(name)
        return getattr(self._load(), name)


def _specs(tensors: Mapping[str, str]) -> tuple[TensorSpec, ...]:
    found = []
    for name, text in tensors.items():
        dtype, _, dims = text.partition("[")
        parts = [part.strip() for part in dims.rstrip("]").split(",") if part.strip()]
        shape = tuple(int(part) if part.isdigit() else None if part == "?" else part for part in parts)
        found.append(TensorSpec(name=name, dtype=dtype, shape=shape))
    return tuple(found)


def sign(inputs: Mapping[str, str], outputs: Mapping[str, str], **dims: tuple[int, int, int]) -> Signature:
    """Return a signature: `sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, ?]"}, batch=(1, 2, 8))`."""
    ranges = {name: Dim(min=low, opt=opt, max=high) for name, (low, opt, high) in dims.items()}
    return Signature(inputs=_specs(inputs), outputs=_specs(outputs), dims=ranges)


class Converted(Struct, frozen=True, kw_only=True):
    """A job that was done, and what came of it."""

    job: ConversionJob
    conversion: Conversion

    @property
    def main(self) -> Path:
        """What the runtime opens."""
        return self.job.folder / self.conversion.main

    @property
    def files(self) -> dict[str, bytes]:
        """Content of every file written, by relative path."""
        paths = [path for path in self.job.folder.rglob("*") if path.is_file()]
        return {path.relative_to(self.job.folder).as_posix(): path.read_bytes() for path in paths}

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs of the ONNX model that was written, in its order."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self.main), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))


class Bench(Struct, frozen=True, kw_only=True):
    """A folder to convert in."""

    folder: Path

    def job(self, kind: str, source: Path | None = None, **fields: Any) -> ConversionJob:  # noqa: ANN401 - any field
        """Return a job on a path, or on a model object given as `model`; its folder does not exist yet."""
        where = ModelRef(text=str(source or "net:model"), folder=self.folder, kind=SourceKind(kind))
        return ConversionJob(source=where, folder=self.folder / "converted", **fields)

    def convert(self, kind: str, source: Path | None = None, to: str = "onnx", **fields: Any) -> Converted:  # noqa: ANN401
        """Do the job with all its checks."""
        job = self.job(kind, source, **fields)
        return Converted(job=job, conversion=convert_and_check(job, to))

    def onnx_file(self, text: str, name: str = "source.onnx") -> Path:
        """Write an ONNX file from ONNX's text form of a model."""
        path = self.folder / name
        onnx.save_model(onnx.parser.parse_model(text), str(path))
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a folder of the test's own to convert in."""
    return Bench(folder=tmp_path)


def assert_near(actual: NDArray[Any], expected: Any) -> None:  # noqa: ANN401 - an array or tensor of any framework
    """Assert same shape, same dtype and a largest difference below 1e-5."""
    __tracebackhide__ = True
    wanted = np.asarray(expected)
    assert actual.shape == wanted.shape, f"shape {actual.shape}, expected {wanted.shape}"
    assert actual.dtype == wanted.dtype, f"dtype {actual.dtype}, expected {wanted.dtype}"
    worst = float(np.max(np.abs(actual.astype(np.float64) - wanted.astype(np.float64)), initial=0.0))
    assert worst < 1e-5, f"largest difference {worst}"


def trace(module: Any, example: Any, **options: Any) -> Any:  # noqa: ANN401 - torch has no types for it
    """Return the module traced by torch.jit."""
    import torch

    return torch.jit.trace(module, example, **options)  # type: ignore[no-untyped-call]
