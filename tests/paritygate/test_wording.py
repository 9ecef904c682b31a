"""Counts in messages agree with their nouns, and names that are allowed come in the order of what may be meant."""

from __future__ import annotations

import pytest

from paritygate.text import counted, nearest_first, one_or_many


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


def test_names_come_with_the_nearest_first_and_else_in_their_order() -> None:
    known = ["abc", "onnx-fp32", "ghi", "onnx-fp16"]
    assert nearest_first("onnx-fp33", known) == ["onnx-fp32", "onnx-fp16", "abc", "ghi"]
