"""The next command of an error is a field of its own, which needs no sentence to be read."""

from __future__ import annotations

import pytest

from paritygate.errors import ArtifactIntegrityError, ParitygateError, UnsupportedOperatorsError
from paritygate.pipelines.compare.redaction import hidden, may_leave
from paritygate.pipelines.compare.result import ErrorResult, error_result
from paritygate.pipelines.run.workspace import FailedVariant
from paritygate.text import hint_lines

_COMMAND = "convert-and-validate run SPEC"


def test_hint_and_command_are_fields_and_one_sentence() -> None:
    error = ParitygateError("it is damaged", hint="start a new run", command=_COMMAND)

    assert (error.advice, error.command) == ("start a new run", _COMMAND)
    assert error.to_json() == {"message": "it is damaged", "hint": f"start a new run: {_COMMAND}", "command": _COMMAND}
    assert ParitygateError("again", **error.next_step).to_json() == {**error.to_json(), "message": "again"}


def test_results_have_the_command_and_old_ones_have_none() -> None:
    error = ArtifactIntegrityError("it is damaged", hint="start a new run", command=_COMMAND)

    result = error_result(error)

    assert (result.next_step, result.hint) == (error.next_step, error.hint)
    assert FailedVariant.from_error("onnx-fp32", error).command == _COMMAND
    old = ErrorResult(kind="InputFileError", message="it is damaged", hint=error.hint)
    assert old.next_step == {"hint": error.hint, "command": ""}
    assert UnsupportedOperatorsError("no", rows=[], command=_COMMAND).hint == _COMMAND


@pytest.mark.parametrize(
    ("advice", "command", "lines"),
    [
        ("start a new run", _COMMAND, ["hint: start a new run:", f"  {_COMMAND}"]),
        ("", _COMMAND, [f"hint: {_COMMAND}"]),
        ("look", "", ["hint: look"]),
        ("", "", []),
    ],
)
def test_the_command_has_a_line_of_its_own(advice: str, command: str, lines: list[str]) -> None:
    assert hint_lines(advice, command) == lines


@pytest.mark.parametrize(
    ("command", "leaves"),
    [
        (_COMMAND, True),
        ("", True),
        ("convert-and-validate validate --run RUN --scratch", True),
        ("convert-and-validate compare --rows anna", False),
        ("convert-and-validate compare --rows=anna", False),
        ("convert-and-validate validate --run models/anna", False),
        ("convert-and-validate run ANNA", False),
        ("anna run SPEC", False),
    ],
)
def test_a_command_with_a_value_does_not_leave_where_inputs_are_hidden(command: str, leaves: bool) -> None:  # noqa: FBT001
    left = hidden(ErrorResult(kind="MeasurementError", message="row a-1", hint=f"look: {command}", command=command))

    assert (left.command == command) == may_leave(command) == leaves
    assert "a-1" not in left.message
    assert command == "" or command not in left.hint
