"""The Markdown report: tables that stay tables, whatever a model's author calls things."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace
from tests.pipelines.report.conftest import HOSTILE_OUTPUT

from paritygate.pipelines.report.markdown_report import escape_markdown, render_markdown
from paritygate.pipelines.report.report_data import collect_report
from paritygate.pipelines.run.workspace import RunFolder

if TYPE_CHECKING:
    from markdown_it.token import Token

_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def rendered(token: Token) -> str:
    """Return the text that a reader sees of inline content, which must hold nothing but text."""
    kinds = {child.type for child in token.children or ()}
    assert kinds <= {"text", "text_special", "strong_open", "strong_close"}, f"{token.content!r} holds {kinds}"
    return "".join(child.content for child in token.children or ())


@pytest.fixture(scope="module")
def tokens(mixed_run: RunFolder) -> list[Token]:
    return _MARKDOWN.parse(render_markdown(collect_report(mixed_run)))


def test_nothing_is_read_as_html_or_as_a_link(tokens: list[Token]) -> None:
    assert not [token for token in tokens if token.type == "html_block"]
    for token in tokens:
        if token.type == "inline":
            rendered(token)


def test_every_row_of_a_table_has_the_cells_of_its_head(tokens: list[Token]) -> None:
    widths: list[int] = []
    rows = 0
    for token in tokens:
        if token.type == "thead_open":
            head = 0
        elif token.type == "th_open":
            head += 1
        elif token.type == "tr_open":
            widths.append(0)
        elif token.type == "td_open":
            widths[-1] += 1
        elif token.type == "tr_close" and widths[-1]:
            assert widths[-1] == head
            rows += 1
    # A row that broke its table apart would be a paragraph.
    paragraphs = [
        rendered(tokens[at + 1])
        for at, token in enumerate(tokens)
        if token.type == "paragraph_open" and not token.hidden
    ]
    assert not [text for text in paragraphs if text.count("|") > 2]
    assert rows > 50


def test_a_hostile_name_is_seen_as_it_is(tokens: list[Token]) -> None:
    assert HOSTILE_OUTPUT in [rendered(token) for token in tokens if token.type == "inline"]


def test_the_report_begins_with_the_verdict(tokens: list[Token]) -> None:
    first = [rendered(token) for token in tokens if token.type == "inline"][:2]

    assert first == [
        "Parity report: sts",
        "\N{BALLOT X} fail: 1 of 2 required variants passed (fail: onnx-fp16).",
    ]


def test_the_commands_to_do_it_again_are_blocks_of_code(tokens: list[Token], mixed_run: RunFolder) -> None:
    blocks = [token.content for token in tokens if token.type == "fence"]

    assert f"convert-and-validate validate --run {mixed_run.folder}\n" in blocks


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Cf", "Zl", "Zp"])))
def test_escaped_text_reads_as_it_is_in_a_line_of_its_own(text: str) -> None:
    parsed = _MARKDOWN.parse(escape_markdown(text))

    assert [token.type for token in parsed if token.type.endswith("_open")] in ([], ["paragraph_open"])
    seen = "".join(rendered(token) for token in parsed if token.type == "inline")
    assert seen.split() == text.split()


@given(st.text(alphabet="_*`[]()<>|\\~#-+=.&@:/ 1aw!\n"))
def test_escaped_text_of_special_characters_reads_as_it_is(text: str) -> None:
    parsed = _MARKDOWN.parse(escape_markdown(text))

    assert [token.type for token in parsed if token.type.endswith("_open")] in ([], ["paragraph_open"])
    seen = "".join(rendered(token) for token in parsed if token.type == "inline")
    assert seen.split() == text.split()


@pytest.mark.parametrize("text", ["max_abs_diff <= 1e-4", "logits_1", "1.01e-6", "row 3: 0.5 %"])
def test_ordinary_text_stays_readable_in_the_source(text: str) -> None:
    assert escape_markdown(text).replace("&lt;", "<") == text


@pytest.mark.parametrize("times", [6, 200])
def test_any_number_of_variants_fits_into_a_comment(mixed_run: RunFolder, times: int) -> None:
    report = collect_report(mixed_run)
    many = [replace(item, name=f"{item.name}@d={turn + 1}") for turn in range(times) for item in report.variants]
    markdown = render_markdown(replace(report, variants=tuple(many)))

    assert len(markdown) <= 60_000
    text = html.unescape(markdown)
    # What failed is there before what passed.
    assert "- \N{BALLOT X} fail onnx-fp16@d=1: " in text
    (left_out,) = re.findall(r"Left out here, since this page stays below 60,000 characters: (.*)\.", text) or [""]
    assert "onnx-fp32@d=1" in left_out or "This page is cut off at 60,000 characters" in text


def test_a_long_table_says_how_many_rows_are_left_out(mixed_run: RunFolder) -> None:
    report = collect_report(mixed_run)
    many = [replace(report.variants[0], name=f"onnx-fp32@d={turn + 1}") for turn in range(50)]
    text = render_markdown(replace(report, variants=tuple(many)))

    # Two outputs each.
    assert "and 60 more rows, which the HTML report has" in text
