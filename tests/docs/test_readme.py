"""The README shows what really happens: its output, its extras, its folders."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.docs.conftest import Block, Page


def blocks_of_example(readme: Page) -> tuple[Block, Block]:
    """Return the commands of the example, and the output that stands below them."""
    blocks = readme.blocks
    at = next(
        index
        for index, block in enumerate(blocks)
        if block.language == "text" and block.text.startswith("klue-sts against")
    )
    # The demo runs them.
    commands = [block for block in blocks[:at] if block.language == "shell"]
    return commands[-1], blocks[at]


def test_the_example_is_the_demo(readme: Page, project_root: Path) -> None:
    commands, _ = blocks_of_example(readme)
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")

    assert f"\t$(BIN)/{commands.text.splitlines()[0]}\n" in makefile


def test_the_output_shown_is_a_pass_on_519_rows(readme: Page) -> None:
    _, shown = blocks_of_example(readme)
    title, *rows = shown.text.splitlines()

    assert title.endswith(" source on 519 rows")
    assert sum(bool(re.match(r"pass +\w+-fp32 +0 ", row)) for row in rows) == 5


def test_the_output_shown_fits_80_columns(readme: Page) -> None:
    shown = [line for block in readme.blocks if block.language == "text" for line in block.text.splitlines()]

    assert len(shown) > 20
    assert max(map(len, shown)) <= 80


def test_extras_are_those_of_the_package(pages: dict[str, Page]) -> None:
    metadata = importlib.metadata.metadata("paritygate")
    requirements = importlib.metadata.requires("paritygate") or []
    rows = {row[0].strip("`"): row[1] for row in pages["docs/platforms.md"].rows("Extras")}

    assert sorted(rows) == sorted(metadata.get_all("Provides-Extra") or [])
    for extra, brings in rows.items():
        names = {re.split(r"[^\w-]", line)[0] for line in requirements if re.search(rf"extra == .{extra}\b", line)}
        assert extra == "dev" or set(brings.split(", ")) == names


def test_the_figures_of_the_gates_are_those_of_the_page_on_probes(readme: Page, pages: dict[str, Page]) -> None:
    allclose, _, default, _ = (row[1:] for row in pages["docs/results-gates.md"].rows("What probes catch"))
    paragraphs = " ".join(readme.section("Why not `np.allclose`?").replace("\n\n", "¶").split()).split("¶")
    (paragraph,) = (text.replace("1e-3", "") for text in paragraphs if text.startswith("On 17 "))

    caught, _, rejected = allclose
    fails, finds, rejects = default
    assert re.findall(r"\b\d+\b", paragraph) == ["17", caught, rejected, "7", fails, "17", finds]
    assert rejects == "0"
    assert "rejects no equivalent pair" in paragraph


def test_every_folder_has_its_line(readme: Page, project_root: Path) -> None:
    listed = {row[0].strip("`/").partition("/")[0] for row in readme.rows("What is where")}
    made = {"build", "dist"}
    there = {path.name for path in project_root.iterdir() if path.is_dir() and not path.name.startswith(".")}

    assert listed == there - made


def test_targets_of_make_exist(pages: dict[str, Page], project_root: Path) -> None:
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {target for page in pages.values() for target in re.findall(r"`make ([\w-]+)`", page.text)}

    assert {"install", "demo", "test"} <= named
    assert named <= targets
