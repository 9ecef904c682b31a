"""Diagnose a variant of a run: its file, or the ONNX file of an engine, against the model that it should equal."""

from __future__ import annotations

import shlex
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.codec import from_data
from paritygate.errors import InputFileError, ParitygateError, StorageError
from paritygate.files import make_marked_folder
from paritygate.formats import FORMATS
from paritygate.models.source import WITH_INNER_TENSORS, SourceKind
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.run.comparisons import built_from
from paritygate.pipelines.run.evidence import EMULATED, EvidenceEntry
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.precision import Variant
from paritygate.text import first_line_of
from paritygate.validate.divergence.result import LOCATED, POSSIBLE, Divergence
from paritygate.validate.measure.check import FAULT, NAMED, NO_TIME, Cause
from paritygate.validate.words.sentence import joined, say

# The kinds of causes that name operators.
OPERATORS, OVERFLOW = "operators", "overflow"
FP32_EXPORT: Final = "onnx-fp32"
# Tensors that are computed at most, in all runs of both models together, and batches that are looked at.
_MOST_TENSORS, _MOST_BATCHES = 200_000, 16
_LONGEST_S = 600.0
_NODES = 3
_TAKEN_APART = (".expected.npz", ".actual.npz")


class DiagnosedVariant(Struct, frozen=True, kw_only=True):
    """A variant that can be diagnosed.

    `compared_with` is the name of the variant that is the reference; empty for the source. `built_from` is the ONNX
    variant that is used in place of an engine.
    """

    request: DiagnosisRequest
    compared_with: str = ""
    built_from: str = ""


def variant_to_diagnose(
    run: RunFolder, name: str, result: ComparisonResult | None, *, is_export_right: bool
) -> DiagnosedVariant:
    """Return the request to diagnose a variant; `result` is its comparison, whose worst rows are used.

    The reference is an ONNX source, else the FP32 export if it passed (`is_export_right`), else the source.

    Raises:
        InputFileError: There is no such variant, or no pair of models for it that can be matched.
        ArtifactIntegrityError: The file that an engine was built from is missing or was changed.
    """
    artifact = run.artifact(name)
    candidate = artifact if _has_inner_tensors(artifact.variant) else _onnx_base(run, artifact)
    source = run.resolved.source
    export = None if source.kind is SourceKind.ONNX else _export(run, candidate, is_right=is_export_right)
    reference = source if export is None else artifact_model(export)
    samples = run.resolved.samples(run.samples_path)
    failed = [path for path in sorted(run.failed_batches(name).glob("*.npz")) if not path.name.endswith(_TAKEN_APART)][
        :_MOST_BATCHES
    ]
    outputs = () if result is None else result.outputs.values()
    rows = dict.fromkeys(row.row_id for output in outputs for row in output.worst_rows)
    return DiagnosedVariant(
        request=DiagnosisRequest(
            reference=reference,
            candidate=artifact_model(candidate),
            samples=(*(replace(samples, text=str(path), path=None, random=None) for path in failed), samples),
            # A runner of another framework takes the names served.
            rename=source.rename if source.kind is SourceKind.ONNX else {},
            rows=tuple(rows),
            most_batches=_MOST_BATCHES,
        ),
        compared_with="" if export is None else FP32_EXPORT,
        built_from="" if candidate is artifact else str(candidate.variant),
    )


def _has_inner_tensors(variant: Variant) -> bool:
    return variant.format in FORMATS and FORMATS[variant.format].kind in WITH_INNER_TENSORS


def _onnx_base(run: RunFolder, artifact: Artifact) -> Artifact:
    base = str((artifact.made_by.get("base") or {}).get("variant", ""))
    if base.startswith("onnx-"):
        return built_from(run, artifact)
    msg = f"{artifact.variant} cannot be diagnosed (got {artifact.variant.format}, expected an ONNX file)"
    raise InputFileError(msg, hint=f"add {FP32_EXPORT} to targets, run the spec again, and diagnose that variant")


