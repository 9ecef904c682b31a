"""Every fault that is planted really is one, every equivalent rewrite is none: on small models, by ONNX Runtime."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from paritygate.errors import UsageError
from paritygate.pipelines.selftest.mutations.mutation import (
    MUTATIONS,
    Mutated,
    MutationContext,
    NotApplicable,
    mutate,
    mutate_file,
)

Arrays = dict[str, NDArray[Any]]

_TEXT = """
<ir_version: 9, opset_import: ["" : 18]>
text (int64[batch, seq] ids, int64[batch, seq] mask) => (float[batch, 1] score)
{
  embedded = Gather (table, ids)
  normed = LayerNormalization <axis = -1, epsilon = 0.001> (embedded, gain, shift)
  projected = MatMul (normed, square)
  turned = Transpose <perm = [0, 2, 1]> (normed)
  matched = MatMul (projected, turned)
  is_real = Cast <to = 9> (mask)
  columns = Unsqueeze (is_real, one)
  kept = Where (columns, matched, lowest)
  shares = Softmax <axis = -1> (kept)
  mixed = MatMul (shares, normed)
  summed = Add (mixed, normed)
  scaled = Mul (summed, root)
  bent = Erf (scaled)
  lifted = Add (bent, unit)
  gated = Mul (summed, lifted)
  pooled = ReduceMean <keepdims = 0> (gated, one)
  score = Gemm (pooled, last, bias)
}
"""
_IMAGE = """
<ir_version: 9, opset_import: ["" : 18]>
image (float[batch, 3, 6, 6] picture) => (float[batch, 2] left, float[batch, 2] right, int64[batch] label)
{
  padded = Pad <mode = "constant"> (picture, pads, nothing)
  convolved = Conv <pads = [0, 0, 1, 1], kernel_shape = [3, 3]> (padded, kernel, filters_bias)
  normed = BatchNormalization (convolved, gain, shift, mean, variance)
  positive = Relu (normed)
  stepped = Floor (normed)
  mean_positive = ReduceMean <keepdims = 0> (positive, space)
  mean_stepped = ReduceMean <keepdims = 0> (stepped, space)
  both = Concat <axis = 1> (mean_positive, mean_stepped)
  hidden = MatMul (both, last)
  squashed = Sigmoid (hidden)
  logits = MatMul (squashed, head)
  left = Softmax <axis = -1> (logits)
  right = Add (logits, head_bias)
  label = ArgMax <axis = 1, keepdims = 0> (logits)
}
"""
_COUNTER = """
<ir_version: 9, opset_import: ["" : 18]>
counter (int64[batch] n) => (int64[batch] next) { next = Add (n, one) }
"""


def _weights(seed: int = 1, **shapes: tuple[int, ...]) -> Arrays:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _f(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


_TEXT_WEIGHTS: Arrays = {
    **_weights(table=(50, 8), gain=(8,), shift=(8,), square=(8, 8), last=(8, 1)),
    "lowest": np.float32(-1e9),
    "one": np.array([1], dtype=np.int64),
    "root": np.float32(1 / np.sqrt(2)),
    "unit": np.float32(1),
    "bias": _f(0.25),
}
_IMAGE_WEIGHTS: Arrays = {
    **_weights(kernel=(4, 3, 3, 3), filters_bias=(4,), gain=(4,), shift=(4,), mean=(4,), last=(8, 8)),
    "head": np.repeat(_weights(2, head=(8, 1))["head"], 2, axis=1) * _f(1, 0.9),
    "head_bias": _f(1, 2),
    "variance": _f(1, 2, 3, 4),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int64),
    "nothing": np.float32(0),
    "space": np.array([2, 3], dtype=np.int64),
}
_MODELS: dict[str, tuple[str, Arrays]] = {
    "text": (_TEXT, _TEXT_WEIGHTS),
    "image": (_IMAGE, _IMAGE_WEIGHTS),
    "tied": (_IMAGE, {**_IMAGE_WEIGHTS, "head": np.repeat(_weights(2, head=(8, 1))["head"], 2, axis=1)}),
    "counter": (_COUNTER, {"one": np.array([1], dtype=np.int64)}),
}


def _model(name: str) -> onnx.ModelProto:
    text, weights = _MODELS[name]
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return model


def _texts(rows: int = 6, size: int = 7, *, padding: str = "right") -> Arrays:
    random = np.random.default_rng(3)
    lengths = 2 + np.arange(rows) % (size - 1)
    mask = (np.arange(size) < lengths[:, None]).astype(np.int64)
    return {
        "ids": random.integers(0, 40, (rows, size)),
        "mask": mask if padding == "right" else mask[:, ::-1].copy(),
    }


def _pictures(rows: int = 6, scale: float = 1.0) -> Arrays:
    values = np.random.default_rng(4).standard_normal((rows, 3, 6, 6)) * scale
    return {"picture": values.astype(np.float32)}


def _with_nan() -> Arrays:
    found = _pictures()
    found["picture"][1, 0, 2, 2] = np.nan
    return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault, a model that it applies to, and inputs that show it."""

    model: str
    inputs: Mapping[str, NDArray[Any]]
    context: Mapping[str, Any] = field(default_factory=dict)


