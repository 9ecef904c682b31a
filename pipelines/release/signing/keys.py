"""Read the keys of signatures from PEM files."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.addresses import SIGNING_PASSWORD
from paritygate.backends import install_command
from paritygate.errors import InputFileError, MissingBackendError, UsageError

_ALLOWED = "an EC key on P-256, P-384 or P-521, or an Ed25519 key"
_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})
_MOST_BYTES = 1 << 20


class SigningKey(Struct, frozen=True, kw_only=True):
    """Hold a private key for signatures."""

    fingerprint: str
    signer: Any  # of securesystemslib


class VerifyingKey(Struct, frozen=True, kw_only=True):
    """Hold a public key that signatures are checked with."""

    fingerprint: str
    key: Any  # of securesystemslib


def read_signing_key(path: Path, ask: Callable[[], str | None] = lambda: None) -> SigningKey:
    """Return the private key in a PEM file.

    The environment has the password of an encrypted key. If not, `ask` returns it, or None if nobody can be asked.

    Raises:
        InputFileError: The file cannot be read.
        UsageError: It holds no such private key, or the password is wrong or missing.
        MissingBackendError: A package of the extra `signing` is not installed.
    """
    content, given = _content(path), ""
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    try:
        try:
            private = load_pem_private_key(content, None)
        except TypeError:
            # It is encrypted.
            given = _password(path, ask)
            private = load_pem_private_key(content, given.encode())
    except UsageError:
        raise
    except (ValueError, UnsupportedAlgorithm) as err:
        if given:
            raise UsageError(f"{path} could not be decrypted", hint="check the password") from err
        if b"PUBLIC KEY" in content:
            msg = f"{path} is a public key (expected: the private key)"
            raise UsageError(msg, hint="give the file of its private key") from err
        raise UsageError(f"{path} is not a private PEM key", hint="make a key with", command=_making()) from err
    key = _key(path, private.public_key())
    return SigningKey(fingerprint=key.fingerprint, signer=CryptoSigner(private, key.key))


def read_verifying_key(path: Path) -> VerifyingKey:
    """Return the public key in a PEM file.

    Raises:
        InputFileError: The file cannot be read.
        UsageError: It holds no such public key.
        MissingBackendError: A package of the extra `signing` is not installed.
    """
    content = _content(path)
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as err:
        is_private = b"PRIVATE KEY" in content
        msg = f"{path} is {'a private key' if is_private else 'not a PEM key'} (expected: the public key)"
        command = shlex.join(["openssl", "pkey", "-in", str(path) if is_private else "key.pem", "-pubout"])
        raise UsageError(msg, hint="write the public key with", command=f"{command} -out {_free('.pub')}") from err
    return _key(path, public)


def _making() -> str:
    return f"openssl genpkey -algorithm ed25519 -out {_free('.pem')}"


def _free(ending: str) -> str:
    """Return the name of a file that does not exist, because openssl overwrites one."""
    return next(name for n in count() if not os.path.lexists(name := f"key{f'-{n + 1}' if n else ''}{ending}"))


def _password(path: Path, ask: Callable[[], str | None]) -> str:
    password = os.environ.get(SIGNING_PASSWORD) or ask()
    if not password:
        msg = f"{path} is encrypted, but there is no terminal to ask for its password"
        raise UsageError(msg, hint=f"set the environment variable {SIGNING_PASSWORD}")
    return password


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError as err:
        msg = f"the key {path} could not be read: {err.strerror}"
        raise InputFileError(msg, hint="name a key file in PEM format") from err


def _check_installed() -> None:
    try:
        import cryptography
        import securesystemslib.signer
    except ImportError as err:
        msg = "signatures need the package securesystemslib, which is not installed"
        raise MissingBackendError(msg, hint="install it with", command=install_command("signing")) from err
    del cryptography, securesystemslib


def _key(path: Path, public: Any) -> VerifyingKey:  # noqa: ANN401 - one of many kinds of keys
    """Return a public key with the digest of its PEM file, by which model-signing names it too."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.signer import SSlibKey

    is_curve = isinstance(public, EllipticCurvePublicKey) and public.curve.name in _CURVES
    if not (is_curve or isinstance(public, Ed25519PublicKey)):
        msg = f"{path} holds another kind of key (allowed: {_ALLOWED})"
        raise UsageError(msg, hint="make a key with", command=_making())
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    digest = hashlib.sha256(pem).hexdigest()
    return VerifyingKey(fingerprint=f"sha256:{digest}", key=SSlibKey.from_crypto(public, keyid=digest))
