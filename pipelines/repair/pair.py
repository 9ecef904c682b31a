"""Repair the FP16 or INT8 form of an ONNX file, which `compare` fails, and judge the result on other rows."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.engine.settings import EngineSettings
from paritygate.errors import ConversionError, UnrepairedError, UsageError
from paritygate.files import make_marked_folder, remove_marked_folder, storage_errors, temporary_folder
from paritygate.formats import why_no_bf16
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import QUANTIZATION_OPERATORS, graphs_in, nodes_in
from paritygate.models.onnx.weights import ELEMENT_TYPES
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.calibration.rows import CALIBRATED_ROWS_FILE
from paritygate.pipelines.compare.job import ComparisonJob, compare
from paritygate.pipelines.process.child import ChildJob, Progress, do_job
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.repair.result import HeldOut, RepairedVariant, held_out_of, outcome_of, repair_of
from paritygate.pipelines.repair.rows import rows_to_search
from paritygate.pipelines.spec.targets import DEFAULT_MAX_RUNS
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

_REPAIRED = frozenset({Precision.FP16, Precision.INT8})


def check_repair(job: ComparisonJob, folder: Path) -> Precision:
    """Return the precision of the candidate, before anything runs.

    Raises:
        UsageError: The two are not an ONNX file in FP32 and one in FP16 or INT8.
        InputFileError: A file is damaged.
        StorageError: `folder` holds files that are not ours.
    """
    found = {}
    for side, model in (("reference", job.reference), ("candidate", job.candidate)):
        if model.kind is not SourceKind.ONNX:
            msg = f"--repair is for two ONNX files, but the {side} {model.name} is not one"
            raise UsageError(msg, hint="leave it out, or repair a variant of a run: convert-and-validate repair --help")
        found[side] = _precision(read_onnx(model.path))
    if found["reference"] is not Precision.FP32:
        msg = f"--repair needs a reference in fp32, but {job.reference.name} is in {found['reference']}"
        raise UsageError(msg, hint="name as the reference the FP32 file that the candidate was made from")
    if found["candidate"] not in _REPAIRED:
        msg = f"--repair is for a candidate in fp16 or int8, but {job.candidate.name} is in {found['candidate']}"
        if found["candidate"] is Precision.BF16:
            msg = f"{job.candidate.name} cannot be repaired: {why_no_bf16()}"
        raise UsageError(msg, hint=f"find the operator that differs: {_diagnose(job)}")
    if folder.exists():
        make_marked_folder(folder)
    return found["candidate"]


def _precision(model: onnx.ModelProto) -> Precision:
    """Return the lowest precision that a file computes in, by its operators, weights and Casts."""
    if any(node.op_type in QUANTIZATION_OPERATORS for node in nodes_in(model.graph)):
        return Precision.INT8
    stored = {tensor.data_type for graph in graphs_in(model.graph) for tensor in graph.initializer}
    for node in nodes_in(model.graph):
        for attribute in node.attribute:
            stored |= {attribute.t.data_type} if attribute.HasField("t") else set()
            stored |= {attribute.i} if node.op_type == "Cast" and attribute.name == "to" else set()
    stored |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    lower = (precision for precision in (Precision.FP16, Precision.BF16) if ELEMENT_TYPES[precision] in stored)
    return next(lower, Precision.FP32)


def repair_pair(job: ComparisonJob, folder: Path, *, time_limit_s: float, progress: Progress) -> RepairedVariant:
    """Make the repaired file from the reference, in `folder`, with `repair.json` beside it, and judge it.

    The search uses 40 % of the samples, and the gate the others.

    Raises:
        UsageError: As `check_repair`, or the rows do not suffice.
        StorageError: The folder holds files that are not ours, or cannot be written.
        UnrepairedError: Precision is not the cause, or no operators to keep in FP32 suffice.
        ConversionError: The reference cannot be converted.
    """
    lower = check_repair(job, folder)
    # What an earlier search found goes first: this one may end without a result.
    remove_marked_folder(folder)
    rules = job.rules
    if lower is Precision.FP16:
        # As for a target of mixed precision, whose limits are those of FP16.
        rules = replace(rules, tolerance=replace(rules.tolerance, precision=Precision.MIXED))
    with temporary_folder("repair-files") as place:
        files = place / "files"
        files.mkdir()
        child = ChildJob(
            name="export",
            args=_arguments(replace(job, rules=rules), lower, files),
            folder=place,
            what=f"the repair of {job.candidate.name}",
            time_limit_s=time_limit_s,
            crash_error=ConversionError,
            is_log_kept=False,
        )
        try:
            made = do_job(child, progress, makes=[files])
        except UsageError as err:
            msg = f"--repair: {err}"
            raise UsageError(
                msg, hint="give more finite rows with --samples, and a model with an open batch dim"
            ) from err
        with reading_result(child):
            repair, main = repair_of(made["facts"]), str(made["main"])
        if not repair.kept:
            msg = f"unrepaired: all of {job.reference.name} in {lower} is within the limits, so it is not the cause"
            raise UnrepairedError(msg, hint="find the operator that differs", command=_diagnose(job))
        make_marked_folder(folder)
        with storage_errors(folder):
            shutil.copytree(files, folder, dirs_exist_ok=True)
    model = ModelRef(text=main, folder=folder.resolve(), kind=SourceKind.ONNX, name=f"repaired {job.candidate.name}")
    judged = replace(
        job,
        candidate=replace(model, provider=job.candidate.provider),
        rules=rules,
        calibrated_rows=folder.resolve() / CALIBRATED_ROWS_FILE,
        failures=None,
        is_emulated=False,
    )

    def verdict(judged: ComparisonJob) -> HeldOut:
        return held_out_of(compare(judged, time_limit_s=time_limit_s, progress=progress))

    held_out = verdict(judged)
    emulated = None
    if lower is Precision.FP16:
        emulated = verdict(replace(judged, candidate=model, device="cpu", is_emulated=True))
    repaired = RepairedVariant(
        variant=job.candidate.name,
        outcome=outcome_of(held_out, emulated),
        file=model.path,
        repair=repair,
        held_out=held_out,
        emulated=emulated,
    )
    repaired.save()
    return repaired


def _arguments(job: ComparisonJob, lower: Precision, files: Path) -> dict[str, Any]:
    """Return the arguments of the conversion of the reference."""
    signature = signature_of_onnx(read_onnx(job.reference.path))
    return {
        "format": "onnx",
        "precision": str(Precision.MIXED),
        "folder": str(files),
        "source": to_data(replace(job.reference, signature=signature, rename={}, takes=())),
        "fixed_shape": None,
        "calibration": to_data(rows_to_search(job.samples, job.rules.seed)),
        "mixed": {"lower": str(lower), "max_runs": DEFAULT_MAX_RUNS, "rules": to_data(job.rules)},
        "engine": to_data(EngineSettings()),
        **dict.fromkeys(("opset", "samples", "exporter", "repair")),
        "is_fit_known": True,
        "dims": {},
        "files": [],
        "ties": {},
        "origin": "",
    }


def _diagnose(job: ComparisonJob) -> str:
    sides = [str(model.path) for model in (job.reference, job.candidate)]
    return shlex.join(["convert-and-validate", "diagnose", *sides, "--samples", job.samples.path or job.samples.text])
