"""Plants one fault into every exported FP32 file, between export and validation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from msgspec.structs import replace

from paritygate.artifact import file_digests
from paritygate.pipelines import run_spec
from paritygate.pipelines.run.record import record_stage
from paritygate.pipelines.run.workspace import RunFolder


def _record(run: RunFolder, **others: Any) -> None:  # noqa: ANN401 - as the stage has them
    record_stage(run, **others)
    artifact = run.artifact("onnx-fp32")
    model = onnx.load(artifact.path)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[:, 1] = 0
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, model.graph.initializer[0].name))
    onnx.save(model, artifact.path)
    replace(artifact, files=file_digests(artifact.folder)).save()


@contextlib.contextmanager
def losing_a_column() -> Iterator[None]:
    """Have the first weight of each exported FP32 file lose a column inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_spec, "record_stage", _record)
        yield
