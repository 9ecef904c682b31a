"""Open a bucket by obstore, probe whether it honours conditions, and keep credentials out of messages."""

from __future__ import annotations

import os
import re
import secrets
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from paritygate.backends import install_command
from paritygate.errors import MissingBackendError, StorageError
from paritygate.roots import Address

# How long a request is repeated while a server is away or answers with errors. Eight times would be over in 3 seconds,
# before a server has started again.
_RETRY_S = 30
_MOST_RETRIES = 100
_REQUEST_S = 120
_PROBES = 3
_SECRET = re.compile(r"^(?:AWS|AZURE|GOOGLE)_")
_NO_SECRET = re.compile(r"REGION|ENDPOINT|BUCKET|CONTAINER|ALLOW|SKIP|PROFILE")
# A short value, such as `1`, would be found everywhere.
_SHORTEST = 6
_HIDDEN = "***"
_SHOWN = 300
# Without which a store cannot be opened, or not be read.
_VARIABLES = {"s3": "AWS_REGION", "gs": "GOOGLE_SERVICE_ACCOUNT", "az": "AZURE_STORAGE_ACCOUNT_NAME"}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def bucket_client(address: Address) -> Any:  # noqa: ANN401 - of a package without types
    """Return the client for the bucket of an address, with the credentials of the environment or of the machine.

    Raises:
        MissingBackendError: The package is not installed.
        StorageError: The address cannot be opened.
    """
    try:
        from obstore import store
        from obstore.exceptions import BaseError
    except ImportError as err:
        msg = f"{address} needs the package obstore, which is not installed"
        raise MissingBackendError(msg, hint="install it with", command=install_command("stores")) from err
    kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    options: dict[str, Any] = {"timeout": timedelta(seconds=_REQUEST_S), "connect_timeout": timedelta(seconds=10)}
    if _is_loopback(os.environ.get("AWS_ENDPOINT_URL", "") or os.environ.get("AWS_ENDPOINT", "")):
        options["allow_http"] = True
    retries: dict[str, Any] = {"max_retries": _MOST_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    scheme, _, name = address.bucket.partition("://")
    try:
        return kinds[scheme](name, client_options=options, retry_config=retries)
    except BaseError as err:
        msg = f"{address} could not be opened: {reason_of(err)}"
        raise StorageError(msg, hint=f"set the variables of the store, such as {_VARIABLES[scheme]}") from None


def _is_loopback(endpoint: str) -> bool:
    return urlsplit(endpoint).hostname in _LOOPBACK


def probe(client: Any, prefix: str) -> str:  # noqa: ANN401 - of a package without types
    """Return why a bucket is not fit for a log of records; empty if it is.

    An object that exists is created again, and one is replaced by a caller who has read an older one: the server must
    refuse both. Servers that ignore the conditions would lose records without an error. Other errors are the client's,
    after the probe was repeated with another object.
    """
    from obstore.exceptions import BaseError

    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return _probe_once(client, f"{prefix}-{secrets.token_hex(8)}")
        except FileNotFoundError:
            return "there is no such bucket"
        except BaseError:
            if tries == _PROBES or time.monotonic() - began > _RETRY_S:
                raise


def _probe_once(client: Any, key: str) -> str:  # noqa: ANN401 - of a package without types
    try:
        first = _put_if(client, key, b"1", "create")
        if first is None:
            return "it does not create an object that is not there (If-None-Match)"
        if not _is_refused(client, key, b"2", "create"):
            return "it overwrites an object that must not exist (If-None-Match is ignored)"
        second = _version(client.put(key, b"3"))
        if not _is_refused(client, key, b"4", first):
            return "it replaces an object that has changed meanwhile (If-Match is ignored)"
        if _put_if(client, key, b"5", second) is None:
            return "it does not replace an object that is unchanged (If-Match)"
        return ""
    finally:
        client.delete(key)


def _put_if(client: Any, key: str, content: bytes, mode: Any) -> dict[str, str] | None:  # noqa: ANN401 - likewise
    """Put an object on a condition, and return its version; None if the server refuses it.

    A server may put it, answer with an error, and refuse the repeated request: so a refused object is read back.
    """
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    try:
        return _version(client.put(key, content, mode=mode))
    except (AlreadyExistsError, PreconditionError):
        there = client.get(key)
        return _version(there.meta) if bytes(there.bytes()) == content else None


def _is_refused(client: Any, key: str, content: bytes, mode: Any) -> bool:  # noqa: ANN401 - likewise
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    try:
        client.put(key, content, mode=mode)
    except (AlreadyExistsError, PreconditionError):
        return True
    return False


def _version(result: Any) -> dict[str, str]:  # noqa: ANN401 - likewise
    return {name: result[name] for name in ("e_tag", "version") if result.get(name) is not None}


def reason_of(err: BaseException) -> str:
    """Return the first lines of an error of the client, short and without credentials."""
    text = " ".join(str(err).partition("Debug source")[0].split())
    for value in _secrets():
        text = text.replace(value, _HIDDEN)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _secrets() -> list[str]:
    """Return the values of the environment that may be credentials, the longest first."""
    values = (
        value
        for name, value in os.environ.items()
        if _SECRET.search(name) and not _NO_SECRET.search(name) and len(value) >= _SHORTEST
    )
    return sorted(values, key=len, reverse=True)
