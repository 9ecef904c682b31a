"""The HTML report: one file that loads and executes nothing, and that everybody can read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from msgspec import Struct, field
from msgspec.structs import replace
from tests.pipelines.report.conftest import HOSTILE_NOTE, HOSTILE_OUTPUT, HOSTILE_ROW

from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.report_data import collect_report
from paritygate.pipelines.run.workspace import RunFolder

# Elements that have no end tag.
_VOID = {"meta"}
_ALLOWED = {
    "a", "body", "caption", "circle", "code", "dd", "defs", "details", "div", "dl", "dt", "em", "figcaption", "figure",
    "footer",
    "h1", "h2", "h3", "head", "header", "html", "i", "li", "line", "main", "meta", "p", "path", "pattern", "pre",
    "rect", "section", "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead",
    "title",
    "tr", "ul",
}  # fmt: skip


class Element(Struct, kw_only=True):
    """One element with its attributes and all text below it."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    parents: tuple[str, ...] = ()


class Page(Struct, kw_only=True):
    """A parsed page."""

    elements: list[Element] = field(default_factory=list)

    def of(self, *tags: str) -> list[Element]:
        """Return the elements with one of the tags."""
        return [element for element in self.elements if element.tag in tags]


class _Reader(HTMLParser):
    """Reads a page and refuses one whose tags do not match."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag=tag, attributes=dict(attrs), parents=tuple(item.tag for item in self._open))
        self.page.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def finish(self) -> Page:
        self.close()
        assert not self._open, f"never closed: {[item.tag for item in self._open]}"
        return self.page


def read_page(text: str) -> Page:
    """Return the page in a text; its tags must match."""
    reader = _Reader()
    reader.feed(text)
    return reader.finish()


@pytest.fixture(scope="module")
def html(mixed_run: RunFolder) -> str:
    return render_html(collect_report(mixed_run))


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return read_page(html)


def test_the_page_holds_no_element_that_loads_or_executes(page: Page) -> None:
    assert {element.tag for element in page.elements} <= _ALLOWED
    for element in page.elements:
        handlers = [name for name in element.attributes if name.startswith("on")]
        assert not handlers, f"<{element.tag}> has {handlers}"
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert (element.attributes.get(name) or "#").startswith("#")


def test_the_style_sheet_loads_nothing(page: Page) -> None:
    (style,) = page.of("style")

    assert "@import" not in style.text
    assert re.findall(r"url\(([^)]*)\)", style.text) == []


def test_the_page_forbids_what_it_does_not_need(page: Page) -> None:
    policies = [item for item in page.of("meta") if item.attributes.get("http-equiv") == "Content-Security-Policy"]

    assert [item.attributes["content"] for item in policies] == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_hostile_names_are_text(html: str, page: Page) -> None:
    assert "<script" not in html
    assert "<img" not in html
    assert HOSTILE_OUTPUT in [element.text for element in page.of("td", "th")]


def test_a_hostile_row_is_text(mixed_run: RunFolder) -> None:
    report = collect_report(mixed_run)
    variant = next(item for item in report.variants if item.verdict == "fail")
    assert variant.result is not None
    output = variant.result.outputs[HOSTILE_OUTPUT]
    rows = [replace(output.worst_rows[0], row_id=HOSTILE_ROW)]
    result = replace(variant.result, outputs={HOSTILE_OUTPUT: replace(output, worst_rows=rows)})

    html = render_html(replace(report, variants=(replace(variant, result=result),)))

    assert "<script" not in html
    assert HOSTILE_ROW in [element.text for element in read_page(html).of("td", "th")]


def test_a_character_that_turns_the_text_around_is_written_out(html: str, page: Page) -> None:
    assert "\u202e" not in html
    assert HOSTILE_NOTE.replace("\u202e", "\\u202e") in [element.text for element in page.of("li")]


def test_every_table_has_a_caption_and_its_heads_say_what_they_head(page: Page) -> None:
    tables, captions = page.of("table"), page.of("caption")

    assert len(tables) == len(captions) > 10
    assert all(caption.text.strip() for caption in captions)
    for head in page.of("th"):
        assert head.attributes["scope"] == ("col" if "thead" in head.parents else "row")
        assert head.text.strip()


def test_every_reference_within_the_page_leads_somewhere(page: Page) -> None:
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    named = {
        element.attributes["aria-labelledby"] for element in page.elements if "aria-labelledby" in element.attributes
    }
    linked = {(element.attributes["href"] or "").removeprefix("#") for element in page.of("a")}

    assert len(ids) == len(set(ids))
    assert named <= set(ids)
    assert linked == {"variant-1", "variant-2", "variant-3", "variant-4", "variant-5"}


def test_no_verdict_is_told_by_colour_alone(page: Page) -> None:
    badges = [element for element in page.of("span") if (element.attributes.get("class") or "").startswith("badge ")]

    assert badges
    for badge in badges:
        kind = (badge.attributes["class"] or "").removeprefix("badge ").replace("-", " ")
        symbol, _, word = badge.text.partition(" ")
        assert (len(symbol), word) == (1, kind)


def test_the_verdicts_stand_beside_their_variants(page: Page) -> None:
    titles = [element.text for element in page.of("summary")][:5]

    assert titles == [
        "onnx-fp32\N{CHECK MARK} pass",
        "onnx-fp16\N{BALLOT X} fail",
        "onnx-bf16! error",
        "onnx-int8! error",
        "onnx-tf32\N{WHITE CIRCLE} not measured",
    ]


def test_what_passed_is_folded_and_what_did_not_is_open(html: str) -> None:
    found = re.findall(r'<details class="sheet"( open)?>\s*<summary><h2>([^<]+)</h2>', html)

    assert {name: bool(is_open) for is_open, name in found} == {
        "onnx-fp32": False,
        "onnx-fp16": True,
        "onnx-bf16": True,
        "onnx-int8": True,
        "onnx-tf32": True,
        "The reference": False,
        "Where it comes from, and how to do it again": False,
    }


def test_links_lead_into_what_is_folded_so_that_browsers_open_it(page: Page) -> None:
    targets = {element.attributes["id"]: element.parents for element in page.elements if "id" in element.attributes}
    links = [element.attributes["href"] for element in page.of("a")]

    assert links
    for link in links:
        assert link is not None
        assert "details" in targets[link.removeprefix("#")]


def test_the_failures_and_their_reasons_stand_above_the_tables(html: str, page: Page) -> None:
    head = html.split("<table", maxsplit=1)[0]

    found = [item.text for item in page.of("li") if item.text.startswith(("\N{BALLOT X}", "!"))]
    # The required ones first.
    assert [words.split()[2] for words in found] == ["onnx-fp16", "onnx-bf16", "onnx-int8"]
    assert "128 of 128 rows differ" in found[0]
    assert found[1].startswith("! error onnx-bf16 (optional)")
    assert head.count('<li><span class="badge') == len(found)


def test_a_bar_is_full_and_marked_where_the_limit_is_passed(html: str) -> None:
    beyond = re.findall(r'<i class="bar beyond" aria-hidden="true"><i style="width:([\d.]+)%">', html)
    within = re.findall(r'<i class="bar" aria-hidden="true"><i style="width:([\d.]+)%">', html)

    assert set(beyond) == {"100.0"}
    assert within
    assert all(float(width) <= 100 for width in within)


def test_what_is_not_known_of_a_run_is_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.pipelines.report.conftest import new_model_run

    text = render_html(collect_report(new_model_run(tmp_path_factory.mktemp("empty"), ["onnx-fp32"])))

    page = read_page(text)
    assert "No reference was recorded." in [element.text for element in page.of("p")]
    assert 'class="badge pass"' not in text


_COLOUR = re.compile(r"--([a-z-]+): (#[0-9a-f]{6})\b")


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour.

    Source:
        WCAG 2.2, definition of relative luminance.
    """
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("ink", "page"), ("ink", "sheet"), ("soft", "page"), ("soft", "sheet"), ("soft", "head"), ("fail", "sheet"),
        ("pass", "pass-fill"), ("fail", "fail-fill"), ("warn", "warn-fill"), ("none", "none-fill"),
        ("ink", "fail-fill"),
    ],
)  # fmt: skip
def test_text_stands_out_from_what_is_behind_it(ink: str, paper: str, *, is_dark: bool) -> None:
    css = (files("paritygate.pipelines.report") / "templates" / "page.css").read_text(encoding="utf-8")
    colours = dict(_COLOUR.findall(css.split("@media (prefers-color-scheme: dark)")[int(is_dark)].split("* {")[0]))

    darker, lighter = sorted((_luminance(colours[ink]), _luminance(colours[paper])))

    # WCAG 2.2, 1.4.3: the contrast of text of normal size.
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
