"""No code depends on prose: with every sentence replaced by its hash, all that programs read stays the same."""

from __future__ import annotations

import hashlib
import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.report.ci.test_compare_in_ci import (
    _not_finite,
    _of_a_batch,
    _only_alone,
    _refused_rows,
    _samples,
    _wrong,
)

from paritygate import errors
from paritygate.codec import from_data, to_data
from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.ci.cases import suite_of_comparison
from paritygate.pipelines.report.ci.github import annotations_of
from paritygate.validate.words import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

    Case = tuple[str, str, NDArray[np.float32], tuple[str, ...]]

_TEXTS = frozenset({"detail", "message", "hint", "advice", "values", "first", "unfit_first", "looks_like"})
_TIMES = frozenset({"seconds", "reference_seconds", "samples_seconds", "reference_samples_seconds", "machine"})


def garble(text: str) -> str:
    """Return a text of which nobody can read anything, the same for the same text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _right(bench: Bench) -> Case:
    return bench.linear("a"), bench.linear("b", error=1e-9), bench.normal(40, 4), ()


def _few_rows(bench: Bench) -> Case:
    return bench.linear("a"), bench.linear("b"), bench.normal(4, 4), ("--min-rows", "30")


def facts_of(data: Any) -> Any:  # noqa: ANN401 - any JSON data
    """Return JSON data without its sentences and its times."""
    if isinstance(data, dict):
        return {key: facts_of(item) for key, item in data.items() if key not in _TEXTS | _TIMES}
    return [facts_of(item) for item in data] if isinstance(data, list) else data


def shape_of(xml: str) -> list[tuple[str, ...]]:
    """Return what a CI system reads of JUnit XML."""
    attributes = ("name", "classname", "tests", "failures", "errors", "skipped", "type")
    return [(item.tag, *(item.get(name, "") for name in attributes)) for item in ET.fromstring(xml).iter()]  # noqa: S314


def seen_of(bench: Bench, case: Callable[[Bench], Case]) -> tuple[Any, ...]:
    """Return all that programs read of a comparison, as JSON, JUnit XML and annotations, hidden and not."""
    reference, candidate, rows, options = case(bench)
    outcome = bench.compare(reference, candidate, "--samples", _samples(bench, rows), "--format", "junit", *options)
    result = outcome.result
    shown: list[Any] = []
    found = from_data(ComparisonResult, result)
    for each in (found, hidden(found)):
        suite = suite_of_comparison(each)
        shown.append([(item.name, str(item.status), bool(item.output)) for item in suite.cases])
        shown.append([(item.kind, item.title) for item in annotations_of([suite])])
    shown.append(facts_of(to_data(hidden(found))))
    assert "AnnaExample" not in json.dumps(to_data(hidden(found)))
    return outcome.code, [check.detail for check in found.checks], facts_of(result), shape_of(outcome.out), *shown


@pytest.mark.parametrize("case", [_right, _wrong, _of_a_batch, _only_alone, _not_finite, _refused_rows, _few_rows])
def test_a_garbled_language_changes_nothing_that_programs_read(
    case: Callable[[Bench], Case], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = seen_of(bench, case)
    write, begin = sentence._written, errors.ParitygateError.__init__

    def begin_garbled(self: errors.ParitygateError, message: str, *, hint: str = "", **more: Any) -> None:  # noqa: ANN401
        begin(self, garble(message), hint=garble(hint) if hint else "", **more)

    monkeypatch.setattr(sentence, "_written", lambda item: garble(write(item)))
    monkeypatch.setattr(errors.ParitygateError, "__init__", begin_garbled)
    after = seen_of(bench, case)

    assert not set(before[1]) & set(after[1])
    assert (after[0], after[2:]) == (before[0], before[2:])
    assert after[0] in {0, 1, 3, 5}


def test_the_language_is_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    words = sentence.say("exact", mismatches=3, values=9)
    assert sentence.render(words) == "3 of 9 values differ"

    monkeypatch.setattr(sentence, "_written", lambda item: garble(item.key))

    assert sentence.render(words) == garble("exact")


@pytest.mark.parametrize("key", sorted(sentence.SENTENCES))
def test_every_sentence_can_be_written_and_hidden(key: str) -> None:
    names = {name for _, name, _, _ in sentence._parts(key) if name}
    words = sentence.say(key, **dict.fromkeys(names, 2))

    assert "of another version" not in sentence.render(words)
    assert "of another version" not in sentence.render(sentence.without_inputs(words))
