"""The types of what stands in an evidence file, checked where it is read, so that no hand edit surfaces elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from paritygate.errors import InputFileError
from paritygate.files import read_json
from paritygate.pipelines.spec.errors import problems_in

__all__ = ["has_shape_of_evidence", "read_evidence_file"]

# Numbers are numbers and text is text; what an earlier version did not write need not be there, and what is not read
# of it may be anything.
_STRICT = ConfigDict(strict=True)


@dataclass(frozen=True, kw_only=True)
class _Check:
    __pydantic_config__ = _STRICT
    name: str
    status: str
    detail: str
    output: str | None
    measured: float | None
    limit: float | None


@dataclass(frozen=True, kw_only=True)
class _Interval:
    __pydantic_config__ = _STRICT
    lowest: float | None
    highest: float | None


@dataclass(frozen=True, kw_only=True)
class _Output:
    __pydantic_config__ = _STRICT
    dtype: str
    rows: int = 0
    values: int = 0
    fill_values: int = 0
    fill_mismatches: int = 0
    max_abs_diff: float | None
    mean_abs_diff: float | None = None
    reference_spread: float | None = None
    limits: dict[str, _Interval] = field(default_factory=dict)
    looks_like: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    __pydantic_config__ = _STRICT
    variant: str
    evidence: str
    verdict: str
    artifact: str | None = None
    device: str | None = None
    runtime: str | None = None
    version: str | None = None
    precision_found: str | None = None
    exit_code: int = 0
    rows: int = 0
    tolerance: dict[str, float | str | list[str] | None] = field(default_factory=dict)
    looser_than_default: list[str] = field(default_factory=list)
    outputs: dict[str, _Output] = field(default_factory=dict)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    strata: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    gold: dict[str, dict[str, Any]] = field(default_factory=dict)
    matches: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs_ignored: dict[str, str] = field(default_factory=dict)
    checks: list[_Check] = field(default_factory=list)
    probes: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reason: str = ""
    judged_by: str = ""
    emulated_from: str | None = None

    def __post_init__(self) -> None:
        _check_limits(self.tolerance, *self.looser_than_default)


def _check_limits(tolerance: Mapping[str, object], *names: str) -> None:
    declared = tolerance.get("declared", [])
    if not isinstance(declared, list):
        msg = f"the limits that the tolerance declares are {declared!r}, and no list"
        raise ValueError(msg)  # noqa: TRY004 - pydantic takes no TypeError
    for name in (*declared, *names):
        if not isinstance(tolerance.get(name), int | float):
            msg = f"{name} is named as a limit of the tolerance, which holds no such number"
            raise ValueError(msg)  # noqa: TRY004 - pydantic takes no TypeError


@dataclass(frozen=True, kw_only=True)
class _Asked:
    __pydantic_config__ = _STRICT
    probes: list[str]
    tolerance: dict[str, float | str | list[str] | None]
    decisions: list[str]
    min_cosine_similarity: dict[str, float] = field(default_factory=dict)
    valid_where: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_limits(self.tolerance)


@dataclass(frozen=True, kw_only=True)
class _EarlierFailure:
    __pydantic_config__ = _STRICT
    run: str
    variant: str
    failed: list[str]
    asked_less: list[str]
    asked: _Asked | None = None


@dataclass(frozen=True, kw_only=True)
class _Machine:
    __pydantic_config__ = _STRICT
    cpu: dict[str, Any] | None = None
    gpu: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class _Samples:
    __pydantic_config__ = _STRICT
    digest: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class _Reference:
    __pydantic_config__ = _STRICT
    model: dict[str, Any]
    digest: str
    runtime: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Document:
    __pydantic_config__ = _STRICT
    paritygate: str
    run: str
    device: str
    machine: _Machine
    samples: _Samples
    reference: _Reference
    variants: list[_Entry]
    emulated: list[_Entry] = field(default_factory=list)
    earlier_failures: list[_EarlierFailure] = field(default_factory=list)
    # Each a document of its own, which is looked at where it is used: one that is none may be left out.
    others: list[Any] = field(default_factory=list)


def read_evidence_file(path: Path) -> dict[str, Any]:
    """Return the evidence in a file, every value that is read of it of its type.

    Raises:
        InputFileError: It is no JSON, or a value is of another type than evidence has there; the message says which.
    """
    data: Any = None
    try:
        data = read_json(path)
        _check(data)
    except ValidationError as err:
        raise _damaged(path, problems_in(data, err)[0]) from err
    except (ValueError, RecursionError) as err:
        raise _damaged(path, f"{type(err).__name__}: {err}") from err
    found: dict[str, Any] = data
    return found


def has_shape_of_evidence(data: object) -> bool:
    """Return whether data has the form of evidence, every value that is read of it of its type."""
    try:
        _check(data)
    except ValueError:
        return False
    return True


def _check(data: object) -> None:
    # As JSON: of Python's objects, strict types take no mapping for a dataclass.
    TypeAdapter(_Document).validate_json(json.dumps(data))


def _damaged(path: Path, what: str) -> InputFileError:
    msg = f"{path} is damaged: {what}"
    return InputFileError(msg, hint=f"convert-and-validate validate --run {path.parent}")
