"""The job of inspecting a model, run in a child process, because reading one imports its framework or runs its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.models.loading import load_model, naming_signatures
from paritygate.models.source import ModelRef
from paritygate.pipelines.inspecting.reading import inspection_of, read_model
from paritygate.pipelines.inspecting.survey import filled_up, survey_model
from paritygate.pipelines.process.child import Progress
from paritygate.validate.samples.samples import SampleSource, open_samples


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Inspect a model, alone or with its samples, and return the result as JSON data."""
    report("loading the model", 0, 0)
    loaded = load_model(from_data(ModelRef, args["source"]))
    samples = None if args["samples"] is None else from_data(SampleSource, args["samples"])
    if args["is_surveyed"]:
        with naming_signatures(loaded.ref):
            return to_data(survey_model(loaded, samples, report))
    report("reading the model", 0, 0)
    read = None if samples is None else open_samples(filled_up(samples, {}))
    return to_data(inspection_of(loaded, read_model(loaded, read)))
