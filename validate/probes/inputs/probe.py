"""Define a probe: a way to derive inputs from real ones.

A probe yields batches and knows no outputs. The reference runs them twice, and batches without finite, repeatable
outputs are dropped. Every candidate then runs the same batches under the same limits as on the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.batch import Arrays
from paritygate.signature import Dim, Signature
from paritygate.validate.probes.inputs.roles import Form, InputRole, Role
from paritygate.validate.probes.inputs.survey import Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.inputs.edge import Edge

# A probe ends by itself, and is cut off at this multiple of its rows.
ROWS_FACTOR = 8
# Larger numbers are infinite in float16.
LARGEST_OF_FP16 = 65504

_NUMERIC = frozenset({Role.IMAGE, Role.LENGTH, Role.NUMBER})


class ProbeBatch(Struct, frozen=True, kw_only=True):
    """The inputs of one call, by name, with what a correct candidate may do on them.

    - `about`: what is special about them, such as `row 12 alone`. `note`: what the probe leaves out.
    - `is_beyond_seen`: values exceed the samples in magnitude, or need digits that a lower precision lacks. A candidate
      of lower precision may clip there, so only its finiteness and contract are checked.
    - `is_unlike_seen`: no row of the samples is like these. INT8, calibrated on samples, is checked as above.
    - `is_far_from_seen`: values are many times larger or smaller than any seen. Below float32 nothing is checked.
    - `is_invented`: values are generated, so the reference's steadiness against their last bit is measured.
    - `hangs_on_runtime`: correct outputs depend on the runtime, as with NaN that the model does not handle. Only a
      candidate of the reference's own runtime is compared.
    - `must_refuse`: inputs with ids outside every table. If the reference refuses them, it refuses invalid ids.
    - `edges`: ways in which all rows are unlike every sample, where their values do not show it.
    - `divided`: the input that it divides, with three rows per boundary. Equal outputs on all three mean no boundary.
    - `fewer`: makes the same batch of fewer rows. `apart`: makes smaller batches, so that one refused row drops no
      others.
    - `moved_alike`: makes series of the inputs with whole rows moved by 1, 2, ... equal steps (True: values with exact
      sums; False: tiny steps). An output that follows a straight line is steady. None: moving single values is enough.
    """

    inputs: Arrays
    rows: int
    about: str
    is_beyond_seen: bool = False
    is_unlike_seen: bool = False
    is_far_from_seen: bool = False
    is_invented: bool = False
    hangs_on_runtime: bool = False
    must_refuse: Arrays | None = None
    edges: tuple[Edge, ...] = ()
    divided: str = ""
    note: str = ""
    fewer: Callable[[], ProbeBatch] | None = None
    apart: Callable[[], Iterable[ProbeBatch]] | None = None
    moved_alike: Callable[[bool], Iterable[Sequence[Arrays]]] | None = None


class ProbeContext(Struct, frozen=True, kw_only=True):
    """The inputs of a probe's derivation: served names, declared dims, roles, survey, seed, and about how many rows."""

    signature: Signature
    dims: Mapping[str, Dim]
    roles: Mapping[str, InputRole]
    survey: Survey
    seed: int
    max_rows: int

    def random(self, name: str) -> np.random.Generator:
        """Return the generator of a probe; one seed always gives the same numbers."""
        return np.random.default_rng([self.seed, *name.encode()])


def with_reach(context: ProbeContext, batch: ProbeBatch) -> ProbeBatch:
    """Return the batch, marked where its numbers are outside those of the samples."""
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
    """Return the rule of all samples that the batch breaks, so that no output is correct; empty if none."""
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
    """Return why the batch may take unbounded memory or time; empty if there is no sign of it."""
    for name, role in context.roles.items():
        if not role.is_size or (role.form is Form.FIXED and _is_as_seen(context, name, batch.inputs[name])):
            continue
        values = batch.inputs[name]
        counted = batch.inputs.get(role.of) if role.role is Role.LENGTH and role.of is not None else None
        # Counts of existing positions are safe.
        high = counted.shape[1] if counted is not None and counted.ndim > 1 else None
        is_count = high is not None and bool(np.isin(values, np.arange(high + 1)).all())
        if role.form is Form.FIXED or (not is_count and context.survey.inputs[name].reach(values)[0]):
            return f"a shape or a loop depends on {name}, and no sample holds such values"
    return ""


def _is_as_seen(context: ProbeContext, name: str, values: NDArray[np.generic]) -> bool:
    """Return whether every row of an input, or all of an input without rows, is one of the sampled ones."""
    seen = [group.inputs[name] for group in context.survey.groups]
    if context.survey.inputs[name].has_rows:
        return {row.tobytes() for row in values} <= {row.tobytes() for rows in seen for row in rows}
    return any(values.shape == whole.shape and values.tobytes() == whole.tobytes() for whole in seen)


class Probe(Protocol):
    """The interface of a probe's module."""

    def derive(self, context: ProbeContext) -> Iterator[ProbeBatch]:
        """Yield batches, the same for the same context; none where the probe does not apply."""
