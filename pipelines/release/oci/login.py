"""Read the login for a registry from Docker's configuration, which `docker login` and others write."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from pathlib import Path

from paritygate.errors import InputFileError

_HELPER = re.compile(r"[\w.-]+")
_HELPER_S = 60.0


def docker_login(host: str) -> str:
    """Return user and password for a host in Base64, as the header of a request has them; empty if there are none.

    Raises:
        InputFileError: The configuration cannot be read.
    """
    file = Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")) / "config.json"  # noqa: PTH111 - without HOME too
    try:
        config = json.loads(file.read_bytes())
        entries = {re.sub(r"^https?://|/.*$", "", name): entry for name, entry in config.get("auths", {}).items()}
        helper = config.get("credHelpers", {}).get(host) or config.get("credsStore") or ""
        return (_HELPER.fullmatch(helper) and _from_helper(helper, host)) or str(
            entries.get(host, {}).get("auth") or ""
        )
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError, AttributeError) as err:
        msg = f"{file} could not be read: {type(err).__name__}"
        raise InputFileError(msg, hint=f"correct it, or write it again: docker login {host}") from None


def _from_helper(helper: str, host: str) -> str:
    """Return what the program that keeps the passwords has for a host; empty if it has none, or is missing."""
    command = [f"docker-credential-{helper}", "get"]
    try:
        done = subprocess.run(command, input=host.encode(), capture_output=True, timeout=_HELPER_S, check=True)  # noqa: S603 - as Docker runs it
        found = json.loads(done.stdout)
        return base64.b64encode(f"{found['Username']}:{found['Secret']}".encode()).decode()
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return ""
