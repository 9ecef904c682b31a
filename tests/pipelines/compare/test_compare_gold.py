"""`compare --gold`: metrics of both sides against the gold that samples carry."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

_SAMPLES = """
    import numpy as np
    from paritygate.batch import Batch

    ROWS = 200
    x = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
    gold = (x @ weight[:, :1])[:, 0] + 0.3 * np.random.default_rng(1).standard_normal(ROWS)

    def batches(values):
        for first in range(0, ROWS, 16):
            rows = slice(first, first + 16)
            ids = [str(row) for row in range(ROWS)][rows]
            part = None if values is None else values[rows]
            yield Batch(inputs={"x": x[rows]}, ids=ids, gold=part, strata={"half": ["ab"[int(i) % 2] for i in ids]})

    def scored(): return batches(gold)
    def without(): return batches(None)
    def sparse(): return batches(np.array([g if n < 20 else None for n, g in enumerate(gold)], dtype=object))
    def labelled(): return batches((x @ weight).argmax(axis=1))

    def closeness(outputs, gold):
        return 10 - float(abs(outputs - gold).mean())
"""


@pytest.fixture
def gold(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (bench.folder / "gold_samples.py").write_text(textwrap.dedent(_SAMPLES), encoding="utf-8")
    monkeypatch.chdir(bench.folder)
    return bench


def _weight(columns: int, error: float = 0.0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)[:, :columns]
    noise = np.random.default_rng(3).standard_normal(weight.shape).astype(np.float32)
    return np.ascontiguousarray(weight + np.float32(error) * noise)


def _compare(bench: Bench, *options: str, samples: str = "scored", columns: int = 1, error: float = 0.0) -> Outcome:
    return bench.compare(
        bench.linear("a", weight=_weight(columns)),
        bench.linear("b", weight=_weight(columns, error)),
        "--samples",
        f"gold_samples:{samples}",
        "--probes",
        "none",
        *options,
    )


def test_a_metric_of_both_sides_is_reported(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "pearson:logits")

    assert outcome.code == 0
    found = outcome.result["gold"]["pearson:logits"]
    assert found["rows"] == 200
    assert found["reference"] == pytest.approx(found["candidate"])
    assert 0.9 < found["reference"] < 1
    assert (found["difference"], found["limit"], found["ratio"]) == (0, None, None)
    assert found["digest"].startswith("sha256:")
    assert outcome.status("gold_pearson", "logits") == "pass"


def test_a_worse_metric_fails_though_all_else_is_within_the_limits(gold: Bench) -> None:
    loose = [
        word
        for name in ("max_abs_diff", "mean_abs_diff", "max_row_rel_diff")
        for word in ("--tolerance", f"{name}=100")
    ]

    outcome = _compare(gold, "--gold", "pearson:logits,mlperf=99", *loose, error=1.0)

    assert (outcome.code, outcome.failed) == (1, {"gold_pearson"})
    check = outcome.check("gold_pearson")
    assert (
        check["measured"]
        < check["limit"]
        == pytest.approx(0.99 * outcome.result["gold"]["pearson:logits"]["reference"])
    )
    assert "fail: gold_pearson[logits]: candidate 0." in outcome.out
    assert _compare(gold, "--gold", "pearson:logits", *loose, error=1.0).code == 0


def test_a_good_metric_excuses_nothing(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "pearson:logits,ratio=0.9", error=0.01)

    assert outcome.code == 1
    assert "gold_pearson" not in outcome.failed


def test_labels_come_of_the_decision(gold: Bench) -> None:
    outcome = _compare(
        gold,
        *("--gold", "accuracy:logits", "--gold", "f1_macro:logits,mlperf=99.9", "--decision", "logits:argmax"),
        samples="labelled",
        columns=3,
    )

    assert outcome.code == 0
    assert {name: found["reference"] for name, found in outcome.result["gold"].items()} == {
        "accuracy:logits": 1.0,
        "f1_macro:logits": 1.0,
    }


def test_gold_that_is_no_label_is_made_one(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "f1:logits,gold_above=0", "--decision", "logits:threshold=0")

    assert outcome.code == 0
    assert 0.8 < outcome.result["gold"]["f1:logits"]["reference"] < 1


def test_rows_without_gold_are_left_out_and_too_few_are_inconclusive(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "spearman:logits,ratio=0.99", samples="sparse")

    assert outcome.code == 3
    found = outcome.result["gold"]["spearman:logits"]
    assert (found["rows"], found["rows_without"]) == (20, 180)
    assert outcome.check("gold_spearman")["words"][-1]["values"] == {"rows": 20, "needed": 30}


def test_a_function_of_the_user_is_a_metric(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "gold_samples:closeness:logits,max_drop=1")

    assert outcome.code == 0
    assert outcome.status("gold_closeness") == "pass"
    assert "metric gold_samples:closeness is code of yours" in outcome.result["notes"]


def test_recorded_outputs_have_metrics_as_well(gold: Bench) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32) @ _weight(1)
    expected = gold.npz("expected.npz", {"logits": rows})

    outcome = gold.compare(
        expected, gold.linear("b", weight=_weight(1)), "--samples", "gold_samples:scored", "--gold", "pearson:logits"
    )

    assert outcome.code == 0
    assert outcome.result["gold"]["pearson:logits"]["rows"] == 200


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        (("--gold", "pearson:logits"), "without", "none of the 200 rows of the samples has gold"),
        (("--gold", "pearson:absent"), "scored", "gold pearson:absent is on an output that is not compared"),
        (("--gold", "accuracy:logits"), "labelled", "needs labels, but 'logits'"),
        (
            ("--gold", "pearson:logits", "--gold", "pearson:logits,ratio=0.9"),
            "scored",
            "gold pearson:logits is declared twice",
        ),
        (("--gold", "nowhere:f:logits"), "scored", "module 'nowhere' of 'nowhere:f' was not found"),
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(
    gold: Bench, options: tuple[str, ...], samples: str, message: str
) -> None:
    outcome = _compare(gold, *options, samples=samples)

    assert outcome.code == 2
    assert message in outcome.message


def test_a_wrong_option_is_said_before_anything_runs(gold: Bench) -> None:
    outcome = _compare(gold, "--gold", "kappa:logits")

    assert outcome.code == 2
    assert "is not of the form METRIC:OUTPUT" in outcome.err
