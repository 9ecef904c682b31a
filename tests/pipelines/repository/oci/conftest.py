"""Registries for the tests of `push` and `pull`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.pipelines.repository.oci.registries import (
    DebianRegistry,
    SmallRegistry,
    debian_program,
    debian_registry,
    small_registry,
)

from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.release import promote


@pytest.fixture(autouse=True)
def _no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no test read the login of whoever runs it."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with small_registry() as registry:
        yield registry


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return debian_program(tmp_path_factory.mktemp("docker-registry"))


@pytest.fixture(params=["small", pytest.param("debian", marks=pytest.mark.thorough)])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallRegistry | DebianRegistry]:
    """Return each kind of registry, empty."""
    if request.param == "small":
        yield request.getfixturevalue("small")
        return
    folder = tmp_path / "registry"
    folder.mkdir()
    with debian_registry(request.getfixturevalue("debian"), folder) as started:
        yield started


@pytest.fixture
def repository(tmp_path: Path, make_candidate: Callable[..., ReleaseCandidate]) -> Path:
    """Return a repository with one release."""
    promote(tmp_path / "repository", make_candidate())
    return tmp_path / "repository"
