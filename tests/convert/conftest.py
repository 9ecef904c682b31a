"""What the tests of converters share: jobs, signatures in short, and running what was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.source import Source, SourceKind

Arrays = Mapping[str, NDArray[Any]]


def _specs(tensors: Mapping[str, str]) -> tuple[TensorSpec, ...]:
    found = []
    for name, text in tensors.items():
        dtype, _, dims = text.partition("[")
        parts = [part.strip() for part in dims.rstrip("]").split(",") if part.strip()]
        shape = tuple(int(part) if part.isdigit() else None if part == "?" else part for part in parts)
        found.append(TensorSpec(name=name, dtype=dtype, shape=shape))
    return tuple(found)


@pytest.fixture(scope="session")
def sign() -> Callable[..., Signature]:
    """Return a function that makes a signature: `sign({"x": "float32[batch, 4]"}, {"y": ...}, batch=(1, 2, 8))`."""

    def made(inputs: Mapping[str, str], outputs: Mapping[str, str], **dims: tuple[int, int, int]) -> Signature:
        ranges = {name: Dim(min=low, opt=opt, max=high) for name, (low, opt, high) in dims.items()}
        return Signature(inputs=_specs(inputs), outputs=_specs(outputs), dims=ranges)

    return made


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., ConversionJob]:
    """Return a function that makes a job from a path, or from a model object and its kind."""

    def made(source: Path | None = None, kind: str = "", **fields: Any) -> ConversionJob:
        folder = tmp_path / "converted"
        folder.mkdir()
        text = str(source) if source else "net:model"
        where = Source(text=text, folder=tmp_path, kind=SourceKind(kind))
        return ConversionJob(source=where, folder=folder, **fields)

    return made


@pytest.fixture(scope="session")
def run_onnx() -> Callable[[ConversionJob, Conversion, Arrays], dict[str, NDArray[Any]]]:
    """Return a function that runs the ONNX model which a conversion wrote, outputs by name."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")

    def run(job: ConversionJob, conversion: Conversion, inputs: Arrays) -> dict[str, NDArray[Any]]:
        session = onnxruntime.InferenceSession(
            str(job.folder / conversion.main), providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


@pytest.fixture(scope="session")
def assert_near() -> Callable[[NDArray[Any], Any], None]:
    """Return a function that asserts same shape, same dtype and a largest difference below 1e-5."""

    def near(actual: NDArray[Any], expected: Any) -> None:
        __tracebackhide__ = True
        wanted = np.asarray(expected)
        assert actual.shape == wanted.shape, f"shape {actual.shape}, expected {wanted.shape}"
        assert actual.dtype == wanted.dtype, f"dtype {actual.dtype}, expected {wanted.dtype}"
        worst = float(np.max(np.abs(actual.astype(np.float64) - wanted.astype(np.float64)), initial=0.0))
        assert worst < 1e-5, f"largest difference {worst}"

    return near


@pytest.fixture
def onnx_file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an ONNX file from ONNX's text form of a model."""

    def written(text: str, name: str = "source.onnx") -> Path:
        model = onnx.parser.parse_model(text)
        path = tmp_path / name
        onnx.save_model(model, str(path))
        return path

    return written
