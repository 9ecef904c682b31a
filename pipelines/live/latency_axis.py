"""Parts of drawings with latency on a logarithmic axis."""

from __future__ import annotations

import math

from paritygate.pipelines.report.drawings.plot import Frame, Label, Path
from paritygate.pipelines.report.figures import number

_STEPS = (1, 2, 5)


def latency_ticks(frame: Frame) -> tuple[tuple[Path, ...], tuple[Label, ...]]:
    """Return lines and labels of milliseconds, for a frame whose vertical axis has their decimal logarithms."""
    decades = range(math.floor(frame.y_low), math.ceil(frame.y_high) + 1)
    values = [step * 10.0**decade for decade in decades for step in _STEPS]
    inside = [value for value in values if frame.y_low <= math.log10(value) <= frame.y_high]
    return frame.y_ticks([(math.log10(value), number(value)) for value in inside])


def disc(x: float, y: float, radius: float) -> str:
    """Return the outline of a disc."""
    half = f"a{radius:g} {radius:g} 0 1 0 "
    return f"M{x - radius:.1f} {y:.1f}{half}{2 * radius:g} 0{half}-{2 * radius:g} 0z"


def route(places: list[tuple[float, float]]) -> str:
    """Return a line through some places."""
    return "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(places))
