"""Repair a failed FP16 or INT8 variant of a finished run, and put the result through the whole gate."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.errors import InputFileError, UnrepairedError, UsageError
from paritygate.files import (
    make_marked_folder,
    remove_marked_folder,
    storage_errors,
)
from paritygate.formats import ENGINE_FORMATS, why_no_bf16
from paritygate.pipelines.compare.job import compare
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress, progress_of
from paritygate.pipelines.repair.result import HeldOut, RepairedVariant, held_out_of, outcome_of, repair_of
from paritygate.pipelines.run.comparisons import RunComparison, comparison_of, emulated_comparison_of
from paritygate.pipelines.run.diagnosis import FP32_EXPORT
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.pipelines.run.fp32_base import fp32_entry
from paritygate.pipelines.run.variant_maker import VariantMaker
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.pipelines.spec.targets import MIXED, MIXED_OPENVINO, MixedTarget
from paritygate.precision import Precision, Variant
from paritygate.text import hint_of_meant
from paritygate.validate.measure.check import Verdict
from paritygate.validate.reference.recording import Recording

FOLDER = "repaired"
_LOWER: Mapping[Precision, Literal["fp16", "int8"]] = {Precision.FP16: "fp16", Precision.INT8: "int8"}
_CPU = "cpu"
# The variants that are repaired, each by the target that keeps operators in FP32.
_MIXED_OF: Mapping[str, str] = {
    **{f"{form}-{lower}": MIXED for form in ("onnx", *sorted(ENGINE_FORMATS)) for lower in _LOWER},
    "openvino-int8": MIXED_OPENVINO,
}


def repair_variant(
    run: RunFolder, name: str, *, max_runs: int, time_limit_s: float, progress: Progress
) -> RepairedVariant:
    """Repair a variant that failed, in a folder below the run folder, with `repair.json` beside the file.

    Raises:
        UsageError: The variant did not fail or is of a precision that is not repaired, or the run has a mixed variant
            of its own.
        InputFileError: The run has no such variant, or no evidence.
        StorageError: The folder for the result holds files that are not ours, or cannot be written.
        UnrepairedError: It fails in FP32 too, or no operators to keep in FP32 suffice.
        ConversionError: It cannot be converted.
    """
    entries = _entries(run)
    variant = _failed_variant(run, name, entries)
    mixed = _MIXED_OF[name]
    place = run.folder / FOLDER / name
    # What an earlier search found goes first: this one may end without a result. Folders without our mark stay.
    remove_marked_folder(place)
    lower = _LOWER[variant.precision]
    judging = _Judging(
        run=replace(run, resolved=_with_mixed(run.resolved, (name, mixed), lower, max_runs)),
        name=name,
        recording=Recording.load(run.reference),
        time_limit_s=time_limit_s,
        progress=progress,
    )
    maker = VariantMaker(judging.run, [mixed], time_limit_s=time_limit_s, progress=progress)
    judging.check_fp32(maker.make(FP32_EXPORT), entries)
    made = maker.make(mixed)
    if isinstance(made, FailedVariant):
        raise UnrepairedError(made.message, hint=made.hint, command=made.command)
    try:
        held_out, emulated = judging.held_out(made), judging.emulated(made)
        make_marked_folder(place)
        with storage_errors(place):
            shutil.copytree(made.folder, place, dirs_exist_ok=True)
    finally:
        # The run itself has no such variant.
        remove_marked_folder(made.folder)
    repaired = RepairedVariant(
        variant=name,
        outcome=outcome_of(held_out, emulated),
        file=place / made.main,
        repair=repair_of(made.made_by["facts"]),
        held_out=held_out,
        emulated=emulated,
        target=f"{{name: {mixed}, lower: {lower}}}",
    )
    repaired.save()
    return repaired


def _entries(run: RunFolder) -> dict[str, list[EvidenceEntry]]:
    """Return the evidence by variant: as it ran, and emulated."""
    evidence = run.evidence()
    if evidence is None:
        msg = f"{run.folder} has no evidence, so nothing shows that a variant fails"
        raise InputFileError(msg, hint="validate it", command=f"convert-and-validate validate --run {_path(run)}")
    entries: dict[str, list[EvidenceEntry]] = {}
    for entry in (*evidence.variants, *evidence.emulated):
        entries.setdefault(entry.variant, []).append(entry)
    return entries


def _failed_variant(run: RunFolder, name: str, entries: Mapping[str, list[EvidenceEntry]]) -> Variant:
    """Return the variant of a name; raise if it cannot be repaired by precision, or does not fail."""
    if name not in entries:
        msg = f"the run has no variant {name!r} (variants: {', '.join(entries)})"
        raise InputFileError(msg, hint=hint_of_meant(name, entries, "name one of them with --variant"))
    variant = Variant.parse(name)
    if name not in _MIXED_OF:
        msg = f"{name} cannot be repaired by precision (expected one of: {', '.join(_MIXED_OF)})"
        if variant.precision is Precision.BF16:
            msg = f"{name} cannot be repaired: {why_no_bf16()}"
        if variant.format != "onnx":
            raise UsageError(msg, hint=f"add onnx-{variant.precision} to targets, and repair that variant")
        raise UsageError(msg, hint="find the operator that differs", command=_diagnose(run, name))
    if _MIXED_OF[name] in entries:
        msg = f"the run has the target {_MIXED_OF[name]}, which is a repair already"
        raise UsageError(msg, hint="raise its max_runs, or calibration.share for more rows to search by")
    if all(entry.verdict != Verdict.FAIL for entry in entries[name]):
        failing = [each for each, rows in entries.items() if any(entry.verdict == Verdict.FAIL for entry in rows)]
        msg = f"{name} does not fail (verdict: {entries[name][0].verdict}), so there is nothing to repair"
        hint = f"variants that fail: {', '.join(failing)}" if failing else "no variant of this run fails"
        raise UsageError(msg, hint=hint)
    return variant


def _with_mixed(
    resolved: ResolvedSpec, names: tuple[str, str], lower: Literal["fp16", "int8"], max_runs: int
) -> ResolvedSpec:
    """Return the spec with a mixed target that has the limits of the variant; `names` are the variant's and its own."""
    name, mixed = names
    target, spec = MixedTarget(name=mixed, lower=lower, max_runs=max_runs), resolved.spec
    limits = {mixed: spec.tolerance[name]} if name in spec.tolerance else {}
    changes = {"targets": [*spec.targets, target], "tolerance": {**spec.tolerance, **limits}}
    return replace(resolved, spec=spec.model_copy(update=changes))


