"""Check that limits of single outputs, and names of columns, fit the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from paritygate.errors import UsageError
from paritygate.pipelines.rules.table import RULES, Kind
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.signature import Signature, TensorSpec, is_float_dtype, is_number_dtype
from paritygate.text import counted, meant
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.reference.channel_axis import MOST_COLUMNS, channel_axes, has_columns

_COLUMNS_RANK = 2
# The keys below `outputs.NAME` that hold a number for float outputs.
_OF_FLOATS = [rule.key.partition(".")[2] for rule in RULES if rule.kind is Kind.NUMBERS and rule.key]


class _AskedLimit(NamedTuple):
    key: str  # of the spec
    output: str
    size: int  # of its numbers or names
    noun: str = "number"  # `number` or `name`


def check_output_limits(resolved: ResolvedSpec, signature: Signature) -> None:
    """Check that limits of single outputs are on numeric outputs that are compared, with a number for each channel.

    An open size follows from the reference's outputs: see `check_limits_of_profiles`. All names of outputs are checked
    already, except those below `tolerance`.

    Raises:
        UsageError: They do not fit.
    """
    matched = {name for rule in resolved.matches for name in rule.outputs}
    left_out = matched | resolved.ignored.keys()
    compared = [spec for spec in signature.outputs if spec.name not in left_out]
    inputs = [spec.shape for spec in signature.inputs if spec.shape is not None]
    channels = {spec.name: _channels(spec, resolved.spec.axes.get(spec.name), inputs) for spec in compared}
    _check(resolved, channels, {spec.name: spec.dtype for spec in compared})


def check_limits_of_profiles(resolved: ResolvedSpec, profiles: Mapping[str, OutputProfile]) -> None:
    """Check the same by the outputs of the reference, with the same error."""
    channels = {name: (profile.channels,) for name, profile in profiles.items()}
    _check(resolved, channels, {name: profile.dtype for name, profile in profiles.items()})


def _asked(resolved: ResolvedSpec) -> Iterator[_AskedLimit]:
    for name, columns in resolved.columns.items():
        yield _AskedLimit(f"outputs.{name}.columns", name, len(columns), "name")
    for rule in _OF_FLOATS:
        for name, part in resolved.spec.outputs.items():
            if getattr(part, rule) is not None:
                yield _AskedLimit(f"outputs.{name}.{rule}", name, 1)
    for variant in resolved.variants:
        for output, limits in resolved.rules(variant).tolerance.outputs.items():
            for name, numbers in limits.items():
                yield _AskedLimit(f"tolerance.{variant}.outputs.{output}.{name}", output, len(numbers))


def _check(resolved: ResolvedSpec, channels: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]) -> None:
    labels = resolved.spec.argmax_of
    numbers = [name for name, dtype in dtypes.items() if is_number_dtype(dtype) and name not in labels]
    floats = [name for name in numbers if is_float_dtype(dtypes[name])]
    for limit in _asked(resolved):
        what, names = ("numeric", numbers) if limit.key.startswith("tolerance.") else ("float", floats)
        is_of_names = limit.noun == "name"
        if limit.output in names:
            # One number applies to all channels.
            if limit.size > 1 or is_of_names:
                _check_count(resolved, limit, channels[limit.output])
        elif not is_of_names:
            msg = (
                f"spec {resolved.origin}: {limit.key} is on {limit.output!r}, which is not a {what} output that is "
                f"compared (there are: {', '.join(names) or 'none'})"
            )
            raise UsageError(msg, hint=f"name one of these{meant(limit.output, names)}")


def _check_count(resolved: ResolvedSpec, limit: _AskedLimit, channels: Sequence[int]) -> None:
    if channels and limit.size not in channels:
        has = f"{limit.key} has {counted(limit.size, limit.noun)}"
        msg = f"spec {resolved.origin}: {has}, but the output has {counted(channels[0], 'channel')}"
        hint = f"give one {limit.noun} for each channel, or choose their axis: axes: {{{limit.output}: N}}"
        raise UsageError(msg, hint=hint)


def _channels(spec: TensorSpec, axis: int | None, inputs: Sequence[Sequence[int | str | None]]) -> Sequence[int]:
    """Return how many channels an output may have, the likeliest first; none where its declared shape is open."""
    if spec.shape is None:
        return ()
    if axis is None and (len(spec.shape) < _COLUMNS_RANK or not is_float_dtype(spec.dtype)):
        return (1,)
    if axis is not None:
        size = spec.shape[axis]
        return (size,) if isinstance(size, int) else ()
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    if len(sizes) < len(spec.shape) - 1:
        return ()
    # The number of rows does not matter.
    shape = (0, *sizes)
    found = [shape[axis] for axis in ([1] if has_columns([shape]) else channel_axes([shape], None, inputs))]
    # The values of the reference decide between them.
    return [*found[:1], *(size for size in found[1:] if size <= MOST_COLUMNS)] or (1,)
