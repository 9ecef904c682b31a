"""Run a selftest in its own run folder: export, record, and run the gate on mutations of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paritygate.codec import from_data, to_data
from paritygate.errors import ConversionError, ExitCode, MissingBackendError, ParitygateError, UsageError
from paritygate.files import make_marked_folder, remove_marked_folder, write_bytes_atomically, write_json_atomically
from paritygate.pipelines.compare.redaction import without_inputs
from paritygate.pipelines.process.child import ChildJob, Progress, run_child
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.comparisons import comparison_job
from paritygate.pipelines.run.export import export_stage
from paritygate.pipelines.run.record import record_stage
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.selftest.page import page_of
from paritygate.pipelines.selftest.result import SelftestRequest, SelftestResult
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.pipelines.spec.target_choice import with_targets
from paritygate.signature import Signature
from paritygate.text import counted
from paritygate.validate.probes.catalogue import PROBES

SELFTEST_FILE, SELFTEST_PAGE = "selftest.json", "selftest.md"
# Faults are planted into every converter's ONNX in the source's precision.
_VARIANT = "onnx-fp32"


@dataclass(frozen=True, kw_only=True, slots=True)
class SelftestOptions:
    """Options of a selftest: the mutations, and a time limit (seconds) for each of export, recording and trial."""

    mutations: tuple[str, ...]
    time_limit_s: float


def spec_of_selftest(resolved: ResolvedSpec, *, probes: Sequence[str] | None, seed: int | None) -> ResolvedSpec:
    """Return the spec with ONNX in the source's precision as its only target; None keeps the spec's probes and seed."""
    changes: dict[str, object] = {}
    if _VARIANT not in resolved.target_names:
        changes["targets"] = [*resolved.spec.targets, _VARIANT]
    if probes is not None:
        changes["probes"] = list(probes) or "none"
    if seed is not None:
        changes["seed"] = seed
    return with_targets(replace(resolved, spec=resolved.spec.model_copy(update=changes)), [_VARIANT])


def selftest_stage(run: RunFolder, options: SelftestOptions, progress: Progress) -> SelftestResult:
    """Export, record, plant and try; write `selftest.json` and `selftest.md` into the run folder.

    Raises:
        ConversionError: The model could not be exported to ONNX.
        ParitygateError: As `record_stage`; or the gate could not run.
    """
    failures = export_stage(run, time_limit_s=options.time_limit_s, progress=progress)
    if _VARIANT in failures:
        raise _error_of(failures[_VARIANT])
    record_stage(run, time_limit_s=options.time_limit_s, progress=progress)
    result = _try(run, options, progress)
    write_json_atomically(run.folder / SELFTEST_FILE, result.to_json())
    is_hiding = run.resolved.hides_inputs(is_leaving=True)
    page = page_of(from_data(SelftestResult, without_inputs(to_data(result))) if is_hiding else result)
    write_bytes_atomically(run.folder / SELFTEST_PAGE, page.encode())
    return result


def _error_of(failure: FailedVariant) -> ParitygateError:
    kinds: dict[int, type[ParitygateError]] = {ExitCode.NOT_BUILT: ConversionError, ExitCode.USAGE: UsageError}
    kind = kinds.get(failure.exit_code, MissingBackendError)
    return kind(f"nothing to plant faults into: {failure.message}", hint=failure.hint)


def _try(run: RunFolder, options: SelftestOptions, progress: Progress) -> SelftestResult:
    artifact = run.artifact(_VARIANT)
    job = comparison_job(run, artifact, "cpu")
    place = make_marked_folder(run.jobs("selftest"))
    folder = make_marked_folder(place / "mutations")
    # Session probes start a process each: too much for every fault.
    probes = tuple(name for name in job.rules.probes if name in PROBES)
    request = SelftestRequest(
        job=replace(job, failures=None, rules=replace(job.rules, probes=probes)),
        mutations=options.mutations,
        most_rows=_most_rows(artifact.signature),
        folder=folder,
        run=run.folder,
        seed=run.resolved.spec.seed,
    )
    # The job's names for them.
    names = [f"{at} of {len(options.mutations)}, {name}" for at, name in enumerate(options.mutations, start=1)]
    try:
        with stage(progress, "planting", names) as did:
            child = ChildJob(
                name="selftest",
                args=to_data(request),
                folder=place,
                what=f"the selftest of {run.resolved.name}",
                time_limit_s=options.time_limit_s,
            )
            data = run_child(child, progress)
            did(f"planted {counted(len(names), 'change')}")
    finally:
        remove_marked_folder(folder)
    with reading_result(child):
        return from_data(SelftestResult, data)


def _most_rows(signature: Signature) -> int | None:
    for spec in signature.inputs:
        rows = spec.shape[0] if spec.shape else None
        if isinstance(rows, str):
            return signature.dims[rows].max if rows in signature.dims else None
        if rows is not None:
            return rows
    return None
