"""Check the signature of a release whose files match its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.pipelines.release.repository.candidate import STATEMENT_FILE
from paritygate.pipelines.release.repository.difference import FileDifference, compare_files
from paritygate.pipelines.release.repository.parity import parity_in
from paritygate.pipelines.release.signing.keys import VerifyingKey
from paritygate.pipelines.release.signing.oms import SIGNATURE_FILE, bundle_of, signed_digests
from paritygate.text import StrEnum

_NO_DIFFERENCE = FileDifference()


class SignatureStatus(StrEnum):
    """List what a check of a signature finds."""

    VALID = "valid"
    UNCHECKED = "unchecked"  # no key was given, or the release is corrupt
    MISSING = "missing"
    OTHER_KEY = "other key"
    FORGED = "forged"  # the key that it names did not make it
    OTHER_FILES = "other files"  # the key signed other files than these
    OTHER_RELEASE = "other release"  # the key signed it as another model or version


class SignatureCheck(Struct, frozen=True, kw_only=True):
    """Hold what was found of a signature."""

    status: SignatureStatus
    signer: str | None = None  # fingerprint of the key that the release names
    key: str | None = None  # fingerprint of the key that it was checked with
    file: str = SIGNATURE_FILE  # that is forged
    difference: FileDifference = _NO_DIFFERENCE  # of the files from the signed ones

    def __str__(self) -> str:
        signer, key = self.signer or "no key", self.key or "no key"
        return {
            SignatureStatus.VALID: f"signed by {signer}",
            SignatureStatus.UNCHECKED: f"signed by {signer}, which only --key checks",
            SignatureStatus.MISSING: f"no signature (expected: by {key})",
            SignatureStatus.OTHER_KEY: f"the signer is {signer} (expected: {key})",
            SignatureStatus.FORGED: f"{self.file} is not what this key signed: {key}",
            SignatureStatus.OTHER_FILES: f"this key signed other files: {key}: {self.difference}",
            SignatureStatus.OTHER_RELEASE: f"this key signed it as another model or version: {key}",
        }[self.status]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "status": str(self.status),
            "signer": self.signer,
            "key": self.key,
            "file": self.file if self.status is SignatureStatus.FORGED else None,
            "changed": list(self.difference.changed),
            "missing": list(self.difference.missing),
            "added": list(self.difference.added),
        }


def check_signature(
    manifest: Mapping[str, Any],
    recorded: Mapping[str, str],
    read: Callable[[str], bytes | None],
    key: VerifyingKey,
    release: tuple[str, int],
) -> SignatureCheck:
    """Check that a key signed a release.

    `recorded` has the digests of its files, which match. `read` returns the content of one. `release` is the model and
    the version that it is taken for.
    """
    content = read(SIGNATURE_FILE)
    found = SignatureCheck(status=SignatureStatus.FORGED, key=key.fingerprint)
    if content is None:
        return replace(found, status=SignatureStatus.MISSING)
    try:
        signer, envelope = bundle_of(content)
        found = replace(found, signer=signer)
        signed = signed_digests(envelope, key) if signer == key.fingerprint else None
    except ValueError:
        return found
    if signed is None:
        return replace(found, status=SignatureStatus.OTHER_KEY)
    difference = compare_files({name: of for name, of in recorded.items() if name != SIGNATURE_FILE}, signed)
    if not difference.is_empty:
        return replace(found, status=SignatureStatus.OTHER_FILES, difference=difference)
    if (manifest["model"], manifest["version"]) != release:
        return replace(found, status=SignatureStatus.OTHER_RELEASE)
    is_about_these = _is_about_these(read(STATEMENT_FILE), recorded, key)
    return replace(found, status=SignatureStatus.VALID) if is_about_these else replace(found, file=STATEMENT_FILE)


def _is_about_these(content: bytes | None, recorded: Mapping[str, str], key: VerifyingKey) -> bool:
    """Return whether a statement of parity is signed by the key, and about files of the release."""
    try:
        subjects = parity_in(content or b"", key)["subject"]
        return bool(subjects) and all(
            recorded.get(item["name"]) == f"sha256:{item['digest']['sha256']}" for item in subjects
        )
    except (ValueError, LookupError, TypeError):
        return False
