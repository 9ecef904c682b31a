"""A `module:callable` as an artifact: its name, and copies of the files that its code came from.

`source.json` says what it is, `code/` holds the files as they lay beside the spec. What is loaded is the copy.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from paritygate.artifact import ARTIFACT_FILE
from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.files import digest_of_file, read_json, write_json_atomically
from paritygate.parameters_digest import digest_of_parameters
from paritygate.source import Source, SourceKind, load_source_object, user_files

__all__ = [
    "CODE_FOLDER",
    "SOURCE_FILE",
    "SourceCopy",
    "is_source_copy",
    "load_source_copy",
    "read_source_copy",
    "write_source_copy",
]

SOURCE_FILE = "source.json"
CODE_FOLDER = "code"
_AGAIN = "make it again with: convert-and-validate export"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceCopy:
    """What `source.json` says.

    Attributes:
        text: `module:callable`.
        kind: The kind of model that it returns.
        digest: Over the parameters that it returned.
        rename: The name served, by the model's own.
        modules: File of each imported module that was copied, relative to the code's folder.
        files: Digest of each file copied, by relative path: modules, and what else the code reads.
    """

    text: str
    kind: SourceKind
    digest: str
    rename: Mapping[str, str]
    modules: Mapping[str, str]
    files: Mapping[str, str]

    def source_in(self, folder: Path) -> Source:
        """Return the copy in the artifact's folder as a source."""
        return Source(text=self.text, folder=folder / CODE_FOLDER, kind=SourceKind.CALLABLE)


def write_source_copy(
    folder: Path,
    source: Source,
    model: Any,  # noqa: ANN401 - whatever the user's callable returned
    rename: Mapping[str, str],
    declared_files: Iterable[str],
) -> SourceCopy:
    """Copy a source that has been loaded into an artifact's folder.

    Args:
        folder: The folder to write into.
        source: The source, its kind known.
        model: What its callable returned.
        rename: The name served, by the model's own.
        declared_files: Files that the code reads, relative to the source's folder: only the user knows them.
    """
    root = source.folder.resolve()
    modules = {name: path.relative_to(root).as_posix() for name, path in user_files(root).items()}
    names = sorted(
        {*modules.values(), *((root / name).resolve().relative_to(root).as_posix() for name in declared_files)}
    )
    for name in names:
        target = folder / CODE_FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target)
    copy = SourceCopy(
        text=source.text,
        kind=source.kind,
        digest=digest_of_parameters(source.kind, model),
        rename=dict(rename),
        modules=modules,
        files={name: digest_of_file(folder / CODE_FOLDER / name) for name in names},
    )
    data = {
        "digest": copy.digest,
        "executes_code": True,
        "files": dict(copy.files),
        "kind": str(copy.kind),
        "modules": dict(copy.modules),
        "rename": dict(copy.rename),
        "text": copy.text,
    }
    write_json_atomically(folder / SOURCE_FILE, data)
    return copy


def read_source_copy(folder: Path) -> SourceCopy:
    """Return what `source.json` in an artifact's folder says.

    Raises:
        InputFileError: It is missing or damaged.
    """
    path = folder / SOURCE_FILE
    try:
        data = read_json(path)
        return SourceCopy(
            text=str(data["text"]),
            kind=SourceKind(data["kind"]),
            digest=str(data["digest"]),
            rename=dict(data["rename"]),
            modules=dict(data["modules"]),
            files=dict(data["files"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as err:
        msg = f"{path} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint=_AGAIN) from err


def is_source_copy(source: Source) -> bool:
    """Return whether the source is the copy in an artifact: its code's folder lies beside `source.json` there."""
    place = source.folder.parent
    is_code = source.kind is SourceKind.CALLABLE and source.folder.name == CODE_FOLDER
    return is_code and (place / SOURCE_FILE).is_file() and (place / ARTIFACT_FILE).is_file()


def load_source_copy(source: Source) -> tuple[Source, Any]:
    """Return the source with its kind, and the model that the copied code makes.

    Raises:
        ArtifactIntegrityError: Its parameters are not those that were recorded, or its code came from elsewhere.
        UsageError: The callable is not found.
        InputFileError: `source.json` is damaged.
    """
    copy = read_source_copy(source.folder.parent)
    with _own_modules(copy, source.folder):
        found, model = load_source_object(source)
        _check_places(copy, source.folder)
    digest = digest_of_parameters(found.kind, model)
    if digest != copy.digest:
        msg = f"the copy of {source.text} in {source.folder} makes other parameters ({digest}) than those recorded"
        hint = f"{_AGAIN}; a callable has to return the same model every time, and model.files to name what it reads"
        raise ArtifactIntegrityError(msg, hint=hint)
    return found, model


@contextmanager
def _own_modules(copy: SourceCopy, folder: Path) -> Iterator[None]:
    """Have modules of the copy's names imported from the copy, though others of these names may be there already.

    The samples may come from the same module as the model: theirs is put back, so that it finds its own files.
    """
    # What Python compiles would lie in the artifact, which then were not what was recorded. Modules may be imported
    # as late as the model runs, so this stays.
    sys.dont_write_bytecode = True
    roots = {name.partition(".")[0] for name in copy.modules}
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in roots}
    path = list(sys.path)
    for name in before:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        _put_back(before, {name.partition(".")[0] for name in before})
        # Last, for what the model imports later: what the samples need is found where it was.
        sys.path[:] = [*path, str(folder.resolve())]


def _put_back(before: Mapping[str, ModuleType], roots: Iterable[str]) -> None:
    taken = set(roots)
    for name in [name for name in sys.modules if name.partition(".")[0] in taken]:
        del sys.modules[name]
    sys.modules.update(before)


def _check_places(copy: SourceCopy, folder: Path) -> None:
    root = folder.resolve()
    for name in copy.modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(root):
            msg = f"module {name!r} of {copy.text} was imported from {file}, not from the copy in {root}"
            raise ArtifactIntegrityError(msg, hint=_AGAIN)
