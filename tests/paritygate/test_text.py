"""Text for people: nothing hidden that steers a terminal, rows named in one form, counts with their nouns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.text import (
    closest,
    counted,
    echo,
    echo_block,
    nearest_first,
    one_line,
    one_or_many,
    printable,
)

HOSTILE = {
    "clear the screen": "\x1b[2J",
    "a link of the terminal": "\x1b]8;;http://example.org\x07",
    "a control sequence of one byte": "\x9b31m",
    "back to the start of the line": "\rverdict: pass",
    "backspace": "fail\x08\x08\x08\x08pass",
    "NUL": "a\x00b",
    "text turned around": "\u202exno.ssap",
    "isolates": "\u2066a\u2069",
    "line separator": "a\u2028b",
    "half of a surrogate pair": "a\ud800b",
}
ORDINARY = ["유사도 3.0", "façade naïve", "模型", "😀", "a\u200db", "tab\tstays"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hidden_characters_are_written_out(capsys: pytest.CaptureFixture[str], text: str) -> None:
    echo(f"output {text} fails", err=True)
    shown = capsys.readouterr().err

    assert shown == f"output {one_line(text)} fails\n"
    assert "\\u" in shown
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown[:-1])


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], text: str) -> None:
    echo(text)

    assert capsys.readouterr().out == f"{text}\n"


def test_a_line_break_in_a_name_makes_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo("output 'x\nverdict: pass' fails")

    assert capsys.readouterr().out == "output 'x\\nverdict: pass' fails\n"


def test_the_log_that_a_message_quotes_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo("error: it failed\n  | one\x1b[2J\n  | two\n  log: run/x.log\n  verdict: pass")

    assert capsys.readouterr().out == (
        "error: it failed\n  | one\\u001b[2J\n  | two\n  log: run/x.log\\n  verdict: pass\n"
    )


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters())))
def test_json_that_is_printed_means_the_same(data: dict[str, str]) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False)

    assert json.loads(printable(text)) == data


def test_a_block_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo_block('{\n  "a": "\x9b"\n}')

    assert capsys.readouterr().out == '{\n  "a": "\\u009b"\n}\n'


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2, "row", "2 rows"),
        (1, "more batch", "1 more batch"),
        (3, "batch", "3 batches"),
        (2, "pass", "2 passes"),
        (2, "class", "2 classes"),
    ],
)
def test_a_count_has_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_a_word_agrees_with_the_count() -> None:
    assert [one_or_many(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("--precison", ["--decision", "--json", "--precision"], "--precision"),
        ("Prod", ["prod", "test"], "prod"),
        ("LOGITS", ["Logits", "labels"], "Logits"),
        ("--zzzz", ["--size", "--json"], ""),
        ("x", [], ""),
    ],
)
def test_the_closest_name_is_named_if_it_is_close(name: str, known: list[str], expected: str) -> None:
    assert closest(name, known) == expected


def test_names_come_with_the_nearest_first_and_else_in_their_order() -> None:
    known = ["abc", "onnx-fp32", "ghi", "onnx-fp16"]
    assert nearest_first("onnx-fp33", known) == ["onnx-fp32", "onnx-fp16", "abc", "ghi"]
