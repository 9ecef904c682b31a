"""Choose the settings to search: the requested ones within the view and the limit."""

from __future__ import annotations

from paritygate.errors import UsageError
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.pipelines.tuning.search import Space
from paritygate.pipelines.tuning.view import PresentView

_DELAYS_US = (0, 100, 1000)
# A longer share of the limit leaves no time for an answer.
_DELAY_SHARE = 0.5


def space_of(request: TuneRequest, view: PresentView) -> Space:
    """Return the settings to search, after Triton's rules were checked for each; raise UsageError for a bad value."""
    own = view.settings
    if not own.max_batch_size and (request.max_batch_size or request.queue_delay_us):
        msg = f"the view of {view.name} does not batch (max_batch_size 0), so tune has no batch size to choose"
        raise UsageError(msg, hint="leave --max-batch-size and --queue-delay out")
    if own.queue_delay_us is None and request.queue_delay_us:
        msg = f"the view of {view.name} merges no requests (it has no dynamic_batching), so none waits for others"
        raise UsageError(msg, hint="leave --queue-delay out")
    if own.max_batch_size and request.rows > own.max_batch_size:
        msg = f"a request of {request.rows} rows is more than the server accepts (allowed: 1 to {own.max_batch_size})"
        raise UsageError(msg, hint="give fewer with --rows")
    sizes = request.max_batch_size or _powers_of_two(request.rows, own.max_batch_size)
    delays = request.queue_delay_us or _DELAYS_US
    room = request.limit_s * 1e6 * _DELAY_SHARE
    space = Space(
        max_batch_size=sorted({size for size in sizes if size >= request.rows}) if own.max_batch_size else [0],
        instances=sorted(set(request.instances)),
        queue_delay_us=[] if own.queue_delay_us is None else sorted({delay for delay in delays if delay <= room}),
        most_callers=request.most_callers,
    )
    for settings in space.settings:
        view.text(settings)
    return space


def _powers_of_two(low: int, high: int) -> list[int]:
    return [*(2**power for power in range(high.bit_length()) if low <= 2**power < high), high]
