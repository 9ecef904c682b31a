"""The job of diagnosing a candidate, run in a child process: a model may end the process that runs it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.pipelines.process.child import Progress
from paritygate.validate.divergence.locate import locate
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

# The batches that differ most among these are looked at.
_BATCHES = 64


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Locate where the candidate parts from the reference, and return it as JSON data."""
    report("reading the samples", 0, 0)
    read = open_samples(from_data(SampleSource, args["samples"]))
    feeds = [batch.inputs for batch in itertools.islice(read(), _BATCHES)]
    if not feeds:
        msg = "the samples have no rows"
        raise UsageError(msg, hint="give a file with at least one row")
    report("matching inner tensors", 0, 0)
    return to_data(locate(Path(args["reference"]), Path(args["candidate"]), feeds))
