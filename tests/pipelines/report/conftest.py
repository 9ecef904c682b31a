"""A run to report on: small real models, recorded and compared by the stages themselves, with hostile names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pipelines.conftest import jobs_done_here

from paritygate.artifact import Artifact, file_digests
from paritygate.files import make_marked_folder
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.pipelines.run.record import record_stage
from paritygate.pipelines.run.validate import validate_stage
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder, new_run
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.precision import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What a model's author may call things, to be seen and never to be obeyed.
HOSTILE_OUTPUT = "<script>alert(1)</script>|logits"
HOSTILE_ROW = '"><script>alert(2)</script>|row\n# pass'
HOSTILE_NOTE = "[pass](javascript:alert(3)) <img src=x onerror=alert(4)> \u202eevil"

_SAMPLES = """
import numpy as np
from paritygate.batch import Batch

FIRST = {first!r}

def rows(path):
    yield from batches(0)

def other_rows(path):
    yield from batches(1)

def batches(seed):
    random = np.random.default_rng(seed)
    for start in range(0, 128, 16):
        ids = [f"pair-{{start + at:03d}}" for at in range(16)]
        if start == 0:
            ids[0] = FIRST
        values = random.standard_normal((16, 4)).astype(np.float32)
        yield Batch(inputs={{"x": values}}, ids=ids, strata={{"source": ["news|1"] * 4 + ["web"] * 12}})
"""


def write_model(path: Path, name: str, *, error: float = 0.0, scale: float = 1.0) -> None:
    """Write a model with the float output `HOSTILE_OUTPUT`, off by `error` and by the factor `scale`, and `label`."""
    import onnx

    random = np.random.default_rng(7)
    weights: dict[str, NDArray[np.generic]] = {
        "weight": (random.standard_normal((4, 1)) * scale).astype(np.float32),
        "error": np.full(1, error, dtype=np.float32),
        "zero": np.zeros(1, dtype=np.float32),
    }
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
            onnx.helper.make_node("Add", ["product", "error"], [HOSTILE_OUTPUT]),
            onnx.helper.make_node("Greater", ["product", "zero"], ["is_positive"]),
            onnx.helper.make_node("Cast", ["is_positive"], ["label"], to=onnx.TensorProto.INT64),
        ],
        name,
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [
            onnx.helper.make_tensor_value_info(HOSTILE_OUTPUT, onnx.TensorProto.FLOAT, ["batch", 1]),
            onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["batch", 1]),
        ],
        [onnx.numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))


def add_artifact(run: RunFolder, variant: str, *, error: float = 0.0, scale: float = 1.0, note: str = "") -> None:
    """Put an artifact into the run as the export would."""
    folder = make_marked_folder(run.variant_folder(variant))
    write_model(folder / "model.onnx", variant, error=error, scale=scale)
    Artifact(
        variant=Variant.parse(variant),
        folder=folder,
        main="model.onnx",
        signature=signature_of_onnx(read_onnx(folder / "model.onnx")),
        files=file_digests(folder),
        made_by={"notes": [note] if note else [], "facts": {"opset": 17}},
    ).save()


def new_model_run(
    folder: Path,
    targets: Sequence[str],
    *,
    required: Sequence[str] | None = None,
    tolerance: Mapping[str, object] | None = None,
) -> RunFolder:
    """Return a run of a small model, nothing of it done."""
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "source.onnx", "source")
    (folder / "report_samples.py").write_text(_SAMPLES.format(first=HOSTILE_ROW), encoding="utf-8")
    spec = Spec.model_validate(
        {
            "model": {"name": "sts", "source": "source.onnx"},
            "samples": {"source": "report_samples:rows", "strata": ["source"]},
            # An int8 target would hold some of the samples out, and every row of them is to be compared.
            "calibration": {"source": "report_samples:other_rows"},
            "decisions": {HOSTILE_OUTPUT: {"threshold": 0.0}},
            "targets": list(targets),
            "required": None if required is None else list(required),
            "tolerance": dict(tolerance or {}),
        }
    )
    return new_run(ResolvedSpec(spec=spec, folder=folder, origin="sts.yaml"), root=folder / "artifacts")


def measure(run: RunFolder) -> None:
    """Record the reference and compare every artifact, in this process."""
    with jobs_done_here():
        record_stage(run, time_limit_s=600, progress=lambda *_: None)
        validate_stage(run, time_limit_s=600, progress=lambda *_: None)


@pytest.fixture(scope="session")
def mixed_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run in which one variant of each kind came out: pass, fail, error, not made, not measured."""
    run = new_model_run(
        tmp_path_factory.mktemp("mixed"),
        ["onnx-fp32", "onnx-fp16", "onnx-bf16", "onnx-int8", "onnx-tf32"],
        required=["onnx-fp32", "onnx-fp16"],
        tolerance={"onnx-fp32": {"max_abs_diff": 0.5, "mean_abs_diff": 1e-5}},
    )
    add_artifact(run, "onnx-fp32", error=1e-6, note=HOSTILE_NOTE)
    add_artifact(run, "onnx-fp16", error=0.5)
    add_artifact(run, "onnx-bf16")
    (run.variant_folder("onnx-bf16") / "model.onnx").write_bytes(b"no model any more")
    row = ("CustomOp<b>", "encoder/layer|3", "no translation", "serve the model as it is")
    failure = FailedVariant(
        variant="onnx-int8", message="1 operator is unsupported", hint="see the table", exit_code=4, operators=(row,)
    )
    run.save_failures({"onnx-int8": failure})
    measure(run)
    return run


@pytest.fixture(scope="session")
def passing_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run whose one variant passes."""
    run = new_model_run(tmp_path_factory.mktemp("passing"), ["onnx-fp32"])
    add_artifact(run, "onnx-fp32", error=1e-6)
    measure(run)
    return run
