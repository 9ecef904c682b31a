"""All drawings of one output."""

from __future__ import annotations

from paritygate.pipelines.compare.result import OutputResult
from paritygate.pipelines.report.drawings.differences import differences_plot
from paritygate.pipelines.report.drawings.maxima import length_plot, row_plot
from paritygate.pipelines.report.drawings.plot import Plot
from paritygate.pipelines.report.drawings.scatter import scatter_plot


def drawings_of(output: OutputResult) -> tuple[Plot, ...]:
    """Return the drawings of an output; none without differences, or for results of versions without drawings."""
    drawing = output.drawing
    limit = output.limits.get("max_abs_diff")
    if drawing is None or (output.max_abs_diff == 0 and not output.non_finite):
        return ()
    has_limit = limit is not None and limit.lowest > 0
    plots = [
        differences_plot(output, drawing),
        scatter_plot(drawing),
        row_plot(drawing.by_row, output.rows) if drawing.by_row is not None and has_limit else None,
        length_plot(drawing.by_length) if drawing.by_length is not None and has_limit else None,
    ]
    return tuple(plot for plot in plots if plot is not None)
