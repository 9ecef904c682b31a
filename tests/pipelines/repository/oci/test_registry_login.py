"""The login of Docker's configuration reaches the registry alone, and no message, record or file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipelines.repository.oci.registries import LOGIN, PASSWORD, TOKEN, USER, SmallRegistry, small_registry

from paritygate.addresses import without_secrets
from paritygate.errors import InputFileError, StorageError, UsageError
from paritygate.pipelines.release.oci.pull import pull
from paritygate.pipelines.release.oci.push import push
from paritygate.pipelines.release.oci.reference import parse_reference


def _configure(tmp_path: Path, content: object) -> None:
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker/config.json").write_text(content if isinstance(content, str) else json.dumps(content))


def _copy(repository: Path, small: SmallRegistry, target: Path) -> None:
    reference = parse_reference(f"{small.host}/team/scores:1")
    push(repository, "klue-sts", "prod", reference, lambda *_: None)
    pull(target, reference, lambda *_: None, who="me", host="here")


def _write_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/docker-credential-test"
    program.parent.mkdir()
    answer = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.parametrize("kind", ["basic", "bearer"])
@pytest.mark.parametrize(
    "config",
    [
        lambda host: {"auths": {host: {"auth": LOGIN}}},
        lambda host: {"auths": {f"https://{host}/v1/": {"auth": LOGIN}}},
        lambda host: {"auths": {host: {}}, "credHelpers": {host: "test"}},
        lambda host: {"auths": {host: {}}, "credsStore": "test"},
        lambda host: {"auths": {host: {"auth": LOGIN}}, "credsStore": "absent"},
    ],
)
def test_the_login_is_that_of_docker(
    repository: Path,
    small: SmallRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: str,
    config: Callable[[str], object],
) -> None:
    small.login = kind
    _configure(tmp_path, config(small.host))
    _write_helper(tmp_path, monkeypatch)

    _copy(repository, small, tmp_path / "other")

    for path in (path for path in (tmp_path / "other").rglob("*") if path.is_file()):
        assert not any(secret.encode() in path.read_bytes() for secret in (LOGIN, PASSWORD, TOKEN))
    if kind == "bearer":
        assert [given for _, path, given in small.requests if path.startswith("/token")] == [f"Basic {LOGIN}"] * 2


@pytest.mark.parametrize("config", [None, {"auths": {"registry.example": {"auth": LOGIN}}}, {"credsStore": "../x"}])
@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_without_a_login_the_hint_is_docker_login(
    repository: Path, small: SmallRegistry, tmp_path: Path, *, kind: str, config: object
) -> None:
    small.login = kind
    if config is not None:
        _configure(tmp_path, config)

    with pytest.raises(StorageError, match="401") as caught:
        _copy(repository, small, tmp_path / "other")

    assert caught.value.command == f"docker login {small.host}"
    assert not small.blobs
    assert not any(LOGIN in given for _, _, given in small.requests)


@pytest.mark.parametrize("config", ["no json", "[]", '{"auths": 7}', '{"auths": {"x": 7}, "credsStore": 7}'])
def test_a_broken_configuration_is_one_clear_error(
    repository: Path, small: SmallRegistry, tmp_path: Path, config: str
) -> None:
    small.login = "basic"
    _configure(tmp_path, config)

    with pytest.raises(InputFileError, match=r"config\.json could not be read"):
        _copy(repository, small, tmp_path / "other")


def test_a_store_of_blobs_gets_no_login(repository: Path, small: SmallRegistry, tmp_path: Path) -> None:
    small.login = "bearer"
    _configure(tmp_path, {"auths": {small.host: {"auth": LOGIN}}})
    with small_registry() as store:
        store.blobs, small.elsewhere = small.blobs, store.host

        _copy(repository, small, tmp_path / "other")

        assert store.requests
        assert {given for _, _, given in store.requests} == {""}


def test_a_store_of_blobs_cannot_say_to_whom_the_password_goes(
    repository: Path, small: SmallRegistry, tmp_path: Path
) -> None:
    small.login = "bearer"
    _configure(tmp_path, {"auths": {small.host: {"auth": LOGIN}}})
    with small_registry() as store:
        store.login, small.elsewhere = "bearer", store.host

        with pytest.raises(StorageError, match="401"):
            _copy(repository, small, tmp_path / "other")

        assert [given for _, _, given in store.requests] == [""]


@pytest.mark.parametrize("uploads", ["http://store.example/1", "file:///etc/hostname", "data:text/plain,1", "http://["])
def test_nothing_is_sent_to_a_place_without_tls(
    repository: Path, small: SmallRegistry, tmp_path: Path, uploads: str
) -> None:
    small.uploads = uploads

    with pytest.raises(StorageError, match="did not answer as a registry does"):
        _copy(repository, small, tmp_path / "other")


def test_nothing_is_read_from_a_place_without_tls(repository: Path, small: SmallRegistry, tmp_path: Path) -> None:
    small.elsewhere = "store.example"

    with pytest.raises(StorageError, match="307"):
        _copy(repository, small, tmp_path / "other")


def test_a_realm_that_is_no_address_is_an_error_of_the_registry(
    repository: Path, small: SmallRegistry, tmp_path: Path
) -> None:
    small.login, small.realm = "bearer", "https://["

    with pytest.raises(StorageError, match="did not answer as a registry does"):
        _copy(repository, small, tmp_path / "other")


def test_a_registry_that_wants_the_password_without_tls_elsewhere_does_not_get_it(
    repository: Path, small: SmallRegistry, tmp_path: Path
) -> None:
    _configure(tmp_path, {"auths": {small.host: {"auth": LOGIN}}})
    small.login, small.realm = "bearer", "http://tokens.example/token"

    with pytest.raises(StorageError, match="401"):
        _copy(repository, small, tmp_path / "other")


@pytest.mark.parametrize(
    "text",
    [
        "scores:1",
        "team/scores:1",
        "registry.example/Team/scores:1",
        "registry.example/team/../scores:1",
        "registry.example/team//scores",
        "registry.example/team/scores@sha256:12",
        "https://registry.example/team/scores:1",
        "registry.example/team/scores?x=1",
        "registry.example:port/scores",
        f"{USER}:{PASSWORD}@registry.example/team/scores:1",
    ],
)
def test_what_is_no_place_in_a_registry_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="names no place in a registry") as caught:
        parse_reference(text)

    assert PASSWORD not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("registry.example/team/scores:3", ("registry.example", "team/scores", "3", None)),
        ("oci://localhost:5000/scores", ("localhost:5000", "scores", None, None)),
        ("r:5/a__b/c-d.e@sha256:" + "0" * 64, ("r:5", "a__b/c-d.e", None, "sha256:" + "0" * 64)),
    ],
)
def test_a_place_in_a_registry_has_its_parts(text: str, parts: tuple[str | None, ...]) -> None:
    found = parse_reference(text)

    assert (found.host, found.name, found.tag, found.digest) == parts
    # A message takes what is before an @ for a secret.
    assert without_secrets(f"see {found}") == f"see {text.removeprefix('oci://')}"
