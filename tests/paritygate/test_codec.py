"""Objects as JSON data, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from paritygate.codec import digest_of, from_data, from_json, read_as, read_sealed, schema_of, sealed, to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.files import read_json, write_json_atomically
from paritygate.pipelines.compare.result import OutputResult
from paritygate.validate.measure.figures import WorstRow
from paritygate.validate.measure.profile import FloatArray

_AGAIN = "make it again"


class _Kind(str, Enum):
    ONE = "one"

    def __str__(self) -> str:
        return self.value


class _Part(Struct, frozen=True, kw_only=True):
    number: float = 0.0
    rows: tuple[int, ...] = ()


class _Whole(Struct, frozen=True, kw_only=True):
    name: str
    kind: _Kind
    place: Path | None
    parts: Mapping[str, _Part]
    declared: frozenset[str] = frozenset()


class _Floor(Struct, frozen=True, kw_only=True):
    values: FloatArray


_WHOLE = _Whole(name="m", kind=_Kind.ONE, place=Path("a/b"), parts={"x": _Part(rows=(1, 2))}, declared=frozenset("ba"))


def test_a_dataclass_is_written_with_names_texts_and_lists_alone() -> None:
    assert to_data(_WHOLE) == {
        "name": "m",
        "kind": "one",
        "place": "a/b",
        "parts": {"x": {"number": 0.0, "rows": [1, 2]}},
        "declared": ["a", "b"],
    }


@given(
    name=st.text(),
    place=st.none() | st.just(Path("x")),
    parts=st.dictionaries(
        st.text(),
        st.builds(_Part, number=st.floats(allow_nan=False, allow_infinity=False), rows=st.tuples(st.integers())),
    ),
    declared=st.frozensets(st.text()),
)
def test_what_is_read_is_what_was_written(
    name: str, place: Path | None, parts: Mapping[str, _Part], declared: frozenset[str]
) -> None:
    whole = _Whole(name=name, kind=_Kind.ONE, place=place, parts=parts, declared=declared)

    again = from_data(_Whole, json.loads(json.dumps(to_data(whole))))

    assert again == whole
    assert digest_of(again) == digest_of(whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, "name is 3, not text"),
        ({"kind": "two"}, r"kind is 'two' \(allowed: 'one'\)"),
        ({"parts": {"x": {"rows": ["1"]}}}, r"parts\.x\.rows\.0 is '1', not a whole number"),
        ({"parts": {"x": {"number": True}}}, r"parts\.x\.number is True, not a number"),
        ({"parts": []}, r"parts is \[\], not a mapping"),
    ],
)
def test_nothing_is_converted_and_the_first_wrong_field_is_named(change: dict[str, object], words: str) -> None:
    for read in (from_data, from_json):
        with pytest.raises(ValueError, match=words):
            read(_Whole, to_data(_WHOLE) | change)


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        from_data(_Whole, to_data(_WHOLE) | {"name": "\ud800"})


def test_a_missing_field_is_named_and_one_that_is_not_known_is_ignored() -> None:
    data = to_data(_WHOLE)

    assert from_data(_Whole, data | {"later": 1}) == from_json(_Whole, data | {"later": 1}) == _WHOLE
    with pytest.raises(ValueError, match="kind is missing"):
        from_data(_Whole, {name: value for name, value in data.items() if name != "kind"})


def test_what_is_not_finite_in_an_array_is_read_as_infinity() -> None:
    assert to_data(_Floor(values=np.array([[1.0], [2.0]]))) == {"values": [[1.0], [2.0]]}
    assert to_data(np.array([math.nan, -math.inf, 2], np.float16)) == [None, None, 2.0]
    data = to_data(_Floor(values=np.array([1.0, math.inf])))

    assert data == {"values": [1.0, None]}
    assert from_data(_Floor, data).values.tolist() == [1.0, math.inf]
    assert from_json(_Floor, data).values.tolist() == [1.0, math.inf]


def test_what_has_no_json_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON data"):
        to_data({"a": [object()]})


def test_a_sealed_file_that_was_edited_is_told_from_one_that_is_damaged_or_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json_atomically(path, sealed({"rows": 3}, version=2))

    assert read_sealed(path, path.read_bytes(), version=2, again=_AGAIN) == {"format": 2, "rows": 3}
    with pytest.raises(InputFileError, match=r"file\.json has format 2 \(allowed: 3\)"):
        read_sealed(path, path.read_bytes(), version=3, again=_AGAIN)
    path.write_text(path.read_text().replace("3", "4"))
    with pytest.raises(ArtifactIntegrityError, match="is corrupt: digest mismatch"):
        read_sealed(path, path.read_bytes(), version=2, again=_AGAIN)
    for text in ("[]", "{}", "{", "null"):
        path.write_text(text)
        with pytest.raises(InputFileError, match=r"file\.json is corrupt"):
            read_sealed(path, path.read_bytes(), version=2, again=_AGAIN)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + "0" * 400])
def test_a_number_that_is_not_finite_is_no_json_of_ours(tmp_path: Path, number: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(f'{{"a": {number}}}', encoding="utf-8")

    with pytest.raises(ValueError, match="is not a finite number"):
        read_json(path)


class _Odd(Struct, frozen=True, kw_only=True):
    by_kind: Mapping[_Kind, int] = field(default_factory=dict)
    either: float | str | tuple[int, ...] | None = None
    both: tuple[str, int] = ("", 0)
    rule: Literal["a", "b"] = "a"
    floor: FloatArray = field(default_factory=lambda: np.zeros(0))
    any_of_two: int | bool = 0
    pairs: list[tuple[int, ...]] = field(default_factory=list)
    later: _Odd | None = None
    anything: Any = None

    def __post_init__(self) -> None:
        if self.both[1] < 0:
            msg = "both is negative"
            raise ValueError(msg)


_FITS: dict[str, list[object]] = {
    "by_kind": [{"one": 3}, {}],
    "either": [1, 1.5, "1", [1, 2], None],
    "both": [["a", 1]],
    "rule": ["b"],
    "floor": [[1, None], []],
    "any_of_two": [True, 3],
    "pairs": [[[1, 2], []]],
    "later": [{"later": {"rule": "b"}, "unknown": 1}],
    "anything": [{"a": [1, {"b": None}]}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in _FITS.items() for value in values])
def test_a_value_that_fits_is_read_and_written_again(name: str, value: object) -> None:
    again = to_data(from_data(_Odd, {name: value}))[name]

    if name == "later":
        assert again["later"]["rule"] == "b"
    else:
        assert again == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"by_kind": {"two": 3}}, r"by_kind\.two is 'two' \(allowed: 'one'\)"),
        ({"either": [1.0]}, r"either\.0 is 1\.0, not a whole number"),
        ({"either": True}, "either is True, not a number or text or a list or null"),
        ({"either": 10**400}, r"either is 10{59}\.\.\., not a number of 64 bits"),
        ({"both": ["a", -1]}, "both is negative"),
        ({"both": ["a"]}, r"both is \['a'\], not a list of 2"),
        ({"both": ["a", True]}, r"both\.1 is True, not a whole number"),
        ({"rule": "c"}, r"rule is 'c' \(allowed: 'a', 'b'\)"),
        ({"rule": ["a"]}, r"rule is \['a'\]"),
        ({"floor": None}, "floor is None, not a list"),
        ({"any_of_two": 1.0}, "any_of_two is 1.0, not a whole number or a boolean"),
        ({"pairs": [1]}, r"pairs\.0 is 1, not a list"),
        ({"pairs": [None]}, r"pairs\.0 is None, not a list"),
        ({"later": {"later": {"rule": 1}}}, r"later\.later\.rule is 1 \(allowed: 'a', 'b'\)"),
        ([], r"what it holds is \[\], not a mapping"),
        (None, "what it holds is None, not a mapping"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_place(data: object, words: str) -> None:
    for read in (from_data, read_as):
        with pytest.raises(ValueError, match=f"^{words}"):
            read(_Odd, data)


def test_data_that_are_nested_too_deeply_are_refused() -> None:
    data: dict[str, object] = {}
    for _ in range(900):
        data = {"later": data}

    with pytest.raises(ValueError, match="too many levels"):
        from_json(_Odd, data)


@pytest.mark.parametrize("kind", [str | Path, int | list[int] | tuple[int, ...], set[int], complex])
def test_a_type_that_is_not_certain_is_an_error_of_ours(kind: object) -> None:
    with pytest.raises(TypeError):
        read_as(kind, "a")


def test_the_schema_of_written_data_has_no_field_that_is_left_out() -> None:
    schema = schema_of(OutputResult, title="output")

    assert schema["title"] == "output"
    assert schema["properties"].keys() == {*OutputResult.__struct_fields__}
    assert schema["$defs"]["WorstRow"]["properties"].keys() == {*WorstRow.__struct_fields__} - {*WorstRow.unwritten}
