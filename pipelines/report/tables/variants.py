"""Tables of one comparison: checks, outputs, decisions, rows, limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paritygate.codec import to_data
from paritygate.pipelines.compare.result import (
    ComparisonResult,
    LimitRange,
    OutputResult,
    SideResult,
    StratumOutput,
    StratumResult,
)
from paritygate.pipelines.report.figures import near_one, number, number_pair, percent, share, value
from paritygate.pipelines.report.tables.probes import failed_words
from paritygate.pipelines.report.tables.table import Cell, Row, Table, code, facts, figure, status, table_of
from paritygate.precision import Precision
from paritygate.signature import is_float_dtype
from paritygate.text import one_or_many, row_name
from paritygate.validate.gate.declared_limits import DEFAULT_LIMIT
from paritygate.validate.gate.verdict import flips_allowed
from paritygate.validate.measure.bounds import upper_bound_text
from paritygate.validate.measure.check import Check
from paritygate.validate.measure.figures import DecisionStatistics
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.words.sentence import WITHIN, pair_of, render

_SEVERITY = ("fail", "error", "inconclusive", "edge", "warning", "pass")
# Their limit is a minimum, so the number is not a part of it.
_AT_LEAST = {"rows", "strata_coverage"}
_METRIC = "gold_"
_PROBE = "probe_"
_CLASSES_SHOWN = 10
_DIGEST = "digest as loaded"
_DIFFERENCES = {
    "min": "min_abs_diff",
    "p50": "p50_abs_diff",
    "p90": "p90_abs_diff",
    "p99": "p99_abs_diff",
    "p99.9": "p999_abs_diff",
    "max": "max_abs_diff",
    "mean": "mean_abs_diff",
    "std": "std_abs_diff",
}


_STRATUM_FIGURES = {
    "max diff": "max_abs_diff",
    "p99": "p99_abs_diff",
    "mean diff": "mean_abs_diff",
    "std of diff": "std_abs_diff",
    "of a row": "max_row_rel_diff",
    "bias": "bias",
}


def checks_table(result: ComparisonResult) -> Table:
    """Return every check, the worst first."""
    checks = sorted(result.checks, key=lambda check: _SEVERITY.index(check.status))
    titles = ("check", "status", "output", ">measured", ">limit", ">tolerance used", "message")
    return table_of("Checks", titles, (_check_row(check, _check_words(check, result)) for check in checks))


def _check_words(check: Check, result: ComparisonResult) -> str:
    """Return the message of a check, without its numbers and a probe's failures, which have their own places."""
    probe = result.probes.asked.get(check.name.removeprefix(_PROBE)) if check.name.startswith(_PROBE) else None
    if probe is not None and probe.failures:
        return f"{failed_words(probe)}: see Probes"
    pair, words = pair_of(check.words)
    if not pair:
        return render(check.words)
    return f"{'within' if pair in WITHIN else 'beyond'} the limit{words}"


def _check_row(check: Check, words: str) -> Row:
    start = (check.name, status(check.status), check.output or "-")
    middle: Row
    measured, limit = check.measured, check.limit
    if measured is None:
        # Without a limit the check has no number; with one, the number was not finite.
        middle = ("-" if limit is None else "not finite", number(limit, missing="-"), "-")
    elif limit is None:
        middle = (number(measured), "-", "-")
    else:
        texts = number_pair(measured, limit)
        middle = (texts[0], texts[1], _share_cell(check.name, abs(measured), limit))
        if _is_at_least(check.name):
            middle = (middle[0], f"at least {texts[1]}", "-")
    return (*start, *middle, words)


def _is_at_least(name: str) -> bool:
    return name in _AT_LEAST or name.startswith(_METRIC)


def _share_cell(name: str, measured: float, limit: float) -> Cell | str:
    if limit <= 0 or _is_at_least(name):
        return "-"
    return figure(share(measured, limit), fraction=measured / limit)


def difference_table(output: OutputResult) -> Table:
    """Return the distribution of |actual - expected| of an output, with its limits."""
    limits = {"max": output.limits.get("max_abs_diff"), "mean": output.limits.get("mean_abs_diff")}
    measured = [number(getattr(output, key)) for key in _DIFFERENCES.values()]
    rows = [("measured", *measured)]
    if output.mismatches is None:
        rows.append(("limit", *(_range(limits.get(key)) for key in _DIFFERENCES)))
    return table_of("Distribution of |actual - expected|", ("what", *(f">{title}" for title in _DIFFERENCES)), rows)


def _range(limit: LimitRange | None) -> str:
    if limit is None:
        return "-"
    if limit.lowest == limit.highest:
        return number(limit.lowest)
    return f"{number(limit.lowest)} to {number(limit.highest)}, by channel"


def agreement_table(output: OutputResult) -> Table:
    """Return further figures of an output's difference."""
    pairs = _float_facts(output) if output.mismatches is None else _exact_facts(output)
    return facts("Agreement", pairs)


