"""What `compare` is asked, on the command line or in Python, as a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import with_endpoint_limits, with_provider, with_signatures, with_takes
from paritygate.pipelines.rules.gate_rules import check_choice


def comparison_of(
    job: ComparisonJob,
    *,
    signatures: Mapping[str, str],
    takes: Mapping[str, str],
    endpoint: Mapping[str, float],
    provider: str | None,
) -> ComparisonJob:
    """Return a comparison whose models are set up.

    Args:
        job: The comparison, with the models as they are named.
        signatures: The signature of a SavedModel by side.
        takes: What of the samples a side takes, by side, with commas between names.
        endpoint: How a server may be asked.
        provider: What of ONNX Runtime runs the candidate; that of the device if None.

    Raises:
        UsageError: One is not allowed, or does not go with the models.
    """
    check_choice("device", job.device, ("cpu", "cuda"))
    models = with_signatures(job.reference, job.candidate, signatures)
    reference, candidate = with_endpoint_limits(with_takes(*models, takes), endpoint)
    candidate = with_provider(candidate, provider, device=job.device, is_emulated=job.is_emulated)
    return replace(job, reference=reference, candidate=candidate)
