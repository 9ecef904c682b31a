"""What cannot be written among the temporary files names the variable that moves them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from paritygate.errors import StorageError
from paritygate.files import make_temporary_folder, storage_errors, temporary_folder


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_the_hint_names_what_moves_the_file(tmp_path: Path, number: int) -> None:
    hints = []
    with temporary_folder("compare") as place:
        for folder in (place, tmp_path):
            with pytest.raises(StorageError) as caught, storage_errors(folder / "probes/chunk.safetensors"):
                raise OSError(number, os.strerror(number))
            hints.append(caught.value.hint)

    assert ["TMPDIR" in hint for hint in hints] == [True, False]
    assert ["--root" in hint for hint in hints] == [False, True]
    assert not place.exists()


def test_no_place_for_temporary_files_is_an_error_of_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "absent")])

    with pytest.raises(StorageError) as caught:
        make_temporary_folder("compare")
    assert "TMPDIR" in caught.value.hint
