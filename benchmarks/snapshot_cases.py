"""The cases that `snapshots.py` takes, and the models and samples that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

# The commands of each case, a line each, as users type them. CASE is the folder of the case, RUN the run folder that an
# earlier command of the case made. The longest cases come first.
CASES = {
    "run-klue-sts-tf": """
run klue-sts-tf --no-benchmark --no-promote --probes batches,masks,ids --root CASE --json CASE/result.json \
    --target onnx-fp32 --target savedmodel-fp32 --target tflite-int8
""",
    "run-klue-sts": """
run klue-sts --no-benchmark --no-promote --probes batches,masks,ids --root CASE --json CASE/result.json \
    --target onnx-fp32 --target onnx-fp16 --target openvino-fp32 --target onnx-int8
choose --run RUN --prefer smallest --json CASE/choice.json
""",
    "run-klue-sts-torchscript": """
run klue-sts --no-benchmark --no-promote --probes masks --root CASE --json CASE/result.json --target torchscript-fp32
""",
    "selftest": """
selftest linear-model --fault weight-row-zeroed --fault rows-reversed --fault newer-opset \
    --root CASE --json CASE/result.json
""",
    "run-and-release": """
run spec.yaml --root CASE --json CASE/result.json
validate --run RUN --probes none --json CASE/validated.json
choose --run RUN --constraint size_mb=0.0001 --json CASE/choice.json
promote --run RUN --root CASE --alias canary --constraint size_mb=0.002 --json CASE/promoted.json
alias small canary 1 --repository CASE/repository --json CASE/alias.json
rollback small --alias canary --repository CASE/repository --json CASE/rollback.json
show small prod --repository CASE/repository --json CASE/shown.json
verify small prod --repository CASE/repository --json CASE/verified.json
list --repository CASE/repository --json CASE/list.json
pack --run RUN --output CASE/run.tar --json CASE/packed.json
""",
    "record-and-compare": """
record model.onnx --samples inputs.npz --out CASE/reference --json CASE/recorded.json
compare CASE/reference fp16.onnx --samples inputs.npz --precision fp16 --json CASE/result.json
""",
    "wrong-usage": """
compare model.onnx nothing.onnx --samples inputs.npz --json CASE/result.json
compare model.onnx fp16.onnx --samples inputs.npz --tolerance max_diff=1
compare model.onnx fp16.onnx --samples outputs.npz
compare model.onnx model.onnx --samples inputs.npz
run nothing.yaml
run klue-sts --target onnx-fp99
""",
    "schemas": """
schema spec
schema comparison
schema selftest
""",
}
# Models, or recorded outputs, that are compared on the same samples, each in a case of its own.
COMPARED = {
    "equal": "model.onnx equal.onnx --repeat 2",
    "wrong-weight": "model.onnx wrong-weight.onnx --failures CASE/failures",
    "fp16": "model.onnx fp16.onnx --precision fp16 --decision logits:argmax",
    "emulated": "model.onnx equal.onnx --precision fp16 --emulate",
    "argmax": "model.onnx shifted.onnx --decision logits:argmax --tolerance max_abs_diff=1 --tolerance mean_abs_diff=1",
    "threshold": "model.onnx shifted.onnx --decision logits:threshold=0.5 --ignore label=not=used",
    "integers": "model.onnx shifted.onnx --argmax-of label=logits --probes none",
    "nan": "model.onnx nan.onnx",
    "wrong-shape": "model.onnx wrong-shape.onnx",
    "missing-output": "model.onnx missing-output.onnx",
    "renamed-output": "model.onnx renamed-output.onnx --map scores=logits --outputs logits",
    "baked-in-batch": "model.onnx baked-in-batch.onnx --failures CASE/failures",
    "outputs-in-npz": "outputs.npz model.onnx",
    "detections": "found.npz found-wrongly.npz --match found:boxes=boxes,scores=scores,classes=classes",
}
for name, line in COMPARED.items():
    CASES[f"compare-{name}"] = f"compare {line} --samples inputs.npz --json CASE/result.json"
SPEC = """
model: {name: small, source: model.onnx, rename: {logits: scores}}
samples: {source: "rows:rows", path: inputs.npz, strata: [sign]}
decisions: {scores: {argmax: true}}
gold: {metric: accuracy, output: scores}
targets: [onnx-fp32, onnx-fp16, onnx-int8, openvino-fp32, {name: onnx-fp32, static: {batch: 1}}]
required: [onnx-fp32]
promote: {to: artifacts/repository, alias: prod}
"""
ROWS = """
import numpy as np
from paritygate.batch import Batch

