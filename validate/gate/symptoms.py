"""Describe the difference of an output that failed, so that a reader finds the fault.

Rows that differ get a common trait only if random rows would hardly all have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paritygate.signature import is_number_dtype
from paritygate.text import counted, one_or_many, row_names
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.row_traits import TRAITS

if TYPE_CHECKING:
    from paritygate.validate.measure.measurement import Measurement
    from paritygate.validate.measure.profile import OutputProfile
    from paritygate.validate.measure.row_pattern import Ends, RowPattern
    from paritygate.validate.measure.statistics import DiffStatistics

# A constant offset: the difference varies by less than this part of its mean.
_STEADY = 0.1
# Scaled: a factor leaves less than this part of the squared difference unexplained.
_UNEXPLAINED = 0.01
# One-sided: the mean of the signed difference is at least this part of the mean of its magnitude.
_ONE_SIDED = 0.9
_APPROXIMATE = 0.1
# Nearly everywhere: half of the differences are at least this part of their mean.
_USUAL = 0.1
# Not everywhere: half of the differences are below this part of their mean, like the noise beside one huge row.
_HARDLY_ANY = 1e-5
# Few rows: their largest difference is this many times the mean, and no more rows than this share.
_FAR_ABOVE_MEAN = 20.0
_FEW = 0.05
# Rows have a trait for a reason if the chance of it is less than this.
_CHANCE = 1e-3
# All rows of a kind differ if this share of them does.
_NEARLY_ALL = 0.9
# The difference grows with the length: the least correlation, range of lengths, and growth.
_CORRELATION = 0.8
_LENGTH_RANGE = 1.5
_GROWN = 2.0
_LEAST_VALUES = 8
# Prefix of checks on names, dtypes and shapes.
_CONTRACT = "contract"
_NAMED = 5
_SPREADS = 3.0
_A_PAIR = 2


def symptoms_of(
    measured: Measurement,
    checks: Iterable[Check],
    strata: Mapping[str, Mapping[str, Measurement]],
    profiles: Mapping[str, OutputProfile],
) -> dict[str, tuple[str, ...]]:
    """Return the symptoms of each output with a failed check; outputs without any are absent.

    Outputs that fail by the contract alone are absent too.
    """
    failed = dict.fromkeys(
        check.output
        for check in checks
        if check.status is Status.FAIL and check.output and not check.name.startswith(_CONTRACT)
    )
    symptoms = {
        name: _looks_like(profiles[name], measured.statistics[name], measured.patterns.get(name), strata)
        for name in failed
        if name in measured.statistics
    }
    return {name: words for name, words in symptoms.items() if words}


def _looks_like(
    profile: OutputProfile,
    statistics: DiffStatistics,
    pattern: RowPattern | None,
    strata: Mapping[str, Mapping[str, Measurement]],
) -> tuple[str, ...]:
    if not is_number_dtype(profile.dtype):
        # Such values are equal or not: their difference has no size and no sign.
        return () if pattern is None else _of_rows(profile, statistics, pattern, strata)
    if pattern is not None:
        wired = tuple(_wiring(pattern))
        if wired:
            return wired
    everywhere = tuple(_all_over(statistics))
    if everywhere:
        return everywhere
    of_rows = () if pattern is None else _of_rows(profile, statistics, pattern, strata)
    # The sign of a difference of labels means nothing.
    if of_rows or not profile.is_float:
        return of_rows
    is_everywhere = pattern is not None and pattern.beyond >= _NEARLY_ALL * pattern.rows
    return tuple(_one_sided(statistics, is_everywhere=is_everywhere))


def _of_rows(
    profile: OutputProfile,
    statistics: DiffStatistics,
    pattern: RowPattern,
    strata: Mapping[str, Mapping[str, Measurement]],
) -> tuple[str, ...]:
    """Return which rows or columns differ, if these have a common trait."""
    rows = _Rows.of(pattern)
    traits = (*_attributed(pattern, rows, _strata_of(profile.name, strata)), *_channel(pattern))
    grown = tuple(_growth(pattern)) if is_number_dtype(profile.dtype) else ()
    return traits or grown or tuple(_few_rows(statistics, rows))


def _wiring(pattern: RowPattern) -> Iterator[str]:
    if not pattern.batches_beyond:
        return
    for name, batches in pattern.resembles.items():
        if batches == pattern.batches_beyond:
            yield f"swapped outputs: it holds the reference's {name!r}"
            return
    seen, beyond = pattern.batches, pattern.batches_beyond
    some = f"{beyond} of {counted(seen, 'batch')}" if beyond < seen else ""
    if pattern.plural_beyond and pattern.plural_beyond == pattern.alike:
        yield f"one output for all rows: the rows of {some or 'a batch'} are all answered alike"
    elif pattern.plural_beyond == beyond == pattern.permuted:
        hold = f"{some} {one_or_many(beyond, 'holds', 'hold')}" if some else "each batch holds"
        yield f"rows in another order: {hold} the reference's rows, permuted"
    elif pattern.shuffled == beyond:
        yield from _moved_columns(pattern, f", in {some}" if some else "")


def _moved_columns(pattern: RowPattern, where: str) -> Iterator[str]:
    moved = pattern.moved
    # A permutation uses each column once; few values can match by chance.
    if sorted(moved) != sorted(moved.values()) or pattern.rows_near * len(moved) < _LEAST_VALUES:
        return
    first, source = min(moved.items())
    of = f"of {len(pattern.by_channel)} along axis {pattern.axis}"
    if len(moved) == _A_PAIR:
        yield f"columns in another order: indices {first} and {source} {of} are swapped{where}"
    else:
        what = f"{len(moved)} {of} are permuted{where}"
        yield f"columns in another order: {what}: index {first} holds what the reference has at {source}"


def _all_over(statistics: DiffStatistics) -> Iterator[str]:
    bias, spread = statistics.bias, statistics.std_diff
    if statistics.compared < _LEAST_VALUES or statistics.non_finite or not bias:
        return
    part = spread / math.hypot(spread, bias)
    left_by_offset = part * part
    if spread <= _STEADY * abs(bias) and not statistics.off_slope < left_by_offset:
        yield f"a constant offset: {bias:+.3g} everywhere, varying by {spread:.2g} only"
    elif _is_scaled(statistics) and statistics.p50_abs_diff > _HARDLY_ANY * statistics.mean_abs_diff:
        yield f"scaled: the candidate is {statistics.slope:.6g} times the reference"


def _is_scaled(statistics: DiffStatistics) -> bool:
    """Return whether a factor explains the difference and the candidate.

    For a candidate that hardly follows the reference, such as zeros, a factor near 0 explains the difference alone.
    """
    slope, beyond = statistics.slope, statistics.slope - 1
    is_followed = statistics.off_slope * beyond * beyond < _UNEXPLAINED * slope * slope
    return statistics.off_slope <= _UNEXPLAINED and is_followed


def _one_sided(statistics: DiffStatistics, *, is_everywhere: bool) -> Iterator[str]:
    bias, mean = statistics.bias, statistics.mean_abs_diff
    is_spread = statistics.max_abs_diff <= _FAR_ABOVE_MEAN * mean and statistics.p50_abs_diff >= _USUAL * mean
    # Equal outputs have no sign.
    if statistics.compared >= _LEAST_VALUES and is_spread and bias and abs(bias) >= _ONE_SIDED * mean:
        side = "above" if bias > 0 else "below"
        # An approximation is near in every row.
        is_approximate = is_everywhere and statistics.max_row_rel_diff <= _APPROXIMATE
        why = ", as where a function is approximated" if is_approximate else ""
        yield (
            f"one-sided: the candidate is {side} the reference nearly everywhere (mean difference {bias:+.3g}, "
            f"of its magnitude {mean:.3g}){why}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    rows: int
    beyond: int
    verb: str

    @classmethod
    def of(cls, pattern: RowPattern) -> _Rows:
        is_broken = 0 < pattern.broken == pattern.beyond
        return cls(rows=pattern.rows, beyond=pattern.beyond, verb="are not finite" if is_broken else "differ")

    def only(self, which: str, of_kind: int) -> str:
        """Return the sentence that only these rows are beyond the limits."""
        return f"only rows {which} {self.verb}: {self.beyond} of {of_kind}, and none of the other {self.rows - of_kind}"

    def is_no_chance(self, of_kind: int, *, tries: int = 1) -> bool:
        """Return whether random rows would hardly all be of this kind, in the best of some tries."""
        return tries * chance_of_all(of_kind, self.rows, self.beyond) < _CHANCE


def chance_of_all(of_kind: int, rows: int, picked: int) -> float:
    """Return the chance that rows picked without replacement are all of one kind.

    Source: the hypergeometric distribution, C(of_kind, picked) / C(rows, picked).
    """
    if picked > of_kind:
        return 0.0
    if not picked:
        return 1.0
    return math.exp(_log_choose(of_kind, picked) - _log_choose(rows, picked))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


_Strata = Mapping[str, Mapping[str, "RowPattern"]]


def _strata_of(output: str, strata: Mapping[str, Mapping[str, Measurement]]) -> _Strata:
    return {
        name: {value: measured.patterns[output] for value, measured in values.items() if output in measured.patterns}
        for name, values in strata.items()
    }


def _attributed(pattern: RowPattern, rows: _Rows, strata: _Strata) -> tuple[str, ...]:
    """Return the traits that all rows beyond the limits have, and no others."""
    if not 0 < rows.beyond < rows.rows:
        return ()
    # The advice on empty rows helps even for a few.
    empty = tuple(_empty_rows(pattern, rows))
    if empty:
        return empty
    trait = tuple(_trait(pattern, rows))
    # Batches of one size often have rows of one length, and the batch tells more than the length.
    where = tuple(_sizes(pattern, rows)) or tuple(_places(pattern, rows))
    traits = (*trait, *_stratum(strata, rows), *where)
    return (
        traits or tuple(_widths(pattern, rows)) or tuple(_lengths(pattern, rows)) or tuple(_magnitudes(pattern, rows))
    )


def _empty_rows(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    for name, empty in pattern.empty_beyond.items():
        if empty == rows.beyond:
            yield (
                f"only rows without any position in {name} {rows.verb}: {counted(empty, 'row')} of {rows.rows}; if the "
                f"service never gets such rows, remove them from the samples, or add empty: false to {name} below "
                "roles in the spec (--role of compare)"
            )
            return


def _trait(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    for name, words in TRAITS.items():
        of_kind = pattern.held_near[name]
        if pattern.held_beyond[name] == rows.beyond < pattern.rows_near:
            chance = chance_of_all(of_kind, pattern.rows_near, rows.beyond)
            if len(TRAITS) * chance < _CHANCE:
                others = pattern.rows_near - of_kind
                yield f"only rows with {words} {rows.verb}: {rows.beyond} of {of_kind}, and none of {others} others"
                return


def _stratum(strata: _Strata, rows: _Rows) -> Iterator[str]:
    for name, values in strata.items():
        bad = [value for value, pattern in values.items() if pattern.beyond]
        if len(bad) != 1 or len(values) == 1:
            continue
        of_kind = values[bad[0]].rows
        if rows.is_no_chance(of_kind, tries=len(values)):
            yield rows.only(f"of {name} {bad[0]!r}", of_kind)


def _sizes(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    of_size = {size: size * batches for size, batches in pattern.batches_of.items()}
    yield from _of_some_sizes("in batches of", of_size, pattern.beyond_in, rows)


def _widths(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    yield from _of_some_sizes("in batches of width", pattern.rows_of_width, pattern.beyond_of_width, rows)


def _of_some_sizes(kind: str, rows_of: Mapping[int, int], beyond_of: Mapping[int, int], rows: _Rows) -> Iterator[str]:
    bad = sorted(size for size in rows_of if beyond_of.get(size))
    good = sorted(size for size in rows_of if not beyond_of.get(size))
    if not good:
        return
    of_kind = sum(rows_of[size] for size in bad)
    if rows.beyond < _NEARLY_ALL * of_kind or not rows.is_no_chance(of_kind, tries=len(rows_of)):
        return
    if len(bad) == 1:
        which = f"{bad[0]}"
    elif good[-1] < bad[0]:
        which = f"{bad[0]} and more"
    elif good[0] > bad[-1]:
        which = f"{bad[-1]} and fewer"
    elif len(good) == 1:
        which = f"other than {good[0]}"
    else:
        return
    yield rows.only(f"{kind} {which}", of_kind)


def _places(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    batches = pattern.batches
    at = pattern.beyond_at
    first = min(at)
    # In batches of one size the last row is always at one place, and being the last tells more.
    if pattern.beyond_last == rows.beyond and rows.is_no_chance(batches):
        yield rows.only("at the last place of their batch", batches)
        return
    if len(at) == 1:
        of_kind = sum(count for size, count in pattern.batches_of.items() if size > first)
        which = "at the first place of their batch" if first == 0 else f"at place {first + 1} of their batch"
        if rows.is_no_chance(of_kind, tries=max(pattern.batches_of)):
            yield rows.only(which, of_kind)
            return
    for parity, which in ((1, "even"), (0, "odd")):
        of_kind = sum(count * ((size + 1 - parity) // 2) for size, count in pattern.batches_of.items())
        is_of_kind = all(place % 2 == parity for place in at)
        if is_of_kind and rows.beyond >= _NEARLY_ALL * of_kind and rows.is_no_chance(of_kind, tries=2):
            yield rows.only(f"at {which} places of their batch", of_kind)
            return
    of_kind = sum(count * max(0, size - first) for size, count in pattern.batches_of.items())
    if first and rows.beyond >= _NEARLY_ALL * of_kind and rows.is_no_chance(of_kind, tries=first + 1):
        yield rows.only(f"from place {first + 1} of their batch on", of_kind)


def _lengths(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    if rows.is_no_chance(rows.beyond):
        which = _apart(pattern.lengths_beyond, pattern.lengths_within)
        if which:
            yield rows.only(f"of length {which}", rows.beyond)


def _magnitudes(pattern: RowPattern, rows: _Rows) -> Iterator[str]:
    which = _apart(pattern.magnitudes_beyond, pattern.magnitudes_within)
    if which and chance_of_all(rows.beyond, pattern.rows_near, rows.beyond) < _CHANCE:
        others = pattern.rows_near - rows.beyond
        yield f"only rows with inputs of magnitude {which} {rows.verb}: {rows.beyond}, and none of {others} others"


def _apart(beyond: Ends, within: Ends) -> str:
    """Return the bound that separates some numbers from the others; empty without one."""
    if beyond.low > beyond.high or within.low > within.high:
        return ""
    if beyond.low > within.high:
        return f"{beyond.low:.6g} and more"
    return f"{beyond.high:.6g} and less" if beyond.high < within.low else ""


def _channel(pattern: RowPattern) -> Iterator[str]:
    counts = pattern.by_channel
    bad = [index for index, count in enumerate(counts.tolist()) if count]
    if len(bad) != 1 or len(counts) == 1 or len(counts) ** (1 - int(counts[bad[0]])) >= _CHANCE:
        return
    if counts[bad[0]] >= _NEARLY_ALL * pattern.beyond:
        yield f"only index {bad[0]} of {len(counts)} along axis {pattern.axis} is beyond the limit"


def _growth(pattern: RowPattern) -> Iterator[str]:
    growth = pattern.growth
    ends = pattern.lengths_beyond.with_ends(pattern.lengths_within)
    if growth.count < _LEAST_VALUES or ends.high < _LENGTH_RANGE * ends.low or not growth.xx or not growth.yy:
        return
    correlation = growth.xy / math.sqrt(growth.xx * growth.yy)
    slope = growth.xy / growth.xx
    spread = math.sqrt(growth.xx / growth.count)
    longest = growth.mean_y + slope * min(ends.high - growth.mean_x, _SPREADS * spread)
    shortest = max(0.0, growth.mean_y + slope * max(ends.low - growth.mean_x, -_SPREADS * spread))
    if correlation >= _CORRELATION and longest >= _GROWN * shortest:
        yield (
            f"it grows with the length of the row ({ends.low:g} to {ends.high:g}): "
            f"the correlation with the largest difference of a row is {correlation:.2f}"
        )


def _few_rows(statistics: DiffStatistics, rows: _Rows) -> Iterator[str]:
    is_far = statistics.max_abs_diff > _FAR_ABOVE_MEAN * statistics.mean_abs_diff or rows.verb != "differ"
    if not 0 < rows.beyond <= max(1.0, _FEW * rows.rows) or rows.beyond == rows.rows or not is_far:
        return
    named = [row.row_id for row in statistics.worst_rows][: min(rows.beyond, _NAMED)]
    yield f"few rows: {rows.beyond} of {rows.rows} {rows.verb} ({row_names(named)}), the others are within the limits"