_ON_TEXT = Case(model="text", inputs=_texts())
_ON_LEFT = Case(model="text", inputs=_texts(padding="left"))
_ON_IMAGE = Case(model="image", inputs=_pictures())
_ALL_IDS = Case(model="text", inputs={"ids": np.arange(50).reshape(5, 10), "mask": np.ones((5, 10), dtype=np.int64)})
_COUNTED = {"n": np.array([1, 40_000, 2**24 + 1])}

CASES: dict[str, Case] = {
    **dict.fromkeys(
        (
            "weights-bf16",
            "weights-fp16",
            "weights-tf32",
            "weights-int8",
            "weight-row-zeroed",
            "weight-transposed",
            "bias-dropped",
            "constant-off",
            "offset-added",
            "output-scaled",
            "output-squeezed",
            "output-dtype",
            "rows-reversed",
            "last-row-as-first",
            "rows-as-first",
            "input-ignored",
            "inputs-swapped",
            "mask-dropped",
            "mask-of-first-row",
            "gelu-tanh",
            "softmax-axis",
            "softmax-temperature",
            "epsilon-lost",
            "layer-skipped",
            "branch-lost",
            "tensors-renamed",
            "inputs-reordered",
            "nodes-reordered",
            "identities-added",
            "weights-as-constants",
            "newer-opset",
            "operators-fused",
            "layernorm-unfused",
            "gemm-unfused",
            "sums-reassociated",
        ),
        _ON_TEXT,
    ),
    **dict.fromkeys(
        (
            "outputs-swapped",
            "output-off-by-one",
            "output-not-activated",
            "channels-reversed",
            "negatives-lost",
            "relu-lost",
            "relu-leaky",
            "sigmoid-hard",
            "concat-swapped",
            "pad-value",
            "padding-side",
            "floor-truncates",
            "outputs-reordered",
            "batchnorm-unfused",
            "constants-folded",
        ),
        _ON_IMAGE,
    ),
    "embedding-row-lost": _ALL_IDS,
    "mask-as-length": _ON_LEFT,
    "rows-beyond-seen": Case(model="text", inputs=_texts(rows=9)),
    "row-noise": Case(model="text", inputs=_texts(rows=600)),
    "size-baked": Case(model="text", inputs=_texts(size=9)),
    "ids-float32": Case(model="counter", inputs=_COUNTED),
    "ids-int16": Case(model="counter", inputs=_COUNTED),
    "output-nan-cleared": Case(model="image", inputs=_with_nan()),
    "input-nan-cleared": Case(model="image", inputs=_with_nan()),
    "float16-range": Case(model="image", inputs=_pictures(scale=1e5)),
    "ties-last": Case(model="tied", inputs=_pictures()),
    "column-zeroed": Case(
        model="image", inputs=_pictures(), context={"columns": {"left": (0.0, 0.5), "right": (1, 2)}}
    ),
}


