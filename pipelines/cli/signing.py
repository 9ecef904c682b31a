"""Read the key that signs a release, and ask for its password on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from paritygate.pipelines.release.signing.keys import SigningKey, read_signing_key


def signing_key(path: Path | None) -> SigningKey | None:
    """Return the private key in a file; None for no file.

    Raises:
        InputFileError: The file cannot be read.
        UsageError: It holds no such key, or the password is wrong or missing.
        MissingBackendError: A package of the extra `signing` is not installed.
    """

    def ask() -> str | None:
        if not sys.stdin.isatty():
            return None
        password: str = click.prompt(f"password of {path}", hide_input=True, err=True)
        return password

    return None if path is None else read_signing_key(path, ask)
