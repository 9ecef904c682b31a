"""Run the source on the samples once, and keep its outputs as the reference."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.codec import digest_of, to_data
from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.files import MARKER, make_marked_folder, remove_marked_folder, storage_errors
from paritygate.models.source import ModelRef, SourceKind, parse_source, with_signature_key
from paritygate.pipelines.compare.probe_request import Graph, ProbeRequest
from paritygate.pipelines.process.child import ChildJob, DoJob, Progress, do_job
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.source import SampleSource

# The variant whose graph shows how the model uses its inputs.
GRAPH_VARIANT = "onnx-fp32"
# The key, in the settings of a recording, of the digest of its rules.
_RULES = "rules_digest"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordRequest:
    """A recording without a run."""

    model: str  # a path, relative to the folder of the samples
    samples: SampleSource
    out: Path  # must not exist, or be one of ours
    valid_where: Mapping[str, str]  # by output, the input that masks its positions
    is_non_finite_declared: bool  # NaN and infinity in the outputs are correct
    seed: int  # of the choice of rows that run twice
    device: str
    signature_key: str | None = None  # of a SavedModel; None for `serving_default`


def record_stage(run: RunFolder, *, time_limit_s: float, progress: Progress, device: str = "cpu") -> Recording:
    """Record the reference of a run.

    Raises:
        ZeroRowsError: There are no samples.
        ReferenceRefusedError: The reference is not fit to judge by.
        BackendError: The reference failed, crashed or hung.
        UsageError: Samples and model do not fit each other, or the folder of a recording is not ours.
        StorageError: The disk is full.
    """
    resolved = run.resolved
    args: dict[str, Any] = {
        "name": resolved.name,
        "source": to_data(resolved.source),
        "samples": to_data(resolved.samples(run.samples_path)),
        "files": list(resolved.spec.model.files),
        "axes": dict(resolved.spec.axes),
        "valid_where": resolved.valid_where,
        "is_non_finite_declared": resolved.spec.non_finite == "match",
        "ignored": resolved.ignored,
        "seed": resolved.spec.seed,
        "device": device,
        "probes": to_data(replace(_probes(run), graph=_graph(run))),
        _RULES: _rules(run),
        # A pack holds the recording as it is.
        "surveys_inputs": not resolved.hides_inputs(is_leaving=False),
    }
    return _record(
        args, out=run.reference, jobs=run.jobs("record"), time_limit_s=time_limit_s, progress=progress, do=run.do
    )


def check_recording_rules(run: RunFolder, recording: Recording) -> None:
    """Raise an `ArtifactIntegrityError` if the reference was recorded by other or unknown rules than the spec's."""
    recorded = recording.settings.get(_RULES)
    if recorded == _rules(run):
        return
    why = "was recorded by other rules than the run's spec has now: seed, dims, roles, axes, names or the like"
    if recorded is None:
        why = "lacks the rules of its recording because an older version wrote it"
    msg = f"the reference in {run.reference} {why}"
    hint = f"record it again, then validate: convert-and-validate record --run {shlex.quote(str(run.folder))}"
    raise ArtifactIntegrityError(msg, hint=hint)


def _rules(run: RunFolder) -> str:
    """Return the digest of what the spec asks of a recording, the same on every machine and without any file.

    Model and samples are in the recording itself, and probes that were left out are in the evidence.
    """
    resolved, probes = run.resolved, _probes(run)
    samples = resolved.samples(run.samples_path)
    return digest_of(
        {
            "samples": {
                "batch_size": samples.batch_size,
                "pad": samples.pad,
                "split": samples.split,
                "images": samples.images,
                # Empty ones are left out, so that older recordings have the same digest.
                **({"columns": samples.columns} if samples.columns else {}),
                **({"cast": samples.cast} if samples.cast else {}),
            },
            "signature": resolved.signature,
            "rename": resolved.rename,
            "signature_key": resolved.spec.model.signature,
            "files": resolved.spec.model.files,
            "axes": resolved.spec.axes,
            "valid_where": resolved.valid_where,
            "non_finite": resolved.spec.non_finite,
            # The reasons are for readers.
            "ignored": sorted(resolved.ignored),
            "seed": resolved.spec.seed,
            "probes": {"dims": probes.dims, "roles": probes.roles, "seed": probes.seed},
        }
    )


