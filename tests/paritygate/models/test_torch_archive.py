"""Archives of PyTorch that are corrupt in ways of which zipfile speaks in words of its own."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from paritygate.errors import InputFileError
from paritygate.models.source import SourceKind
from paritygate.models.torch.archive import check_archive, names_in_archive

_METHOD, _FLAGS, _ENCRYPTED = 10, 8, 1


def _archive(path: Path) -> bytearray:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", b"weights " * 500)
    return bytearray(path.read_bytes())


def _with_field(content: bytearray, *, offset: int, value: int) -> bytearray:
    """Return the archive with a field changed in the header of its entry and in that of its directory."""
    directory = content.index(b"PK\x01\x02")
    struct.pack_into("<H", content, offset - 2, value)
    struct.pack_into("<H", content, directory + offset, value)
    return content


@pytest.mark.parametrize("kind", [SourceKind.TORCHSCRIPT, SourceKind.PT2])
@pytest.mark.parametrize("damage", ["encrypted", "unknown compression", "damaged stream"])
def test_a_damaged_archive_is_an_input_error(tmp_path: Path, damage: str, kind: SourceKind) -> None:
    path = tmp_path / "model.pt"
    content = _archive(path)
    if damage == "encrypted":
        content = _with_field(content, offset=_FLAGS, value=_ENCRYPTED)
    elif damage == "unknown compression":
        content = _with_field(content, offset=_METHOD, value=77)
    else:
        # The first byte of the compressed stream: a kind of block that there is not.
        content[30 + len("model/data.pkl")] = 0xFF
    path.write_bytes(content)

    with pytest.raises(InputFileError, match="is corrupt or not a PyTorch archive"):
        check_archive(path, kind)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04cut off"])
def test_names_of_what_is_no_archive_are_an_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)

    with pytest.raises(InputFileError, match="is corrupt or not a PyTorch archive"):
        names_in_archive(path)


def test_an_archive_without_entries_says_no_names(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w"):
        pass

    assert names_in_archive(path) is None