def _export(run: RunFolder, candidate: Artifact, *, is_right: bool) -> Artifact | None:
    """Return the FP32 export as the reference; None for the source itself."""
    source = run.resolved.source
    folders = [run.variant_folder(FP32_EXPORT), run.base_folder(FP32_EXPORT)]
    found = next((folder for folder in folders if (folder / ARTIFACT_FILE).is_file()), None)
    is_export = str(candidate.variant) == FP32_EXPORT
    if source.kind in WITH_INNER_TENSORS and (is_export or found is None or not is_right):
        return None
    kind = source.kind.value
    if is_export:
        msg = f"{FP32_EXPORT} cannot be diagnosed (the source is {kind}, expected a model of ONNX or PyTorch)"
        hint = "export the source again with another exporter, and compare the two files"
        words = ["convert-and-validate", "diagnose", "OTHER.onnx", str(candidate.path), "--samples", "FILE"]
        raise InputFileError(msg, hint=hint, command=shlex.join(words))
    if found is None:
        msg = f"{candidate.variant} cannot be diagnosed (the source is {kind}, and the run has no {FP32_EXPORT})"
        raise InputFileError(msg, hint=f"add {FP32_EXPORT} to targets, and run the spec again")
    return Artifact.load(found)


def cause_of_failure(
    run: RunFolder, entry: EvidenceEntry, *, is_export_right: bool, time_limit_s: float, progress: Progress
) -> Cause | None:
    """Return the operators at which a failed variant parts from the source or the FP32 export; none of an engine.

    An emulated one is looked at for overflow alone. None without a model to compare it with, and where no operator can
    be named. Only the disk stops a run.

    Raises:
        StorageError: The disk is full.
    """
    name, result = entry.variant, entry.result
    if result is None or not result.is_measured or not _has_inner_tensors(Variant.parse(name)):
        return None
    try:
        found = variant_to_diagnose(run, name, result, is_export_right=is_export_right)
    except StorageError:
        raise
    except ParitygateError:
        return None
    is_emulated = entry.evidence == EMULATED
    place = make_marked_folder(run.jobs(f"diagnose-{name}{'-emulated' if is_emulated else ''}"))
    limit_s = min(time_limit_s, _LONGEST_S)
    request = replace(found.request, most_tensors=_MOST_TENSORS, is_emulated=is_emulated)
    job = request.job(place, f"the diagnosis of {name}", limit_s)
    try:
        data = run.do(job, progress)
        with reading_result(job):
            cause = _cause(from_data(Divergence, data))
    except StorageError:
        raise
    except ParitygateError as err:
        log = f" (log: {job.log})" if str(job.log) in str(err) else ""
        cause = Cause(kind=OPERATORS, outcome=FAULT, words=say("cause.fault", reason=first_line_of(str(err)) + log))
    return None if is_emulated and cause is not None and cause.kind != OVERFLOW else cause


def _cause(divergence: Divergence) -> Cause | None:
    places = [place for place in divergence.located if place.certainty != POSSIBLE]
    stopped = say("cause.stopped", count=divergence.computed) if divergence.is_partial else ()
    if divergence.outcome != LOCATED or not places:
        return Cause(kind=OPERATORS, outcome=NO_TIME, words=say("cause.no_operator") + stopped) if stopped else None
    words = [
        say(
            "cause.operator",
            names=place.candidate_nodes[:_NODES],
            operators=sorted(set(place.op_types)),
            difference=place.words,
        )
        for place in places
    ]
    # Places are proven together, or none is.
    proven = say("cause.proven") if all(place.proven for place in places) else ()
    are_beyond = any(sentence.key == "divergence.overflow" for place in places for sentence in place.words)
    kind = OVERFLOW if are_beyond else OPERATORS
    return Cause(kind=kind, outcome=NAMED, words=joined(words, "; ") + proven + stopped)
