"""The job of matching the nodes of two models, run in a child process: a model may end the process that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
from paritygate.pipelines.jobs.diagnose import feeds_of
from paritygate.pipelines.process.child import Progress
from paritygate.validate.divergence.graph_diff import graph_diff


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Match the nodes of both models, and return them as JSON data."""
    request = from_data(DiagnosisRequest, args["request"])
    feeds = feeds_of(request, report)
    return to_data(graph_diff(request.reference.path, request.candidate.path, feeds, args["tolerance"]))
