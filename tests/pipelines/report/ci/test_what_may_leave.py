"""With `inputs: hide`, what leaves is on a list: a text in any other field of a result does not."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pytest

from paritygate.codec import from_data, to_data
from paritygate.pipelines.compare.redaction import hidden, without_inputs
from paritygate.pipelines.compare.result import ComparisonResult, ErrorResult
from paritygate.pipelines.report.ci.cases import suite_of_comparison
from paritygate.pipelines.report.ci.junit import junit_xml
from paritygate.text import HIDDEN
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.strata import strata_coverage
from paritygate.validate.words.sentence import say

PERSON = "AnnaExample"
# By its class and its name, each text that may leave, and those that are checked against a list of words.
MAY_LEAVE = {
    "Cause": {"kind", "outcome"},
    "Check": {"name", "output", "status", "kind"},
    "ComparisonResult": {"paritygate", "verdict", "precision", "samples", "samples_digest", "looser_than_default"},
    "DecisionStatistics": {"rule", "constant"},
    "DroppedResult": {"in_words"},
    "ErrorResult": {"kind"},
    "GoldStatistics": {"metric", "output", "digest"},
    "MatchStatistics": {"outputs"},
    "OutputResult": {"dtype"},
    "ProbeFailureResult": {"about", "check", "edge", "if_it_occurs", "if_it_never_occurs", "probe"},
    "ProbeResult": {"looks_for", "status", "kind", "notes"},
    "ProbesResult": {"switched_off", "not_recorded", "edge"},
    "RoleResult": {"role", "why"},
    "SideResult": {
        *("name", "kind", "digest", "runtime", "version", "device", "provider", "precision_found", "optimisation"),
        *("notes", "provider_warnings"),
    },
}
MAY_LEAVE["ComparisonResult"] |= {"outputs_left_out", "notes", "ran_in", "not_run_here"}
# These are facts of machines, limits and reasons that a spec gives, and hold no text of rows.
WHOLE = {"machine", "tolerance", "outputs_ignored"}


def planted(kind: Any, name: str, owner: str) -> Any:  # noqa: ANN401, PLR0911 - any type of a field
    """Return a value of the type of a field, with the name of a person wherever a text that may not leave stands."""
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if isinstance(kind, types.UnionType):
        return planted(next(each for each in arguments if each is not type(None)), name, owner)
    if is_dataclass(kind):
        return {"key": "text", "values": {"text": PERSON}} if kind.__name__ == "Sentence" else planted_object(kind)
    if origin in {list, tuple}:
        return [planted(arguments[0], name, owner)]
    if origin in {dict, Mapping} or kind is dict:
        keys = {"strata": PERSON}
        return {keys.get(name, "y"): planted(arguments[1], "of_" + name if name != "strata" else "values", owner)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)))
    if name == "values" and kind is str:
        return PERSON
    if kind is str:
        return (
            {"status": "fail", "kind": "measured"}.get(name, "public") if name in MAY_LEAVE.get(owner, ()) else PERSON
        )
    return {int: 1, float: 0.5, bool: True}[kind]


def planted_object(kind: type) -> dict[str, Any]:
    """Return the JSON data of a dataclass with the name of a person in every text that may not leave."""
    hints = typing.get_type_hints(kind)
    found = {
        item.name: planted(hints[item.name], item.name, kind.__name__)
        for item in fields(kind)
        if item.name not in WHOLE and "exclude" not in item.metadata
    }
    return {name: {PERSON: value["y"]} if name == "strata" and "y" in value else value for name, value in found.items()}


def texts(data: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON data
    """Yield every text in JSON data, keys included."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield key
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)


def planted_result() -> dict[str, Any]:
    """Return a whole result with the name of a person in every text that may not leave."""
    found = planted_object(ComparisonResult)
    # What is not run here says why by its machine alone.
    return {**found, "machine": {}, "tolerance": {}, "outputs_ignored": {}, "not_run_here": ""}


def test_no_text_leaves_that_is_not_on_the_list() -> None:
    data = planted_result()
    assert sum(PERSON in text for text in texts(data)) > 30

    left = without_inputs(data)

    assert [text for text in texts(left) if PERSON in text] == []
    left["outputs"]["y"]["drawing"] = None
    assert PERSON not in junit_xml([suite_of_comparison(from_data(ComparisonResult, left))])


def test_a_text_in_a_field_that_nobody_listed_is_hidden() -> None:
    assert without_inputs({"a_new_field": PERSON, "rows": 3}) == {"a_new_field": "(hidden)", "rows": 3}


def test_figures_and_declared_names_stay() -> None:
    words = say("above", measured=0.5, limit=0.25) + say("worst_value", row=PERSON, actual=1.0, expected=0.5)
    check = Check(name="max_abs_diff", status=Status.FAIL, words=words, output="y", rows=120, measured=0.5, limit=0.25)

    left = hidden(check)

    assert (left.name, left.status, left.kind, left.output) == ("max_abs_diff", "fail", "measured", "y")
    assert (left.rows, left.measured, left.limit) == (120, 0.5, 0.25)
    assert PERSON not in str(to_data(left))
    # Without its row, a part about one row shows nothing.
    assert [item.key for item in left.words] == ["above"]


def test_how_many_rows_differ_stays() -> None:
    left = hidden(Check(name="exact", status=Status.FAIL, words=say("in_rows", in_rows=8, row=PERSON)))

    assert PERSON not in str(to_data(left))
    assert [dict(item.values) for item in left.words] == [{"in_rows": 8, "row": HIDDEN}]


@pytest.mark.parametrize("status", [Status.WARNING, Status.PASS])
def test_no_name_of_a_stratum_leaves(status: Status) -> None:
    words = say("strata.few", stratum=PERSON, least=30, values=say("stratum_value", value=PERSON, rows=4))

    left = hidden(Check(name="strata_coverage", status=status, words=words, measured=4, limit=30))

    assert PERSON not in str(to_data(left))
    assert (left.measured, left.limit, left.status) == (4, 30, str(status))
    assert strata_coverage({}) == ()


def test_a_check_of_text_alone_leaves_as_figures_alone() -> None:
    data = {"name": "max_abs_diff", "status": "fail", "detail": f"0.5 > 0.25, worst at row {PERSON}", "measured": 0.5}

    left = hidden(from_data(Check, {**data, "limit": 0.25}))

    assert PERSON not in left.detail
    assert [item.key for item in left.words] == ["text"]
    assert (left.measured, left.kind) == (0.5, Kind.MEASURED)


@pytest.mark.parametrize(("kind", "is_said"), [("MissingGpuError", True), ("MeasurementError", False)])
def test_an_error_leaves_only_where_no_row_was_read(kind: str, is_said: bool) -> None:  # noqa: FBT001
    left = hidden(ErrorResult(kind=kind, message="row a-1 is wrong", hint="change it"))

    assert ("a-1" in left.message) == is_said
    assert left.kind == kind
