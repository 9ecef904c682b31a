"""Compare the inputs of captured requests with the survey of the samples that the release was judged on.

One request outside of a range is not a finding, because it may be so by chance. If n requests are like N rows, the k
largest of all N + n values are in requests with the probability C(n, k) / C(N + n, k). This is the exact distribution
of exceedances (Gumbel and von Schelling, Annals of Mathematical Statistics 21, 1950). It is also Fisher's exact test
for what no row has. A finding is wrong in 1 of 100 comparisons at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from paritygate.codec import from_data
from paritygate.files import json_of
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.repository.manifest import read_file
from paritygate.validate.probes.inputs.padding import Padding, real_positions
from paritygate.validate.probes.inputs.survey import SURVEY_FILE, InputSurvey, StoredSurvey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_LEVEL = 0.01
# New ids that are counted apart, of an input.
_MOST_IDS = 1000
_FLAGS = ({0.0}, {1.0}, {0.0, 1.0})


class InputDrift(Struct, frozen=True, kw_only=True):
    """How many requests have an input unlike all samples in one way; without values, unless the spec shows inputs."""

    input: str
    kind: str  # below, above, missing, new ids, shorter, longer, or fewer or more valid positions
    requests: int  # that are so
    of: int
    is_finding: bool  # more than chance explains
    seen: str = ""  # in the samples and in the requests


class _Counts(Struct, kw_only=True):
    """Requests by kind, and for each kind by what was tested: a feature, an axis or an id."""

    requests: Counter[str] = field(default_factory=Counter)
    tested: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    ids: Counter[float] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf

    def add(self, kind: str, found: NDArray[np.bool_]) -> None:
        """Add one request, with the features or axes in which it is so."""
        self.requests[kind] += bool(found.any())
        before = self.tested.get(kind)
        # A request may have another number of features.
        self.tested[kind] = found.astype(np.int64) if before is None or before.shape != found.shape else before + found


class InputComparison:
    """Compares one request after the other."""

    def __init__(self, survey: StoredSurvey, *, is_showing: bool) -> None:
        """Begin; `is_showing` shows values."""
        self._survey = survey
        self._is_showing = is_showing
        self._counts = {name: _Counts() for name, seen in survey.inputs.items() if seen.has_rows}
        self._masked = {_positions(seen) for seen in survey.inputs.values() if _is_mask(seen)}
        self._requests = 0
        self._most_rows = 1

    def add(self, inputs: Mapping[str, Array]) -> None:
        """Add a request."""
        self._requests += 1
        for name, counts in self._counts.items():
            array = inputs.get(name)
            if array is not None and array.ndim and array.size:
                self._most_rows = max(self._most_rows, len(array))
                _add(counts, self._survey.inputs[name], array, self._masked)

    def finish(self) -> tuple[InputDrift, ...]:
        """Return each way in which a request is unlike all samples."""
        tests = sum(tested.size for counts in self._counts.values() for tested in counts.tested.values())
        tests += sum(len(counts.ids) for counts in self._counts.values())
        return tuple(
            InputDrift(
                input=name,
                kind=kind,
                requests=requests,
                of=self._requests,
                is_finding=self._chance(name, kind) * tests < _LEVEL,
                seen=_seen(kind, self._survey.inputs[name], counts) if self._is_showing else "",
            )
            for name, counts in self._counts.items()
            for kind, requests in counts.requests.items()
            if requests
        )

    def _chance(self, name: str, kind: str) -> float:
        """Return how likely so many requests are, if requests and samples are alike."""
        from scipy.stats import hypergeom

        counts, seen = self._counts[name], self._survey.inputs[name]
        most = max(counts.ids.values()) if kind == "new ids" else int(counts.tested[kind].max())
        # A request of several rows compares with so many rows of the samples together; a batch of them has one size.
        together = seen.largest_sizes[0] if kind in {"shorter", "longer"} else 1
        groups = self._survey.rows // max(self._most_rows, together)
        before = min(seen.nan_rows, groups) if kind == "missing" else 0
        return float(hypergeom.sf(most - 1, groups + self._requests, before + most, self._requests))


def comparison_of(details: ReleaseDetails) -> InputComparison | None:
    """Return the comparison with a release's samples; None without a survey, as in a release of an earlier version."""
    content = read_file(details.local_folder(), SURVEY_FILE)
    if content is None:
        return None
    spec = (details.manifest.get("provenance") or {}).get("spec") or {}
    is_showing = (spec.get("report") or {}).get("inputs") == "show"
    return InputComparison(from_data(StoredSurvey, json_of(content.decode())), is_showing=is_showing)


def _is_mask(seen: InputSurvey) -> bool:
    return seen.distinct is not None and set(seen.distinct) in _FLAGS and seen.padding.shortest is not None


def _positions(seen: InputSurvey) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return seen.least_sizes[1:2], seen.largest_sizes[1:2]


def _add(counts: _Counts, seen: InputSurvey, array: Array, masked: Collection[object]) -> None:
    # Padding is not a difference where a mask shows it.
    axes = slice(2 if _positions(seen) in masked else 1, None)
    if array.shape[axes] and len(seen.least_sizes) == array.ndim:
        counts.add("shorter", np.less(array.shape[axes], seen.least_sizes[axes]))
        counts.add("longer", np.greater(array.shape[axes], seen.largest_sizes[axes]))
    if seen.low is None or array.dtype.kind not in "fiubV":
        return
    wide = array.astype(np.float64)
    is_nan = np.isnan(wide)
    counts.add("missing", np.array([is_nan.any()]))
    if seen.distinct is not None and seen.is_whole:
        new = set(np.unique(wide[~is_nan]).tolist()) - {*seen.distinct}
        counts.requests["new ids"] += bool(new)
        counts.ids.update(value for value in new if len(counts.ids) < _MOST_IDS or value in counts.ids)
    else:
        finite = wide[np.isfinite(wide)]
        counts.low = min(counts.low, float(finite.min(initial=np.inf)))
        counts.high = max(counts.high, float(finite.max(initial=-np.inf)))
        below, above = seen.beyond(wide)
        if not seen.has_infinity:
            below, above = below | (wide == -np.inf), above | (wide == np.inf)
        features = wide.shape[-1] if seen.feature_lows is not None else 1
        for kind, outside in (("below", below), ("above", above)):
            counts.add(kind, np.atleast_1d(outside.reshape(-1, features).any(axis=0)))
    real = real_positions(wide) if _is_mask(seen) else None
    if real is not None and seen.padding.shortest is not None and seen.padding.longest is not None:
        lengths = real.sum(axis=1)
        shortest = 0 if Padding.EMPTY in seen.padding.kinds else seen.padding.shortest
        counts.add("fewer valid positions", np.array([(lengths < shortest).any()]))
        counts.add("more valid positions", np.array([(lengths > seen.padding.longest).any()]))


def _seen(kind: str, seen: InputSurvey, counts: _Counts) -> str:
    if kind == "new ids":
        return f"most often {counts.ids.most_common(1)[0][0]:g}"
    if kind in {"below", "above"}:
        return f"samples {seen.low:g} to {seen.high:g}, requests {counts.low:g} to {counts.high:g}"
    return ""