def _context(name: str, **fields: Any) -> MutationContext:  # noqa: ANN401 - any field
    return MutationContext(
        **{
            "random": np.random.default_rng([0, *name.encode()]),
            "masks": ("mask",),
            "ids": {"ids": 49},
            "seen_ids": {"ids": frozenset(range(40))},
            "sizes": {name: array.shape for name, array in {**_texts(), **_pictures()}.items()},
            "largest_batch": 8,
            **fields,
        }
    )


def _answers(model: onnx.ModelProto | Path, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, sess_options=options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _difference(actual: Arrays, expected: Arrays) -> float:
    """Return the largest difference of any output, infinity where names, shapes, dtypes or NaN differ."""
    assert set(actual) == set(expected)
    largest = 0.0
    for name, array in actual.items():
        wanted = expected[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            return float("inf")
        if array.dtype.kind == "f" and not np.array_equal(np.isnan(array), np.isnan(wanted)):
            return float("inf")
        wide, other = np.nan_to_num(array.astype(np.float64)), np.nan_to_num(wanted.astype(np.float64))
        largest = max(largest, float(np.abs(wide - other).max(initial=0.0)))
    return largest


def _planted(name: str, case: Case, folder: Path) -> tuple[Mutated | NotApplicable, Path]:
    source, target = folder / "source.onnx", folder / "planted.onnx"
    onnx.save(_model(case.model), str(source))
    return mutate_file(source, name, _context(name, **case.context), target), target


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_changes_an_answer_and_an_innocent_rewrite_none(tmp_path: Path, name: str) -> None:
    case = CASES[name]

    found, target = _planted(name, case, tmp_path)

    assert isinstance(found, Mutated), found
    assert found.what
    difference = _difference(_answers(target, case.inputs), _answers(_model(case.model), case.inputs))
    if MUTATIONS[name].is_equivalent:
        assert difference < 2e-5
    else:
        # weights-tf32 is the smallest change: ten bits of mantissa are left.
        assert difference > 1e-4


@pytest.mark.parametrize("name", [name for name, kind in MUTATIONS.items() if kind.is_equivalent])
def test_an_innocent_rewrite_really_changes_the_file(tmp_path: Path, name: str) -> None:
    _, target = _planted(name, CASES[name], tmp_path)

    assert onnx.load(str(target)).graph != _model(CASES[name].model).graph


# The order in which ONNX Runtime writes weights is its own.
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in {"constants-folded", "operators-fused"}])
def test_the_same_seed_plants_the_same_fault(tmp_path: Path, name: str) -> None:
    first, target = _planted(name, CASES[name], tmp_path)
    content = target.read_bytes()
    again, target = _planted(name, CASES[name], tmp_path)

    assert again == first
    assert target.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        # Each on inputs that do not reach it: what it is said to be reached by is what it takes.
        ("embedding-row-lost", _texts()),
        ("mask-as-length", _texts()),
        ("rows-beyond-seen", _texts(rows=8)),
        ("size-baked", _texts()),
        ("last-row-as-first", _texts(rows=1)),
        ("rows-as-first", _texts(rows=1)),
        ("input-ignored", _texts(rows=1)),
        ("mask-of-first-row", _texts(rows=1)),
        ("ids-float32", {"n": np.array([1, 2**24])}),
        ("ids-int16", {"n": np.array([1, 2**15 - 1])}),
        ("output-nan-cleared", _pictures()),
        ("input-nan-cleared", _pictures()),
        ("float16-range", _pictures()),
        ("negatives-lost", {"picture": np.abs(_pictures()["picture"])}),
    ],
)
def test_what_does_not_reach_a_fault_does_not_show_it(tmp_path: Path, name: str, inputs: Arrays) -> None:
    found, target = _planted(name, CASES[name], tmp_path)

    assert isinstance(found, Mutated)
    assert found.reached_by
    assert _difference(_answers(target, inputs), _answers(_model(CASES[name].model), inputs)) < 1e-5


