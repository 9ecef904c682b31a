"""What a probe is: a way to derive inputs from real ones.

A probe knows nothing of answers. It yields batches; the reference answers them, once and again, and what it does not
answer finitely and repeatably is dropped. Every candidate is then asked the same, and held to the same limits as on the
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from paritygate.signature import Dim, Signature
from paritygate.validate.probes.inputs.roles import Form, InputRole, Role
from paritygate.validate.probes.inputs.survey import Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.inputs.edge import Edge

# What a probe derives ends by itself, and is cut where that would be many times the rows meant for it.
ROWS_FACTOR = 8
# Beyond it a number of the samples' kind is infinite in float16.
LARGEST_OF_FP16 = 65504

_NUMERIC = frozenset({Role.IMAGE, Role.LENGTH, Role.NUMBER})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeBatch:
    """The inputs of one call.

    Attributes:
        inputs: Every input of the signature, in its dtype.
        rows: How many rows they are; the first axis of each input that has rows.
        about: What is special about them, in a few words, such as `row 12 alone` or `every id from 9000 to 9063`.
        is_beyond_seen: Whether they hold values larger in magnitude than the samples do, or the answer hangs on digits
            that a lower precision lacks. A candidate of lower precision may clip there honestly: it is held to
            finiteness and contract alone.
        is_unlike_seen: Whether no row of the samples is like these: values outside of their range, or all of them the
            same. What is calibrated on samples may clip there honestly: INT8 is held to finiteness and contract alone.
        is_far_from_seen: Whether values are many times larger or smaller than any seen: what computes in less than
            float32 may overflow there, or lose them, honestly, and is held to nothing.
        is_invented: Whether values were made up, so that it has to be seen whether the answer hangs on their last bit.
        hangs_on_runtime: Whether what a right model answers hangs on its runtime, as with NaN that nobody looks for:
            only a candidate of the reference's own runtime is held to the answer.
        must_refuse: Inputs of ids outside of every table: where the reference refuses them, what it answers shows which
            ids are valid. None where nothing of the kind is asked, or where it has a default for unknown ids.
        edges: In which ways all of its rows are unlike every sample, where their values do not show it.
        divided: The input whose whole numbers it divides, the rows being three beside each boundary: what the reference
            answers alike on all three is no boundary of it. Empty for none.
        note: What is not asked of all that there is to ask, in words; empty where nothing is left out.
        fewer: Makes the same batch of fewer rows, which is asked where this one would cost too much; None for nothing.
        apart: Makes smaller batches of the same rows, which are asked where this one is not answered, so that one row
            takes no other with it; None for nothing.
        moved_alike: Makes series of the same inputs, each row moved as a whole by one, two and more equal steps, where
            it is asked so to values whose sums are exact as well, else by next to nothing. Where the answer to one
            series follows a straight line, it is steady. None where it is enough to move each value by itself.
    """

    inputs: Mapping[str, NDArray[np.generic]]
    rows: int
    about: str
    is_beyond_seen: bool = False
    is_unlike_seen: bool = False
    is_far_from_seen: bool = False
    is_invented: bool = False
    hangs_on_runtime: bool = False
    must_refuse: Mapping[str, NDArray[np.generic]] | None = None
    edges: tuple[Edge, ...] = ()
    divided: str = ""
    note: str = ""
    fewer: Callable[[], ProbeBatch] | None = None
    apart: Callable[[], Iterable[ProbeBatch]] | None = None
    moved_alike: Callable[[bool], Iterable[Sequence[Mapping[str, NDArray[np.generic]]]]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeContext:
    """What a probe derives its batches from.

    Attributes:
        signature: The reference's inputs and outputs, under the names served.
        dims: The sizes that symbolic dims may take: the declared ones, else none for a dim.
        roles: What each input is.
        survey: What the samples hold, and some of their rows.
        seed: Seed of all choices.
        max_rows: About how many rows a probe may use.
    """

    signature: Signature
    dims: Mapping[str, Dim]
    roles: Mapping[str, InputRole]
    survey: Survey
    seed: int
    max_rows: int

    def random(self, name: str) -> np.random.Generator:
        """Return the random numbers of a probe: always the same for one seed."""
        return np.random.default_rng([self.seed, *name.encode()])


def with_reach(context: ProbeContext, batch: ProbeBatch) -> ProbeBatch:
    """Return the batch, marked where its numbers lie outside of what the samples hold."""
    is_outside = is_larger = is_beyond_fp16 = False
    for name, array in batch.inputs.items():
        role = context.roles.get(name)
        if role is not None and role.role in _NUMERIC:
            reach = context.survey.inputs[name].reach(array)
            is_outside, is_larger = is_outside or reach[0], is_larger or reach[1]
            is_beyond_fp16 = is_beyond_fp16 or (reach[1] and _is_beyond_fp16(array))
    return replace(
        batch,
        is_beyond_seen=batch.is_beyond_seen or is_larger,
        is_unlike_seen=batch.is_unlike_seen or is_outside,
        is_far_from_seen=batch.is_far_from_seen or is_beyond_fp16,
    )


def _is_beyond_fp16(values: NDArray[np.generic]) -> bool:
    wide = np.abs(values.astype(np.float64))
    return bool((np.isfinite(wide) & (wide > LARGEST_OF_FP16)).any())


def why_senseless(context: ProbeContext, batch: ProbeBatch) -> str:
    """Return what every sample keeps to and the batch does not, so that no answer to it is right; empty if nothing."""
    for order in context.survey.orders:
        roles = {context.roles[name].role for name in (order.first, order.second)}
        if roles <= _NUMERIC and not order.is_kept_by(batch.inputs):
            return f"in all samples {order}"
    for name, role in context.roles.items():
        counted = batch.inputs.get(role.of) if role.role is Role.LENGTH and role.of is not None else None
        if counted is not None and counted.ndim > 1 and (batch.inputs[name] > counted.shape[1]).any():
            return f"{name} is more than {role.of} has positions"
    return ""


def why_too_large(context: ProbeContext, batch: ProbeBatch) -> str:
    """Return why the batch may take any amount of memory or time, which samples do not; empty if nothing says so."""
    for name, role in context.roles.items():
        if not role.is_size or (role.form is Form.FIXED and _is_as_seen(context, name, batch.inputs[name])):
            continue
        values = batch.inputs[name]
        counted = batch.inputs.get(role.of) if role.role is Role.LENGTH and role.of is not None else None
        # Positions that are there can be counted.
        high = counted.shape[1] if counted is not None and counted.ndim > 1 else None
        is_count = high is not None and bool(np.isin(values, np.arange(high + 1)).all())
        if role.form is Form.FIXED or (not is_count and context.survey.inputs[name].reach(values)[0]):
            return f"a shape or a loop hangs on {name}, and no sample holds such values of it"
    return ""


def _is_as_seen(context: ProbeContext, name: str, values: NDArray[np.generic]) -> bool:
    """Return whether every row of an input is one of those that the probes are derived from, or all of it is."""
    seen = [group.inputs[name] for group in context.survey.groups]
    if context.survey.inputs[name].has_rows:
        return {row.tobytes() for row in values} <= {row.tobytes() for rows in seen for row in rows}
    return any(values.shape == whole.shape and values.tobytes() == whole.tobytes() for whole in seen)


class Probe(Protocol):
    """What every module of a probe offers."""

    def derive(self, context: ProbeContext) -> Iterator[ProbeBatch]:
        """Yield batches, the same for the same context; none where the probe does not apply to the model."""
        ...
