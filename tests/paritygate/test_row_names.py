"""Rows in messages: named in one form, whatever their ids are, and left out again."""

from __future__ import annotations

import random

import pytest

from paritygate.text import row_name, row_names, row_range, without_row_ids

_IDS = (
    "0",
    "anna@example.org",
    "Anna's mail, the first",
    'says "no"',
    'it\'s "both"',
    "back\\slash'",
    "rows 'a', 'b'",
    "new\nline",
    "\u202eevil",
    "..",
    "",
)


@pytest.mark.parametrize("row_id", _IDS)
def test_an_id_in_a_message_is_left_out_whole(row_id: str) -> None:
    text = f"max_abs_diff: 3 > 1, worst at {row_name(row_id)}: 2 instead of 5; at {row_range(row_id, row_id)}, and more"

    assert (
        without_row_ids(text)
        == "max_abs_diff: 3 > 1, worst at row (hidden): 2 instead of 5; at rows (hidden), and more"
    )


def test_several_ids_are_left_out_together() -> None:
    assert without_row_ids(f"as at {row_names(_IDS)}; the rest") == "as at rows (hidden); the rest"
    assert without_row_ids(f"as at {row_names(['a'])}") == "as at row (hidden)"


@pytest.mark.parametrize("row_id", ["anna@example.org", "it's anna", 'anna\\ "both"'])
def test_an_id_that_is_cut_off_is_left_out(row_id: str) -> None:
    text = f"worst at {row_name(row_id)}"

    for length in range(len("worst at row '"), len(text)):
        assert without_row_ids(text[:length]) == "worst at row (hidden)"


@pytest.mark.parametrize("text", ["300 rows differ", "row 3 of table 'emb' is zero", "output 'logits'", "the ids 3, 4"])
def test_what_names_no_row_stays(text: str) -> None:
    assert without_row_ids(text) == text


def test_no_id_made_at_random_stays() -> None:
    chance = random.Random(3)  # noqa: S311 - a seed, so that a failure comes again
    for _ in range(2000):
        row_id = "SECRET" + "".join(chance.choices("'\"\\ ,.:;()\nSECRET\x00é", k=chance.randint(0, 12))) + "SECRET"

        assert "SECRET" not in without_row_ids(f"at {row_name(row_id)}, {row_names([row_id, row_id])}.")