def test_every_kind_has_a_function_of_its_own_and_a_case() -> None:
    functions = [getattr(importlib.import_module(kind.module), kind.function) for kind in MUTATIONS.values()]

    assert len(set(functions)) == len(MUTATIONS)
    assert set(CASES) == set(MUTATIONS)
    assert all(function.__doc__ for function in functions)


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_does_not_apply_to_a_model_says_why(tmp_path: Path, name: str) -> None:
    """A model that copies texts has no weights, no floats and no size that is open."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
    copies (string[2] words) => (string[2] same) { same = Identity (words) }"""
    source = tmp_path / "source.onnx"
    onnx.save(onnx.parser.parse_model(text), str(source))

    found = mutate_file(source, name, _context(name), tmp_path / "planted.onnx")

    if isinstance(found, Mutated):
        assert MUTATIONS[name].is_equivalent
    else:
        assert found.reason


@pytest.mark.parametrize(
    ("name", "model", "fields", "reason"),
    [
        ("ids-float32", "text", {}, "every id is exact in float32: the largest is 49"),
        ("ids-int16", "text", {}, "every id is exact in int16: the largest is 49"),
        ("rows-beyond-seen", "text", {"most_rows": 8}, "the samples' largest batch, 8 rows, is the largest allowed"),
        ("mask-dropped", "text", {"masks": ()}, "no input is a mask"),
        ("outputs-reordered", "text", {}, "the model has only one output"),
        ("embedding-row-lost", "image", {}, "no table is looked up by ids"),
        ("gelu-tanh", "image", {}, "no Erf and no Gelu"),
        ("relu-lost", "text", {}, "no Relu"),
        ("constants-folded", "text", {}, "nothing in it is to be folded"),
        ("operators-fused", "counter", {}, "nothing in it is to be fused"),
    ],
)
def test_why_a_fault_does_not_apply(name: str, model: str, fields: dict[str, Any], reason: str) -> None:
    found = mutate(_model(model), name, _context(name, **fields))

    assert found == NotApplicable(reason)


def _of_one_gelu(written: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 20]>
        bends (float[batch, 4] x) => (float[batch, 4] y) {{ y = Gelu {written} (x) }}"""
    )


@pytest.mark.parametrize("written", ["", '<approximate = "none">'])
def test_a_gelu_of_one_node_is_found_however_its_kind_is_written(written: str) -> None:
    arrays = {"x": np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)}
    (before,) = ReferenceEvaluator(_of_one_gelu(written)).run(None, arrays)

    found = mutate(_of_one_gelu(written), "gelu-tanh", _context("gelu-tanh"))

    assert not isinstance(found, NotApplicable)
    planted, mutated = found
    assert mutated == Mutated(what="1 GELU with tanh in place of erf")
    (after,) = ReferenceEvaluator(planted).run(None, arrays)
    assert not np.array_equal(after, before)
    np.testing.assert_allclose(after, before, atol=1e-3)


def test_a_gelu_that_has_tanh_already_is_no_place_for_it() -> None:
    found = mutate(_of_one_gelu('<approximate = "tanh">'), "gelu-tanh", _context("gelu-tanh"))

    assert found == NotApplicable("no Erf, and every Gelu has tanh already")


def test_a_fault_says_what_was_changed(tmp_path: Path) -> None:
    found, target = _planted("embedding-row-lost", _ALL_IDS, tmp_path)

    assert isinstance(found, Mutated)
    table = onnx.numpy_helper.to_array(
        next(item for item in onnx.load(str(target)).graph.initializer if item.name == "table")
    )
    (row,) = np.flatnonzero(~table.any(axis=1))
    assert row >= 40
    assert found.what == f"row {row} of 50 of table table zeroed, which no sample uses"
    assert found.reached_by == f"a row with id {row} (ids)"


@pytest.mark.parametrize("name", ["weights-bf16", "weights-fp16", "weights-tf32"])
def test_a_constant_beyond_the_range_is_no_weight_that_is_rounded(name: str) -> None:
    """What a mask takes for minus infinity: rounded, it would be the whole fault, and its change the largest."""
    lowest = np.finfo(np.float32).min
    model = _model("text")
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants["lowest"].CopyFrom(onnx.numpy_helper.from_array(np.array(lowest), "lowest"))

    planted = mutate(model, name, _context(name))

    assert not isinstance(planted, NotApplicable)
    changed, found = planted
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in changed.graph.initializer}
    assert held["lowest"] == lowest
    assert not np.array_equal(held["square"], _TEXT_WEIGHTS["square"])
    assert 0 < float(found.what.rpartition(" ")[2]) < 0.05


def test_one_of_a_kind_is_said_in_the_singular() -> None:
    planted = mutate(_model("image"), "ties-last", _context("ties-last"))

    assert not isinstance(planted, NotApplicable)
    assert planted[1].what == "1 ArgMax takes the other end of ties"


@pytest.mark.parametrize("name", ["rows-reversed", "output-scaled"])
def test_what_is_made_of_an_output_inside_the_model_stays(name: str) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    chain (float[batch, 4] x) => (float[batch, 4] scores, int64[batch, 1] top)
    { scores = Relu (x)
      doubled = Add (scores, scores)
      top = ArgMax <axis = 1> (doubled) }"""
    inputs = {"x": _weights(5, x=(6, 4))["x"]}
    planted = mutate(onnx.parser.parse_model(text), name, _context(name))

    assert not isinstance(planted, NotApplicable)
    actual, expected = _answers(planted[0], inputs), _answers(onnx.parser.parse_model(text), inputs)
    assert not np.array_equal(actual["scores"], expected["scores"])
    top = expected["top"][::-1] if name == "rows-reversed" else expected["top"]
    np.testing.assert_array_equal(actual["top"], top)


