"""Checks that limits of single outputs, and names of columns, fit the outputs that are declared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from paritygate.errors import UsageError
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.signature import Signature, TensorSpec, is_float_dtype
from paritygate.text import counted, meant
from paritygate.validate.reference.profile import has_columns, infer_channel_axis

__all__ = ["check_output_limits"]

_COLUMNS_RANK = 2


def check_output_limits(resolved: ResolvedSpec, signature: Signature) -> None:
    """Check that limits of single outputs are on float outputs that are compared, with a number for each channel.

    The gate looks again at what the reference answers: a size that is declared open is known there.

    Args:
        resolved: The spec; its names of outputs are known to be there, but for those below `tolerance`.
        signature: The model's.

    Raises:
        UsageError: They are not; the message says which.
    """
    matched = {name for rule in resolved.matches for name in rule.outputs}
    left_out = matched | resolved.ignored.keys()
    floats = {spec.name: spec for spec in signature.outputs if is_float_dtype(spec.dtype) and spec.name not in left_out}
    inputs = [spec.shape for spec in signature.inputs if spec.shape is not None]
    channels = {name: _channels(spec, resolved.spec.axes.get(name), inputs) for name, spec in floats.items()}
    for name, columns in resolved.columns.items():
        _check_count(resolved, f"outputs.{name}.columns", len(columns), channels.get(name), noun="name")
    for key, output, count in _limits(resolved):
        _check_float(resolved, key, output, floats)
        # One number is for all channels.
        if count > 1:
            _check_count(resolved, key, count, channels[output], noun="number")


def _limits(resolved: ResolvedSpec) -> Iterator[tuple[str, str, int]]:
    """Yield where each limit of one output is written, of which output it is, and how many numbers it has."""
    for name, part in resolved.spec.outputs.items():
        if part.min_cosine_similarity is not None:
            yield f"outputs.{name}.min_cosine_similarity", name, 1
    for variant in resolved.variants:
        for output, limits in resolved.rules(variant).tolerance.outputs.items():
            for name, numbers in limits.items():
                yield f"tolerance.{variant}.outputs.{output}.{name}", output, len(numbers)


def _check_float(resolved: ResolvedSpec, key: str, output: str, floats: Collection[str]) -> None:
    if output not in floats:
        there_are = ", ".join(floats) or "none"
        msg = (
            f"spec {resolved.origin}: {key} is on {output!r}, which is no float output that is compared "
            f"(there are: {there_are})"
        )
        raise UsageError(msg, hint=f"name one of these{meant(output, floats)}")


def _check_count(resolved: ResolvedSpec, key: str, count: int, channels: int | None, *, noun: str) -> None:
    if channels is not None and count != channels:
        msg = f"spec {resolved.origin}: {key} has {counted(count, noun)}, and the output {counted(channels, 'channel')}"
        raise UsageError(msg, hint=f"give one {noun} for each column of the output")


def _channels(spec: TensorSpec, axis: int | None, inputs: Sequence[Sequence[int | str | None]]) -> int | None:
    """Return how many channels an output has; None where its declared shape does not say it."""
    if spec.shape is None:
        return None
    if axis is None and len(spec.shape) < _COLUMNS_RANK:
        return 1
    if axis is not None:
        size = spec.shape[axis]
        return size if isinstance(size, int) else None
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    if len(sizes) < len(spec.shape) - 1:
        return None
    # Channels do not hang on how many rows there are.
    shape = (0, *sizes)
    axis = 1 if has_columns([shape]) else infer_channel_axis([shape], None, inputs)
    return 1 if axis is None else shape[axis]
