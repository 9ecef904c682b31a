"""What is put forward for a release, and the checks that keep everything else out.

These checks repeat what the gate decided. They are made again here, on what is about to be copied,
because this is the last door: what was not measured is not promoted, whoever calls.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.artifact import ARTIFACT_FILE, check_record, file_digests
from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError, RepositoryError, UsageError
from paritygate.files import digest_of_files
from paritygate.pipelines.release.repository.difference import compare_files
from paritygate.pipelines.release.stores.folders import reading_errors
from paritygate.pipelines.spec.names import check_alias, check_name, check_variant
from paritygate.precision import Variant

MANIFEST_FILE = "manifest.json"
EVIDENCE_FILE = "evidence.json"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantEvidence:
    """What was found about exactly one artifact.

    Attributes:
        verdict: `pass`, `fail`, `inconclusive` or `error`; only `pass` is released.
        artifact: Digest of the artifact that was measured.
        kind: `verified`, `emulated` or `built`; anything but `verified` needs the candidate's `accepted`.
        device: Where it was measured, such as `cpu` or `cuda:sm80`.
        runtime: What ran it, with its version.
        emulated_from: Digest of the artifact that ran in its place, where the evidence is emulated.
        has_run: Whether the artifact itself was compared on any device.
        devices: The devices of the release that this stands for.
        also: What was found on the other devices of the release.
        rules: Digest of the rules that it was judged by; None where it is not known.
    """

    verdict: str
    artifact: str
    kind: str
    device: str
    runtime: str
    emulated_from: str | None = None
    has_run: bool = True
    devices: tuple[str, ...] = ()
    also: tuple[VariantEvidence, ...] = ()
    rules: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantCandidate:
    """One variant to release.

    Attributes:
        name: The variant, such as `onnx-fp16`, which names its folder; any safe name for the source.
        folder: Where its files are.
        record: The artifact's record, as `artifact.json` holds it: at least `files` (digest of each file
            by relative path) and `digest` (over all of them).
        evidence: What the gate found; None only for the source.
        is_source: Whether this is the source itself, released as the fallback.
    """

    name: str
    folder: Path
    record: Mapping[str, Any]
    evidence: VariantEvidence | None
    is_source: bool = False

    @property
    def files(self) -> dict[str, str]:
        """Digest of each file by relative path."""
        return dict(self.record["files"])

    @property
    def digest(self) -> str:
        """Digest over all files."""
        return digest_of_files(self.files)

    def to_json(self) -> dict[str, Any]:
        """Return what it is and what was found about it, as JSON data."""
        return {
            "name": self.name,
            "role": "source" if self.is_source else "converted",
            "digest": self.digest,
            "evidence": None if self.evidence is None else to_data(self.evidence),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """What a release was made and judged with; goes into its manifest.

    Attributes:
        source: Digest of the source; None where it cannot be established.
        samples: Digest of the samples.
        reference: Digest of the recorded reference.
        tools: Version of each tool by name.
        device: The machine of the last validation, in words and figures.
        machines: The machine of each device that the run was validated on, by the device.
        tolerances: The limits of each variant.
        looser_tolerances: Those of the limits that are looser than the defaults, as the user set them.
        ignored_outputs: The outputs that were not compared, each with the reason.
        constant_decisions: The decisions that are said to be the same for all rows, by output, each with the reason.
        asked_less: What the spec asks less than failed runs of the same source did, by variant and run.
        probes_not_asked: By variant, the probes that were switched off or could not be asked.
        edge_findings: By variant, what it answers otherwise where no sample is.
        padding_findings: By variant, what differs where a mask leaves out that nobody declared, in words.
        edge_not_asked: The variants that were not asked what is unlike every sample.
        emulated_not_passed: By variant, what fails where its precision is real, as its emulated row says.
        pack: Digest of the pack that the run came in; None where it was not unpacked.
        spec: The resolved spec, where there is one.
    """

    source: str | None
    samples: str
    reference: str
    tools: Mapping[str, str]
    device: Mapping[str, Any]
    tolerances: Mapping[str, Any]
    looser_tolerances: Mapping[str, Any] = field(default_factory=dict)
    ignored_outputs: Mapping[str, str] = field(default_factory=dict)
    constant_decisions: Mapping[str, str] = field(default_factory=dict)
    probes_not_asked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    edge_findings: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    padding_findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    edge_not_asked: Sequence[str] = ()
    asked_less: Sequence[Mapping[str, Any]] = ()
    emulated_not_passed: Mapping[str, str] = field(default_factory=dict)
    machines: Mapping[str, Any] = field(default_factory=dict)
    pack: str | None = None
    spec: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseCandidate:
    """Everything that one release is made of.

    Attributes:
        model: The model's name.
        variants: What to release, the preferred one first.
        provenance: What it was made and judged with.
        evidence: The evidence of the run, as JSON data; becomes `evidence.json`.
        alias: The alias to move to the new version; None moves none.
        if_current: The version that the alias must point to, 0 for a new alias; any if None.
        reports: Further files to keep with the release, by the name they get there: what returns their bytes, which is
            called where a release is made that is not there yet.
        accepted: Kind of evidence accepted in place of `verified`, by variant; the release says so.
        reason: Why, in words, such as `fallback: source`; required when the source is released.
        choice: What was asked for and what stood for choice, as JSON data; goes into the manifest.
        despite: Why it is released although its run failed; empty if the run passed. It lets no variant in.
        trust: Digest of the pack whose evidence is trusted; empty where all of it was made here.
        who: Who releases, kept in the log; may be empty.
        host: Where, kept in the log; may be empty.
    """

    model: str
    variants: Sequence[VariantCandidate]
    provenance: Provenance
    evidence: Mapping[str, Any]
    alias: str | None = None
    if_current: int | None = None
    reports: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    choice: Mapping[str, Any] = field(default_factory=dict)
    despite: str = ""
    trust: str = ""
    who: str = ""
    host: str = ""


def check_candidate(candidate: ReleaseCandidate) -> None:
    """Refuse what must not be released, without looking at any file.

    Raises:
        UsageError: A name cannot be a folder or file of the repository, or occurs twice.
        RepositoryError: There is nothing to release, a converted variant did not pass, its evidence is
            about other bytes or of a kind that was not accepted, the source is released without a reason,
            or the data cannot be written as JSON.
        ArtifactIntegrityError: An artifact's record contradicts itself.
        InputFileError: A report does not exist.
    """
    check_name("model", candidate.model)
    if candidate.alias is not None:
        check_alias(candidate.alias)
    _check_entries(candidate)
    if not candidate.variants:
        msg = f"no variant of {candidate.model!r} is left to release"
        raise RepositoryError(msg, hint="only variants that pass are released; see the report of the run")
    for variant in candidate.variants:
        _check_record(variant)
        if variant.is_source:
            _check_source(variant, candidate.reason)
        else:
            _check_evidence(variant, candidate.accepted.get(variant.name, "verified"))
    _check_provenance(candidate)


def _check_entries(candidate: ReleaseCandidate) -> None:
    """Check the names that the release's folder will hold."""
    variants = [check_variant(variant.name) for variant in candidate.variants]
    reports = [check_name("report", name) for name in candidate.reports]
    # Case is ignored, because a release may be copied to a filesystem that ignores it.
    count = Counter(name.casefold() for name in (*variants, *reports, MANIFEST_FILE, EVIDENCE_FILE))
    for name in (*variants, *reports):
        if count[name.casefold()] > 1:
            msg = f"the release has the name {name!r} twice"
            raise UsageError(msg, hint=f"names of variants and reports differ, and are not {MANIFEST_FILE} or so")