def test_a_shared_weight_is_changed_for_one_reader_alone() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    shared (float[batch, 4] x) => (float[batch, 4] y, float[batch, 4] z)
    { y = MatMul (x, weight)
      z = MatMul (x, weight) }"""
    weight = _weights(weight=(4, 4))["weight"]
    inputs = {"x": _weights(5, x=(3, 4))["x"]}

    def model() -> onnx.ModelProto:
        parsed = onnx.parser.parse_model(text)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
        return parsed

    planted = mutate(model(), "weight-transposed", _context("weight-transposed"))

    assert not isinstance(planted, NotApplicable)
    actual, expected = _answers(planted[0], inputs), _answers(model(), inputs)
    same = [name for name in ("y", "z") if np.allclose(actual[name], expected[name])]
    assert len(same) == 1


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="no fault is named 'gremlin'") as raised:
        mutate(_model("counter"), "gremlin", _context("gremlin"))
    assert "faults and equivalent rewrites are: weights-bf16" in raised.value.hint


def test_a_rewrite_of_what_is_no_valid_model_is_not_applicable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(edit: Any, context: MutationContext) -> Mutated:  # noqa: ANN401 - a graph edit
        del context
        edit.graph.node[0].op_type = "NoSuchOperator"
        return Mutated(what="broken")

    monkeypatch.setattr("paritygate.pipelines.selftest.mutations.outputs.offset_added", broken)

    found, _ = _planted("offset-added", _ON_TEXT, tmp_path)

    assert isinstance(found, NotApplicable)
    assert found.reason.startswith("the result is not a valid model: ")


def test_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    source, target = tmp_path / "source.onnx", tmp_path / "planted.onnx"
    onnx.save_model(_model("text"), str(source), save_as_external_data=True, location="weights", size_threshold=0)

    found = mutate_file(source, "output-scaled", _context("output-scaled"), target)

    assert isinstance(found, Mutated)
    scaled, plain = _answers(target, _texts())["score"], _answers(_model("text"), _texts())["score"]
    np.testing.assert_allclose(scaled, plain * np.float32(1.01), rtol=1e-5)
