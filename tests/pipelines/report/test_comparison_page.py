"""`compare --report`: the result as a page, whatever came of it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


class _Tables(HTMLParser):
    """Counts what is opened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.captions = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag not in {"meta", "br", "line", "path", "circle", "rect", "use"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def _models(bench: Bench, *, off: float = 0.0) -> tuple[str, str]:
    return bench.linear("a.onnx"), bench.linear("b.onnx", error=off)


def test_the_page_of_a_failed_comparison_has_its_reason_and_its_worst_row(bench: Bench) -> None:
    one, other = _models(bench, off=1.0)
    page = bench.folder / "page.html"

    outcome = bench.compare(one, other, "--samples", bench.samples(), "--report", str(page))

    text = page.read_text(encoding="utf-8")
    assert outcome.code == 1
    assert "a.onnx" in text
    assert "max_abs_diff" in text
    assert "fail" in text
    assert "<svg" in text
    parser = _Tables()
    parser.feed(text)
    assert parser.open == []


def test_markdown_is_written_by_its_suffix(bench: Bench) -> None:
    one, other = _models(bench)
    page = bench.folder / "page.md"

    assert bench.compare(one, other, "--samples", bench.samples(), "--report", str(page)).code == 0

    assert page.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("name", ["page.pdf", "no/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_compared(bench: Bench, name: str) -> None:
    one, other = _models(bench)

    outcome = bench.compare(one, other, "--samples", bench.samples(), "--report", str(bench.folder / name))

    assert outcome.code == 2
    assert outcome.result == {}