def _check_record(variant: VariantCandidate) -> None:
    files = variant.record.get("files")
    if not isinstance(files, Mapping) or not files:
        msg = f"the record of {variant.name} names no files"
        raise ArtifactIntegrityError(msg, hint="make the artifact again with", command="convert-and-validate export")
    try:
        check_record(variant.record)
    except (ValueError, KeyError) as err:
        msg = f"the record of {variant.name} is corrupt: {err}"
        raise ArtifactIntegrityError(
            msg, hint="make the artifact again with", command="convert-and-validate export"
        ) from err
    if variant.record.get("digest") != variant.digest:
        msg = (
            f"the record of {variant.name} contradicts itself: digest {variant.record.get('digest')}, "
            f"but its files give {variant.digest}"
        )
        raise ArtifactIntegrityError(msg, hint="make the artifact again with", command="convert-and-validate export")


def _check_source(variant: VariantCandidate, reason: str) -> None:
    if not reason.strip():
        msg = f"the source would be released as {variant.name!r} without a reason"
        raise RepositoryError(msg, hint="give a reason, for example 'fallback: source, no converted variant passed'")


def _check_evidence(variant: VariantCandidate, accepted_kind: str) -> None:
    Variant.parse(variant.name)
    if variant.record.get("variant") != variant.name:
        msg = f"the artifact put forward as {variant.name} is recorded as {variant.record.get('variant')!r}"
        raise RepositoryError(msg, hint="put each artifact forward under its own name")
    evidence = variant.evidence
    if evidence is None:
        msg = f"{variant.name} has no evidence because it was not measured, so it is not released"
        raise RepositoryError(msg, hint="judge it again with", command="convert-and-validate validate")
    for found in (evidence, *evidence.also):
        _check_found(variant, found, accepted_kind)


