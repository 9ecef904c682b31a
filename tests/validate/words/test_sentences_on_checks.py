"""The page of sentences shows what the table has, and each is plain English."""

from __future__ import annotations

from tests.docs.plain_english import LONGEST, banned_in, long_sentences
from tests.validate.words.sample_sentences import PAGE, page, rendered

from paritygate.validate.words.table import SENTENCES


def test_the_page_of_sentences_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_sentence_on_a_check_is_plain_english() -> None:
    found = {key: [*long_sentences(text, LONGEST), *banned_in(text)] for key, text in rendered().items()}

    assert {key: problems for key, problems in found.items() if problems} == {}


def test_every_sentence_takes_its_sample_values() -> None:
    assert [key for key, text in rendered().items() if "another version" in text] == []


def test_a_part_in_brackets_stands_apart_from_what_comes_before() -> None:
    assert [key for key, text in SENTENCES.items() if text.startswith(("(", "["))] == []
