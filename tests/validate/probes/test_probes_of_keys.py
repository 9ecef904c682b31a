"""Entries of vocabularies: samples lack one, and a candidate in whose table it is wrong does not pass."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.validate.probes.graph.uses import uses_of_inputs
from paritygate.validate.probes.inputs.probe import ProbeBatch
from paritygate.validate.probes.inputs.thresholds import Keys
from paritygate.validate.probes.out_of_sample import edges_of

if TYPE_CHECKING:
    import onnx
    from conftest import ProbeDesk

Array = NDArray[Any]

_UNSEEN = 2


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of keys, the input that is looked up in it, and values of it that are not keys."""

    input: str
    keys: tuple[int | str, ...]
    others: tuple[int | str, ...]
    nodes: str = "key = Identity(x)"

    def model(self, *, wrong: int | None = None) -> onnx.ModelProto:
        """Return an embedding of the keys, of which one may take the row of the first."""
        from onnx import numpy_helper, parser

        rows = [number + 1 for number in range(len(self.keys))]
        if wrong is not None:
            rows[wrong] = rows[0]
        name = "keys_strings" if isinstance(self.keys[0], str) else "keys_int64s"
        model = parser.parse_model(
            f"""<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]> g ({self.input} x) => (float y) {{
            {self.nodes}
            row = ai.onnx.ml.LabelEncoder<{name}={json.dumps(list(self.keys))}, values_int64s={rows},
                                          default_int64=0>(key)
            y = Gather(embedding, row)
            }}"""
        )
        table = np.random.default_rng(0).standard_normal((len(self.keys) + 1, 4)).astype(np.float32)
        model.graph.initializer.extend(
            [numpy_helper.from_array(table, "embedding"), numpy_helper.from_array(np.array([1]), "second")]
        )
        return model

    def samples(self) -> list[dict[str, Array]]:
        """Return rows of all keys but one, and of what is not a key."""
        known = np.array([*(key for at, key in enumerate(self.keys) if at != _UNSEEN), *self.others])
        shape = (16, 3) if "3]" in self.input else (16,)
        return [{"x": np.random.default_rng(seed).choice(known, shape)} for seed in range(4)]


_TABLES = [
    pytest.param(Table(input="int64[N,3]", keys=(184, 7001, 20095, 75001), others=(5, 99_999)), id="numbers"),
    pytest.param(
        Table(input="string[N,3]", keys=("Bern", "Oslo", "a longer name than any other"), others=("x",)), id="texts"
    ),
    pytest.param(
        Table(
            input="string[N]",
            keys=("BERN", "OSLO", "QUITO"),
            others=("x",),
            nodes='key = StringNormalizer<case_change_action="UPPER", locale="C">(x)',
        ),
        id="texts in capitals",
    ),
    pytest.param(
        Table(
            input="string[N]",
            keys=("bern", "oslo", "quito"),
            others=("bern oslo", "oslo x bern"),
            nodes="key, count = StringSplit(x)",
        ),
        id="words of texts",
    ),
    pytest.param(
        Table(
            input="int64[N,3]",
            keys=(184, 7001, 20095),
            others=(5,),
            nodes="key = ai.onnx.ml.ArrayFeatureExtractor(x, second)",
        ),
        id="one column",
    ),
]


@pytest.mark.parametrize("table", _TABLES)
@pytest.mark.parametrize("wrong", [None, _UNSEEN])
def test_a_wrong_entry_that_no_sample_holds_is_found(desk: ProbeDesk, table: Table, wrong: int | None) -> None:
    asked = desk.ask(table.model(), table.samples(), names=["ids"])
    answered = desk.answer(asked, table.model(wrong=wrong))

    assert answered.gate == ()
    assert set(answered.failed) == (set() if wrong is None else {"ids"})


def test_keys_are_those_of_the_column_that_is_looked_up() -> None:
    table = Table(
        input="int64[N,3]", keys=(184, 7001), others=(), nodes="key = ai.onnx.ml.ArrayFeatureExtractor(x, second)"
    )

    assert uses_of_inputs(table.model())["x"].keys == (Keys(values=(184, 7001), columns=(1,)),)


def test_what_arithmetic_made_is_not_looked_up_as_it_is() -> None:
    table = Table(input="int64[N,3]", keys=(184, 7001), others=(), nodes="key = Add(x, second)")

    assert uses_of_inputs(table.model())["x"].keys == ()


