"""The types of what stands in an evidence file, checked where it is read, so that no hand edit surfaces elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from paritygate.errors import InputFileError
from paritygate.files import read_json
from paritygate.pipelines.spec_errors import problems_in

__all__ = ["read_evidence_file"]

# Numbers are numbers and text is text; what an earlier version did not write need not be there.
_STRICT = ConfigDict(strict=True)
_Number = float | None


class _Check(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]  # as pydantic reads it
    name: str
    status: str
    detail: str
    output: NotRequired[str | None]
    measured: NotRequired[_Number]
    limit: NotRequired[_Number]


class _Interval(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    lowest: _Number
    highest: _Number


class _Output(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    dtype: str
    rows: int
    values: int
    max_abs_diff: _Number
    mean_abs_diff: _Number
    limits: dict[str, _Interval]
    looks_like: list[str]


class _Entry(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    variant: str
    evidence: str
    verdict: str
    artifact: NotRequired[str | None]
    device: NotRequired[str | None]
    runtime: NotRequired[str | None]
    version: NotRequired[str | None]
    precision_found: NotRequired[str | None]
    exit_code: NotRequired[int]
    rows: NotRequired[int]
    tolerance: NotRequired[dict[str, float | list[str] | None]]
    looser_than_default: NotRequired[list[str]]
    outputs: NotRequired[dict[str, _Output]]
    decisions: NotRequired[dict[str, dict[str, Any]]]
    strata: NotRequired[dict[str, dict[str, dict[str, Any]]]]
    gold: NotRequired[dict[str, dict[str, Any]]]
    matches: NotRequired[dict[str, dict[str, Any]]]
    outputs_ignored: NotRequired[dict[str, str]]
    checks: NotRequired[list[_Check]]
    probes: NotRequired[dict[str, Any]]
    notes: NotRequired[list[str]]
    reason: NotRequired[str]
    judged_by: NotRequired[str]
    emulated_from: NotRequired[str | None]


class _Samples(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    digest: str
    rows: int


class _Reference(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    model: dict[str, Any]
    digest: str
    runtime: dict[str, Any]


class _Document(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    paritygate: str
    device: str
    machine: dict[str, Any]
    samples: _Samples
    reference: _Reference
    variants: list[_Entry]
    emulated: NotRequired[list[_Entry]]


def read_evidence_file(path: Path) -> dict[str, Any]:
    """Return the evidence in a file, every value that is read of it of its type.

    Raises:
        InputFileError: It is no JSON, or a value is of another type than evidence has there; the message says which.
    """
    data: Any = None
    try:
        data = read_json(path)
        TypeAdapter(_Document).validate_python(data)
    except ValidationError as err:
        raise _damaged(path, problems_in(data, err)[0]) from err
    except (ValueError, RecursionError) as err:
        raise _damaged(path, f"{type(err).__name__}: {err}") from err
    found: dict[str, Any] = data
    return found


def _damaged(path: Path, what: str) -> InputFileError:
    msg = f"{path} is damaged: {what}"
    return InputFileError(msg, hint=f"validate again: convert-and-validate validate --run {path.parent}")
