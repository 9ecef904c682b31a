"""Describe a candidate for a release, and check it once more before its files are copied.

The checks repeat those of the gate on the files themselves, so that no caller promotes an unmeasured variant.
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
from paritygate.files import corrupt_errors, digest_of_files
from paritygate.pipelines.release.repository.difference import compare_files
from paritygate.pipelines.release.signing.keys import SigningKey
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE
from paritygate.pipelines.release.stores.folders import reading_errors
from paritygate.pipelines.spec.names import check_alias, check_name, check_variant
from paritygate.precision import Variant

MANIFEST_FILE = "manifest.json"
EVIDENCE_FILE = "evidence.json"
# Of a signed release: what was measured.
STATEMENT_FILE = "parity.intoto.json"
_OWN_FILES = (MANIFEST_FILE, EVIDENCE_FILE, STATEMENT_FILE, SIGNATURE_FILE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantEvidence:
    """Hold the evidence about exactly one artifact."""

    verdict: str  # `pass`, `fail`, `inconclusive` or `error`; only `pass` is released
    artifact: str  # digest of the measured artifact
    kind: str  # `verified`, `emulated` or `built`; all but `verified` need the candidate's `accepted`
    device: str  # such as `cpu` or `cuda:sm80`
    runtime: str  # with its version
    emulated_from: str | None = None  # digest of the artifact that ran in its place
    has_run: bool = True  # whether the artifact itself was compared on any device
    devices: tuple[str, ...] = ()  # of the release, which this covers
    also: tuple[VariantEvidence, ...] = ()  # from the other devices of the release
    rules: str | None = None  # digest of the gate's rules; None if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantCandidate:
    """Describe one variant to release.

    `record` is the artifact's record as in `artifact.json`. It has at least `files`, the digest of each file by
    relative path, and `digest`, over all of them.
    """

    name: str  # of its folder, such as `onnx-fp16`; any safe name for the source
    folder: Path
    record: Mapping[str, Any]
    evidence: VariantEvidence | None  # None only for the source
    is_source: bool = False  # released as the fallback

    @property
    def files(self) -> dict[str, str]:
        """Digest of each file by relative path."""
        return dict(self.record["files"])

    @property
    def digest(self) -> str:
        """Digest over all files."""
        return digest_of_files(self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the variant and its evidence as JSON data."""
        return {
            "name": self.name,
            "role": "source" if self.is_source else "converted",
            "digest": self.digest,
            "evidence": None if self.evidence is None else to_data(self.evidence),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Hold what a release was made and judged with; it goes into the manifest."""

    source: str | None  # digest; None where it cannot be established
    samples: str  # digest
    reference: str  # digest of the recorded reference
    tools: Mapping[str, str]  # version of each tool
    device: Mapping[str, Any]  # the machine of the last validation
    tolerances: Mapping[str, Any]  # by variant
    looser_tolerances: Mapping[str, Any] = field(default_factory=dict)  # set by the user, looser than the defaults
    ignored_outputs: Mapping[str, str] = field(default_factory=dict)  # the reason of each
    constant_decisions: Mapping[str, str] = field(default_factory=dict)  # outputs declared constant, and why
    # By variant: the probes that were off or could not run.
    probes_not_asked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    edge_findings: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # by variant
    # By variant: the differences at positions that an undeclared mask leaves out.
    padding_findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    edge_not_asked: Sequence[str] = ()  # variants without out-of-sample probes
    asked_less: Sequence[Mapping[str, Any]] = ()  # what failed runs of the source required and the spec does not
    # By variant: the failures of its emulated row, where its precision is real.
    emulated_not_passed: Mapping[str, str] = field(default_factory=dict)
    repairs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by variant: of its conversion, as accepted
    machines: Mapping[str, Any] = field(default_factory=dict)  # by the device of the validation
    pack: str | None = None  # digest of the pack that the run came in
    spec: Mapping[str, Any] | None = None  # resolved


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseCandidate:
    """Hold everything that one release is made of.

    A report is made only if no such release exists yet. A `reason` is required to release the source. `despite` is why
    to release after a failed run; it lets no further variant in.
    """

    model: str
    variants: Sequence[VariantCandidate]  # the preferred one first
    provenance: Provenance
    evidence: Mapping[str, Any]  # JSON data of `evidence.json`
    alias: str | None = None  # to move to the new version
    if_current: int | None = None  # the version that the alias must point to, 0 for a new alias
    reports: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)  # by file name
    accepted: Mapping[str, str] = field(default_factory=dict)  # kind of evidence by variant, in place of `verified`
    reason: str = ""  # such as `fallback: source`
    choice: Mapping[str, Any] = field(default_factory=dict)  # the options and candidates; JSON data for the manifest
    despite: str = ""
    trust: str = ""  # digest of the pack whose evidence is trusted; empty for evidence of this machine
    who: str = ""
    host: str = ""
    signer: SigningKey | None = None  # signs the release; None for no signature


def check_candidate(candidate: ReleaseCandidate) -> None:
    """Refuse what must not be released, without looking at any file.

    Raises:
        UsageError: A name cannot be a folder or file of the repository, or occurs twice.
        RepositoryError: There is nothing to release, a converted variant did not pass, or its evidence does not count.
        RepositoryError: The source is released without a reason, or the data cannot be written as JSON.
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
    """Check the names of the files and folders of the release."""
    variants = [check_variant(variant.name) for variant in candidate.variants]
    reports = [check_name("report", name) for name in candidate.reports]
    # Case is ignored, because a release may be copied to a filesystem that ignores it.
    count = Counter(name.casefold() for name in (*variants, *reports, *_OWN_FILES))
    for name in (*variants, *reports):
        if count[name.casefold()] > 1:
            msg = f"the name {name!r} occurs twice in the release"
            raise UsageError(msg, hint=f"use different names for variants and reports, none like {MANIFEST_FILE}")


def _check_record(variant: VariantCandidate) -> None:
    hint, command = "make the artifact again with", "convert-and-validate export"
    files = variant.record.get("files")
    if not isinstance(files, Mapping) or not files:
        msg = f"the record of {variant.name} names no files"
        raise ArtifactIntegrityError(msg, hint=hint, command=command)
    with corrupt_errors(f"the record of {variant.name}", kind=ArtifactIntegrityError, hint=hint, command=command):
        check_record(variant.record)
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
        msg = f"the artifact given as {variant.name} is recorded as {variant.record.get('variant')!r}"
        raise RepositoryError(msg, hint="give each artifact under its own name")
    evidence = variant.evidence
    if evidence is None:
        msg = f"{variant.name} has no evidence because it was not measured, so it is not released"
        raise RepositoryError(msg, hint="judge it again with", command="convert-and-validate validate")
    for item in (evidence, *evidence.also):
        _check_found(variant, item, accepted_kind)


def _check_found(variant: VariantCandidate, evidence: VariantEvidence, accepted_kind: str) -> None:
    if evidence.verdict != "pass":
        msg = f"{variant.name} is not released: its verdict is {evidence.verdict!r}, expected 'pass'"
        raise RepositoryError(msg, hint="see the report for the reason; 'fallback: source' releases the source")
    if evidence.artifact != variant.digest:
        msg = f"the evidence of {variant.name} is about {evidence.artifact}, not about {variant.digest}"
        raise RepositoryError(msg, hint="judge it again with", command="convert-and-validate validate")
    if evidence.kind == "verified" or evidence.kind == accepted_kind == "emulated":
        return
    msg = f"{variant.name} is not released because its evidence on {evidence.device} is {evidence.kind!r}"
    hint = "verify it on the device that it will run on"
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
    """Check that the variant's folder has exactly the files of its record, with their digests. Read every file.

    Raises:
        ArtifactIntegrityError: A file was changed, is missing or was added.
        InputFileError: A file cannot be read.
        StorageError: A link leaves the folder.
    """
    with reading_errors(variant.folder):
        digests = file_digests(variant.folder)
    difference = compare_files(digests, variant.files)
    if not difference.is_empty:
        msg = f"{variant.name} in {variant.folder} is corrupt, nothing was released: {difference}"
        raise ArtifactIntegrityError(msg, hint="make it again with", command="convert-and-validate export")


def check_copies(candidate: ReleaseCandidate, copied: Mapping[str, str]) -> None:
    """Check that the copied files are exactly those of the candidate; `copied` has their digests by relative path.

    Raises:
        ArtifactIntegrityError: A file changed while it was copied, is missing or was added.
    """
    recorded = {f"{variant.name}/{name}": of for variant in candidate.variants for name, of in variant.files.items()}
    # Written here, not copied from an artifact, so there is no earlier digest.
    written = {
        EVIDENCE_FILE,
        *candidate.reports,
        *(f"{variant.name}/{ARTIFACT_FILE}" for variant in candidate.variants),
    }
    unwritten = {name: of for name, of in copied.items() if name not in written}
    difference = compare_files(unwritten, recorded)
    if not difference.is_empty:
        msg = f"the copy differs from the artifact, nothing was released: {difference}"
        raise ArtifactIntegrityError(msg, hint="let no other process write to the run's folder, and promote again")
