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
from paritygate.file_names import check_names
from paritygate.files import digest_of_file, read_json, write_json_atomically
from paritygate.importing import file_of_module, is_object_path, is_ours
from paritygate.models.digest import digest_of_parameters
from paritygate.models.source import ModelRef, SourceKind, load_source_object, source_files

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
        files: Digest of each file copied, by path relative to the code's folder: what was imported, and what else the
            code reads.
    """

    text: str
    kind: SourceKind
    digest: str
    rename: Mapping[str, str]
    files: Mapping[str, str]

    def source_in(self, folder: Path) -> ModelRef:
        """Return the copy in the artifact's folder as a model that is loaded from there, under the names served."""
        return ModelRef(text=self.text, folder=folder / CODE_FOLDER, kind=SourceKind.CALLABLE, rename=self.rename)


def write_source_copy(
    folder: Path,
    source: ModelRef,
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

    Raises:
        UsageError: A declared file is outside of the source's folder, or a name cannot be kept.
    """
    files = source_files(source, declared_files)
    for name, path in files.items():
        target = folder / CODE_FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    copy = SourceCopy(
        text=source.text,
        kind=source.kind,
        digest=digest_of_parameters(source.kind, model),
        rename=dict(rename),
        files={name: digest_of_file(folder / CODE_FOLDER / name) for name in files},
    )
    data = {
        "digest": copy.digest,
        "executes_code": True,
        "files": dict(copy.files),
        "kind": str(copy.kind),
        "rename": dict(copy.rename),
        "text": copy.text,
    }
    write_json_atomically(folder / SOURCE_FILE, data)
    return copy


def read_source_copy(folder: Path) -> SourceCopy:
    """Return what `source.json` in an artifact's folder says.

    Raises:
        InputFileError: It is missing or damaged, or names what lies outside of the code's folder.
    """
    path = folder / SOURCE_FILE
    try:
        data = read_json(path)
        check_names(data["files"])
        if not is_object_path(data["text"]):
            msg = f"{data['text']!r} is no module:callable"
            raise ValueError(msg)  # noqa: TRY301 - it is corrupt like the others
        return SourceCopy(
            text=str(data["text"]),
            kind=SourceKind(data["kind"]),
            digest=str(data["digest"]),
            rename=dict(data["rename"]),
            files=dict(data["files"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as err:
        msg = f"{path} is corrupt: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint=_AGAIN) from err


def is_source_copy(source: ModelRef) -> bool:
    """Return whether the source is the copy in an artifact: its code's folder lies beside `source.json` there."""
    place = source.folder.parent
    is_code = source.kind is SourceKind.CALLABLE and source.folder.name == CODE_FOLDER
    return is_code and (place / SOURCE_FILE).is_file() and (place / ARTIFACT_FILE).is_file()


def load_source_copy(source: ModelRef) -> tuple[ModelRef, Any]:
    """Return the source with its kind, and the model that the copied code makes.

    Raises:
        ArtifactIntegrityError: Its parameters are not those that were recorded, or its code came from elsewhere.
        UsageError: The callable is not found.
        InputFileError: `source.json` is corrupt.
    """
    copy = read_source_copy(source.folder.parent)
    with _own_modules(copy, source.folder):
        found, model = load_source_object(source)
        for name, file in _imported_elsewhere(copy, source.folder).items():
            msg = f"module {name!r} of {copy.text} was imported from {file}, not from the copy in {source.folder}"
            raise ArtifactIntegrityError(msg, hint=_AGAIN)
    digest = digest_of_parameters(found.kind, model)
    if digest != copy.digest:
        msg = f"the copy of {source.text} in {source.folder} makes other parameters ({digest}) than those recorded"
        hint = f"{_AGAIN}; a callable must return the same model every time; name its files in model.files"
        raise ArtifactIntegrityError(msg, hint=hint)
    return found, model


@contextmanager
def _own_modules(copy: SourceCopy, folder: Path) -> Iterator[None]:
    """Have what the copy holds imported from the copy, though it may have been imported from elsewhere already.

    The samples may come from the same module as the model: theirs is put back, so that it finds its own files.
    """
    # What Python compiles would lie in the artifact, which then were not what was recorded. Modules may be imported
    # as late as the model runs, so this stays.
    sys.dont_write_bytecode = True
    roots = {name.partition(".")[0] for name in _imported_elsewhere(copy, folder)}
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


def _imported_elsewhere(copy: SourceCopy, folder: Path) -> dict[str, Path]:
    """Return by module the files that are imported from elsewhere, though the copy holds them: told by their paths.

    A module called `a.b` takes the last two parts of its path, `a/b.py`: where the copy holds a file whose path is the
    end of it and no shorter, it is that file. What other packages have called `b.py` as well is none of it.
    """
    root = folder.resolve()
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        path = file_of_module(module)
        if path is None or path.is_relative_to(root) or is_ours(path):
            continue
        own_name = getattr(getattr(module, "__spec__", None), "name", name)
        shortest = own_name.count(".") + (2 if hasattr(module, "__path__") else 1)
        ends = ("/".join(path.parts[-length:]) for length in range(shortest, len(path.parts)))
        if any(end in copy.files for end in ends):
            found[name] = path
    return found
