"""The page on Triton names the linter's rules and the backends, and shows no line that a terminal would wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.pipelines.serving.triton.backends import BACKENDS
from paritygate.pipelines.serving.triton.lint import PARSING, RULES
from paritygate.pipelines.serving.triton.servers import SERVERS

if TYPE_CHECKING:
    from tests.docs.conftest import Page


def test_the_rules_are_those_of_the_linter(pages: dict[str, Page]) -> None:
    assert [row[0] for row in pages["docs/triton.md"].rows("Rules")] == [PARSING, *RULES]


def test_the_servers_are_those_that_were_tried(pages: dict[str, Page]) -> None:
    rows = [row for row in pages["docs/triton.md"].rows("The view") if len(row) == 4]

    assert rows == [
        [name, item.onnxruntime, str(item.reads.ir), str(item.reads.opset)] for name, item in SERVERS.items()
    ]


def test_the_backends_are_those_that_are_written(pages: dict[str, Page]) -> None:
    shown = next(row[1] for row in pages["docs/triton.md"].rows("The view") if "`backend`" in row[1])

    assert [backend.name for backend in BACKENDS.values() if f"`{backend.name}`" not in shown] == []


def test_what_the_demo_prints_fits_80_columns(pages: dict[str, Page]) -> None:
    blocks = [block for block in pages["docs/triton.md"].blocks if block.language == "text"]

    assert max(len(line) for block in blocks for line in block.text.splitlines()) <= 80