def test_of_more_keys_than_can_be_asked_some_are_from_everywhere(desk: ProbeDesk) -> None:
    table = Table(input="int64[N,3]", keys=tuple(range(10_000, 30_000, 2)), others=(5,))
    asked = desk.ask(table.model(), [{"x": np.resize([5, 10_000, 10_002, 10_004], (64, 3))}], names=["ids"])

    outcome = desk.answer(asked, table.model()).outcomes[0]

    assert "512 of 10000 keys of x asked" in outcome.detail


def test_an_id_that_samples_lack_is_asked_at_several_places(desk: ProbeDesk) -> None:
    text = """(int64[N,12] x) => (float[N,4] y) {
        found = Gather(table, x)
        y = ReduceMax<axes=[1], keepdims=0>(found)
    }"""
    table = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    wrong = table.copy()
    # The largest of twelve rows: in most company another one is larger.
    wrong[17] += 0.4
    rows = np.random.default_rng(1).choice(np.delete(np.arange(100), 17), (200, 12))
    asked = desk.ask(desk.parsed(text, {"table": table}), [{"x": rows}], names=["ids"])

    abouts = {batch.about for probe in asked.probes.probes for batch in probe.batches}
    answered = desk.answer(asked, desk.parsed(text, {"table": wrong}))

    assert any("one in a real row" in about for about in abouts)
    assert set(answered.failed) == {"ids"}


def test_keys_leave_rows_for_the_ids_of_another_input(desk: ProbeDesk) -> None:
    keys = list(range(10_000, 16_000, 2))
    text = f"""<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]>
        g (int64[N] x, int64[N] u) => (float[N,4] y) {{
        row = ai.onnx.ml.LabelEncoder<keys_int64s={keys}, values_int64s={[*range(1, 3001)]}, default_int64=0>(x)
        one = Gather(rows, row)
        other = Gather(table, u)
        y = Add(one, other)
    }}"""
    random = np.random.default_rng(0)
    rows, table = (random.standard_normal((size, 4)).astype(np.float32) for size in (3001, 100))
    lost = table.copy()
    lost[57] = 0
    samples = [
        {"x": random.choice(keys[:50], 16), "u": random.choice(np.delete(np.arange(100), 57), 16)} for _ in range(8)
    ]
    models = [_with_weights(text, {"rows": rows, "table": weights}) for weights in (table, lost)]

    answered = desk.answer(desk.ask(models[0], samples, names=["ids"]), models[1])

    assert set(answered.failed) == {"ids"}


def _with_weights(text: str, weights: dict[str, Array]) -> onnx.ModelProto:
    from onnx import numpy_helper, parser

    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def test_a_key_that_the_reference_refuses_takes_no_other_with_it(desk: ProbeDesk) -> None:
    keys = [*range(100, 112)]
    text = f"""<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]> g (int64[N] x) => (float[N,4] y) {{
        row = ai.onnx.ml.LabelEncoder<keys_int64s={keys}, values_int64s={[*range(11), 99]}, default_int64=0>(x)
        y = Gather(rows, row)
    }}"""
    rows = np.random.default_rng(0).standard_normal((11, 4)).astype(np.float32)
    lost = rows.copy()
    lost[8] = 0
    samples = [{"x": np.random.default_rng(seed).choice(keys[:5], 16)} for seed in range(8)]

    asked = desk.ask(_with_weights(text, {"rows": rows}), samples, names=["ids"])
    answered = desk.answer(asked, _with_weights(text, {"rows": lost}))

    assert [about for about in asked.dropped if "111" in about]
    assert set(answered.failed) == {"ids"}


def test_only_values_of_the_column_that_is_looked_up_are_keys(desk: ProbeDesk) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]> g (float[N,2] x) => (float[N,1] y) {{
        code = Gather<axis=1>(x, first)
        row = ai.onnx.ml.LabelEncoder<keys_floats={[float(key) for key in range(101)]},
                                      values_floats={[float(key) for key in range(101)]}, default_float=-1.0>(code)
        number = Gather<axis=1>(x, second)
        y = Add(row, number)
    }}"""
    weights = {"first": np.array([0]), "second": np.array([1])}
    random = np.random.default_rng(0)
    samples = [{"x": np.stack([random.integers(0, 50, 16), random.uniform(0, 2, 16)], 1).astype(np.float32)}] * 4
    asked = desk.ask(_with_weights(text, weights), samples, names=["ids"])

    edges = {
        name: edges_of(asked.context, ProbeBatch(inputs={"x": np.array([values], np.float32)}, rows=1, about=""))
        for name, values in {"key": [90.0, 1.0], "number": [3.0, 90.0]}.items()
    }

    assert (edges["key"], [edge.words for edge in edges["number"]]) == ((), ["values of x beyond those seen"])
