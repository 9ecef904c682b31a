"""Numbers in the report: short, and never rounded to the better side of a limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.pipelines.report.figures import near_one, number, number_pair, percent, share, size_words, value
from paritygate.validate.measure.bounds import upper_bound_text

positive = st.floats(min_value=1e-300, max_value=1e300)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (0.000000477, "4.77e-7"),
        (0.000946123, "0.000946"),
        (0.0, "0"),
        (0.5, "0.5"),
        (28.71, "28.7"),
        (2.346e10, "2.35e10"),
        (1234567, "1,234,567"),
        (-1e-9, "-1e-9"),
        (None, "not measured"),
    ],
)
def test_a_number_has_three_digits_and_a_count_all(found: float | None, text: str) -> None:
    assert number(found) == text


@given(positive, positive)
def test_a_number_and_its_limit_look_equal_only_if_they_are(measured: float, limit: float) -> None:
    texts = number_pair(measured, limit)

    assert (texts[0] == texts[1]) == (measured == limit)


def test_a_number_just_above_its_limit_shows_it() -> None:
    assert number_pair(1.00001e-4, 1e-4) == ("0.000100001", "0.0001")


@given(st.floats(min_value=1e-12, max_value=1))
def test_a_bound_is_never_below_what_was_found(rate: float) -> None:
    assert float(upper_bound_text(rate).removesuffix(" %")) >= rate * 100 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.005755, "0.58 %"), (0.0058, "0.58 %"), (3.0e-6, "0.00030 %"), (0.2789, "27.89 %"), (1.0, "100 %")],
)
def test_a_bound_has_two_decimals_or_two_digits(rate: float, text: str) -> None:
    assert upper_bound_text(rate) == text


@given(st.floats(min_value=1e-9, max_value=1e9), st.floats(min_value=1e-9, max_value=1e9))
def test_a_share_says_a_hundred_percent_only_up_to_the_limit(measured: float, limit: float) -> None:
    text = share(measured, limit)

    is_within = text.endswith(" %") and int(text.removesuffix(" %").removeprefix("< ")) <= 100
    assert is_within == (measured / limit <= 1)


@pytest.mark.parametrize(
    ("measured", "text"), [(0.0, "0 %"), (0.001, "< 1 %"), (0.994, "100 %"), (1.001, "101 %"), (49.23, "49.2 times")]
)
def test_a_share_is_rounded_up(measured: float, text: str) -> None:
    assert share(measured, 1.0) == text


@pytest.mark.parametrize(
    ("cosine", "text"),
    [
        (1.0, "1"),
        (math.nextafter(1.0, 0.0), "1 - 1.11e-16"),
        (0.9999999, "0.9999999"),
        (-1.0, "-1"),
        (None, "not measured"),
    ],
)
def test_a_similarity_reads_as_one_only_if_it_is(cosine: float | None, text: str) -> None:
    assert near_one(cosine) == text


def test_a_value_that_is_no_number_is_said_to_be_none() -> None:
    assert value(None) == "not finite"
    assert value(-0.30829734) == "-0.30829734"


def test_a_part_of_nothing_has_no_percentage() -> None:
    assert (percent(1, 3), percent(0, 0)) == ("33.3 %", "-")


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (4_100_000, "4.1 MB"), (2_500, "2.5 kB"), (None, "a file is missing")]
)
def test_a_size_has_its_unit(count: int | None, text: str) -> None:
    assert size_words(count) == text
