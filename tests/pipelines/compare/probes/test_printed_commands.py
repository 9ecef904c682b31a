"""The command that is printed of a failed probe, beside every option that says what is compared: it fails again."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

_WHY = "noise=drawn anew on every call"


@pytest.fixture
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(bench.folder)
    return bench


def _model(bench: Bench, name: str, *, most: float = 1e6, lost: int | None = None) -> str:
    """Write a model of numbers and ids with scores, their argmax, a sum over a table, and an output of noise.

    Args:
        bench: Where to write.
        name: Of the file.
        most: The label is that of the lowest score where x is larger.
        lost: The row of the table that is zero.
    """
    table = bench.normal(100, 3)
    if lost is not None:
        table[lost] = 0
    return bench.model(
        name,
        [
            helper.make_node("MatMul", ["x", "weight"], ["scores"]),
            helper.make_node("ReduceMax", ["x"], ["largest"], axes=[1], keepdims=1),
            helper.make_node("Greater", ["largest", "most"], ["is_large"]),
            helper.make_node("Neg", ["scores"], ["negated"]),
            helper.make_node("Where", ["is_large", "negated", "scores"], ["chosen_from"]),
            helper.make_node("ArgMax", ["chosen_from"], ["label"], axis=1, keepdims=0),
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["sums"], axes=[1], keepdims=0),
            helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        ],
        inputs={"x": ("float", ["batch", 4]), "ids": ("int64", ["batch", 6])},
        outputs={
            "scores": ("float", ["batch", 3]),
            "label": ("int64", ["batch"]),
            "sums": ("float", ["batch", 3]),
            "noise": ("float", ["batch", 4]),
        },
        weights={"most": np.array(most, dtype=np.float32), "weight": bench.normal(4, 3, seed=7), "table": table},
    )


def _samples(bench: Bench) -> str:
    # Of a hundred rows of the table the samples reach twenty.
    ids = np.random.default_rng(0).integers(0, 20, (64, 6))
    return bench.npz("rows.npz", {"x": bench.normal(64, 4), "ids": ids})


def _words(outcome: Outcome, probe: str) -> list[str]:
    found = re.search(rf"probe {probe}: to see this alone: convert-and-validate (.*)", outcome.out)
    assert found is not None, outcome.out
    return shlex.split(found[1])


def _again(bench: Bench, words: list[str]) -> Outcome:
    assert words[0] == "compare"
    return bench.compare(words[1], words[2], *words[3:])


def _first(outcome: Outcome, probe: str) -> str:
    (failure, *_) = outcome.result["probes"]["asked"][probe]["failures"]
    return str(failure["check"])


@pytest.mark.parametrize("options", [(), ("--outputs", "scores", "--outputs", "sums")])
@pytest.mark.parametrize("keeps", [True, False])
def test_beside_an_output_that_is_ignored(here: Bench, options: tuple[str, ...], *, keeps: bool) -> None:
    folder = ("--failures", "kept") if keeps else ()
    sides = _model(here, "a"), _model(here, "b", lost=77)

    found = here.compare(*sides, "--samples", _samples(here), "--probes", "ids", "--ignore", _WHY, *options, *folder)
    words = _words(found, "ids")
    alone = _again(here, words)

    assert (found.code, found.failed) == (1, {"probe_ids"})
    assert alone.code == 1, alone.message
    assert (_first(found, "ids") if keeps else "probe_ids") in alone.failed
    assert keeps or _first(alone, "ids") == _first(found, "ids")


def test_limits_on_decisions_that_the_failed_output_has_none_of_are_left_out(here: Bench) -> None:
    sides = _model(here, "a"), _model(here, "b", lost=77)
    options = ("--ignore", _WHY, "--decision", "scores:argmax", "--tolerance", "decision_mismatches=0")

    found = here.compare(*sides, "--samples", _samples(here), "--probes", "ids", *options, "--failures", "kept")
    words = _words(found, "ids")
    alone = _again(here, words)

    assert words[words.index("--outputs") + 1] == "sums"
    assert (found.code, alone.code) == (1, 1), alone.message
    assert _first(found, "ids") in alone.failed


def test_why_a_decision_is_constant_is_said_again_of_the_outputs_that_are_compared(here: Bench) -> None:
    sides = _model(here, "a"), _model(here, "b", lost=77)
    why = ("--constant-decision", "scores=all rows are of one class")
    options = ("--ignore", _WHY, "--decision", "scores:argmax", *why)

    whole, kept = (
        _words(here.compare(*sides, "--samples", _samples(here), "--probes", "ids", *options, *folder), "ids")
        for folder in ((), ("--failures", "kept"))
    )

    assert whole[whole.index(why[0]) + 1] == why[1]
    # What failed is `sums` alone.
    assert why[0] not in kept
    assert (_again(here, whole).code, _again(here, kept).code) == (1, 1)


def test_a_label_is_held_to_its_scores_again(here: Bench) -> None:
    sides = _model(here, "a"), _model(here, "b", most=5)
    options = ("--ignore", _WHY, "--argmax-of", "label=scores", "--tolerance", "decision_mismatches=3")

    probes = ("--probes", "values", "--edge", "fail")
    found = here.compare(*sides, "--samples", _samples(here), *probes, *options, "--failures", "kept")
    alone = _again(here, _words(found, "values"))

    assert (found.code, _first(found, "values")) == (1, "decision_mismatches")
    assert (alone.code, alone.failed) == (1, {"decision_mismatches"}), alone.message


def test_a_label_that_was_inferred_to_be_an_argmax_is_held_to_its_scores_again(here: Bench) -> None:
    def model(name: str, last: int) -> str:
        nodes = [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["scores"], axes=[1], keepdims=0),
            helper.make_node("Neg", ["scores"], ["negated"]),
            helper.make_node("ReduceMax", ["ids"], ["largest"], axes=[1], keepdims=1),
            helper.make_node("Greater", ["largest", "last"], ["is_beyond"]),
            helper.make_node("Where", ["is_beyond", "negated", "scores"], ["chosen_from"]),
            helper.make_node("ArgMax", ["chosen_from"], ["label"], axis=1, keepdims=0),
        ]
        return here.model(
            name,
            nodes,
            inputs={"ids": ("int64", ["batch", 6])},
            outputs={"scores": ("float", ["batch", 3]), "label": ("int64", ["batch"])},
            weights={"table": here.normal(100, 3), "last": np.array(last)},
        )

    samples = here.npz("ids.npz", {"ids": np.random.default_rng(0).integers(0, 20, (64, 6))})
    options = ("--samples", samples, "--precision", "fp16", "--probes", "ids", "--failures", "kept")
    found = here.compare(model("a", 10**6), model("b", 60), *options)
    words = _words(found, "ids")
    alone = _again(here, words)

    assert (found.code, _first(found, "ids")) == (1, "decision_mismatches"), found.out
    assert words[words.index("--argmax-of") + 1] == "label=scores"
    assert (alone.code, alone.failed) == (1, {"decision_mismatches"}), alone.message


def test_the_seed_that_probes_are_derived_by_is_named(here: Bench) -> None:
    sides = _model(here, "a"), _model(here, "b", lost=77)

    found = here.compare(*sides, "--samples", _samples(here), "--probes", "ids,values", "--ignore", _WHY, "--seed", "5")
    words = _words(found, "ids")
    again = _again(here, words)

    assert words[words.index("--seed") + 1] == "5"
    assert (again.code, again.failed) == (1, {"probe_ids"})
    batch = [outcome.result["probes"]["asked"]["ids"]["failures"][0]["about"] for outcome in (found, again)]
    assert batch[0] == batch[1]


_GOLD = """
    import numpy as np
    from paritygate.batch import Batch

    def rows():
        x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
        ids = np.random.default_rng(0).integers(0, 20, (64, 6))
        for first in range(0, 64, 16):
            at = slice(first, first + 16)
            names = [str(row) for row in range(first, first + 16)]
            yield Batch(inputs={"x": x[at], "ids": ids[at]}, ids=names, gold=x[at, 0])
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_beside_gold_that_a_probe_has_none_of(here: Bench, *, keeps: bool) -> None:
    name = f"gold_of_{here.folder.name.replace('-', '_')}"
    (here.folder / f"{name}.py").write_text(textwrap.dedent(_GOLD), encoding="utf-8")
    sides = _model(here, "a"), _model(here, "b", lost=77)
    options = ("--ignore", _WHY, "--gold", "accuracy:scores,gold_above=0,max_drop=0.1", "--decision", "scores:argmax")
    folder = ("--failures", "kept") if keeps else ()

    found = here.compare(*sides, "--samples", f"{name}:rows", "--probes", "ids", *options, *folder)
    words = _words(found, "ids")
    alone = _again(here, words)

    assert (found.code, found.failed) == (1, {"probe_ids"}), found.message
    assert set(found.result["gold"]) == {"accuracy:scores"}
    assert "--gold" not in words
    assert (alone.code, (_first(found, "ids") if keeps else "probe_ids") in alone.failed) == (1, True), alone.message
