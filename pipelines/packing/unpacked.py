"""Decide whether evidence that came with a pack may be trusted here.

Whoever writes a pack writes its evidence. So a release rests either on evidence measured here since unpacking, or on
evidence that equals the pack's byte for byte while the user names the pack's digest.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.files import digest_of_file, read_json, write_bytes_atomically, write_json_atomically
from paritygate.pipelines.packing.manifest import MANIFEST_NAME, RUN, PackManifest
from paritygate.pipelines.run.evidence import Evidence, read_evidence
from paritygate.pipelines.run.workspace import UNPACKED, RunFolder

_EVIDENCE = "evidence.json"
# Other files that reports and the choice of a release read.
_SAID = ("benchmark.json", "export-failures.json")


def keep_pack(restored: Path, manifest: PackManifest) -> None:
    """Store the pack's manifest and evidence in the run, and a random mark, so that no pack can forge evidence."""
    folder = restored / UNPACKED
    folder.mkdir()
    write_bytes_atomically(folder / MANIFEST_NAME, manifest.to_bytes())
    write_json_atomically(folder / "mark.json", {"mark": secrets.token_hex(16)})
    if (restored / _EVIDENCE).is_file():
        write_bytes_atomically(folder / _EVIDENCE, (restored / _EVIDENCE).read_bytes())


class TrustedEvidence(Struct, frozen=True, kw_only=True):
    """The run and evidence that a release may rest on.

    `run` has no benchmark, and `evidence` nothing from a pack, where that is not trusted. `pack` is the digest of the
    run's pack, or None; `trust` is the same digest if the user trusts it, else empty.
    """

    run: RunFolder
    evidence: Evidence
    pack: str | None = None
    trust: str = ""


def believed(run: RunFolder, evidence: Evidence, *, devices: Iterable[str], trust: str) -> TrustedEvidence:
    """Return the evidence that a release of a run may rest on: all of it for a run that was not unpacked.

    Without `devices` of the release, only the evidence's own device counts. `trust` is the digest of the pack that the
    user trusts, or empty.

    Raises:
        UsageError: Evidence came with a pack and its digest is not named, or another one is; or the digest is not
            needed.
        ArtifactIntegrityError: The pack's evidence was changed since it was unpacked.
    """
    mark = run.unpacked_mark()
    if mark is None:
        if trust:
            msg = f"--trust {trust} is not needed, because the evidence of {run.folder} was made here"
            raise UsageError(msg, hint="leave --trust out")
        return TrustedEvidence(run=run, evidence=evidence)
    pack = _Pack.of(run)
    if trust and trust != pack.digest:
        msg = f"--trust {trust} is not the digest of the pack that the run came in, which is {pack.digest}"
        raise UsageError(msg, hint="compare the digest with the one that pack printed on the other machine")
    foreign = {document.device: document for document in evidence.documents() if document.unpacked != mark}
    has_speed = run.benchmark_file.is_file()
    has_own_speed = has_speed and _is_marked(run.benchmark_file, mark)
    if trust:
        if not foreign and (has_own_speed or not has_speed):
            msg = f"--trust {trust} is not needed, because all evidence for the release was measured here"
            raise UsageError(msg, hint="leave --trust out")
        pack.check(run, evidence, foreign, has_own_speed=has_own_speed)
        return TrustedEvidence(run=run, evidence=evidence, pack=pack.digest, trust=trust)
    needed = [device for device in (evidence.device, *devices) if device in foreign]
    if needed:
        msg = f"the {needed[0]} evidence comes from a pack, not from this machine, and is not trusted"
        folder, root = shlex.quote(str(run.folder)), run.folder.parents[2]
        there = "" if root == Path("artifacts") else f" --root {shlex.quote(str(root))}"
        hint = (
            f"validate here: convert-and-validate validate --run {folder}; or ask who made the pack for the "
            f"digest that pack printed: convert-and-validate promote --run {folder}{there} --trust DIGEST"
        )
        raise UsageError(msg, hint=hint)
    here = tuple(document for document in evidence.others if document.device not in foreign)
    return TrustedEvidence(
        run=replace(run, is_without_benchmark=not has_own_speed),
        evidence=replace(evidence, others=here),
        pack=pack.digest,
    )


class _Pack(Struct, frozen=True, kw_only=True):
    manifest: PackManifest
    folder: Path

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @classmethod
    def of(cls, run: RunFolder) -> _Pack:
        folder = run.folder / UNPACKED
        try:
            text = (folder / MANIFEST_NAME).read_bytes()
        except OSError as err:
            raise InputFileError(f"the pack of {folder} is unknown: {err.strerror}", hint="unpack it again") from err
        return cls(manifest=PackManifest.from_bytes(text, str(folder)), folder=folder)

    def check(
        self, run: RunFolder, evidence: Evidence, foreign: Mapping[str, Evidence], *, has_own_speed: bool
    ) -> None:
        """Check that trusted files equal those in the pack."""
        recorded = {
            file.name.removeprefix(f"{RUN}/"): file.digest
            for file in self.manifest.files
            if file.name.startswith(f"{RUN}/")
        }
        about = {
            f"{entry.variant}/{ARTIFACT_FILE}"
            for document in foreign.values()
            for entry in document.entries
            if entry.artifact == _digest_now(run, entry.variant)
        }
        names = {*about, *_SAID}
        if evidence.device in foreign:
            names.add(_EVIDENCE)
        if has_own_speed:
            names.discard("benchmark.json")
        for name in sorted(names):
            _check_same(run.folder / name, recorded.get(name))
        copy = self.folder / _EVIDENCE
        _check_same(copy, recorded.get(_EVIDENCE))
        packed = {item.device: item for item in read_evidence(copy).documents()} if copy.is_file() else {}
        for device, document in foreign.items():
            if device not in packed or not _is_part_of(document, packed[device]):
                raise _changed(run.evidence_file, f"does not say of {device} what it said")


def _is_marked(path: Path, mark: str) -> bool:
    try:
        return bool(read_json(path)[UNPACKED] == mark)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Its users report what is wrong with it.
        return False


def _digest_now(run: RunFolder, variant: str) -> object:
    path = run.variant_folder(variant) / ARTIFACT_FILE
    return read_json(path).get("digest") if path.is_file() else ...


def _check_same(path: Path, digest: str | None) -> None:
    if not path.is_file():
        if digest is None:
            return
        raise _changed(path, "is missing")
    if digest is None:
        raise _changed(path, "was added")
    if digest_of_file(path) != digest:
        raise _changed(path, "was changed")


def _is_part_of(document: Evidence, packed: Evidence) -> bool:
    """Return whether a document is a part of the pack's; a new validation drops outdated entries."""
    one, other = (replace(item, variants=(), emulated=()) for item in (document, packed))
    return (
        one == other
        and all(entry in packed.variants for entry in document.variants)
        and all(entry in packed.emulated for entry in document.emulated)
    )


def _changed(path: Path, change: str) -> ArtifactIntegrityError:
    msg = f"the run differs from its pack: {path} {change} since it was unpacked"
    return ArtifactIntegrityError(
        msg, hint="unpack it again, or make the evidence here", command="convert-and-validate validate --run RUN"
    )
