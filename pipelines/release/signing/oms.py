"""Write and read the signature of a release's files: a Sigstore bundle, as OpenSSF model signing defines it.

The package `model-signing` verifies it too, unless the key is Ed25519. It would hash every file again to sign, and the
manifest has the digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from paritygate.files import json_bytes, json_of
from paritygate.pipelines.release.signing.envelope import opened, signed, statement
from paritygate.pipelines.release.signing.keys import SigningKey, VerifyingKey

SIGNATURE_FILE = "model.sig"
_KIND = "https://model_signing/signature/v1.0"
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_ALGORITHM = "sha256"


def signature_of(model: str, digests: Mapping[str, str], key: SigningKey) -> bytes:
    """Return the content of the signature file for the files of a release, with their digests by relative path."""
    digest_of = {name: digest.removeprefix("sha256:") for name, digest in digests.items()}
    names = sorted(digest_of, key=PurePosixPath)
    whole = hashlib.sha256(b"".join(bytes.fromhex(digest_of[name]) for name in names))
    predicate = {
        "serialization": {
            "method": "files",
            "hash_type": _ALGORITHM,
            "allow_symlinks": False,
            "ignore_paths": [SIGNATURE_FILE],
        },
        "resources": [{"name": name, "algorithm": _ALGORITHM, "digest": digest_of[name]} for name in names],
    }
    return json_bytes({
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "publicKey": {"hint": key.fingerprint.removeprefix("sha256:")},
            "tlogEntries": [],
        },
        "dsseEnvelope": signed(statement(_KIND, [(model, whole.hexdigest())], predicate), key),
    })  # fmt: skip


def bundle_of(content: bytes) -> tuple[str, Any]:
    """Return the fingerprint of the key that a signature file names, and its envelope; neither is checked.

    Raises:
        ValueError: It is no such file.
    """
    try:
        bundle = json_of(content.decode())
        return f"sha256:{bundle['verificationMaterial']['publicKey']['hint']}", bundle["dsseEnvelope"]
    except (LookupError, TypeError, AttributeError) as err:
        raise ValueError(f"no signature: {type(err).__name__}: {err}") from err


def signed_digests(envelope: Any, key: VerifyingKey) -> dict[str, str]:  # noqa: ANN401 - of a file that may be forged
    """Return the digests of the files that a key signed, by relative path.

    Raises:
        ValueError: The key did not sign it.
    """
    predicate = opened(envelope, _KIND, key)["predicate"]
    try:
        serialization, resources = predicate["serialization"], predicate["resources"]
        algorithms = {serialization["hash_type"], *(item["algorithm"] for item in resources)}
        digests = {item["name"]: f"sha256:{item['digest']}" for item in resources}
    except (LookupError, TypeError, AttributeError) as err:
        raise ValueError(f"no signature: {type(err).__name__}: {err}") from err
    if serialization["method"] != "files" or algorithms != {_ALGORITHM}:
        raise ValueError("the signature is not of SHA-256 digests of whole files")
    return digests