def rows(path):
    x = np.load(path)["x"]
    for start in range(0, len(x), 16):
        part = x[start : start + 16]
        ids = [str(start + place) for place in range(len(part))]
        signs = ["+" if row[0] > 0 else "-" for row in part]
        yield Batch(inputs={"x": part}, ids=ids, strata={"sign": signs}, gold=np.arange(len(part)) % 3)
"""
GRAPH = """
<ir_version: 9, opset_import: ["": 17]>
graph (float[batch, 8] x) => (float[batch, 3] logits, int64[batch] label) {
  product = MatMul(x, first)
  hidden = Relu(product)
  sums = MatMul(hidden, second)
  logits = Add(sums, bias)
  label = ArgMax<axis = 1, keepdims = 0>(logits)
}
"""
RELU, ADD = "hidden = Relu(product)", "logits = Add(sums, bias)"
# What is put in the place of which part of the text above, by the name of the model; the bytes of all differ by it.
CHANGES: dict[str, Mapping[str, str]] = {
    "model": {},
    "equal": {},
    "wrong-weight": {},
    "shifted": {},
    "fp16": {
        "product = MatMul(x, first)": "low_x = Cast<to = 10>(x) product = MatMul(low_x, first)",
        ADD: "low_logits = Add(sums, bias) logits = Cast<to = 1>(low_logits)",
    },
    "nan": {RELU: "hidden = Sqrt(product)"},
    "wrong-shape": {
        "float[batch, 3] logits": "float[three, batch] logits",
        ADD: "moved = Add(sums, bias) logits = Transpose<perm = [1, 0]>(moved)",
        "(logits)": "(moved)",
    },
    "missing-output": {", int64[batch] label": ""},
    "renamed-output": {"logits": "scores"},
    "baked-in-batch": {RELU: "flat = Reshape(product, sixteen_rows) hidden = Relu(flat)"},
}


def write_inputs(folder: Path) -> None:
    """Write models, samples, recorded outputs and the spec, the same in every run."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal(shape) for name, shape in {"first": (8, 6), "second": (6, 3)}.items()}
    weights["bias"] = np.zeros(3)
    for name, changes in CHANGES.items():
        text = GRAPH.replace("graph", name.replace("-", "_"))
        for old, new in changes.items():
            text = text.replace(old, new)
        model = onnx.parser.parse_model(text)
        own = {key: value.copy() for key, value in weights.items()}
        own["second"][0, 0] += name == "wrong-weight"
        own["bias"][0] += 0.05 * (name == "shifted")
        dtype = np.float16 if name == "fp16" else np.float32
        tensors = {key: value.astype(dtype) for key, value in own.items()}
        if name == "baked-in-batch":
            tensors["sixteen_rows"] = np.array([16, 6])
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, key) for key, value in tensors.items())
        onnx.save(model, str(folder / f"{name}.onnx"))
    x = random.standard_normal((160, 8)).astype(np.float32)
    np.savez(folder / "inputs.npz", x=x)
    logits = (np.maximum(x @ weights["first"], 0) @ weights["second"]).astype(np.float32)
    np.savez(folder / "outputs.npz", logits=logits, label=logits.argmax(axis=1))
    corners = random.uniform(0, 500, (160, 5, 2))
    found = {
        "boxes": np.concatenate([corners, corners + 40], axis=2).astype(np.float32),
        "scores": random.uniform(0.4, 1, (160, 5)).astype(np.float32),
        "classes": random.integers(0, 3, (160, 5)),
    }
    np.savez(folder / "found.npz", **found)  # type: ignore[arg-type]  # keys are free in a mapping
    found["boxes"][::40, 2] += 100
    turned = {name: array[:, ::-1] for name, array in found.items()}
    np.savez(folder / "found-wrongly.npz", **turned)  # type: ignore[arg-type]
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "rows.py").write_text(ROWS, encoding="utf-8")
