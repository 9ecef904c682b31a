"""Arrays in npz files, read row by row, so that memory does not grow with the file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import InputFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NpyStream", "npz_names"]

# Errors that reading a broken archive raises, besides those of the operating system (RuntimeError: encrypted).
_BROKEN = (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, EOFError, KeyError, RuntimeError, zlib.error)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an npz file, in its order.

    Raises:
        InputFileError: The file is missing or no npz file.
    """
    if not path.is_file():
        msg = f"{path} does not exist"
        raise InputFileError(msg, hint="give the path of a .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (*_BROKEN, OSError) as err:
        raise _broken(path, err) from err


def _broken(path: Path, err: BaseException) -> InputFileError:
    reason = (str(err).strip() or type(err).__name__).splitlines()[0]
    return InputFileError(f"{path} cannot be read: {reason}", hint="write the file again with numpy.savez")


class NpyStream:
    """One array in an npz file, read once from its first row to its last.

    Attributes:
        shape: Its shape.
        dtype: Its dtype, in the byte order of this machine whatever that of the file.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        try:
            self._stream = zipfile.ZipFile(path).open(f"{name}.npy")  # noqa: SIM115 - open as long as the array is read
            version = np.lib.format.read_magic(self._stream)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            self.shape, self._is_fortran, self._stored_dtype = read_header(self._stream)
        except (*_BROKEN, OSError) as err:
            raise _broken(path, err) from err
        if self._stored_dtype.hasobject:
            msg = f"{path} holds Python objects in {name!r}"
            raise InputFileError(msg, hint="paritygate reads no pickles: save plain numeric arrays")
        self.dtype = self._stored_dtype.newbyteorder("=")
        self._rest: NDArray[np.generic] | None = None

    @property
    def rows(self) -> int | None:
        """Size of axis 0; None for a scalar."""
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
        size = int(np.prod(shape, dtype=np.int64)) * self._stored_dtype.itemsize
        content = bytearray()
        try:
            while len(content) < size:
                part = self._stream.read(size - len(content))
                if not part:
                    msg = f"the array ends after {len(content)} of {size} bytes"
                    raise ValueError(msg)
                content += part
        except (*_BROKEN, OSError) as err:
            raise _broken(self._path, err) from err
        return np.frombuffer(content, dtype=self._stored_dtype).reshape(shape).astype(self.dtype, copy=False)
