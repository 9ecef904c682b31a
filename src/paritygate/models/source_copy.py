"""Store a `module:callable` as an artifact: its name, and copies of the files that its code was imported from.

`source.json` describes it, and `code/` holds the files as they were beside the spec. The copy is loaded.
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
from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError
from paritygate.file_names import check_names
from paritygate.files import corrupt_errors, digest_of_file, read_json, write_json_atomically
from paritygate.importing import file_of_module, is_object_path, is_ours
from paritygate.models.digest import digest_of_parameters
from paritygate.models.source import ModelRef, SourceKind, load_source_object, source_files

SOURCE_FILE = "source.json"
CODE_FOLDER = "code"
_AGAIN = "make it again with: convert-and-validate export"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceCopy:
    """The content of `source.json`."""

    text: str  # module:callable
    kind: SourceKind  # of the model that it returns
    digest: str  # of the parameters that it returned
    rename: Mapping[str, str]  # the name served, by the model's own
    files: Mapping[str, str]  # digests of imported modules and files that they read, by path in code/

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
    """Copy a loaded source into an artifact's folder.

    `declared_files` are files that the code reads, relative to the source's folder. `rename` has the name served by the
    model's own.

    Raises:
        UsageError: A declared file is outside of the source's folder, or its name is not allowed.
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
    data = {"executes_code": True, **to_data(copy)}
    write_json_atomically(folder / SOURCE_FILE, dict(sorted(data.items())))
    return copy


def read_source_copy(folder: Path) -> SourceCopy:
    """Return `source.json` of an artifact's folder.

    Raises:
        InputFileError: It is missing or corrupt, or names files outside of the code's folder.
    """
    path = folder / SOURCE_FILE
    with corrupt_errors(path, OSError, hint=_AGAIN):
        data = read_json(path)
        check_names(data["files"])
        if not is_object_path(data["text"]):
            msg = f"{data['text']!r} is not a module:callable"
            raise ValueError(msg)
        return SourceCopy(
            text=str(data["text"]),
            kind=SourceKind(data["kind"]),
            digest=str(data["digest"]),
            rename=dict(data["rename"]),
            files=dict(data["files"]),
        )


def is_source_copy(source: ModelRef) -> bool:
    """Return whether the source is the copy in an artifact, whose `code/` is next to `source.json`."""
    place = source.folder.parent
    is_code = source.kind is SourceKind.CALLABLE and source.folder.name == CODE_FOLDER
    return is_code and (place / SOURCE_FILE).is_file() and (place / ARTIFACT_FILE).is_file()


def load_source_copy(source: ModelRef) -> tuple[ModelRef, Any]:
    """Return the source with its kind, and the model that the copied code makes.

    Raises:
        ArtifactIntegrityError: Its parameters differ from the recorded ones, or its code came from elsewhere.
        UsageError: The callable is not found.
        InputFileError: `source.json` is corrupt.
    """
    copy = read_source_copy(source.folder.parent)
    with _own_modules(copy, source.folder):
        loaded_ref, model = load_source_object(source)
        for name, file in _imported_elsewhere(copy, source.folder).items():
            msg = f"module {name!r} of {copy.text} was imported from {file}, not from the copy in {source.folder}"
            raise ArtifactIntegrityError(msg, hint=_AGAIN)
    digest = digest_of_parameters(loaded_ref.kind, model)
    if digest != copy.digest:
        msg = f"the copy of {source.text} in {source.folder} has parameters ({digest}) that differ from those recorded"
        hint = f"{_AGAIN}; a callable must return the same model every time; name its files in model.files"
        raise ArtifactIntegrityError(msg, hint=hint)
    return loaded_ref, model


@contextmanager
def _own_modules(copy: SourceCopy, folder: Path) -> Iterator[None]:
    """Import the copied modules from the copy, even if they were imported from elsewhere already.

    The samples may come from the same module as the model. Their module is put back, so that it finds its own files.
    """
    # Bytecode in the artifact would differ from the recorded files. Modules may be imported as late as the model
    # runs, so this stays.
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
        # Last, because the model may import more later, while the samples' modules are found where they were.
        sys.path[:] = [*path, str(folder.resolve())]


def _put_back(before: Mapping[str, ModuleType], roots: Iterable[str]) -> None:
    taken = set(roots)
    for name in [name for name in sys.modules if name.partition(".")[0] in taken]:
        del sys.modules[name]
    sys.modules.update(before)


def _imported_elsewhere(copy: SourceCopy, folder: Path) -> dict[str, Path]:
    """Return by module the files that are imported from elsewhere although the copy holds them.

    The file of module `a.b` is in the copy if a copied path ends the file's path and has at least `a/b.py`. So files of
    other packages called `b.py` do not count.
    """
    root = folder.resolve()
    files: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        path = file_of_module(module)
        if path is None or path.is_relative_to(root) or is_ours(path):
            continue
        own_name = getattr(getattr(module, "__spec__", None), "name", name)
        shortest = own_name.count(".") + (2 if hasattr(module, "__path__") else 1)
        ends = ("/".join(path.parts[-length:]) for length in range(shortest, len(path.parts)))
        if any(end in copy.files for end in ends):
            files[name] = path
    return files
