"""Plan a benchmark by the spec or the command line: batch sizes, concurrency, rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from paritygate.errors import UsageError
from paritygate.pipelines.spec.limits import COST
from paritygate.pipelines.spec.parts import BenchmarkPart
from paritygate.pipelines.spec.schema import ResolvedSpec

# Limits on properties of the artifact itself.
_KNOWN_WITHOUT = frozenset({"size_mb"})


class BenchmarkPlan(Struct, frozen=True, kw_only=True):
    """The measurements of a benchmark."""

    batch_sizes: tuple[int, ...]  # rows a call, without repeats
    concurrency: tuple[int, ...]  # instances side by side, without repeats
    rounds: int  # turns of every variant
    seconds: float  # least time of each variant, point and round
    price_per_hour: float | None  # of the machine; None where unknown

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """All pairs of batch size and concurrency."""
        return tuple((size, number) for size in self.batch_sizes for number in self.concurrency)


def is_benchmark_wanted(resolved: ResolvedSpec, limits: Iterable[str] = ()) -> bool:
    """Return whether the spec, or a choice by speed under more limits, needs a benchmark."""
    return resolved.spec.benchmark is not None or is_speed_needed(resolved, limits)


def is_speed_needed(resolved: ResolvedSpec, limits: Iterable[str] = ()) -> bool:
    """Return whether the spec, or more limits, choose a release by speed."""
    promote = resolved.spec.promote
    return promote.prefer == "fastest" or not {*promote.limits, *limits} <= _KNOWN_WITHOUT


def price_of(resolved: ResolvedSpec) -> float | None:
    """Return the price of the machine per hour in the spec; None if there is none."""
    return None if resolved.spec.benchmark is None else resolved.spec.benchmark.price_per_hour


def check_price(resolved: ResolvedSpec, limits: Iterable[str]) -> None:
    """Raise a `UsageError` if a limit needs a price, and there is none."""
    if COST in limits and price_of(resolved) is None:
        msg = f"spec {resolved.origin}: {COST} has a limit, but benchmark.price_per_hour is missing"
        raise UsageError(msg, hint="give the price of the machine: benchmark: {price_per_hour: PRICE}")


def plan_of(resolved: ResolvedSpec, changes: Mapping[str, Any] | None = None) -> BenchmarkPlan:
    """Return the plan of a spec; `changes` replaces values of its `benchmark`.

    Raises:
        UsageError: A value is not allowed, or a batch size is outside of the declared dims of the model.
    """
    part = _changed(resolved.spec.benchmark or BenchmarkPart(), changes or {})
    plan = BenchmarkPlan(
        batch_sizes=_distinct(part.batch_sizes or _default_batch_sizes(resolved)),
        concurrency=_distinct(part.concurrency),
        rounds=part.rounds,
        seconds=part.seconds,
        price_per_hour=part.price_per_hour,
    )
    _check_batch_sizes(resolved, plan)
    return plan


def _changed(part: BenchmarkPart, changes: Mapping[str, Any]) -> BenchmarkPart:
    try:
        return BenchmarkPart.model_validate({**part.model_dump(), **changes})
    except ValidationError as err:
        problem = err.errors()[0]
        msg = f"benchmark {problem['loc'][0]}: {problem['msg']} (seen: {problem['input']!r})"
        raise UsageError(msg, hint="list the allowed keys", command="convert-and-validate schema spec") from err


def _distinct(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


def _default_batch_sizes(resolved: ResolvedSpec) -> tuple[int, ...]:
    dim = resolved.spec.model.dims.get("batch")
    if dim is None:
        return (1,)
    return (dim.min,) if dim.opt is None else (dim.min, dim.opt)


def _check_batch_sizes(resolved: ResolvedSpec, plan: BenchmarkPlan) -> None:
    dim = resolved.spec.model.dims.get("batch")
    for size in plan.batch_sizes:
        if dim is not None and not dim.min <= size <= dim.max:
            msg = f"batch size {size} of the benchmark is outside of model.dims.batch ({dim.min} to {dim.max})"
            raise UsageError(msg, hint="name sizes within it, with benchmark.batch_sizes or --batch-size")
