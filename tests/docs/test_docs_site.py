"""The site holds every page, and builds without a warning."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from paritygate.pipelines.cli.app import cli

if TYPE_CHECKING:
    from tests.docs.conftest import Page

INDEX = "docs/index.md"


def pages_in_toctrees(pages: dict[str, Page]) -> set[str]:
    """Return the pages that a reader of the site finds in its menu: those that toctrees lead to, from the index on."""
    found: set[str] = set()
    waiting = [INDEX]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += [entry for entry in pages[name].toctree() if entry not in found]
    return found


def test_the_site_has_settings(project_root: Path) -> None:
    settings = (project_root / "docs/conf.py").read_text(encoding="utf-8")

    compile(settings, "docs/conf.py", "exec")
    assert "myst_parser" in settings


def test_every_page_is_in_a_toctree(pages: dict[str, Page]) -> None:
    assert pages_in_toctrees(pages) == {name for name in pages if name.startswith("docs/")}


def _python_with_sphinx(project_root: Path) -> str:
    """Return a Python that has Sphinx: this one, or the one of `make docs`."""
    if all(importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "sphinx_click", "furo")):
        return sys.executable
    python = project_root / ".venv-docs/bin/python"
    if not python.exists():
        pytest.skip("Sphinx is not installed: make docs makes .venv-docs, which has it")
    return str(python)


def _build(python: str, folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(folder), str(out)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.thorough
def test_the_site_builds_without_a_warning(project_root: Path, tmp_path: Path, pages: dict[str, Page]) -> None:
    built = _build(_python_with_sphinx(project_root), project_root / "docs", tmp_path)

    assert built.returncode == 0, built.stderr
    for name in pages_in_toctrees(pages):
        assert (tmp_path / Path(name).relative_to("docs").with_suffix(".html")).exists()
    changelog = (tmp_path / "changelog.html").read_text(encoding="utf-8")
    assert "The first version: from a trained model" in changelog
    assert 'href="report.html"' in changelog
    options = (tmp_path / "options.html").read_text(encoding="utf-8")
    for name in cli.list_commands(click.Context(cli)):
        assert f'id="convert-and-validate-{name}"' in options


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["[there](gate.md#no-such-heading)", "[there](no-such-page.md)"])
def test_a_link_that_leads_nowhere_stops_the_build(project_root: Path, tmp_path: Path, line: str) -> None:
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy2(project_root / name, tmp_path)
    shutil.copytree(project_root / "docs", tmp_path / "docs")
    page = tmp_path / "docs/speed.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")

    built = _build(_python_with_sphinx(project_root), tmp_path / "docs", tmp_path / "out")

    assert built.returncode != 0
    assert "speed.md" in built.stderr
