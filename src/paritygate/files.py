"""Write to disk so that a crash at any point leaves the old state or the new one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec

from paritygate.errors import InputFileError, ParitygateError, StorageError, UsageError
from paritygate.utf8 import is_utf8

# Only folders with this file are ever deleted.
MARKER = ".paritygate-folder"
_BUFFER_BYTES = 1 << 18
# Digests of files that this process has read, by the identity of the file.
_DIGESTS: dict[tuple[int, ...], str] = {}
# Longer than the time steps of file systems, which are two seconds on FAT.
_TIME_STEP_NS = 2_100_000_000
# The most digits shown of a refused number.
_NUMBER_SHOWN = 20
# Only programs read a longer list.
_LONG_LIST = 1000
_UNWRITABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.EFBIG,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


# These are errors of writing, whatever the file.
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_TOO_LARGE = errno.EFBIG
_OTHER_ROOT = "choose another place with --root"
_OTHER_TEMPORARY = "set TMPDIR to a folder with more space"
# The prefix of temporary folders.
_TEMPORARY = "paritygate-"
# Reading a pipe would wait, and a device may have no end.
_NO_FILE = "a pipe, a socket or a device, not a file"


@contextlib.contextmanager
def storage_errors(path: Path, *, runs_other_code: bool = False, elsewhere: str = "") -> Iterator[None]:
    """Turn an operating-system error on writing `path` into a `StorageError`; `elsewhere` is a hint on another place.

    With `runs_other_code`, other code such as a framework runs too. Then only an error that names a path below `path`,
    or that reading never causes, is an error of writing.

    Raises:
        StorageError: The disk is full, or `path` cannot be written.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as err:
        if err.errno in _NO_SPACE:
            msg = f"the disk is full: {path} could not be written"
            raise StorageError(msg, hint=f"free space there, or {elsewhere or _elsewhere_of(path)}") from err
        is_ours = not runs_other_code or err.errno == _TOO_LARGE or _names_below(err, path)
        if err.errno in _UNWRITABLE and is_ours:
            msg = f"{path} could not be written: {err.strerror}"
            raise StorageError(msg, hint=f"check the permissions, or {elsewhere or _elsewhere_of(path)}") from err
        raise


def _elsewhere_of(path: Path) -> str:
    import tempfile

    is_temporary = str(path.absolute()).startswith(str(Path(tempfile.gettempdir(), _TEMPORARY)))
    return _OTHER_TEMPORARY if is_temporary else _OTHER_ROOT


@contextlib.contextmanager
def corrupt_errors(
    what: object,
    *also: type[Exception],
    kind: type[ParitygateError] = InputFileError,
    hint: str = "",
    command: str = "",
) -> Iterator[None]:
    """Turn an error on data of another shape, and errors of the kinds `also`, into one that `what` is corrupt."""
    kinds: tuple[type[Exception], ...] = (ValueError, KeyError, TypeError, *also)
    try:
        yield
    except kinds as err:
        reason = str(err) if type(err) is ValueError else f"{type(err).__name__}: {err}"
        raise kind(f"{what} is corrupt: {reason}", hint=hint, command=command) from err


@contextlib.contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Make an empty temporary folder with `what` in its name, and remove it in the end."""
    folder = make_temporary_folder(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_temporary_folder(what: str) -> Path:
    """Make an empty temporary folder with `what` in its name, which stays; raise StorageError if that fails."""
    import tempfile

    try:
        return Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{what}-"))
    except OSError as err:
        # Python also tries the usual places, and then the current directory.
        msg = f"no folder for temporary files can be written to: {err.strerror}"
        raise StorageError(msg, hint="set TMPDIR to a folder that you can write to") from err


def _names_below(err: OSError, folder: Path) -> bool:
    named = err.filename
    return isinstance(named, str | Path) and Path(named).absolute().is_relative_to(folder.absolute())


def digest_of_file(path: str | Path, note: Callable[[int], None] | None = None) -> str:
    """Return `sha256:` and the hex digest of the file's bytes; `note` gets the sizes of the parts that are read.

    A file is not read again while device, inode, size, and both times of its last change are the same. Only the kernel
    sets the second time.

    Raises:
        OSError: It cannot be read, or is not a plain file.
    """
    found = os.stat(path)  # noqa: PTH116 - the cache asks for thousands of files by their texts
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    known = _DIGESTS.get(_identity(found))
    if known is not None:
        return known
    with open(path, "rb") as stream:  # noqa: PTH123 - as above
        identity, begin = _identity(os.fstat(stream.fileno())), time.time_ns()
        digest = f"sha256:{_sha256(stream, note)}"
        # Another change right after the last one may leave the same time.
        if begin - identity[-1] > _TIME_STEP_NS and _identity(os.fstat(stream.fileno())) == identity:
            _DIGESTS[identity] = digest
    return digest


def note_digest(path: Path, digest: str) -> None:
    """Note the digest of a file that only this process writes, however recently it did."""
    _DIGESTS[_identity(path.stat())] = digest


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _sha256(stream: BufferedReader, note: Callable[[int], None] | None) -> str:
    state = hashlib.sha256()
    # One buffer for all parts, which stays in the cache of the processor.
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    while size := stream.readinto(buffer):
        state.update(buffer[:size])
        if note is not None:
            note(size)
    return state.hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """Return `sha256:` and the hex digest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of_json(data: Any) -> str:  # noqa: ANN401 - any JSON data
    """Return the digest of JSON data, the same for equal data whatever the order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def digest_of_files(digests: Mapping[str, str]) -> str:
    """Return one digest over many files, given the digest of each by its relative path."""
    return digest_of_json(dict(digests))


def sync_folder(folder: Path) -> None:
    """Force the entries of `folder`, not their content, to the disk; of a file, its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Force every file and folder below `folder`, and `folder` itself, to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_folder(Path(parent) / name)
        sync_folder(Path(parent))


