"""Templates are compiled once, as modules are: what is kept is what compiling anew gives, of the same text alone."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from paritygate.pipelines.report import templating
from paritygate.pipelines.report.templating import template_environment


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let Python keep what it compiles in a folder of the test."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "kept"


def environment(text: str, fit: str = "") -> jinja2.Environment:
    """Return an environment as a new process has it, with one template."""
    made = template_environment(lambda value: value + fit)
    made.loader = jinja2.DictLoader({"page": text})
    return made


def kept_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.pyc"))


def test_a_template_is_compiled_once(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment("{{ a }} <b>").get_template("page").render(a="<i>") == "&lt;i&gt; <b>"
    assert len(kept_in(apart)) == 1
    monkeypatch.setattr(jinja2.Environment, "_generate", None)
    assert environment("{{ a }} <b>").get_template("page").render(a="<i>") == "&lt;i&gt; <b>"


def test_another_text_is_compiled_anew() -> None:
    assert environment("one").get_template("page").render() == "one"
    assert environment("two").get_template("page").render() == "two"


def test_another_version_of_the_code_compiles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templating.py").write_text("other options")
    checksum = environment("one").bytecode_cache.get_source_checksum  # type: ignore[union-attr]
    before = checksum("one")
    monkeypatch.setattr(templating, "__file__", str(tmp_path / "templating.py"))
    assert checksum("one") != before
    monkeypatch.undo()
    monkeypatch.setattr(jinja2, "__version__", "0")
    assert checksum("one") != before


def test_what_a_text_is_made_fit_with_is_not_compiled_in() -> None:
    assert environment("{{ 'one' }}", fit="!").get_template("page").render() == "one!"
    assert environment("{{ 'one' }}", fit="?").get_template("page").render() == "one?"


def test_what_a_filter_gives_is_not_compiled_in() -> None:
    for found in ("one", "two"):
        page = environment("{% if 'x'|told == 'one' %}one{% else %}two{% endif %}")
        page.filters["told"] = lambda _, found=found: found
        assert page.get_template("page").render() == found


def test_what_is_damaged_is_compiled_anew(apart: Path) -> None:
    environment("one").get_template("page")
    (kept,) = kept_in(apart)
    kept.write_bytes(kept.read_bytes()[:-9])
    assert environment("one").get_template("page").render() == "one"


def test_nothing_is_kept_where_python_keeps_nothing(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert environment("one").get_template("page").render() == "one"
    assert not apart.exists()


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    assert environment("one").get_template("page").render() == "one"
