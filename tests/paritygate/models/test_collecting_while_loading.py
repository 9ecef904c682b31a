"""How often Python looks for unused cycles of objects while a source is loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from paritygate.importing import load_object
from paritygate.models.source import load_source_object, parse_source


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before, of_python = gc.get_threshold(), (700, 10, 10)
    # Tests have another one, as the command line has.
    gc.set_threshold(*of_python)
    yield of_python
    gc.set_threshold(*before)


def _write(folder: Path, name: str, line: str) -> str:
    lines = ("import gc", "SEEN = gc.get_threshold()", line, "def model(x):", "    return x")
    (folder / f"{name}.py").write_text("\n".join(lines), encoding="utf-8")
    return f"{name}:model"


def test_a_source_is_loaded_with_fewer_looks_and_then_there_are_as_many_as_before(
    tmp_path: Path, thresholds: tuple[int, int, int]
) -> None:
    load_source_object(parse_source(_write(tmp_path, "looks_rarely", ""), tmp_path))

    seen = load_object("looks_rarely:SEEN", tmp_path)
    assert seen[0] > thresholds[0]
    assert seen[1:] == thresholds[1:]
    assert gc.get_threshold() == thresholds


def test_after_an_error_of_the_source_there_are_as_many_looks_as_before(
    tmp_path: Path, thresholds: tuple[int, int, int]
) -> None:
    source = parse_source(_write(tmp_path, "looks_and_fails", "1 / 0"), tmp_path)

    with pytest.raises(ZeroDivisionError):
        load_source_object(source)

    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("own", [(0, 10, 10), (100, 5, 5)])
def test_what_the_code_of_the_source_sets_itself_stays(tmp_path: Path, own: tuple[int, int, int]) -> None:
    load_source_object(parse_source(_write(tmp_path, f"sets_{own[0]}", f"gc.set_threshold{own}"), tmp_path))

    assert gc.get_threshold() == own


def test_where_it_is_turned_off_it_stays_off(tmp_path: Path) -> None:
    gc.set_threshold(0)

    load_source_object(parse_source(_write(tmp_path, "looks_never", ""), tmp_path))

    assert load_object("looks_never:SEEN", tmp_path)[0] == gc.get_threshold()[0] == 0
