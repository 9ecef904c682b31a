"""Values where the output may jump: the model's thresholds, one step beside them, and its buckets.

The graph holds these values; samples hardly ever hit them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.text import one_or_many
from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.probe import ROWS_FACTOR, ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Form, InputRole, Role
from paritygate.validate.probes.inputs.survey import InputSurvey, Rows
from paritygate.validate.probes.inputs.thresholds import Buckets, Threshold

_NAME = "boundaries"
_PLAIN = frozenset({Role.NUMBER, Role.IMAGE, Role.LENGTH})
# The part of a probe's rows that goes to thresholds.
_SHARE = 4
_COLUMNS = 16
_EDGES = 24
# Larger than a denormal number, which many runtimes flush to 0.
_STEP_FROM_ZERO = 2.0**-100
_STEP_FROM_ZERO_FP16 = 2.0**-12
# Up to here bfloat16 holds every whole number.
_LARGEST_EXACT_IN_HALF = 256
_GOLDEN = (5**0.5 - 1) / 2
_MATRIX_RANK = 2
_FEATURE_RANK = 3


def features_in_words(columns: Sequence[int]) -> str:
    """Return where rows were changed: `in feature 3`, `in features 0, 2`."""
    return f"in {one_or_many(len(columns), 'feature', 'features')} {', '.join(map(str, columns))}"


class _Question(Struct, frozen=True, kw_only=True):
    """A value, and the feature to put it into (None: all features)."""

    value: float
    column: int | None


class _Kind(Struct, frozen=True, kw_only=True):
    """The properties that all values of one batch share."""

    about: str
    is_invented: bool
    is_far: bool


def at_boundaries(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows in which values of one input are where the output may jump."""
    places = _places(context)
    for place in places:
        allowed = max(1, context.max_rows * ROWS_FACTOR // _SHARE // len(places))
        yield from place.batches(_of_thresholds(place), allowed)
        yield from place.batches(_of_edges(place), allowed)


def in_buckets(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows whose values fall into every bucket of a table, or into as many as the allowed rows cover."""
    places = [place for place in _places(context) if any(item.rows is not None for item in place.role.buckets)]
    for place in places:
        allowed = max(1, context.max_rows * ROWS_FACTOR // len(places))
        for buckets in place.role.buckets:
            yield from place.batches(_of_table(place, buckets, allowed), allowed)


def _places(context: ProbeContext) -> list[_Place]:
    rows = context.survey.groups[0]
    return [
        _Place(context, rows, name)
        for name, role in context.roles.items()
        if role.role in _PLAIN
        and role.form not in {Form.FIXED, Form.ONE_HOT, Form.SHARES}
        and (role.thresholds or role.buckets)
        and context.survey.inputs[name].low is not None
        and rows.inputs[name].size
        and rows.inputs[name].dtype.kind in "fiuV"
    ]


class _Place:
    """Real rows, in which single values of one input are replaced."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name
        self._sizes = batch_sizes(context)
        self._order = context.random(f"{_NAME}/{name}").permutation(len(rows.ids))
        self.role: InputRole = context.roles[name]
        self.seen: InputSurvey = context.survey.inputs[name]
        self.has_rows = name in rows.with_rows
        self.dtype = rows.inputs[name].dtype
        self._real: NDArray[Any] = rows.inputs[name]
        self.columns = self._columns()

    def _columns(self) -> int:
        """Return the number of features, or 0 where the input has no features."""
        rank = self._real.ndim
        if not self.has_rows or not _MATRIX_RANK <= rank <= _FEATURE_RANK or self._real.shape[-1] == 1:
            return 0
        return int(self._real.shape[-1])

    def where(self, columns: tuple[int, ...] | None) -> list[int | None]:
        """Return the features that get a value that these columns meet; [None] means all features at once."""
        if not self.columns:
            return [None]
        chosen = range(self.columns) if columns is None else [at for at in columns if at < self.columns]
        if len(chosen) <= _COLUMNS:
            return [*chosen]
        return [chosen[int(at)] for at in np.linspace(0, len(chosen) - 1, _COLUMNS)]

    def is_seen(self, question: _Question) -> bool:
        """Return whether the value is within the range of the samples."""
        lows, highs = self.seen.bounds()
        if question.column is not None and lows.ndim:
            lows, highs = lows[question.column], highs[question.column]
        return bool((lows <= question.value).all() and (question.value <= highs).all())

    def batches(self, asked: Iterator[tuple[_Kind, list[_Question]]], allowed: int) -> Iterator[ProbeBatch]:
        """Yield batches with one question per row, as many as the rows allow."""
        least, most = (min(self._sizes), max(self._sizes)) if self.has_rows else (1, 1)
        for kind, questions in asked:
            for start in range(0, len(questions), most):
                part = questions[start : start + most]
                allowed -= max(least, len(part))
                if allowed < 0:
                    return
                yield self._batch(kind, part, max(least, len(part)))

    def _batch(self, kind: _Kind, questions: Sequence[_Question], count: int) -> ProbeBatch:
        at = [int(row) for row in np.resize(self._order, count)] if self._rows.with_rows else [0]
        if not self.has_rows and self._rows.with_rows:
            at = [int(row) for row in np.resize(self._order, min(self._sizes))]
        inputs = self._rows.take(at)
        changed = np.array(inputs[self._name])
        for row in range(len(at)) if self.has_rows else ():
            question = questions[row % len(questions)]
            place = row if question.column is None else (row, ..., question.column)
            changed[place] = _as_dtype(question.value, self.dtype)
        if not self.has_rows:
            changed[...] = _as_dtype(questions[0].value, self.dtype)
        inputs[self._name] = changed
        values = ", ".join(dict.fromkeys(f"{question.value:.9g}" for question in questions[:3]))
        columns = list(dict.fromkeys(question.column for question in questions if question.column is not None))
        where = f" {features_in_words(columns)}" if columns else ""
        more = " and more" if len({question.value for question in questions}) > 3 else ""  # noqa: PLR2004 - named above
        return ProbeBatch(
            inputs=inputs,
            rows=len(at),
            about=f"{self._name}: {kind.about} ({values}{more}){where}",
            is_unlike_seen=True,
            is_far_from_seen=kind.is_far,
            is_invented=kind.is_invented,
        )


def _as_dtype(value: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(int(value) if dtype.kind in "iu" else value).astype(dtype)


def _of_thresholds(place: _Place) -> Iterator[tuple[_Kind, list[_Question]]]:
    """Yield every threshold and its neighbours, in single features and everywhere.

    A value outside the range of the samples gets its own batch, because the reference may refuse it or return NaN.
    """
    together: dict[_Kind, list[_Question]] = {}
    alone: list[tuple[_Kind, list[_Question]]] = []
    for threshold in place.role.thresholds:
        for kind, value in _around(threshold, place):
            everywhere = _Question(value=value, column=None)
            questions = [_Question(value=value, column=at) for at in place.where(threshold.columns)]
            of_all = _Kind(
                about=f"{kind.about} everywhere",
                is_invented=kind.is_invented or not threshold.is_level,
                is_far=kind.is_far,
            )
            if questions == [everywhere]:
                kind = of_all  # noqa: PLW2901 - there is one feature alone
                of_whole = []
            else:
                of_whole = [everywhere] if threshold.columns is None else []
            if all(place.is_seen(question) for question in (*questions, *of_whole)):
                together.setdefault(kind, []).extend(questions)
                together.setdefault(of_all, []).extend(of_whole)
            else:
                alone += [(kind, questions), (of_all, of_whole)]
    yield from ((kind, questions) for kind, questions in alone if questions)
    yield from ((kind, questions) for kind, questions in together.items() if questions)


def _around(threshold: Threshold, place: _Place) -> Iterator[tuple[_Kind, float]]:
    value, form = threshold.value, place.role.form
    about = "a value that the model compares with"
    if form is Form.FLAG:
        # Half a flag means nothing, but a flag may have a code for a missing value.
        if threshold.is_equality and value.is_integer():
            yield _Kind(about=about, is_invented=not threshold.is_exact, is_far=False), value
        return
    if form is Form.WHOLE or place.dtype.kind in "iu":
        limits = np.iinfo(str(place.dtype)) if place.dtype.kind in "iu" else None
        for whole in dict.fromkeys((math.floor(value), math.ceil(value), math.floor(value) - 1, math.ceil(value) + 1)):
            if (limits is None or limits.min <= whole <= limits.max) and abs(whole - value) <= 1:
                kind = _Kind(
                    about=about if whole == value else "beside a value that the model compares with",
                    is_invented=not threshold.is_exact,
                    is_far=_is_lost_in_half(whole),
                )
                yield kind, float(whole)
        return
    is_invented = value == 0 or not threshold.is_exact
    nearest = float(_as_dtype(value, place.dtype))
    if math.isfinite(nearest) and (nearest == value or place.dtype == np.float64):
        yield _Kind(about=about, is_invented=is_invented, is_far=_is_lost_in_half(value)), value
    for beside, toward in (("below", -math.inf), ("above", math.inf)):
        about_step = f"just {beside} a value that the model compares with"
        stepped = _step(value, toward, place.dtype)
        if math.isfinite(stepped):
            yield _Kind(about=about_step, is_invented=is_invented, is_far=True), stepped


def _step(value: float, toward: float, dtype: np.dtype[Any]) -> float:
    """Return the next number, in float32 for float64 inputs because a float32 computation holds no finer one."""
    narrow = np.dtype(np.float32) if dtype == np.float64 else dtype
    if value == 0:
        step = _STEP_FROM_ZERO if narrow.kind == "f" and narrow.itemsize > 2 else _STEP_FROM_ZERO_FP16  # noqa: PLR2004 - bytes
        return math.copysign(step, toward)
    with np.errstate(over="ignore"):
        return float(np.nextafter(_as_dtype(value, narrow), _as_dtype(toward, narrow)))


def _is_lost_in_half(value: float) -> bool:
    """Return whether float16 or bfloat16 rounds the value to another."""
    with np.errstate(over="ignore"):
        return any(float(np.asarray(value).astype(kind)) != value for kind in (np.float16, ml_dtypes.bfloat16))


def _of_table(place: _Place, buckets: Buckets, allowed: int) -> Iterator[tuple[_Kind, list[_Question]]]:
    """Yield the middle of every bucket, or of as many as fit, where rounding leads to no other bucket."""
    rows, is_whole = buckets.rows or 0, place.role.form is Form.WHOLE or place.dtype.kind in "iu"
    if not rows or (is_whole and (buckets.scale != 1 or buckets.shift not in {0.0, 0.5})):
        return
    chosen = np.unique(np.linspace(0, rows - 1, min(rows, allowed)).astype(np.int64)) - buckets.after
    # Any number of rows takes buckets from the whole table.
    chosen = chosen[np.argsort(np.arange(len(chosen)) * _GOLDEN % 1)]
    half = 0.0 if is_whole else 0.5 - buckets.shift
    values = [(float(bucket) + half) / buckets.scale for bucket in chosen]
    kind = _Kind(
        about=f"buckets of a table of {rows} rows",
        is_invented=not (is_whole and buckets.is_exact),
        is_far=rows > _LARGEST_EXACT_IN_HALF,
    )
    for column in place.where(buckets.columns):
        yield kind, [_Question(value=value, column=column) for value in values]
        for unknown in (-1, rows) if is_whole else ():
            # The model may refuse a value outside all buckets, or have a default: each gets its own batch.
            value = float(unknown - buckets.after)
            beside = _Kind(about="beside the buckets of a table", is_invented=kind.is_invented, is_far=kind.is_far)
            yield beside, [_Question(value=value, column=column)]


def _of_edges(place: _Place) -> Iterator[tuple[_Kind, list[_Question]]]:
    for buckets in place.role.buckets:
        if buckets.rows is None and place.dtype.kind in "fV" and place.role.form is None:
            yield from _edges(place, buckets)


def _edges(place: _Place, buckets: Buckets) -> Iterator[tuple[_Kind, list[_Question]]]:
    """Yield the edges between buckets within the range seen, and a step below and above each."""
    exact: list[_Question] = []
    below: list[_Question] = []
    above: list[_Question] = []
    for column in place.where(buckets.columns):
        lows, highs = place.seen.bounds()
        if column is not None and lows.ndim:
            lows, highs = lows[column], highs[column]
        first, last = math.ceil(float(lows.min())), math.floor(float(highs.max()))
        if last < first:
            continue
        for at in np.unique(np.linspace(first, last, min(_EDGES, last - first + 1)).astype(np.int64)):
            edge = float(at) - buckets.shift
            if float(_as_dtype(edge, place.dtype)) != edge or abs(edge) >= 2.0**23:
                continue
            exact.append(_Question(value=edge, column=column))
            below.append(_Question(value=_step(edge, -math.inf, place.dtype), column=column))
            above.append(_Question(value=_step(edge, math.inf, place.dtype), column=column))
    for about, questions in (
        ("where the model rounds", exact),
        ("just below where the model rounds", below),
        ("just above where the model rounds", above),
    ):
        kind = _Kind(about=about, is_invented=not buckets.is_exact, is_far=True)
        if questions:
            yield kind, questions