def _exact_facts(output: OutputResult) -> Iterable[tuple[str, str]]:
    yield "dtype", f"{output.dtype}, compared exactly"
    yield "values", f"{number(output.values)} in {number(output.rows)} rows"
    yield "values that differ", number(output.mismatches)
    for words in output.looks_like:
        yield "what it looks like", words


def _float_facts(output: OutputResult) -> Iterable[tuple[str, str]]:
    interval = ""
    if output.bias_low_95 is not None and output.bias_high_95 is not None:
        interval = f" (95 %: {number(output.bias_low_95)} to {number(output.bias_high_95)})"
    at_row = f" at {row_name(output.max_row_rel_id)}" if output.max_row_rel_id else ""
    yield "dtype", output.dtype if is_float_dtype(output.dtype) else f"{output.dtype}, compared by declared limits"
    yield "values", f"{number(output.values)} in {number(output.rows)} rows, {number(output.compared)} subtracted"
    yield "not finite where the reference is, or otherwise than it", number(output.non_finite)
    yield "bias (signed mean)", number(output.bias) + interval
    yield "std of the signed difference", number(output.std_diff)
    yield "cosine similarity", near_one(output.cosine_similarity)
    yield "signal-to-quantization-noise ratio", _sqnr(output)
    row_limit = _limit_of(output, "max_row_rel_diff")
    yield "largest of a row, relative to it", f"{number(output.max_row_rel_diff)}{at_row}{row_limit}"
    yield "largest relative to its value", number(output.max_rel_diff)
    if output.repeat_max_abs_diff is None:
        yield "largest between two passes", "not measured"
    else:
        limit = _limit_of(output, "repeat_max_abs_diff")
        yield "largest between two passes", f"{number(output.repeat_max_abs_diff)}{limit}"
    if output.rows_beyond is not None:
        yield "rows beyond a limit", f"{number(output.rows_beyond)} of {number(output.rows)}"
    yield "scale of the default limits", _scale(output)
    if output.fill_values:
        yield (
            "fill values, compared exactly",
            f"{number(output.fill_values)}, of which {_differ(output.fill_mismatches)}",
        )
    for words in output.looks_like:
        yield "what it looks like", words


def _sqnr(output: OutputResult) -> str:
    if output.sqnr_db is None:
        return "no difference" if output.compared and output.max_abs_diff == 0 else number(None)
    return f"{output.sqnr_db:.4g} dB"


def _differ(count: int) -> str:
    return f"{number(count)} {one_or_many(count, 'differs', 'differ')}"


def _limit_of(output: OutputResult, name: str) -> str:
    return f" (limit {_range(output.limits[name])})" if name in output.limits else ""


def _scale(output: OutputResult) -> str:
    by_channel = "" if output.axis is None else f", the largest over the channels of axis {output.axis}"
    return f"{number(output.scale)} (the spread of the reference's bulk, at least 1{by_channel})"


def worst_rows_table(output: OutputResult) -> Table:
    """Return the rows that differ most; a difference that is not finite is the largest."""
    columns = ("row", "index in the row", ">actual", ">expected", ">|difference|", ">its limit")
    rows = tuple(
        (
            code(row.row_id),
            code(str(row.index) if row.index else "-"),
            value(row.actual),
            value(row.expected),
            number(row.max_abs_diff, missing="not finite"),
            number(row.limit),
        )
        for row in output.worst_rows
    )
    return table_of("Rows that differ most", columns, rows)


def decisions_table(decisions: Mapping[str, DecisionStatistics]) -> Table:
    """Return the decisions on each output."""
    columns = (
        "output", "rule", ">mismatches", ">near the boundary", ">away from it", ">rows with any",
        ">95 % bound of rows", "reference decides", "first mismatched rows",
    )  # fmt: skip
    rows = tuple(
        (
            name,
            _rule(decision),
            f"{number(decision.mismatches)} of {number(decision.decisions)}",
            number(decision.inside_band),
            number(decision.outside_band),
            f"{number(decision.rows_mismatched)} of {number(decision.rows)}",
            f"< {upper_bound_text(decision.mismatch_rate_upper_95)}",
            _classes(decision),
            ", ".join(decision.examples) or "none",
        )
        for name, decision in decisions.items()
    )
    return table_of("Decisions", columns, rows)


def _rule(decision: DecisionStatistics) -> str:
    # `OUTPUT:RULE`, where the output has its own column.
    return decision.rule.rpartition(":")[2]


def _classes(decision: DecisionStatistics) -> str:
    # A class occurs at most once per top-k set.
    total = decision.decisions if _rule(decision).startswith("top_k") else sum(decision.classes.values())
    if _rule(decision).startswith(("threshold", "multilabel")):
        counts = [(word, decision.classes.get(key, 0)) for word, key in (("positive", "1"), ("negative", "0"))]
    else:
        most = sorted(decision.classes.items(), key=lambda item: -item[1])
        counts = [(f"class {name}", count) for name, count in most[:_CLASSES_SHOWN]]
    words = ", ".join(f"{name}: {number(count)} ({percent(count, total)})" for name, count in counts)
    more = len(decision.classes) - len(counts)
    return f"{words}, and {more} more classes" if more > 0 else words


