"""Make a comparison job of the arguments of `compare`, on the command line or in Python."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import with_endpoint_limits, with_provider, with_signatures, with_takes
from paritygate.pipelines.rules.gate_rules import check_choice
from paritygate.validate.reference.recorded_outputs import RECORD_FILE


def comparison_of(
    job: ComparisonJob,
    *,
    signatures: Mapping[str, str],
    takes: Mapping[str, str],
    endpoint: Mapping[str, float],
    provider: str | None,
) -> ComparisonJob:
    """Return a comparison whose models are set up.

    `signatures` has the signature key of a SavedModel by side. `takes` has the inputs of a side, separated by commas.
    `endpoint` has the limits of a server, and `provider` is the candidate's in ONNX Runtime.

    Raises:
        UsageError: A value is not allowed, or does not fit the models.
    """
    if job.source is not None and not (job.reference.is_recorded and (job.reference.path / RECORD_FILE).is_file()):
        msg = f"--source needs a folder of recorded outputs as the reference (got {job.reference.name})"
        raise UsageError(msg, hint="leave --source out")
    check_choice("device", job.device, ("cpu", "cuda"))
    models = with_signatures(job.reference, job.candidate, signatures)
    reference, candidate = with_endpoint_limits(with_takes(*models, takes), endpoint)
    candidate = with_provider(candidate, provider, device=job.device, is_emulated=job.is_emulated)
    return replace(job, reference=reference, candidate=candidate)
