"""Pages, help texts and docstrings are plain English: short sentences, one word for each concept."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from tests.docs.plain_english import LONGEST, LONGEST_IN_REFERENCE, banned_in, long_sentences, sentences, words_in

from paritygate.pipelines.cli.app import COMMANDS, cli

if TYPE_CHECKING:
    from tests.docs.conftest import Page

# A table of a program's results, and the list of what each version changed.
_WRITTEN_BY_PROGRAMS = {"docs/zoo.md", "CHANGELOG.md"}
_REFERENCE = {
    "docs/agents.md",
    "docs/architecture.md",
    "docs/cache.md",
    "docs/commands.md",
    "docs/endpoints.md",
    "docs/exit-codes.md",
    "docs/formats.md",
    "docs/gate.md",
    "docs/glossary.md",
    "docs/platforms.md",
    "docs/probes.md",
    "docs/python.md",
    "docs/repository.md",
    "docs/runs.md",
    "docs/safety.md",
    "docs/spec.md",
    "docs/tensorrt.md",
    "docs/tolerances.md",
    "docs/triton.md",
}
# How many sentences of a page are left that are too long or hold a banned phrase. A number may only fall.
_LEFT: dict[str, int] = {}
_LEFT_IN_HELP = 0
_MOST_WORDS = 35_000
_FOLDERS = ("src/paritygate", "convert", "validate", "pipelines")


def problems_of(text: str, longest: int) -> list[str]:
    return [*(f"too long: {sentence}" for sentence in long_sentences(text, longest)), *banned_in(text)]


def test_a_page_is_plain_english(page: Page) -> None:
    if page.name in _WRITTEN_BY_PROGRAMS:
        pytest.skip("a program writes it")
    longest = LONGEST_IN_REFERENCE if page.name in _REFERENCE else LONGEST
    found = problems_of(page.text, longest)

    assert len(found) <= _LEFT.get(page.name, 0), "\n".join(found)


def test_pages_that_are_excused_exist(pages: dict[str, Page]) -> None:
    assert (set(_LEFT) | _REFERENCE | _WRITTEN_BY_PROGRAMS) - set(pages) == set()


def test_the_pages_stay_short(pages: dict[str, Page]) -> None:
    results = {"docs/known-faults.md", "docs/zoo.md", *(name for name in pages if name.startswith("docs/results-"))}
    words = {name: words_in(page.text) for name, page in pages.items() if name not in {*results, "CHANGELOG.md"}}

    assert sum(words.values()) <= _MOST_WORDS, words


def test_help_texts_become_plainer() -> None:
    found = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = [item.help or "" for item in command.params if isinstance(item, click.Option)]
        prose = (command.help or "").partition("Example:")[0]
        found += [problem for text in (prose, COMMANDS[name], *options) for problem in problems_of(text, LONGEST)]

    assert len(found) <= _LEFT_IN_HELP, "\n".join(found)


def docstrings(root: Path) -> list[str]:
    """Return the docstrings of the product."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return found


def test_docstrings_are_plain_english(project_root: Path) -> None:
    found = [problem for text in docstrings(project_root) for problem in problems_of(text, LONGEST_IN_REFERENCE)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "An original and what was made of it, held against each other on your inputs.",
        "The results are taken over from an earlier run.",
        "Made-up rows are added.",
        "Whether rows are answered otherwise is counted.",
        "The reference is asked once.",
        "This page says what the gate does.",
    ],
)
def test_a_banned_phrase_is_found(sentence: str) -> None:
    assert banned_in(f"{sentence} The next one is fine.")


def test_a_long_sentence_is_found_wherever_it_is() -> None:
    long = "This sentence has " + "many " * LONGEST + "words."

    for text in (long, f"- {long}", f"| cell | {long} |", f"## {long}", f"Short one. {long} Short again."):
        assert long_sentences(text) == [long]
    assert long_sentences(f"```text\n{long}\n```") == []


def test_sentences_end_where_a_reader_ends_them() -> None:
    text = "Use `a.b c` here. `x` is next: see [the page](page.md). paritygate ends\nit (in full)! 3e-7 begins another."

    assert list(sentences(text)) == [
        "Use Code here.",
        "Code is next: see the page.",
        "paritygate ends it (in full)!",
        "3e-7 begins another.",
    ]
