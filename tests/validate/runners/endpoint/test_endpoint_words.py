"""What a server says, in one short line."""

from __future__ import annotations

import pytest

from paritygate.validate.runners.endpoint.words import in_full, in_short


@pytest.mark.parametrize("length", [1, 7, 10, 299])
def test_a_long_text_is_cut_off_between_two_words(length: int) -> None:
    text = " ".join(["w" * length] * 400)

    words = in_short(text).removesuffix(" ...").split(" ")

    assert {len(word) for word in words} == {length}
    assert len(" ".join(words)) <= 300 < len(" ".join([*words, "w" * length]))
    assert in_full(text)


def test_a_long_text_without_blanks_is_cut_off_somewhere() -> None:
    assert in_short("1," * 400) == "1," * 150 + " ..."


@pytest.mark.parametrize("text", ["short", "x" * 300, "a " * 149 + "bc"])
def test_a_short_text_is_all_there(text: str) -> None:
    assert (in_short(text), in_full(text)) == (text, "")
