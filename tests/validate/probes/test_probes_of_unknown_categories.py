"""Values that no table holds: where the original has a default for them, another default is a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx
    from conftest import ProbeDesk

Array = NDArray[Any]

_KEYS = (12, 13, 14)
_TEXTS = ("Bern", "Oslo", "Quito")
_ENCODER = "ai.onnx.ml.LabelEncoder<keys_int64s=[12, 13, 14], values_int64s=[1, 2, 3], default_int64={default}>(x)"
_OF_TEXTS = _ENCODER.replace("keys_int64s=[12, 13, 14]", 'keys_strings=["Bern", "Oslo", "Quito"]')
_NONE_BELOW_0 = "is = Less({x}, zero) k = Where(is, far, {x}) h = OneHot<axis=-1>(k, six, onoff) y = MatMul(h, three)"
_ROWS = "y = Gather(table, row)"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A category in three ways: one conversion is wrong for unknown ones, the other is correct.

    Attributes:
        known: The categories that samples hold.
        original: Nodes from `x` to `y`.
        wrong: The same with another answer to unknown categories.
        twin: The same in another way.
        found: The kinds of the findings.
        input: Its type.
    """

    known: tuple[Any, ...]
    original: str
    wrong: str
    twin: str
    found: frozenset[str] = frozenset({"ids"})
    input: str = "int64[N] x"

    def model(self, nodes: str) -> onnx.ModelProto:
        from onnx import numpy_helper, parser

        model = parser.parse_model(
            f'<ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 3]> g ({self.input}) => (float[N,M] y) {{ {nodes} }}'
        )
        table = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
        constants: dict[str, Any] = {
            "table": table, "six": np.int64(6), "zero": np.int64(0), "far": np.int64(1000), "one": np.array([1]),
            "onoff": np.array([0, 1], dtype=np.float32), "classes": np.arange(6)[None], "less": np.int64(1),
            "keys": np.array([_KEYS]), "three": table[:6],
        }  # fmt: skip
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(item), name) for name, item in constants.items()
        )
        return model

    def batches(self) -> list[dict[str, Array]]:
        random = np.random.default_rng(1)
        return [{"x": np.asarray(random.choice(np.asarray(self.known), 16))} for _ in range(6)]


_CASES = {
    "one-hot, -1 as the last": Case(
        known=tuple(range(6)),
        original=_NONE_BELOW_0.format(x="x"),
        wrong="h = OneHot<axis=-1>(x, six, onoff) y = MatMul(h, three)",
        twin="c = Unsqueeze(x, one) is = Equal(c, classes) h = Cast<to=1>(is) y = MatMul(h, three)",
    ),
    "one-hot of ids from 1 on, 0 as the last": Case(
        known=tuple(range(1, 7)),
        original="n = Sub(x, less) " + _NONE_BELOW_0.format(x="n"),
        wrong="n = Sub(x, less) h = OneHot<axis=-1>(n, six, onoff) y = MatMul(h, three)",
        twin="n = Sub(x, less) c = Unsqueeze(n, one) is = Equal(c, classes) h = Cast<to=1>(is) y = MatMul(h, three)",
    ),
    "one-hot of floats": Case(
        known=tuple(np.arange(6, dtype=np.float32)),
        original="n = Cast<to=7>(x) " + _NONE_BELOW_0.format(x="n"),
        wrong="k = Cast<to=7>(x) h = OneHot<axis=-1>(k, six, onoff) y = MatMul(h, three)",
        twin="i = Cast<to=7>(x) c = Unsqueeze(i, one) is = Equal(c, classes) h = Cast<to=1>(is) y = MatMul(h, three)",
        found=frozenset({"values"}),
        input="float[N] x",
    ),
    "numbers looked up, another default": Case(
        known=_KEYS,
        original=f"row = {_ENCODER.format(default=0)} {_ROWS}",
        wrong=f"row = {_ENCODER.format(default=3)} {_ROWS}",
        twin=f"k = Identity(x) row = {_ENCODER.format(default=0).replace('(x)', '(k)')} {_ROWS}",
        found=frozenset({"values"}),
    ),
    "texts looked up, another default": Case(
        known=_TEXTS,
        original=f"row = {_OF_TEXTS.format(default=0)} {_ROWS}",
        wrong=f"row = {_OF_TEXTS.format(default=3)} {_ROWS}",
        twin=f"k = Identity(x) row = {_OF_TEXTS.format(default=0).replace('(x)', '(k)')} {_ROWS}",
        input="string[N] x",
    ),
    "an encoder that leaves unknown ones out": Case(
        known=_KEYS,
        original="y = ai.onnx.ml.OneHotEncoder<cats_int64s=[12, 13, 14], zeros=1>(x)",
        wrong="""row = ai.onnx.ml.LabelEncoder<keys_int64s=[12, 13, 14], values_int64s=[0, 1, 2], default_int64=0>(x)
          y = ai.onnx.ml.OneHotEncoder<cats_int64s=[0, 1, 2], zeros=1>(row)""",
        twin="c = Unsqueeze(x, one) is = Equal(c, keys) y = Cast<to=1>(is)",
        found=frozenset({"values"}),
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_another_default_for_unknown_categories_is_a_finding_and_the_same_is_none(name: str, desk: ProbeDesk) -> None:
    case = _CASES[name]
    asked = desk.ask(case.model(case.original), case.batches(), max_rows=16, names=["ids", "values"])

    wrong, twin = (desk.answer(asked, case.model(nodes), edge="warn") for nodes in (case.wrong, case.twin))

    assert (wrong.gate, wrong.failed) == ((), {})
    assert case.found <= set().union(*wrong.found.values())
    assert (twin.gate, twin.failed, twin.found) == ((), {}, {})


def test_unknown_texts_that_samples_hold_have_to_be_answered_alike(desk: ProbeDesk) -> None:
    case = _CASES["texts looked up, another default"]
    # Of those that samples hold, each has an answer of its own: only what no sample holds shows the default.
    model = case.model(case.original)
    batches = [*case.batches(), {"x": np.array(["Lima"] * 16)}]
    asked = desk.ask(model, batches, names=["ids"], max_rows=16)
    known = case.wrong.replace('"Quito"]', '"Quito", "Lima"]').replace("[1, 2, 3]", "[1, 2, 3, 0]")

    answered = desk.answer(asked, case.model(known), edge="warn")

    assert (answered.gate, set(answered.failed)) == ((), {"ids"})


def test_what_the_original_refuses_is_not_fed(desk: ProbeDesk) -> None:
    case = _CASES["an encoder that leaves unknown ones out"]
    strict = case.original.replace("zeros=1", "zeros=0")
    asked = desk.ask(case.model(strict), case.batches(), names=["ids"], max_rows=16)

    assert {f"x: a value that is not a key ({value})" for value in (-1, 15)} <= set(asked.dropped)
    assert desk.answer(asked, case.model(case.wrong), edge="fail").failed == {}


def test_an_empty_text_is_named_in_quotes(desk: ProbeDesk) -> None:
    case = _CASES["texts looked up, another default"]
    asked = desk.ask(case.model(case.original), case.batches(), max_rows=16, names=["ids"])

    (outcome,) = desk.answer(asked, case.model(case.wrong), edge="warn").outcomes

    assert {finding.about for finding in outcome.findings} >= {"x: a value that is not a key ('')"}
