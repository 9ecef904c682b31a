"""The job of diagnosing a candidate, run in a child process: a model may end the process that runs it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
from paritygate.pipelines.process.child import Progress
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.opening import open_graphs
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Locate where the candidate parts from the reference, and return it as JSON data."""
    request = from_data(DiagnosisRequest, args)
    feeds = feeds_of(request, report)
    return to_data(locate_in(*open_graphs(request.reference, request.candidate, feeds, request.most_tensors), feeds))


def feeds_of(request: DiagnosisRequest, report: Progress) -> list[Mapping[str, NDArray[np.generic]]]:
    """Return the inputs of a request by the reference's names, for each batch.

    Raises:
        UsageError: The samples have no rows.
    """
    report("reading the samples", 0, 0)
    feeds = [batch.inputs for source in request.samples for batch in _batches(source, request)]
    if not feeds:
        msg = "the samples have no rows"
        raise UsageError(msg, hint="give a file with at least one row")
    own = {served: name for name, served in request.rename.items()}
    report("matching inner tensors", 0, 0)
    return [{own.get(name, name): array for name, array in feed.items()} for feed in feeds]


def _batches(source: SampleSource, request: DiagnosisRequest) -> Iterator[Batch]:
    """Yield the batches with a wanted row; the first ones if none of these is there, as in batches of probes."""
    rows = set(request.rows)
    batches = open_samples(source)
    wanted = (batch for batch in batches() if rows.intersection(batch.ids))
    found = list(itertools.islice(wanted, request.most_batches)) if rows else []
    yield from found or itertools.islice(batches(), request.most_batches)
