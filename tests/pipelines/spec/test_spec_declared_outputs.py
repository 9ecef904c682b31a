"""What a spec asks of declared outputs is held against their names, ranks and dtypes before anything is exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paritygate.errors import UsageError
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.output_limits import check_limits_of_profiles
from paritygate.validate.measure.profile import profile_outputs

_SPEC = """
model:
  name: tiny
  source: net:model
  inputs: {x: {dtype: float32, shape: [batch, 4]}}
  outputs:
    probs: {dtype: float32, shape: [batch, 5]}
    label: {dtype: int64, shape: [batch]}
    flag: {dtype: bool, shape: [batch]}
    boxes: {dtype: int32, shape: [batch, 4]}
    price: {dtype: float32, shape: [batch]}
    tokens: {dtype: float16, shape: [batch, 7, 5]}
  rename: {logits: probs}
  dims: {batch: {min: 1, opt: 8, max: 64}}
samples: {source: net:samples}
targets: [onnx-fp32]
"""
_UNDECLARED = _SPEC[: _SPEC.index("  inputs:")] + _SPEC[_SPEC.index("samples:") :]


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (
            "decisions: {prob: {argmax: true}}",
            "decisions names 'prob', which is not an output",
            "did you mean 'probs'?",
        ),
        ("decisions: {logits: {argmax: true}}", "decisions names 'logits', which is not an output", "as 'probs'"),
        (
            "decisions: {probs: {argmax: true, axis: 3}}",
            "decisions.probs: .*axis 3 is not a class axis",
            "use axis 1: ",
        ),
        (
            "decisions: {probs: {argmax: true, axis: 0}}",
            "decisions.probs: .*axis 0 is not a class axis",
            "use axis 1: ",
        ),
        (
            "decisions: {probs: {argmax: true, axis: -2}}",
            "decisions.probs: .*axis -2 is not a class axis",
            "use axis 1: ",
        ),
        ("decisions: {tokens: {argmax: true}}", "decisions.tokens: .* rank 3 without the axis", "axis: N"),
        ("decisions: {price: {argmax: true}}", "decisions.price: .*needs an axis to choose along", "threshold"),
        ("decisions: {label: {threshold: 1}}", "decisions.label is on an output of dtype int64", "argmax_of: {label:"),
        ("argmax_of: {labels: probs}", "argmax_of names 'labels', which is not an output", "did you mean 'label'?"),
        ("argmax_of: {label: logits}", "argmax_of names 'logits', which is not an output", "as 'probs'"),
        ("argmax_of: {probs: label}", "'probs' is float32 and 'label' int64", "argmax_of: {LABEL: SCORES}"),
        (
            "argmax_of: {label: tokens}",
            "'label' has rank 1, but 'tokens' has rank 3",
            "without the class axis",
        ),
        ("gold: {metric: pearson, output: pric}", "gold.output names 'pric', which is not an output", "'price'?"),
        ("matches: {d: {boxes: tokens, scores: sc}}", "matches.d names 'sc', which is not an output", "one of these"),
        ("roles: {y: {role: id}}", "roles names 'y', which is not an input", "name one of these"),
        ("decisions: {probs: {top_k: 5}}", "decision probs:top_k=5: the output has 5 classes", "a k below 5"),
        ("axes: {prices: 1}", "axes names 'prices', which is not an output", "did you mean 'price'?"),
        ("axes: {probs: 2}", "axes.probs: axis 2 is not a channel axis of an output of rank 2", "use axis 1: "),
        ("axes: {tokens: 0}", "axes.tokens: axis 0 is not a channel axis of an output of rank 3", "from 1 to 2"),
        ("axes: {price: 1}", "axes.price: axis 1 is not a channel axis of an output of rank 1", "leave it out"),
    ],
)
def test_what_declared_outputs_cannot_be_asked_is_refused_when_the_spec_is_read(
    more: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_spec(_SPEC + more, folder=Path("/spec"), origin="spec.yaml")
    assert caught.value.exit_code == 2
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "more",
    [
        "decisions: {probs: {argmax: true, axis: -1}, tokens: {top_k: 2, axis: -2}, price: {threshold: 1}}",
        "argmax_of: {label: probs}\ndecisions: {probs: {argmax: true, axis: 1}}",
        "axes: {tokens: -1, probs: 1}",
    ],
)
def test_what_fits_the_declared_outputs_is_taken(more: str) -> None:
    assert parse_spec(_SPEC + more, folder=Path("/spec"), origin="spec.yaml").signature is not None


_OPTIONAL = "required: []\ntolerance: {{onnx-fp32: {{outputs: {{{}}}}}}}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (_OPTIONAL.format("probs: {max_abs_diff: [1, 1, 1]}"), "outputs.probs.max_abs_diff has 3 numbers.* 5 channels"),
        (_OPTIONAL.format("prob: {max_abs_diff: 1}"), "outputs.prob.max_abs_diff is on 'prob'"),
        (_OPTIONAL.format("flag: {max_abs_diff: 1}"), "outputs.flag.max_abs_diff is on 'flag'"),
        (
            "argmax_of: {label: probs}\n" + _OPTIONAL.format("label: {mean_abs_diff: 1}"),
            "outputs.label.mean_abs_diff is on 'label'",
        ),
        (
            _OPTIONAL.format("boxes: {max_abs_diff: [1, 1, 1, 1]}"),
            "outputs.boxes.max_abs_diff has 4 numbers.* 1 channel",
        ),
        (_OPTIONAL.format("price: {max_abs_diff: [1, 1]}"), "outputs.price.max_abs_diff has 2 numbers.* 1 channel"),
        (_OPTIONAL.format("tokens: {max_abs_diff: [1, 1]}"), "outputs.tokens.max_abs_diff has 2 numbers.* 5 channels"),
        (
            "axes: {tokens: 1}\n" + _OPTIONAL.format("tokens: {max_abs_diff: [1, 1, 1, 1, 1]}"),
            "outputs.tokens.max_abs_diff has 5 numbers.* 7 channels",
        ),
        (
            "outputs: {probs: {ignore: drawn anew}}\n" + _OPTIONAL.format("probs: {max_abs_diff: 1}"),
            "outputs.probs.max_abs_diff is on 'probs'",
        ),
        ("outputs: {probs: {columns: [a, b]}}", "outputs.probs.columns has 2 names.* 5 channels"),
        ("outputs: {label: {min_cosine_similarity: 0.9}}", "outputs.label.min_cosine_similarity is on 'label'"),
        ("outputs: {label: {min_sqnr: 40}}", "outputs.label.min_sqnr is on 'label'"),
    ],
)
def test_limits_that_declared_outputs_cannot_have_are_refused_when_the_spec_is_read(more: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_spec(_SPEC + more, folder=Path("/spec"), origin="spec.yaml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "more",
    [
        _OPTIONAL.format("probs: {max_abs_diff: [1, 1, null, 1, 1]}, tokens: {max_abs_diff: [1, 1, 1, 1, 1]}"),
        _OPTIONAL.format("probs: {max_abs_diff: {b: 1}}") + "\noutputs: {probs: {columns: [a, b, c, d, e]}}",
        _OPTIONAL.format("price: {max_abs_diff: [1], max_row_rel_diff: 1}"),
        _OPTIONAL.format("label: {mean_abs_diff: 1}, boxes: {max_abs_diff: 1}"),
        _OPTIONAL.format("boxes: {max_abs_diff: [1, 1, 2, null]}") + "\naxes: {boxes: 1}",
        _OPTIONAL.format("tokens: {max_abs_diff: [1, 1, 1, 1, 1, 1, 1]}") + "\naxes: {tokens: -2}",
    ],
)
def test_limits_that_fit_the_declared_outputs_are_taken(more: str) -> None:
    assert parse_spec(_SPEC + more, folder=Path("/spec"), origin="spec.yaml").signature is not None


def test_of_an_open_size_the_reference_says_how_many_columns_there_are() -> None:
    spec = _SPEC.replace("[batch, 5]", "[batch, classes]").replace("[batch, 7, 5]", "[batch, 7, classes]")
    spec = spec.replace("max: 64}}", "max: 64}, classes: {min: 1, max: 9}}")
    more = _OPTIONAL.format("probs: {max_abs_diff: [1, 1]}, tokens: {max_abs_diff: [1, 1]}")

    assert parse_spec(spec + more, folder=Path("/spec"), origin="spec.yaml").signature is not None


def test_where_no_outputs_are_declared_the_reference_says_what_there_is() -> None:
    more = "argmax_of: {labels: probs}\naxes: {prices: 7}\ndecisions: {x: {argmax: true, axis: 3}}"

    assert parse_spec(_UNDECLARED + more, folder=Path("/spec"), origin="spec.yaml").signature is None


def test_limits_for_another_axis_than_that_of_the_units_are_refused_with_the_key_that_names_it() -> None:
    more = _OPTIONAL.format("tokens: {max_abs_diff: [1, 1, 1, 1, 1]}")
    resolved = parse_spec(_SPEC + more, folder=Path("/spec"), origin="spec.yaml")
    tokens = np.random.default_rng(0).standard_normal((9, 7, 5)).astype(np.float32)
    profile = profile_outputs("tokens", [(tokens, 9)], axis=1, dtype="float32")

    with pytest.raises(UsageError, match=r"has 5 numbers.* 7 channels") as caught:
        check_limits_of_profiles(resolved, {"tokens": profile})

    assert "axes: {tokens: N}" in str(caught.value.hint)
