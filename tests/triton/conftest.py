"""A real Triton server on the shadow of a view: the same files and configuration, but for the backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from paritygate.artifact import Artifact, file_digests
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.triton.config import ServedModel
from paritygate.pipelines.serving.triton.view import TritonView, make_view
from paritygate.pipelines.serving.written import Head
from paritygate.precision import Variant
from paritygate.signature import Dim, Signature, TensorSpec

_ROOT = Path(__file__).resolve().parents[2]
WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 3)),),
    dims={"batch": Dim(min=1, opt=4, max=16)},
)
GOLDEN = np.arange(8, dtype=np.float32).reshape(2, 4)


def right_answer(rows: np.ndarray, version: int) -> np.ndarray:
    """Return what version N of the model answers: the product, and N more."""
    return rows @ WEIGHT + np.float32(version)


@pytest.fixture(scope="session")
def place() -> Path:
    """Return the environment of the server, or skip."""
    why = _module().why_no_server(_ROOT / _module().ENVIRONMENT)
    if why:
        pytest.skip(why)
    return _ROOT / str(_module().ENVIRONMENT)


def _module() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_ROOT / "benchmarks/triton")
        return importlib.import_module("triton_server")


@pytest.fixture(scope="session")
def servers() -> ModuleType:
    """Return the module that starts servers."""
    return _module()


@pytest.fixture
def start(tmp_path: Path, place: Path, servers: ModuleType) -> Callable[..., Any]:
    """Return a function that returns a server on the shadow, to be entered; its arguments are those of the server."""

    def make(*arguments: str) -> Any:  # noqa: ANN401 - a server of a script
        return servers.TritonServer(place, tmp_path / "shadow", tmp_path, mode=arguments)

    return make


@pytest.fixture
def artifact_of(tmp_path: Path) -> Callable[[int], Artifact]:
    """Return a function that returns the artifact of a version."""

    def make(version: int) -> Artifact:
        folder = tmp_path / "artifacts" / str(version)
        if not folder.exists():
            folder.mkdir(parents=True)
            float32 = onnx.TensorProto.FLOAT
            graph = onnx.helper.make_graph(
                [
                    onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
                    onnx.helper.make_node("Add", ["product", "version"], ["y"]),
                ],
                "answers",
                [onnx.helper.make_tensor_value_info("x", float32, ["batch", 4])],
                [onnx.helper.make_tensor_value_info("y", float32, ["batch", 3])],
                [
                    onnx.numpy_helper.from_array(WEIGHT, "weight"),
                    onnx.numpy_helper.from_array(np.full(1, version, dtype=np.float32), "version"),
                ],
            )
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
            onnx.save(model, str(folder / "model.onnx"))
        return Artifact(
            variant=Variant.parse("onnx-fp32"),
            folder=folder,
            main="model.onnx",
            signature=SIGNATURE,
            files={name: digest for name, digest in file_digests(folder).items() if name == "model.onnx"},
        )

    return make


@pytest.fixture
def view_of(artifact_of: Callable[[int], Artifact]) -> Callable[..., TritonView]:
    """Return a function that returns the view of a version, not written yet."""

    def make(version: int = 1, **own: object) -> TritonView:
        artifact = artifact_of(version)
        served = ServedModel(artifact=artifact, name="answers", version=version, devices=("cpu",), own=own)
        return make_view(served, warmup={"x": GOLDEN[:1]}, head=Head(said=f"answers version {version}"))

    return make


@pytest.fixture
def publish(tmp_path: Path, servers: ModuleType, view_of: Callable[..., TritonView]) -> Callable[..., TritonView]:
    """Return a function that writes the view of a version and its shadow, on which the server runs."""

    def write(version: int = 1, **own: object) -> TritonView:
        view = view_of(version, **own)
        view.write(Place(tmp_path / "models"))
        shadow: TritonView = servers.shadow_of(view, tmp_path / "models")
        shadow.write(Place(tmp_path / "shadow"))
        return shadow

    return write
