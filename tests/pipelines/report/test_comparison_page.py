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


def test_the_page_of_a_comparison_with_edge_findings_has_its_verdict(bench: Bench) -> None:
    import numpy as np
    import onnx

    names = []
    for name, most in (("wide.onnx", 1e6), ("narrow.onnx", 1.5)):
        limits = [onnx.numpy_helper.from_array(np.float32(value), key) for key, value in (("l", -most), ("h", most))]
        rows = ["batch", 4]
        x, y = (onnx.helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, rows) for key in "xy")
        graph = onnx.helper.make_graph([onnx.helper.make_node("Clip", ["x", "l", "h"], ["y"])], "g", [x], [y], limits)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, str(bench.folder / name))
        names.append(str(bench.folder / name))
    np.savez(bench.folder / "x.npz", x=np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype(np.float32))
    page = bench.folder / "page.html"
    bench.is_probing = True

    outcome = bench.compare(*names, "--samples", str(bench.folder / "x.npz"), "--report", str(page))

    assert outcome.code == 0
    assert outcome.result["verdict"] == "pass"
    assert "pass, edge" in page.read_text(encoding="utf-8")


def test_both_reports_that_are_named_are_written(bench: Bench) -> None:
    one, other = bench.linear("one"), bench.linear("other")
    pages = [bench.folder / name for name in ("page.html", "page.md")]

    outcome = bench.compare(
        one, other, "--samples", bench.samples(), *(word for page in pages for word in ("--report", str(page)))
    )

    assert outcome.code == 0
    assert all(page.stat().st_size > 0 for page in pages)