class _Judging(Struct, frozen=True, kw_only=True):
    """The gate on the files of a repair."""

    run: RunFolder
    name: str
    recording: Recording
    time_limit_s: float
    progress: Progress

    def check_fp32(self, base: Artifact | FailedVariant, entries: Mapping[str, list[EvidenceEntry]]) -> None:
        """Refuse a variant whose FP32 base does not pass, because precision would hide a fault of the conversion."""
        first = {name: rows[0] for name, rows in entries.items()}
        known = fp32_entry(Variant.parse(self.name), FP32_EXPORT, first)
        name = FP32_EXPORT if known is None else known.variant
        if known is not None:
            verdict = known.verdict
        elif isinstance(base, FailedVariant):
            verdict = base.verdict
        else:
            verdict = self._result("base", comparison_of(self.run, base, self.recording, _CPU)).verdict
        if verdict in {Verdict.PASS, Verdict.INCONCLUSIVE}:
            return
        msg = f"{FP32_EXPORT}, from which it is made, " if name == FP32_EXPORT else f"{name} "
        if verdict == Verdict.FAIL:
            msg += "does not pass either, so precision is not the cause"
        else:
            msg += f"could not be measured ({verdict}), so nothing shows that precision is the cause"
        command = _diagnose(self.run, name)
        raise UnrepairedError(msg, hint="find the operator that differs", command=command)

    def held_out(self, artifact: Artifact) -> HeldOut:
        """Return the verdict on the file as it runs on the CPU."""
        return held_out_of(self._result("held-out", comparison_of(self.run, artifact, self.recording, _CPU)))

    def emulated(self, artifact: Artifact) -> HeldOut | None:
        """Return the verdict on the file with every value rounded; None where nothing is to be rounded."""
        comparison = emulated_comparison_of(self.run, artifact, self.recording)
        return None if comparison is None else held_out_of(self._result("emulated", comparison))

    def _result(self, what: str, comparison: RunComparison) -> ComparisonResult:
        place, shown = make_marked_folder(self.run.jobs(f"repair-{self.name}-{what}")), progress_of(what, self.progress)
        return compare(comparison.job, time_limit_s=self.time_limit_s, folder=place, progress=shown, do=self.run.do)


def _diagnose(run: RunFolder, name: str) -> str:
    return f"convert-and-validate diagnose --run {_path(run)} --variant {name}"


def _path(run: RunFolder) -> str:
    return shlex.quote(str(run.folder))
