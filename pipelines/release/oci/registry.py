"""Speak to an OCI registry: the few calls of its API that `push` and `pull` need."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec.structs import replace

from paritygate.errors import ArtifactIntegrityError, StorageError
from paritygate.files import digest_of_bytes, storage_errors
from paritygate.pipelines.release.oci.login import docker_login
from paritygate.pipelines.release.oci.reference import Reference, is_loopback

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
_BYTES = {"Content-Type": "application/octet-stream"}
# Registries allow no larger ones either.
_MOST_MANIFEST_BYTES = 4 << 20
_BLOCK = 1 << 20
_SILENCE_S = 60.0
_CODE = re.compile("[A-Z_]{1,40}")
_NO_LOGIN = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_WORD = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One repository in a registry.

    Its calls raise StorageError if the registry refuses or does not answer.
    """

    def __init__(self, reference: Reference) -> None:
        self._host, self.place = reference.host, str(replace(reference, tag=None, digest=None))
        is_here = is_loopback(reference.host)
        self._origin = f"{'http' if is_here else 'https'}://{reference.host}/"
        self._base = f"{self._origin}v2/{reference.name}/"
        self._opener = urllib.request.build_opener(_Redirects, *([urllib.request.ProxyHandler({})] if is_here else []))
        self._login = ""

    def manifest(self, which: str) -> bytes | None:
        """Return a manifest or index by tag or digest; None if there is none.

        Raises:
            ArtifactIntegrityError: Its digest is not the one asked for or, with a tag, that of the registry's header.
        """
        with self._ask("GET", f"manifests/{which}", headers={"Accept": f"{MANIFEST}, {INDEX}"}) as answer:
            if answer.status == HTTPStatus.NOT_FOUND or _is_page(answer):
                self._check()
                return None
            content = b"".join(self._parts(answer, _MOST_MANIFEST_BYTES))
            named = which if ":" in which else answer.headers.get("Docker-Content-Digest", "")
        is_other = named.startswith("sha256:") and digest_of_bytes(content) != named
        if len(content) > _MOST_MANIFEST_BYTES or is_other:
            raise corrupt(f"the manifest {which} in {self.place}", "the registry returned other bytes")
        return content

    def _check(self) -> None:
        """Raise StorageError if the host is another web server, which knows no manifest either."""
        with self._errors(), self._open(urllib.request.Request(f"{self._origin}v2/"), "") as answer:  # noqa: S310 - of the registry
            is_registry = answer.status in {HTTPStatus.OK, *_NO_LOGIN} and not _is_page(answer)
        if not is_registry:
            msg = f"{self._host} does not answer as a registry (GET /v2/: HTTP {answer.status})"
            raise StorageError(msg, hint="check the host and its port")

    def put_manifest(self, content: bytes, which: str, kind: str = MANIFEST) -> bool:
        """Write a manifest or index at a tag or digest; return whether the registry lists it by its subject."""
        with self._ask("PUT", f"manifests/{which}", body=content, headers={"Content-Type": kind}) as answer:
            return "OCI-Subject" in answer.headers

    def upload(self, digest: str, body: Path | bytes) -> bool:
        """Write a blob unless it is there, and return whether it was not; the registry checks its digest."""
        with self._ask("HEAD", f"blobs/{digest}") as answer:
            if answer.status != HTTPStatus.NOT_FOUND:
                return False
        with self._ask("POST", "blobs/uploads/", body=b"") as answer, self._errors():
            place = urljoin(self._base, answer.headers.get("Location", ""))
        end = "&" if urlsplit(place).query else "?"
        self._ask("PUT", f"{place}{end}{urlencode({'digest': digest})}", body=body, headers=_BYTES).close()
        return True

    def download(self, digest: str, size: int, path: Path, name: str, note: Callable[[int], None]) -> None:
        """Write a blob to a new file, which may only be read; errors have `name`, and `note` gets the sizes of parts.

        Raises:
            ArtifactIntegrityError: It is missing, cut off or another one.
        """
        state, what = hashlib.sha256(), f"{name} in {self.place}"
        with self._ask("GET", f"blobs/{digest}") as answer, storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444), "wb") as stream:
                for part in self._parts(answer, size):
                    state.update(part)
                    stream.write(part)
                    note(len(part))
        if answer.status == HTTPStatus.NOT_FOUND:
            msg = f"{what} is missing ({digest})"
            raise ArtifactIntegrityError(msg, hint="push the release again")
        if f"sha256:{state.hexdigest()}" != digest:
            raise corrupt(what, f"it is not, or no longer, {digest}")

    def _parts(self, answer: Any, most: int) -> Iterator[bytes]:  # noqa: ANN401 - a response, or an error that is one
        """Yield the body of an answer up to the part that exceeds `most` bytes."""
        while most >= 0:
            with self._errors():
                part = answer.read(_BLOCK)
            if not part:
                return
            yield part
            most -= len(part)

    def _ask(
        self, method: str, path: str, *, body: Path | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:  # noqa: ANN401 - likewise
        """Return the answer to a request, which is repeated with a login if it needs one.

        A missing thing is an answer too, but only to a request without body.
        """
        with self._errors():
            url = urljoin(self._base, path)
            if not _is_safe(url):
                raise OSError(errno.EPERM, "an address without TLS")
        for is_last in (False, True):
            with self._errors(), contextlib.ExitStack() as stack:
                data = stack.enter_context(body.open("rb")) if isinstance(body, Path) else body
                length = {"Content-Length": str(body.stat().st_size)} if isinstance(body, Path) else {}
                request = urllib.request.Request(url, data, {**(headers or {}), **length}, method=method)  # noqa: S310 - of the registry
                # A store of blobs, to which the registry may lead, must not get the login.
                answer = self._open(request, self._login if url.startswith(self._origin) else "")
            if (body is None and answer.status == HTTPStatus.NOT_FOUND) or answer.status < HTTPStatus.MULTIPLE_CHOICES:
                return answer
            # A store must not say, either, to whom the login goes.
            is_own = answer.url.startswith(self._origin)
            is_unknown = answer.status == HTTPStatus.UNAUTHORIZED and is_own and not is_last
            if not is_unknown or not self._log_in(answer.headers.get("WWW-Authenticate", "")):
                break
            answer.close()
        raise self._refused(answer)

    def _open(self, request: urllib.request.Request, login: str) -> Any:  # noqa: ANN401 - likewise
        if login:
            request.add_unredirected_header("Authorization", login)
        try:
            return self._opener.open(request, timeout=_SILENCE_S)
        except urllib.error.HTTPError as err:
            return err

    def _log_in(self, challenge: str) -> bool:
        """Do what a registry demands before it answers; return whether that is possible."""
        kind, _, rest = challenge.partition(" ")
        words, password = dict(_WORD.findall(rest)), docker_login(self._host)
        basic = password and f"Basic {password}"
        with self._errors():
            realm = urlsplit(words.get("realm", ""))
        if kind.lower() == "basic":
            self._login = basic
        elif realm.scheme == "https" or (is_loopback(self._host) and _is_safe(realm.geturl())):
            query = urlencode({name: words[name] for name in ("service", "scope") if name in words})
            request = urllib.request.Request(f"{realm.geturl()}?{query}")  # noqa: S310 - checked above
            with self._errors(), self._open(request, basic) as answer:
                data = json.loads(answer.read(_BLOCK)) if answer.status == HTTPStatus.OK else {}
                token = data.get("token") or data.get("access_token")
            self._login = f"Bearer {token}" if token else ""
        return bool(self._login)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as err:
            # No words of the other side, which may repeat a secret.
            reason = getattr(err, "reason", err)
            words = getattr(reason, "strerror", None) or type(reason).__name__
            msg = f"{self._host} did not answer as a registry does: {words}"
            if words == "TimeoutError":
                msg = f"{self._host} did not answer within {_SILENCE_S:g} seconds"
            raise StorageError(msg, hint="check the host and the network, and repeat the command") from None

    def _refused(self, answer: Any) -> StorageError:  # noqa: ANN401 - likewise
        code = None
        with contextlib.suppress(Exception), answer:
            code = _CODE.fullmatch(json.loads(answer.read(_BLOCK))["errors"][0]["code"])
        msg = f"the registry refused {self.place}: HTTP {answer.status}{f' {code[0]}' if code else ''}"
        command = f"docker login {self._host}" if answer.status in _NO_LOGIN else ""
        return StorageError(
            msg, hint="log in as a user who may do this" if command else "check the name", command=command
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> urllib.request.Request | None:  # noqa: ANN401 - as the base class
        return super().redirect_request(*args) if _is_safe(args[-1]) else None


def _is_page(answer: Any) -> bool:  # noqa: ANN401 - likewise
    return bool(answer.status == HTTPStatus.OK and answer.headers.get_content_type() == "text/html")


def _is_safe(url: str) -> bool:
    """Return whether nobody else reads what is sent to an address."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc))


def corrupt(what: str, why: str, hint: str = "") -> ArtifactIntegrityError:
    """Return the error for content of a registry that is not what it should be."""
    # A registry keeps a blob that it has, so another push mends nothing, in another of its repositories neither.
    mend = "delete it in the registry and push the release again, or push it to another registry"
    return ArtifactIntegrityError(f"{what} is corrupt: {why}", hint=hint or mend)
