"""Propose a repair of a conversion that fails in FP32: another exporter or opset, or changes taken from the source.

A proposal is a file beside the run, proven by the whole gate on rows that the search did not use. Only a spec that
accepts its changes releases it, because it hides a fault of a converter.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import Artifact, file_digests
from paritygate.codec import to_data
from paritygate.convert.onnx.changes import ChangedAttribute, ChangedWeight, Changes
from paritygate.convert.onnx.grafts import Graft
from paritygate.errors import ParitygateError, StorageError, UnrepairedError, UsageError
from paritygate.files import (
    make_marked_folder,
    remove_marked_folder,
    storage_errors,
    write_json_atomically,
)
from paritygate.models.source import SourceKind
from paritygate.pipelines.calibration.rows import CALIBRATED_ROWS_FILE
from paritygate.pipelines.compare.job import compare
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.process.child import Progress, progress_of
from paritygate.pipelines.repair.proposal_request import ProposalRequest, SearchedRows, propose
from paritygate.pipelines.repair.proposals import Proposal
from paritygate.pipelines.repair.result import REPAIR_FILE, UNREPAIRED, HeldOut, held_out_of
from paritygate.pipelines.repair.rows import rows_to_search
from paritygate.pipelines.repair.variant import FOLDER
from paritygate.pipelines.run.comparisons import comparison_of
from paritygate.pipelines.run.diagnosis import FP32_EXPORT, variant_to_diagnose
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.pipelines.run.variant_maker import VariantMaker
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.errors import block_yaml
from paritygate.pipelines.spec.parts import AcceptedRepairPart, RepairPart
from paritygate.validate.measure.check import Verdict
from paritygate.validate.reference.recording import Recording

PROPOSED = "proposed"
_MOST_ATTEMPTS = 4
_EXPORTERS = ("dynamo", "torchscript")
# Exporters write these opsets without a conversion that may fail in silence.
_OPSETS = (18, 17, 20)
# The exporters of TensorFlow have no later one.
_LAST_OF_TENSORFLOW = 18


class Export(Struct, frozen=True, kw_only=True):
    """The exporter and the opset of a conversion; None for what the spec asks for."""

    exporter: str | None = None
    opset: int | None = None


class ExportAttempt(Struct, frozen=True, kw_only=True):
    """A conversion that was tried, and its verdict, or why there is none."""

    export: Export
    verdict: str
    reason: str = ""


class ProposedRepair(Struct, frozen=True, kw_only=True):
    """The outcome of a search for a repair of a conversion.

    `outcome` is `proposed` if the whole gate passes on rows that were not `searched`, and `unrepaired` if not. `file`
    is the repaired one, whose conversion differs by `export` or by `changes`. `accept` is the part of a spec that
    accepts it; None where the same conversion, done again, passes. `attempts` are the conversions that were tried
    first, and `proposal` is of the changes.
    """

    variant: str
    outcome: str
    file: Path | None
    export: Export
    changes: Changes
    attempts: tuple[ExportAttempt, ...]
    proposal: Proposal | None
    searched: SearchedRows | None
    held_out: HeldOut | None
    accept: Mapping[str, Any] | None


def propose_repair(run: RunFolder, *, time_limit_s: float, progress: Progress) -> ProposedRepair:
    """Search a repair of the FP32 export of a run, in a folder below the run folder, with `repair.json` beside it.

    Raises:
        UsageError: It did not fail.
        InputFileError: The run has no evidence of it, or the source's inner tensors cannot be read.
        StorageError: The folder for the result holds files that are not ours, or cannot be written.
        UnrepairedError: It could not be compared.
    """
    search = _Search.of(run, time_limit_s, progress)
    place = run.folder / FOLDER / FP32_EXPORT
    # What an earlier search found goes first: this one may end without a result. Folders without our mark stay.
    remove_marked_folder(place)
    work = make_marked_folder(run.jobs(f"repair-{FP32_EXPORT}"))
    found = search.by_exports(work)
    if found.outcome != PROPOSED:
        found = search.by_changes(work, found.attempts)
    make_marked_folder(place)
    if found.file is not None:
        with storage_errors(place):
            shutil.copytree(found.file.parent, place, dirs_exist_ok=True)
        found = replace(found, file=place / found.file.name)
    write_json_atomically(place / REPAIR_FILE, {"schema_version": 1, **to_data(found)})
    return found


class _Search(Struct, frozen=True, kw_only=True):
    """The search for one run."""

    run: RunFolder
    artifact: Artifact
    entry: EvidenceEntry
    recording: Recording
    time_limit_s: float
    progress: Progress

    @classmethod
    def of(cls, run: RunFolder, time_limit_s: float, progress: Progress) -> _Search:
        evidence = run.evidence()
        entries = () if evidence is None else evidence.variants
        entry = next((item for item in entries if item.variant == FP32_EXPORT), None)
        if entry is None:
            msg = f"the run has no evidence of {FP32_EXPORT}, so nothing shows that its conversion fails"
            raise UsageError(msg, hint=f"add {FP32_EXPORT} to targets, and run the spec again")
        if entry.verdict == Verdict.PASS:
            msg = f"{FP32_EXPORT} does not fail (verdict: {entry.verdict}), so there is nothing to repair"
            raise UsageError(msg, hint="name a variant that fails with --variant")
        if entry.verdict != Verdict.FAIL:
            msg = f"{FP32_EXPORT} was not compared (verdict: {entry.verdict}: {entry.reason})"
            raise UnrepairedError(msg, hint="remove the cause, and run the spec again")
        return cls(
            run=run,
            artifact=run.artifact(FP32_EXPORT),
            entry=entry,
            recording=Recording.load(run.reference),
            time_limit_s=time_limit_s,
            progress=progress,
        )

    def by_exports(self, work: Path) -> ProposedRepair:
        """Return the first other conversion that passes the whole gate; unrepaired if there is none."""
        attempts: list[ExportAttempt] = []
        seen = {self.artifact.digest}
        for at, export in enumerate(self._exports()):
            folder = make_marked_folder(work / f"export-{at}")
            # Another conversion stands by itself; a converter that does the same again keeps what is accepted.
            made = self._exported(export, folder, self._accepted if export == Export() else None)
            if isinstance(made, FailedVariant):
                attempts.append(ExportAttempt(export=export, verdict=made.verdict, reason=made.message))
                continue
            if made.digest in seen:
                if export == Export():
                    continue
                attempts.append(ExportAttempt(export=export, verdict=Verdict.FAIL, reason="the file is the same"))
                continue
            seen.add(made.digest)
            held_out = self._held_out(made, work / f"compare-{at}", None)
            attempts.append(ExportAttempt(export=export, verdict=held_out.verdict))
            if held_out.verdict == Verdict.PASS:
                return self._outcome(attempts, export=export, file=made.path, held_out=held_out)
        return self._outcome(attempts)

    def by_changes(self, work: Path, attempts: tuple[ExportAttempt, ...]) -> ProposedRepair:
        """Return the changes with which the file passes the whole gate on other rows; unrepaired if there are none."""
        folder = work / "changed"
        remove_marked_folder(folder)
        make_marked_folder(folder)
        resolved = self.run.resolved
        found = variant_to_diagnose(self.run, FP32_EXPORT, self.entry.result, is_export_right=False)
        request = ProposalRequest(
            reference=found.request.reference,
            candidate=replace(artifact_model(self.artifact), signature=self.artifact.signature),
            rows=rows_to_search(resolved.samples(self.run.samples_path), resolved.spec.seed),
            folder=folder,
            rename=found.request.rename,
        )
        proposal, rows = propose(
            request, work / "search", time_limit_s=self.time_limit_s, progress=self.progress, do=self.run.do
        )
        if not len(proposal.changes):
            return self._outcome(attempts, proposal=proposal, searched=rows)
        accept = _part_of_spec(Export(), proposal.changes)
        made: Artifact | FailedVariant
        if self._accepted is None:
            made = replace(self.artifact, folder=folder, files=_without_rows(file_digests(folder)))
        else:
            # The search began at a repaired file, and a spec makes all changes at once: that file is judged.
            accept = _both(self._accepted, accept)
            both = self._accepted.model_copy(update=accept)
            made = self._exported(Export(), make_marked_folder(work / "accepted"), both)
        if isinstance(made, FailedVariant):
            return self._outcome(attempts, changes=proposal.changes, proposal=proposal, searched=rows)
        held_out = self._held_out(made, work / "compare-changed", folder / CALIBRATED_ROWS_FILE)
        (folder / CALIBRATED_ROWS_FILE).unlink()
        is_repaired = held_out.verdict == Verdict.PASS
        return self._outcome(
            attempts,
            changes=proposal.changes,
            file=made.path if is_repaired else None,
            held_out=held_out,
            proposal=proposal,
            searched=rows,
            accept=accept,
        )

    def _outcome(  # noqa: PLR0913 - the parts of a result
        self,
        attempts: list[ExportAttempt] | tuple[ExportAttempt, ...],
        *,
        export: Export | None = None,
        changes: Changes | None = None,
        file: Path | None = None,
        held_out: HeldOut | None = None,
        proposal: Proposal | None = None,
        searched: SearchedRows | None = None,
        accept: Mapping[str, Any] | None = None,
    ) -> ProposedRepair:
        export, changes = export or Export(), changes or Changes()
        return ProposedRepair(
            variant=FP32_EXPORT,
            outcome=UNREPAIRED if file is None else PROPOSED,
            file=file,
            export=export,
            changes=changes,
            attempts=tuple(attempts),
            proposal=proposal,
            searched=searched,
            held_out=held_out,
            accept=None if file is None else accept or _part_of_spec(export, changes) or None,
        )

    def _exports(self) -> Iterator[Export]:
        """Yield the conversion as it was, and then other ways to convert the source, a few."""
        # It may have been changed since, or its converter writes another file each time.
        yield Export()
        facts = self.artifact.made_by.get("facts", {})
        opset, own = facts.get("opset"), str(facts.get("exporter", "")).partition(" ")[0]
        kind = self.run.resolved.source.kind
        if kind is SourceKind.ONNX:
            return
        exports = [Export(exporter=name) for name in _EXPORTERS if own and name != own]
        is_of_torch = bool(own) or kind in {SourceKind.TORCH, SourceKind.TORCHSCRIPT, SourceKind.PT2}
        opsets = [item for item in _OPSETS if item != opset and (is_of_torch or item <= _LAST_OF_TENSORFLOW)]
        exports += [Export(exporter=own or None, opset=item) for item in opsets]
        exports += [Export(exporter=each.exporter, opset=item) for each in exports[:1] if own for item in opsets]
        yield from exports[:_MOST_ATTEMPTS]

    @property
    def _accepted(self) -> AcceptedRepairPart | None:
        return self.run.resolved.repair(FP32_EXPORT)

    def _exported(self, export: Export, folder: Path, accepted: AcceptedRepairPart | None) -> Artifact | FailedVariant:
        resolved = self.run.resolved
        spec = resolved.spec
        repair = RepairPart(accept={} if accepted is None else {"onnx-fp32": accepted})
        model = spec.model.model_copy(update={"exporter": export.exporter or spec.model.exporter})
        changed = spec.model_copy(update={"model": model, "opset": export.opset or spec.opset, "repair": repair})
        run = replace(self.run, folder=folder, resolved=replace(resolved, spec=changed))
        try:
            return VariantMaker(run, [FP32_EXPORT], time_limit_s=self.time_limit_s, progress=self.progress).make(
                FP32_EXPORT
            )
        except StorageError:
            raise
        except ParitygateError as err:
            return FailedVariant.from_error(FP32_EXPORT, err)

    def _held_out(self, artifact: Artifact, place: Path, searched: Path | None) -> HeldOut:
        job = replace(comparison_of(self.run, artifact, self.recording, "cpu").job, calibrated_rows=searched)
        shown, folder = progress_of("held-out", self.progress), make_marked_folder(place)
        return held_out_of(compare(job, time_limit_s=self.time_limit_s, folder=folder, progress=shown, do=self.run.do))


def _without_rows(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name != CALIBRATED_ROWS_FILE}


def _part_of_spec(export: Export, changes: Changes) -> dict[str, Any]:
    """Return what a spec has below `repair.accept` to accept this, without author and reason."""
    part = {name: value for name, value in to_data(export).items() if value is not None}
    lists: dict[str, tuple[ChangedWeight | ChangedAttribute | Graft, ...]]
    lists = {"weights": changes.weights, "attributes": changes.attributes, "grafts": changes.grafts}
    changed = {name: [_plain(item) for item in items] for name, items in lists.items() if items}
    return {**part, **({"changes": changed} if changed else {})}


def _both(accepted: AcceptedRepairPart, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a spec accepts already, followed by more changes, without author and reason."""
    found = {name: value for name in ("exporter", "opset") if (value := getattr(accepted, name)) is not None}
    names = dict.fromkeys((*accepted.changes, *more["changes"]))
    changes = {name: [*accepted.changes.get(name, ()), *more["changes"].get(name, ())] for name in names}
    return {**found, "changes": changes}


def _plain(item: ChangedWeight | ChangedAttribute | Graft) -> dict[str, Any]:
    """Return a change as a spec has it."""
    data: dict[str, Any] = to_data(item)
    return {name: value for name, value in data.items() if name != "was" and value not in ("", None, [])}


def how_to_accept(repaired: ProposedRepair) -> list[str]:
    """Return the lines of a spec that accept a repair."""
    accept = {**(repaired.accept or {}), "author": "AUTHOR", "reason": "REASON"}
    return block_yaml({"repair": {"accept": {FP32_EXPORT: accept}}})