def write_bytes_atomically(path: Path, content: bytes, *, elsewhere: str = "") -> None:
    """Write `content` to `path` by a temporary name, fsync and rename; raise errors as `storage_errors`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with storage_errors(path, elsewhere=elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_json_atomically(path: Path, data: Any, *, elsewhere: str = "") -> None:  # noqa: ANN401 - any JSON data
    """Write JSON data to `path` as `json_bytes` formats them; raise errors as `storage_errors`."""
    write_bytes_atomically(path, json_bytes(data), elsewhere=elsewhere)


def json_bytes(data: Any) -> bytes:  # noqa: ANN401 - any JSON data
    """Return JSON data for a file: keys in the order given, indented unless it holds a very long list.

    Raises:
        ValueError: `data` holds NaN or infinity, which JSON lacks.
    """
    # Python is many times slower where it indents. No person reads figures of fifty thousand channels.
    content = json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    return (content if _has_long_list(data) else msgspec.json.format(content, indent=2)) + b"\n"


def _has_long_list(data: Any) -> bool:  # noqa: ANN401 - any JSON data
    if isinstance(data, dict):
        return any(map(_has_long_list, data.values()))
    return isinstance(data, (list, tuple)) and (len(data) > _LONG_LIST or any(map(_has_long_list, data)))


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON data
    """Return the JSON data in `path`.

    Raises:
        ValueError: It is not JSON, nested too deeply, or holds half a surrogate pair, NaN, or more than float64 does.
    """
    return json_of(path.read_text(encoding="utf-8"))


def json_of(text: str) -> Any:  # noqa: ANN401 - any JSON data
    """Return the JSON data of a text; raise errors as `read_json`."""
    data = parse_json(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    if "\\ud" in text.lower():
        json.dumps(data, ensure_ascii=False).encode()
    return data


def parse_json(text: str | bytes, **options: Any) -> Any:  # noqa: ANN401 - as json.loads
    """Return `json.loads` of a text from elsewhere; raise ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text, **options)
    except RecursionError as err:
        raise ValueError("its data is nested too deeply") from err


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_NUMBER_SHOWN]}{'...' if len(text) > _NUMBER_SHOWN else ''} is not a finite number")
    return number


def make_marked_folder(folder: Path) -> Path:
    """Create `folder`, which must not exist or be empty, and mark it as ours to delete.

    Raises:
        StorageError: It cannot be written.
        UsageError: It holds files that are not ours.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / MARKER).exists():
            msg = f"{folder} exists and was not made by paritygate, so it is not changed"
            raise UsageError(msg, hint="name a folder that does not exist")
        (folder / MARKER).touch()
    return folder


def remove_marked_folder(folder: Path) -> None:
    """Delete `folder` and its content, if it is ours; do nothing if it does not exist.

    The marker goes last, so that the rest after an interruption can still be deleted. StorageError is raised without
    it.
    """
    if not folder.exists():
        return
    check_marked_folder(folder)
    with storage_errors(folder):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != MARKER:
                path.unlink()
        shutil.rmtree(folder)


def is_plain_file(path: Path) -> bool:
    """Return whether a file is there, and is not a link."""
    return path.is_file() and not path.is_symlink()


def is_plain_folder(path: Path) -> bool:
    """Return whether a folder is there, and is not a link."""
    return path.is_dir() and not path.is_symlink()


def listed(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder; nothing if it is none, or another process has just removed it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from folder.iterdir()


def check_marked_folder(folder: Path) -> None:
    """Raise StorageError if a folder has no marker file, so that it is not ours to delete."""
    if not is_plain_folder(folder) or not is_plain_file(folder / MARKER):
        msg = f"{folder} has no {MARKER} file, so paritygate does not delete it"
        raise StorageError(msg, hint="remove the folder by hand if nobody needs it")


def files_below(folder: Path) -> Iterable[Path]:
    """Yield every file below `folder` in a fixed order, without our own marker.

    Raises:
        StorageError: A link leads out of the folder, to a folder or to nothing, or a file is not plain or its name not
            UTF-8.
    """
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and path.is_dir():
            msg = f"{path} is a link to a folder, whose files would be left out"
            raise StorageError(msg, hint="replace the link by the folder it points to")
        if path.is_dir() or path.name == MARKER:
            continue
        if not is_utf8(path.name):
            raise StorageError(f"the name of {path} is not UTF-8, so it cannot be recorded", hint="rename it")
        if not path.resolve().is_relative_to(root):
            msg = f"{path} is a link to a place outside {folder}"
            raise StorageError(msg, hint="replace the link by the file it points to")
        if not path.is_file():
            what = "a link to nothing" if path.is_symlink() else _NO_FILE
            raise StorageError(f"{path} is {what}", hint="remove it")
        yield path
