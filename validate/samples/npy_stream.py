"""Arrays in npz files, read row by row, so that memory does not grow with the file."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import InputFileError
from paritygate.text import first_line

# Errors of a broken archive, besides those of the operating system (RuntimeError: encrypted).
_BROKEN = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    ValueError,
    TypeError,
    EOFError,
    KeyError,
    RuntimeError,
)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an npz file, in order; raise InputFileError if it is missing or none."""
    if not path.is_file():
        state = "is not a file" if path.exists() else "does not exist"
        raise InputFileError(f"{path} {state}", hint="give the path of a .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (*_BROKEN, OSError) as err:
        raise _broken(path, err) from err
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputFileError(f"{path} holds {twice!r} twice", hint="write the file again with numpy.savez")
    return names


def _broken(path: Path, err: BaseException) -> InputFileError:
    reason = first_line(err)
    return InputFileError(f"{path} cannot be read: {reason}", hint="write the file again with numpy.savez")


def _check_size(name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], held: int) -> None:
    if not all(type(size) is int and size >= 0 for size in shape) or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise ValueError(f"{name!r} declares shape {shape} and dtype {dtype}")
    declared = math.prod(shape) * dtype.itemsize
    if declared != held:
        raise ValueError(f"{name!r} declares {declared} bytes and holds {held}")


class NpyStream:
    """One array in an npz file, read once from its first row to its last, in the byte order of this machine."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        try:
            archive = zipfile.ZipFile(path)
            self._stream = archive.open(f"{name}.npy")
            version = np.lib.format.read_magic(self._stream)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            self.shape, self._is_fortran, self._stored_dtype = read_header(self._stream)
            if not self._stored_dtype.hasobject:
                # Checked before reading, because a header may declare any size.
                stored_bytes = archive.getinfo(f"{name}.npy").file_size - self._stream.tell()
                _check_size(name, self.shape, self._stored_dtype, stored_bytes)
        except (*_BROKEN, OSError) as err:
            raise _broken(path, err) from err
        if self._stored_dtype.hasobject:
            msg = f"{path} holds Python objects in {name!r}"
            raise InputFileError(msg, hint="save plain numeric arrays, because paritygate reads no pickles")
        self.dtype = self._stored_dtype.newbyteorder("=")
        self._rest: NDArray[np.generic] | None = None

    @property
    def rows(self) -> int | None:
        """Return the size of axis 0; None for a scalar."""
        return self.shape[0] if self.shape else None

    def take(self, rows: int | None) -> NDArray[np.generic]:
        """Return the next `rows` rows, or the whole array for None."""
        if rows is None or self._is_fortran or not self.shape:
            return self._take_whole(rows)
        return self._read((rows, *self.shape[1:]))

    def _take_whole(self, rows: int | None) -> NDArray[np.generic]:
        if self._rest is None:
            if self._is_fortran:
                self._rest = self._read(self.shape[::-1]).transpose()
            else:
                self._rest = self._read(self.shape)
        if rows is None or not self.shape:
            return self._rest
        taken, self._rest = self._rest[:rows], self._rest[rows:]
        return np.ascontiguousarray(taken)

    def _read(self, shape: tuple[int, ...]) -> NDArray[np.generic]:
        size = math.prod(shape) * self._stored_dtype.itemsize
        content = bytearray()
        try:
            while len(content) < size:
                part = self._stream.read(size - len(content))
                if not part:
                    raise ValueError(f"the array ends after {len(content)} of {size} bytes")
                content += part
            return np.frombuffer(content, dtype=self._stored_dtype).reshape(shape).astype(self.dtype, copy=False)
        except (*_BROKEN, OSError) as err:
            raise _broken(self._path, err) from err
