"""What is wrong with a spec is said in its own words: the key, what was seen, what is allowed, and the right form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from paritygate.errors import UsageError
from paritygate.pipelines.spec.errors import EXAMPLE, example_of
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import Spec

_SPEC: dict[str, Any] = {
    "model": {"name": "tiny", "source": "net:model"},
    "samples": {"source": "net:samples"},
    "targets": ["onnx-fp32"],
}


def _refusal(**parts: object) -> UsageError:
    text = yaml.safe_dump({key: value for key, value in {**_SPEC, **parts}.items() if value != "absent"})
    with pytest.raises(UsageError) as caught:
        parse_spec(text, folder=Path("/spec"), origin="spec.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("parts", "message", "hint"),
    [
        # What is missing.
        ({"targets": "absent"}, "targets: is missing", "write for example targets: [onnx-fp32, onnx-fp16]"),
        ({"model": {"name": "tiny"}}, "model.source: is missing", "write for example source: model.onnx"),
        (
            {"matches": {"faces": {"boxes": "b"}}},
            "matches.faces.scores: is missing",
            "write for example scores: scores",
        ),
        # Of a model.
        (
            {"model": {"name": "tiny", "source": "net:model", "dims": {"batch": {"opt": 8, "max": 4}}}},
            "model.dims.batch: 0 < min <= opt <= max is needed (seen: min=1, opt=8, max=4)",
            "write for example batch: {min: 1, opt: 8, max: 64}",
        ),
        (
            {"model": {"name": "tiny", "source": "net:model", "inputs": {"ids": {"dtype": "int65", "shape": [1]}}}},
            "model.inputs.ids.dtype: a dtype needs its NumPy name, one of int16, int64, uint16, ",
            "write for example dtype: float32",
        ),
        # A wrong type.
        ({"seed": "high"}, "seed: a whole number is needed (seen: 'high')", "write for example seed: 0"),
        ({"seed": 1.5}, "seed: a whole number is needed (seen: 1.5)", "write for example seed: 0"),
        ({"seed": None}, "seed: a whole number is needed (seen: nothing)", "write for example seed: 0"),
        ({"opset": [18]}, "opset: a whole number is needed (seen: a list)", "write for example opset: 18"),
        (
            {"model": {"name": 3, "source": "m.onnx"}},
            "model.name: text is needed (seen: 3)",
            "write for example name: scores",
        ),
        (
            {"tensorrt": {"version_compatible": "maybe"}},
            "tensorrt.version_compatible: true or false is needed (seen: 'maybe')",
            "write for example version_compatible: true",
        ),
        (
            {"benchmark": {"seconds": float("inf")}},
            "benchmark.seconds: a finite number is needed (seen: .inf)",
            "write for example seconds: 0.25",
        ),
        (
            {"decisions": {"logits": {"threshold": [3]}}},
            "decisions.logits.threshold: a number or text is needed (seen: a list)",
            "write for example threshold: 0.5",
        ),
        # A list in place of a mapping, and the other way round.
        (
            {"decisions": ["logits"]},
            "decisions: a mapping is needed (seen: a list)",
            "write for example decisions: {logits: {argmax: true}}",
        ),
        (
            {"decisions": {"logits": ["argmax"]}},
            "decisions.logits: a mapping is needed (seen: a list)",
            "write for example logits: {argmax: true}",
        ),
        ({"samples": "inputs.npz"}, "samples: a mapping is needed", "write for example samples: {source: inputs.npz}"),
        ({"targets": "onnx-fp32"}, "targets: a list is needed (seen: 'onnx-fp32')", "targets: [onnx-fp32, onnx-fp16]"),
        ({"targets": {"a": 1}}, "targets: a list is needed (seen: a mapping)", "targets: [onnx-fp32, onnx-fp16]"),
        ({"targets": [3]}, "targets.0: text is needed (seen: 3)", "targets: [onnx-fp32, onnx-fp16]"),
        (
            {"targets": [{"name": "onnx-fp32", "static": {"batch": 0}}]},
            "targets.0.static.batch: a number of at least 1 is needed (seen: 0)",
            "write for example batch: 1",
        ),
        # A wrong literal.
        (
            {"non_finite": "ignore"},
            "non_finite: 'refuse' or 'match' is needed (seen: 'ignore')",
            "write for example non_finite: match",
        ),
        (
            {"roles": {"x": {"role": "picture"}}},
            "roles.x.role: 'id', 'mask', 'length', 'image', 'number' or 'text' is needed (seen: 'picture')",
            "write for example role: number",
        ),
        (
            {"promote": {"accept": {"onnx-fp32": "built"}}},
            "promote.accept.onnx-fp32: 'emulated' is needed (seen: 'built')",
            "write for example onnx-fp32: emulated",
        ),
        (
            {"promote": {"prefer": 3}},
            "promote.prefer: 'fastest' or 'smallest' or a list is needed (seen: 3)",
            "fastest",
        ),
        # Out of range, too few, not of the form.
        ({"min_rows": 0}, "min_rows: a number of at least 1 is needed (seen: 0)", "write for example min_rows: 100"),
        (
            {"calibration": {"share": 1}},
            "calibration.share: a number below 1 is needed (seen: 1)",
            "write for example share: 0.2",
        ),
        (
            {"tolerance": {"max_abs_diff": 0.02}},
            "tolerance.max_abs_diff: a mapping is needed (seen: 0.02)",
            "write for example tolerance: {onnx-fp16: {max_abs_diff: 0.01}}",
        ),
        (
            {"benchmark": {"seconds": 0}},
            "benchmark.seconds: a number above 0 is needed (seen: 0)",
            "write for example seconds: 0.25",
        ),
        (
            {"tensorrt": {"optimization_level": 9}},
            "tensorrt.optimization_level: a number of at most 5 is needed (seen: 9)",
            "write for example optimization_level: 3",
        ),
        (
            {"targets": []},
            "targets: at least 1 of them is needed (seen: a list without entries)",
            "targets: [onnx-fp32",
        ),
        (
            {"model": {"name": "../x", "source": "m.onnx"}},
            "model.name: a name of letters, digits and . _ - that begins with a letter or digit is needed (",
            "write for example name: scores",
        ),
        (
            {"tensorrt_rtx": {"compute_capabilities": ["sm89"]}},
            "tensorrt_rtx.compute_capabilities.0: text such as '8.9' is needed (seen: 'sm89')",
            "write for example compute_capabilities: ['8.9']",
        ),
        (
            {"outputs": {"debug": {"ignore": " "}}},
            "outputs.debug.ignore: text that is not empty is needed (seen: ' ')",
            "write for example ignore: random by design",
        ),
        (
            {"decisions": {"logits": {"argmax": True, "top_k": 5}}},
            "decisions.logits: exactly one of threshold, argmax: true, top_k, multilabel is needed (seen",
            "write for example logits: {argmax: true}",
        ),
        # A key that is not known.
        (
            {"sample": {}},
            "sample: unknown key (allowed: model, samples, ",
            "did you mean 'samples' instead of 'sample'?",
        ),
        (
            {"zzz": {}},
            "zzz: unknown key (allowed: model, samples, ",
            "convert-and-validate schema",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_spec(parts: dict[str, object], message: str, hint: str) -> None:
    error = _refusal(**parts)

    assert str(error).startswith(f"spec spec.yaml is wrong: {message}")
    assert hint in error.hint
    assert error.exit_code == 2


def test_what_a_rule_has_seen_itself_is_said_once() -> None:
    assert str(_refusal(decisions={"logits": {"argmax": True, "top_k": 5}})) == (
        "spec spec.yaml is wrong: decisions.logits: exactly one of threshold, argmax: true, top_k, multilabel is "
        "needed (seen: argmax, top_k)"
    )


def test_several_problems_are_said_at_once() -> None:
    error = _refusal(seed="a", min_rows=0, promote={"alais": "prod"})

    assert str(error) == (
        "spec spec.yaml is wrong: min_rows: a number of at least 1 is needed (seen: 0); seed: a whole number is needed "
        "(seen: 'a'); promote.alais: unknown key (allowed: to, alias, prefer, limits, against, for, accept, "
        "fallback, after)"
    )
    assert error.hint == "did you mean 'alias' instead of 'alais'?"


def _keys(model: type[BaseModel], place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the place and type of every key of a spec; what stands for a user's own name is `any`."""
    for name, field in model.model_fields.items():
        here = (*place, field.alias or name)
        yield here, field
        inner = [part for part in _parts(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        is_mapping, is_list = "dict[" in str(field.annotation), "list[" in str(field.annotation)
        for part in inner:
            yield from _keys(
                part, (*here, "any") if is_mapping else (*here, 0) if is_list and "gold" not in here else here
            )


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


_KEYS = dict(_keys(Spec))


@pytest.mark.parametrize("place", _KEYS, ids=lambda place: ".".join(map(str, place)))
def test_every_key_has_an_example_that_is_right(place: tuple[str | int, ...]) -> None:
    field = _KEYS[place]
    example = example_of(place)

    assert example is not None
    TypeAdapter(field.annotation).validate_python(example)


def test_the_examples_are_those_of_a_spec() -> None:
    top = {key: example_of([key]) for key in EXAMPLE}

    assert set(top) == set(Spec.model_fields)
    Spec.model_validate(top)