def _probes(run: RunFolder) -> ProbeRequest:
    resolved = run.resolved
    return ProbeRequest(names=resolved.probes, dims=resolved.dims, roles=resolved.roles, seed=resolved.spec.seed)


def _graph(run: RunFolder) -> Graph | None:
    """Return the exported ONNX file, which shows the inputs; None if there is none."""
    for folder in (run.variant_folder(GRAPH_VARIANT), run.base_folder(GRAPH_VARIANT)):
        if (folder / ARTIFACT_FILE).is_file():
            return Graph(path=Artifact.read_record(folder).path)
    return None


def record_model(request: RecordRequest, *, time_limit_s: float, progress: Progress) -> Recording:
    """Record the outputs of a model file.

    Raises:
        InputFileError: The model or the samples do not exist or are corrupt.
        ParitygateError: As `record_stage`.
    """
    source = parse_source(request.model, request.samples.folder)
    source = with_signature_key(source, request.signature_key, "--signature")
    args = {
        **_args_of(request.model, source, request.samples, is_non_finite_declared=request.is_non_finite_declared),
        "valid_where": dict(request.valid_where),
        "seed": request.seed,
        "device": request.device,
    }
    return _record_alone(args, out=request.out, time_limit_s=time_limit_s, progress=progress)


def record_outputs(  # noqa: PLR0913 - what is recorded, where to, and how
    model: ModelRef,
    samples: SampleSource,
    *,
    out: Path,
    ignored: Mapping[str, str],
    is_non_finite_declared: bool,
    time_limit_s: float,
    progress: Progress,
) -> Recording:
    """Record the outputs of a model that are compared; raises as `record_stage`."""
    args = {
        **_args_of(model.name, model, samples, is_non_finite_declared=is_non_finite_declared),
        "ignored": dict(ignored),
    }
    return _record_alone(args, out=out, time_limit_s=time_limit_s, progress=progress)


def _args_of(name: str, source: ModelRef, samples: SampleSource, *, is_non_finite_declared: bool) -> dict[str, Any]:
    """Return the job's arguments for a model without a spec."""
    return {
        "name": name,
        "source": to_data(source),
        "samples": to_data(samples),
        "files": [],
        "axes": {},
        "valid_where": {},
        "is_non_finite_declared": is_non_finite_declared,
        "ignored": {},
        "seed": 0,
        "device": "cpu",
        # No candidate will run, so there are no probes. The graph shows masks.
        "probes": to_data(
            ProbeRequest(names=(), graph=Graph(path=source.path) if source.kind is SourceKind.ONNX else None)
        ),
        _RULES: None,
        "surveys_inputs": False,
    }


def _record_alone(args: dict[str, Any], *, out: Path, time_limit_s: float, progress: Progress) -> Recording:
    out = out.resolve()
    jobs = make_marked_folder(out.with_name(f".{out.name}.jobs"))
    recording = _record(args, out=out, jobs=jobs, time_limit_s=time_limit_s, progress=progress, do=do_job)
    # The log is of use only after an error.
    remove_marked_folder(jobs)
    return recording


def _record(  # noqa: PLR0913 - what is recorded, where to, and how
    args: dict[str, Any], *, out: Path, jobs: Path, time_limit_s: float, progress: Progress, do: DoJob
) -> Recording:
    staged = out.with_name(f".{out.name}.partial")
    if out.exists() and not (out / MARKER).is_file():
        msg = f"{out} exists and was not made by paritygate, so it is not overwritten"
        raise UsageError(msg, hint="name a folder that does not exist")
    remove_marked_folder(staged)
    make_marked_folder(staged)
    try:
        with stage(progress, "recording the reference") as did:
            do(
                ChildJob(
                    name="record",
                    args={**args, "folder": str(staged)},
                    folder=jobs,
                    what=f"the recording of {args['name']}",
                    time_limit_s=time_limit_s,
                ),
                progress,
                makes=[staged],
            )
            did("recorded the reference")
        remove_marked_folder(out)
        with storage_errors(out):
            staged.rename(out)
    finally:
        remove_marked_folder(staged)
    return Recording.load(out)
