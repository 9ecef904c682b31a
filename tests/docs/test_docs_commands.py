"""Every command in the pages does what the page says, or at least exists with its options."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from paritygate.pipelines.cli.app import COMMANDS
from paritygate.pipelines.spec.loading import parse_spec

if TYPE_CHECKING:
    from tests.docs.conftest import Block, Page


# Columns of what is measured.
MEASURED = {"tolerance used", "speed-up", "p50 ms", "p95 ms", "rows per s", "95 % interval", "size", "size MB"}
# What is another in every run.
OF_THE_RUN = {
    r"\d{8}T\d{6}Z-[0-9a-f]{4}": "RUN",
    r"sha256:[0-9a-f]{12,}": "DIGEST",
    r"\d{4}-\d\d-\d\d \d\d:\d\d": "TIME",
    r"\d+\.\d+\.\d+\S*": "VERSION",
    r"[\d.,]+ (?:[kM]?B|bytes)\b": "SIZE",
}


def skeleton(output: str) -> list[list[str]]:
    """Return the lines of an output as their parts, without what is measured anew in every run."""
    lines: list[list[str]] = []
    masked: set[int] = set()
    columns = 0
    for line in output.splitlines():
        if not re.search(r"\w", line):
            continue
        cells = re.split(r" {2,}", line.strip())
        if set(cells) & MEASURED:
            columns, masked = len(cells), {at for at, cell in enumerate(cells) if cell in MEASURED}
        elif columns and len(cells) >= columns:
            cells = ["#" if at in masked else cell for at, cell in enumerate(cells[:columns])]
        text = "  ".join(cells)
        for pattern, name in OF_THE_RUN.items():
            text = re.sub(pattern, name, text)
        lines.append(re.split(r" {2,}", text))
    return lines


def test_commands_of_a_page_run(
    run_page: Page,
    run_markers: tuple[str, ...],
    run_shell: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    for name, text in run_page.files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    for block, following in itertools.zip_longest(run_page.blocks, run_page.blocks[1:]):
        if not (block.is_run and block.markers == run_markers):
            continue
        text = block.text
        if block.language == "python":
            (tmp_path / "block.py").write_text(text, encoding="utf-8")
            text = "python block.py"
        printed = run_shell(text, code=int(block.options.get("exit", "0"))).stdout
        if following is not None and "output" in following.words:
            shown = skeleton(following.text)
            assert skeleton(printed)[: len(shown)] == shown


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("pass     onnx-fp32  0  1 %", "fail     onnx-fp32  0  1 %"),
        ("pass     onnx-fp32  0  1 %", "pass     onnx-fp32  1  1 %"),
        ("released klue-sts version 1", "released klue-sts version 2"),
        (
            "report: artifacts/runs/klue-sts/20261123T022730Z-129d/x",
            "report: artifacts/runs/other/20261123T022730Z-129d/x",
        ),
        (
            "outcome   variant  size  digest\nexported  onnx-fp32  235 bytes  x",
            "outcome   variant  size  digest\nexported  onnx-fp16  235 bytes  x",
        ),
    ],
)
def test_another_outcome_than_the_one_shown_is_seen(line: str, other: str) -> None:
    head = "verdict  variant    mismatches  tolerance used\n"

    assert skeleton(head + line) != skeleton(head + other)


def test_other_measured_numbers_are_the_same_outcome() -> None:
    head = "klue-sts against its torch {} source\nverdict  variant  mismatches  tolerance used  speed-up\n"
    shown = head.format("2.13.0+cpu") + "pass     onnx-fp32  0  < 1 %  5.6x"
    printed = head.format("2.7.1") + "pass       onnx-fp32   0  10 %  12.1x  released"

    assert skeleton(shown) == skeleton(printed)


def problem_of(args: list[str], parse_call: Callable[[list[str]], click.Context]) -> str:
    """Return what Click has against a call of the tool; empty if nothing."""
    try:
        parse_call(args)
    except click.UsageError as err:
        return f"convert-and-validate {' '.join(args)}: {err.format_message()}"
    return ""


def test_commands_of_a_page_exist_with_their_options(
    page: Page, parse_call: Callable[[list[str]], click.Context]
) -> None:
    problems = [problem_of(args, parse_call) for args in page.commands()]

    assert [problem for problem in problems if problem] == []


@pytest.mark.parametrize(
    "args", [["run", "klue-sts", "--faster"], ["races"], ["show"], ["compare", "a.onnx", "b.onnx"]]
)
def test_a_call_that_is_wrong_is_seen(args: list[str], parse_call: Callable[[list[str]], click.Context]) -> None:
    assert problem_of(args, parse_call)


def test_specs_of_a_page_are_right(page: Page, tmp_path: Path) -> None:
    for block in page.blocks:
        is_spec = "spec" in block.words or (block.language == "yaml" and "file" in block.options)
        if is_spec:
            parse_spec(block.text, folder=tmp_path, origin=f"{page.name}:{block.line}")


def test_blocks_of_a_page_are_marked_as_contributing_says(page: Page, pages: dict[str, Page]) -> None:
    known = {
        word for row in pages["CONTRIBUTING.md"].rows("Documentation") for word in row[0].replace("`", " ").split()
    }
    names = {word.partition("=")[0] for word in known}

    for block in page.blocks:
        for word in block.words:
            assert word.partition("=")[0] in names, f"{page.name}:{block.line}: {word!r} means nothing to the tests"


def examples_of(command: str, page: Page) -> list[tuple[Block, Block | None]]:
    """Return the blocks of a page that call a command, each with the block that follows."""
    pairs = itertools.zip_longest(page.blocks, page.blocks[1:])
    return [
        (block, following)
        for block, following in pairs
        if block.language == "shell" and re.search(rf"^convert-and-validate {command}\b", block.text, re.MULTILINE)
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_what_it_prints_or_the_page_that_shows_it(
    command: str, pages: dict[str, Page]
) -> None:
    page = pages["docs/commands.md"]
    linked = re.findall(r"\]\(([\w-]+\.md)", page.section(f"`{command}`"))

    shown = any(
        block.is_run and following is not None and "output" in following.words and following.text.strip()
        for block, following in examples_of(command, page)
    )

    assert shown or any(examples_of(command, pages[f"docs/{name}"]) for name in linked)


def test_no_command_is_described_that_is_not_there(pages: dict[str, Page]) -> None:
    headings = re.findall(r"^## `(.*)`$", pages["docs/commands.md"].prose, re.MULTILINE)

    assert sorted(headings) == sorted(COMMANDS)
