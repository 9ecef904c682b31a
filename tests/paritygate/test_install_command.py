"""The command that installs an extra names a place that has it: the checkout, or where pip had it from."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from paritygate import backends
from paritygate.backends import install_command


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """Pretend that this is not a checkout, and return what sets where it was installed from."""
    monkeypatch.setattr(backends, "__file__", str(tmp_path / "site-packages/paritygate/backends.py"))

    def set_origin(origin: object) -> None:
        class Found:
            @staticmethod
            def read_text(name: str) -> str | None:
                assert name == "direct_url.json"
                return origin if isinstance(origin, str) else None if origin is None else json.dumps(origin)

        monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Found)

    return set_origin


def test_from_a_checkout_its_path_is_named(project_root: Path) -> None:
    assert install_command("cpu") == f"pip install --editable '{project_root}[cpu]'"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'paritygate[cpu]'"),
        ("no json", "pip install 'paritygate[cpu]'"),
        ({"url": "file:///a/b%20c", "dir_info": {}}, "pip install '/a/b c[cpu]'"),
        (
            {"url": "file:///a/paritygate-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'paritygate[cpu] @ file:///a/paritygate-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'paritygate[cpu] @ git+https://example.org/p.git@abc'",
        ),
    ],
)
def test_elsewhere_it_is_where_pip_had_it_from(installed_from: object, origin: object, command: str) -> None:
    installed_from(origin)  # type: ignore[operator]  # the fixture's function

    assert install_command("cpu") == command
    requirement = command.removeprefix("pip install ").strip("'")
    if not requirement.startswith("/"):
        assert Requirement(requirement).extras == {"cpu"}


@pytest.mark.usefixtures("installed_from")
def test_what_is_not_installed_at_all_is_named_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_missing(_: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", raise_missing)

    assert install_command("cpu") == "pip install 'paritygate[cpu]'"


def test_the_path_of_a_checkout_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, project_root: Path) -> None:
    place = tmp_path / "my models"
    (place / "src/paritygate").mkdir(parents=True)
    shutil.copy(project_root / "pyproject.toml", place)
    monkeypatch.setattr(backends, "__file__", str(place / "src/paritygate/backends.py"))

    assert install_command("gpu") == f"pip install --editable '{place}[gpu]'"