def _check_found(variant: VariantCandidate, evidence: VariantEvidence, accepted_kind: str) -> None:
    if evidence.verdict != "pass":
        msg = f"{variant.name} is not released: its verdict is {evidence.verdict!r}, only 'pass' is"
        raise RepositoryError(msg, hint="see the report for the reason; 'fallback: source' releases the source")
    if evidence.artifact != variant.digest:
        msg = f"the evidence of {variant.name} is about {evidence.artifact}, not about {variant.digest}"
        raise RepositoryError(msg, hint="judge it again with", command="convert-and-validate validate")
    if evidence.kind == "verified" or evidence.kind == accepted_kind == "emulated":
        return
    msg = f"{variant.name} is not released because its evidence on {evidence.device} is {evidence.kind!r}"
    hint = "verify it on the device it will run on"
    if evidence.kind == "emulated":
        hint += f", or accept it with promote.accept: {{{variant.name}: emulated}}"
    raise RepositoryError(msg, hint=hint)


def _check_provenance(candidate: ReleaseCandidate) -> None:
    provenance = candidate.provenance
    digests = {"samples": provenance.samples, "reference": provenance.reference}
    if provenance.source is not None:
        digests["source"] = provenance.source
    for name, digest in digests.items():
        if not _DIGEST.fullmatch(digest):
            msg = f"the digest of the {name} is {digest!r}, which is not a sha256 digest"
            raise RepositoryError(msg, hint="run it again", command="convert-and-validate run")
    _check_json(EVIDENCE_FILE, candidate.evidence)
    _check_json(MANIFEST_FILE, {**to_data(provenance), "choice": dict(candidate.choice)})
    for variant in candidate.variants:
        _check_json(f"{variant.name}/{ARTIFACT_FILE}", variant.record)


def _check_json(name: str, data: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(data), allow_nan=False)
    except (TypeError, ValueError) as err:
        msg = f"{name} of the release cannot be written as JSON: {err}"
        raise RepositoryError(msg, hint="write numbers that are not finite as text or null") from err


def check_files(variant: VariantCandidate) -> None:
    """Check that the variant's folder holds exactly the files that the variant's record names, byte for byte.

    Reads every file.

    Raises:
        ArtifactIntegrityError: A file was changed, is missing or was added.
        InputFileError: A file cannot be read.
        StorageError: A link leaves the folder.
    """
    with reading_errors(variant.folder):
        found = file_digests(variant.folder)
    difference = compare_files(found, variant.files)
    if not difference.is_empty:
        msg = f"{variant.name} in {variant.folder} is corrupt, nothing was released: {difference}"
        raise ArtifactIntegrityError(msg, hint="make it again with", command="convert-and-validate export")


def check_copies(candidate: ReleaseCandidate, copied: Mapping[str, str]) -> None:
    """Check that the files copied are exactly those of the candidate, byte for byte.

    Args:
        candidate: What was copied.
        copied: Digest of each file of the copy, by relative path, the manifest left out.

    Raises:
        ArtifactIntegrityError: A file changed while it was copied, is missing or was added.
    """
    recorded = {f"{variant.name}/{name}": of for variant in candidate.variants for name, of in variant.files.items()}
    # Written here, not copied from an artifact: there is no earlier digest to hold them against.
    written = {
        EVIDENCE_FILE,
        *candidate.reports,
        *(f"{variant.name}/{ARTIFACT_FILE}" for variant in candidate.variants),
    }
    found = {name: of for name, of in copied.items() if name not in written}
    difference = compare_files(found, recorded)
    if not difference.is_empty:
        msg = f"the copy differs from the artifact, nothing was released: {difference}"
        raise ArtifactIntegrityError(msg, hint="let no other process write to the run's folder, and promote again")
