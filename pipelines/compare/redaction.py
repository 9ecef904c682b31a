"""Remove data of the user from results, evidence and reports where inputs are hidden.

Only figures, and texts with a key in these lists, may leave the machine. Every other text is hidden, so that a new
field is hidden as well. Sentences are made anew from the values that may leave.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from paritygate.codec import from_json, to_data
from paritygate.text import HIDDEN
from paritygate.validate.words import sentence

_T = TypeVar("_T")

# Names that a spec, a model or this program declares, and facts of machines and files.
_TEXTS = frozenset({
    "about", "accelerator", "artifact", "asked_less", "backend", "baseline", "batching", "cells_digest", "check",
    "clock", "constant", "convert", "converter", "decisions", "device", "digest", "dtype", "edge", "edge_rule",
    "error_kind", "evidence", "execution", "failed_check", "flips_digest", "format", "gold", "gpu", "group",
    "if_it_never_occurs", "if_it_occurs", "in_words", "kind", "library", "limits", "limits_source", "looks_for",
    "looser_than_default", "mark", "metric", "missing_output", "mode", "model", "mutation", "name", "not_recorded",
    "notes", "optimisation", "outcome", "output", "outputs", "outputs_left_out", "paritygate", "precision",
    "precision_found", "probe", "probes", "probes_off", "profile", "provider", "provider_warnings", "ran_in", "role",
    "rule", "run", "runtime", "samples", "samples_digest", "schema", "seed", "spec", "stage", "status", "switched_off",
    "title", "trust", "unchanged", "unit", "unpacked", "valid_where", "variant", "variants", "verdict", "version",
    "versions", "what", "where", "why", "worker", "written",
})  # fmt: skip
# Mappings about machines, models, limits and inputs of stages, without data of rows.
_WHOLE = frozenset({
    "limits", "load", "machine", "machines", "model", "outputs_ignored", "reads", "runtime", "stage", "tolerance",
})  # fmt: skip
# Figures of single rows, and drawings in which a cell may be one row.
_OF_ROWS = frozenset({
    "cells", "examples", "flips", "grid", "index", "inputs", "looks_like", "max_row_rel_id", "row_id",
})  # fmt: skip
# The samples name these values, so their names become numbers.
_BY_STRATUM = "strata"
# Errors of a machine or a model, before any row is read.
ERRORS_WITHOUT_INPUTS = frozenset(
    {"MissingBackendError", "MissingGpuError", "NotAvailableError", "NotRunHereError", "UnsupportedOperatorsError"}
)
_WHERE_IT_STANDS = "the terminal and the run folder have the whole message; report: {inputs: show} shows it here"
_PROGRAM = "convert-and-validate"
# After the name of the command: an option, or a placeholder of the user's value.
_NO_VALUE = re.compile(r"--[a-z][a-z-]*|SPEC|RUN|DIR|FILE|MODEL|PATH|VERSION|REASON|DIGEST")
_VERDICTS_WITHOUT_INPUTS = frozenset({"not run here", "not available for this model", "not measured"})


def may_leave(command: str) -> bool:
    """Return whether a command may leave, because it has options and placeholders, and no value."""
    words = command.split()
    return words[:1] in ([], [_PROGRAM]) and all(_NO_VALUE.fullmatch(word) for word in words[2:])


def may_say_why(verdict: str) -> bool:
    """Return whether the reason of a verdict may leave, because it is about the machine or the model, not a row."""
    return verdict in _VERDICTS_WITHOUT_INPUTS


def without_inputs(data: Any) -> Any:  # noqa: ANN401 - any JSON data
    """Return JSON data of a result or of evidence without data of the user."""
    return _of("", data)


def _of(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON data
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if not value or key in _TEXTS else HIDDEN
    if isinstance(value, list):
        return [_of(key, item) for item in value]
    if key in _WHOLE:
        return dict(value)
    if key == _BY_STRATUM:
        return _numbered("stratum", {name: _numbered("value", values) for name, values in value.items()})
    fields = {name: _field(name, item) for name, item in value.items()}
    return {**fields, **_words_of(value, fields), **_reasons_of(value)}


def _words_of(value: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of sentences, made anew, and empty fields of a single row."""
    fields: dict[str, Any] = {}
    if "row_id" in value:
        # Outputs of one row; of detections, these are counts.
        fields.update(actual=None, expected=None)
    if isinstance(value.get("words"), list) and "detail" in value:
        fields.update(detail=sentence.render(whole["words"]))
    if isinstance(value.get("health"), list):
        texts = {item["name"]: sentence.render(item["words"]) for item in whole.get("health_checks", ())}
        fields.update(health=[[name, texts.get(name, HIDDEN)] for name, _ in value["health"]])
    if isinstance(value.get("failed"), list) and "failed_words" in value:
        failed = [sentence.without_inputs(item) for item in value["failed_words"]]
        texts_of_failed = list(map(sentence.render, failed)) or [HIDDEN for _ in value["failed"]]
        fields.update(failed_words=to_data(failed), failed=texts_of_failed)
    return fields


def _reasons_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields on why something could not be measured."""
    fields: dict[str, Any] = {}
    if {"message", "hint"} <= value.keys() and _is_without_inputs(value):
        fields.update({name: value[name] for name in ("message", "hint", "command", "advice") if name in value})
    elif {"message", "hint", "kind"} <= value.keys():
        fields.update(message=f"{value['kind']}: {HIDDEN}", hint=_WHERE_IT_STANDS)
    if {"hint", "command"} <= value.keys() and may_leave(str(value["command"])):
        fields.update(command=value["command"])
    if value.get("not_run_here"):
        fields.update(not_run_here=value["not_run_here"])
    if may_say_why(str(value.get("verdict"))) and "reason" in value:
        fields.update(reason=value["reason"])
    return fields


def _field(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON data
    if key == "words" and isinstance(value, list):
        return to_data(sentence.without_inputs(value))
    if key in _OF_ROWS and not (isinstance(value, Mapping) and key in {"examples", "inputs"}):
        return [] if isinstance(value, list) else "" if isinstance(value, str) else None
    return _of(key, value)


def _numbered(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{what} {at}": _of("", value) for at, value in enumerate(values.values(), start=1)}


def _is_without_inputs(error: Mapping[str, Any]) -> bool:
    return error.get("kind") in ERRORS_WITHOUT_INPUTS or may_say_why(str(error.get("verdict")))


def hidden(value: _T) -> _T:
    """Return a result or evidence without data of the user."""
    return from_json(type(value), without_inputs(to_data(value)))
