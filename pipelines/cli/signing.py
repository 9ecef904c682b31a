"""Read the key that signs a release: its password is never an option."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from paritygate.errors import UsageError
from paritygate.pipelines.release.signing.keys import SigningKey, read_signing_key

_PASSWORD = "PARITYGATE_SIGNING_PASSWORD"  # noqa: S105 - the name of a variable


def signing_key(path: Path | None) -> SigningKey | None:
    """Return the private key in a file, whose password the environment has or the user types; None for no file.

    Raises:
        InputFileError: The file cannot be read.
        UsageError: It holds no such key, or the password is wrong or missing.
        MissingBackendError: A package of the extra `signing` is not installed.
    """
    # Taken out, so that no code of a model sees it.
    given = os.environ.pop(_PASSWORD, None)
    return None if path is None else read_signing_key(path, lambda: given or _typed(path))


def _typed(path: Path) -> str:
    if not sys.stdin.isatty():
        msg = f"{path} is encrypted, and nobody can be asked for its password"
        raise UsageError(msg, hint=f"set the environment variable {_PASSWORD}")
    password: str = click.prompt(f"password of {path}", hide_input=True, err=True)
    return password
