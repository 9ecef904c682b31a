"""JSON files are readable, but for those with lists that nobody reads; what is read back is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paritygate.files import read_json, write_json_atomically

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("entries", "lines"), [(3, 10), (5000, 1)])
def test_what_is_written_is_read_back(tmp_path: Path, entries: int, lines: int) -> None:
    data = {"name": "나무", "outputs": {"y": [value / 7 for value in range(entries)]}}
    path = tmp_path / "data.json"

    write_json_atomically(path, data)

    assert read_json(path) == data
    assert len(path.read_text(encoding="utf-8").splitlines()) == lines


@pytest.mark.parametrize("entries", [3, 5000])
def test_what_is_no_number_is_refused(tmp_path: Path, entries: int) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json_atomically(tmp_path / "data.json", {"y": [float("nan")] * entries})