def strata_tables(result: ComparisonResult) -> tuple[Table, ...]:
    """Return the figures of each value of each stratum, so that a fault in one is bounded by its rows."""
    columns = (
        "rows of", "output", ">rows", *(f">{title}" for title in _STRATUM_FIGURES), ">bias, 95 %",
        ">rows beyond a limit", ">mismatches", ">95 % bound",
    )  # fmt: skip
    tables = (
        table_of(
            f"By {name}",
            columns,
            (row for value, stratum in values.items() for row in _stratum_rows(value, stratum, result)),
        )
        for name, values in result.strata.items()
    )
    # Matched outputs have their strata in another table.
    return tuple(table for table in tables if table.rows)


def _stratum_rows(name: str, stratum: StratumResult, result: ComparisonResult) -> Iterable[Row]:
    for output_name, output in stratum.outputs.items():
        decision = stratum.decisions.get(output_name)
        yield (
            name,
            output_name,
            number(stratum.rows),
            *(
                figure(number(getattr(output, key)), fraction=_part(output, result.outputs.get(output_name), key))
                for key in _STRATUM_FIGURES.values()
            ),
            _interval(output),
            number(output.rows_beyond, missing="-"),
            "no rule" if decision is None else number(decision.mismatches),
            "-" if decision is None else f"< {upper_bound_text(decision.mismatch_rate_upper_95)}",
        )


def _part(output: StratumOutput, whole: OutputResult | None, key: str) -> float | None:
    """Return a stratum's largest difference as a part of its limit; None for other figures, and without a limit."""
    limit = whole.limits.get("max_abs_diff") if whole is not None else None
    if key != "max_abs_diff" or output.max_abs_diff is None or limit is None or limit.lowest <= 0:
        return None
    part = output.max_abs_diff / limit.highest
    # Values far from the bulk have wider limits.
    return min(part, 1.0) if output.rows_beyond == 0 else part


def _interval(output: StratumOutput) -> str:
    if output.bias_low_95 is None or output.bias_high_95 is None:
        return "-"
    return f"{number(output.bias_low_95)} to {number(output.bias_high_95)}"


def tolerance_table(result: ComparisonResult) -> Table:
    """Return the limits, their origin, and which are looser than the defaults."""
    default = to_data(DEFAULT_TOLERANCES[Precision(result.precision)])
    declared = set(result.tolerance.get("declared", ()))
    names = [name for name in default if name not in {"declared", "outputs", "precision"}]
    rows = tuple(
        (
            name,
            _limit(name, result.tolerance.get(name), result.precision),
            _limit(name, default[name], result.precision),
            "declared: holds as written" if name in declared else "default",
            status("looser") if name in result.looser_than_default else "-",
        )
        for name in names
    ) + tuple(_rows_of_outputs(result, default))
    titles = ("limit", ">value", f">default for {result.precision}", "set by", "against the default")
    return table_of("Limits: defaults are scaled by the output, and capped by the spread of each channel", titles, rows)


def _rows_of_outputs(result: ComparisonResult, default: Mapping[str, float | None]) -> Iterator[Row]:
    for output, limits in result.tolerance.get("outputs", {}).items():
        for name, values in limits.items():
            named = f"{output}:{name}"
            yield (
                named,
                ", ".join(DEFAULT_LIMIT if value is None else number(value) for value in values),
                _limit(name, default[name], result.precision),
                "declared: holds as written",
                status("looser") if named in result.looser_than_default else "-",
            )


def _limit(name: str, limit: float | None, precision: str) -> str:
    if limit is None:
        _, share = flips_allowed(Precision(precision))
        return f"{share * 100:g} %, near the boundary only" if name == "decision_mismatches" else "none"
    return number(limit)


def sides_table(result: ComparisonResult) -> Table:
    """Return what ran on either side, as the runtimes report it."""
    candidate, reference = result.candidate, result.reference
    rows = (
        (what, *(code(words) if what == _DIGEST else words for words in (of_candidate, of_reference)))
        for (what, of_candidate), (_, of_reference) in zip(_side(candidate), _side(reference), strict=True)
    )
    return table_of("What ran", ("what", "candidate (actual)", "reference (expected)"), rows)


def _side(side: SideResult) -> Iterable[tuple[str, str]]:
    unknown = "not known"
    yield "name", side.name
    yield "kind", side.kind
    yield "runtime", f"{side.runtime} {side.version or ''}".strip() if side.runtime else unknown
    yield "device", side.device or unknown
    yield "execution provider", side.provider or "none"
    yield "precision found", side.precision_found or unknown
    yield "TF32", {True: "may be used", False: "off", None: "does not apply"}[side.tf32]
    yield "optimisation level", side.optimisation or "none"
    yield "executes code of its author", "yes" if side.executes_code else "no"
    yield _DIGEST, side.digest or unknown


def operators_table(operators: Iterable[tuple[str, ...]]) -> Table:
    """Return the operators that the target lacks."""
    return table_of("Unsupported operators", ("operator", "node", "reason", "hint"), operators)
