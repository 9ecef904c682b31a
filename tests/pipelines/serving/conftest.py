"""Small ONNX models as artifacts, and a release of one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from paritygate.artifact import Artifact, file_digests
from paritygate.files import digest_of_files, read_json
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.release import StoredRelease, promote
from paritygate.precision import Variant
from paritygate.roots import Root
from paritygate.signature import Dim, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),),
    dims={"batch": Dim(min=1, opt=8, max=16)},
)


def write_model(path: Path, added: float = 1.0, ir_version: int = 9) -> None:
    """Write a model that adds a number to its input."""
    float32 = onnx.TensorProto.FLOAT
    tensors = [onnx.helper.make_tensor_value_info(name, float32, ["batch", 4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "added"], ["y"])],
        "adds",
        tensors[:1],
        tensors[1:],
        [onnx.numpy_helper.from_array(np.full(4, added, dtype=np.float32), "added")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=ir_version)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


@pytest.fixture
def make_artifact(tmp_path: Path) -> Callable[..., Artifact]:
    """Return a function that writes an artifact; its files are empty but for `model.onnx`."""

    def make(
        variant: str = "onnx-fp32",
        signature: Signature = SIGNATURE,
        files: Sequence[str] = ("model.onnx",),
        *,
        added: float = 1.0,
        ir_version: int = 9,
    ) -> Artifact:
        folder = tmp_path / "run" / variant
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(name.encode())
        if files[0] == "model.onnx":
            write_model(folder / "model.onnx", added, ir_version)
        artifact = Artifact(
            variant=Variant.parse(variant),
            folder=folder,
            main=files[0],
            signature=signature,
            files={name: digest for name, digest in file_digests(folder).items() if name in files},
        )
        artifact.save()
        return artifact

    return make


@pytest.fixture
def make_release(tmp_path: Path, make_artifact: Callable[..., Artifact]) -> Callable[..., StoredRelease]:
    """Return a function that releases variants that passed, at `prod`, and returns the release."""

    def digest(text: str) -> str:
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def make(
        *variants: str,
        added: float = 1.0,
        signature: Signature = SIGNATURE,
        serve: Mapping[str, Any] | None = None,
        device: str = "cpu",
        ir_version: int = 9,
        source: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        files: Mapping[str, Sequence[str]] | None = None,
        reports: Mapping[str, Callable[[], bytes]] | None = None,
        root: Root | None = None,
    ) -> StoredRelease:
        found = []
        for name in variants or ("onnx-fp32",):
            artifact = make_artifact(
                name, signature, (files or {}).get(name, ("model.onnx",)), added=added, ir_version=ir_version
            )
            evidence = VariantEvidence(
                verdict="pass",
                artifact=digest_of_files(artifact.files),
                kind="verified",
                device=device,
                runtime="onnxruntime",
                devices=(device,),
            )
            record = read_json(artifact.folder / "artifact.json")
            found.append(VariantCandidate(name=name, folder=artifact.folder, record=record, evidence=evidence))
        provenance = Provenance(
            source=digest("source"),
            samples=digest("samples"),
            reference=digest("reference"),
            tools={},
            device={"name": device},
            tolerances={},
            spec={
                "model": {"name": "adds", "source": "model.onnx"},
                "samples": {"source": "inputs.npz"},
                "targets": list(variants or ("onnx-fp32",)),
                **(spec or {}),
                "serve": {"triton": dict(serve or {})},
            },
        )
        candidate = ReleaseCandidate(
            model="adds",
            variants=found,
            provenance=provenance,
            evidence={"variants": [], **({"reference": {"model": dict(source)}} if source else {})},
            alias="prod",
            reports=reports or {},
        )
        return promote(root or tmp_path / "repository", candidate)

    return make


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that calls the tool on the repository, in the folder of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Result:
        result = CliRunner().invoke(cli, [*words, "--repository", "repository"], standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result

    return run
