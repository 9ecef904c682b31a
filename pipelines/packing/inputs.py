"""Collect the inputs of a run outside its folder: the files that its spec names, and the code beside it.

Every input gets a place below one folder. Inputs below the spec's folder keep their place; others go to
`outside/<role>/`, and the packed spec names them there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.file_names import path_below
from paritygate.files import MARKER, digest_of_file
from paritygate.importing import is_object_path
from paritygate.models.digest import digest_of_model, files_of_model
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.packing.contents import files_in
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording

OUTSIDE = "outside"
_PACKAGE = "paritygate"
# More belongs to a home folder or a whole checkout, not to one spec.
_MOST_MODULES = 2000
_MOST_CODE_BYTES = 64 << 20
_ENVIRONMENT = "pyvenv.cfg"
_NO_CODE = frozenset({"__pycache__", "site-packages", "node_modules", "artifacts"})
_OWN_FOLDER = "put the spec and its modules into a folder of their own, or leave its files out with --without-inputs"


class RunInputs(Struct, frozen=True, kw_only=True):
    """The inputs of a run.

    - `files`: paths by their place in the pack. `samples`: the place of samples from the command line, or None.
    - `texts`: new texts of the spec, by `(part, key)`.
    - `names`: by place, the spec's names for inputs elsewhere, relative to its folder or absolute.
    - `modules`: imported modules that are not beside the spec.
    """

    files: Mapping[str, Path]
    texts: Mapping[tuple[str, str], str]
    samples: str | None
    names: Mapping[str, str]
    modules: tuple[str, ...]


def inputs_of(run: RunFolder) -> RunInputs:
    """Return the inputs of a run.

    Raises:
        InputFileError: One is missing.
        ArtifactIntegrityError: The source's code is not what the reference was recorded from.
        UsageError: The spec's folder holds more code than belongs to a spec.
    """
    gathering = _Gathering(folder=Path(os.path.normpath(run.resolved.folder)))
    spec = run.resolved.spec
    _gather_source(gathering, run.resolved.source)
    for name in spec.model.files:
        place = os.path.relpath(gathering.folder / name, gathering.folder)
        gathering.add(place, path_below(gathering.folder, place))
    samples_path = None if run.samples_path is None else Path(run.samples_path)
    # Generated samples have no file.
    if spec.samples.random is None:
        _gather_samples(gathering, "samples", spec.samples.source, spec.samples.path, samples_path)
    if run.resolved.calibrated and spec.calibration.source is not None:
        _gather_samples(gathering, "calibration", spec.calibration.source, spec.calibration.path, None)
    for rule in run.resolved.gold:
        if rule.is_function:
            gathering.add_module(rule.metric)
    if gathering.has_code:
        _gather_code(gathering)
    _gather_recorded(gathering, run)
    _gather_origin(gathering, run)
    samples = None if samples_path is None else gathering.add_path(samples_path, "given")
    return RunInputs(
        files=dict(sorted(gathering.files.items())),
        texts=dict(gathering.texts),
        samples=samples,
        names={place: gathering.name_of(place) for place in gathering.files},
        modules=tuple(sorted(gathering.modules)),
    )


class _Gathering(Struct, kw_only=True):
    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    absolute: set[str] = field(default_factory=set)
    has_code: bool = False

    def place(self, path: Path, role: str) -> str:
        """Return the place of a file or folder."""
        whole = Path(os.path.normpath(path))
        if whole.is_relative_to(self.folder) and whole != self.folder:
            return whole.relative_to(self.folder).as_posix()
        return f"{OUTSIDE}/{role}/{whole.name}"

    def add(self, place: str, path: Path) -> None:
        """Add one file; raise InputFileError if it is missing, and UsageError if another file has its place."""
        if not path.is_file():
            msg = f"{path}, which the run needs, is {'not a file' if path.exists() else 'missing'}"
            raise InputFileError(msg, hint="put it back, or leave the run's inputs out with --without-inputs")
        before = self.files.setdefault(place, path)
        if not before.samefile(path):
            msg = f"{path} and {before} would both go to {place!r}"
            raise UsageError(msg, hint="rename one of them, or leave the run's inputs out with --without-inputs")

    def add_path(self, path: Path, role: str) -> str:
        """Add a file, or a folder with all that is below it, and return its place."""
        place = self.place(path, role)
        if path.is_dir():
            for name, file in files_in(path).items():
                self.add(f"{place}/{name}", file)
        else:
            self.add(place, path)
        return place

    def add_text(self, part: str, key: str, text: str) -> None:
        """Add a path of the spec, and store the new text if its place differs."""
        role = part if key == "source" else f"{part}-{key}"
        if Path(text).is_absolute():
            self.absolute.add(role)
        place = self.add_path(self.folder / text, role)
        if os.path.normpath(text) != place:
            self.texts[part, key] = place

    def name_of(self, place: str) -> str:
        """Return the spec's name for a place: relative to its folder, or absolute."""
        whole = os.path.normpath(self.files[place])
        if Path(whole).is_relative_to(self.folder):
            return place
        return whole if place.split("/")[1] in self.absolute else os.path.relpath(whole, self.folder)

    def add_module(self, text: str) -> None:
        """Record the module of a `module:callable`: code beside the spec, or a module to install."""
        root = text.partition(":")[0].partition(".")[0]
        if root == _PACKAGE:
            return
        if (self.folder / f"{root}.py").is_file() or (self.folder / root).is_dir():
            self.has_code = True
        else:
            self.modules.add(root)


def _gather_source(found: _Gathering, source: ModelRef) -> None:
    if source.kind is SourceKind.CALLABLE:
        found.add_module(source.text)
        return
    found.add_text("model", "source", source.text)
    if source.path.is_file():
        beside = Path(found.place(source.path, "model")).parent
        for path in (path for name, path in files_of_model(source).items() if name != "model"):
            found.add((beside / path.relative_to(source.path.parent)).as_posix(), path)


def _gather_samples(found: _Gathering, part: str, text: str, path: str | None, given: Path | None) -> None:
    if not is_object_path(text) or (found.folder / text).exists():
        # Samples of the command line replace those of the spec.
        if given is None:
            found.add_text(part, "source", text)
        return
    found.add_module(text)
    if path is not None and given is None:
        found.add_text(part, "path", path)


def _gather_code(found: _Gathering) -> None:
    """Add every Python file below the spec's folder, because late imports are unknown; refuse too many."""
    total = 0
    for count, path in enumerate(_python_files(found.folder), start=1):
        total += path.stat().st_size
        if count > _MOST_MODULES or total > _MOST_CODE_BYTES:
            msg = (
                f"{found.folder} holds more than {_MOST_MODULES} Python files or {_MOST_CODE_BYTES >> 20} MiB of them: "
                "more than the code of one spec"
            )
            raise UsageError(msg, hint=_OWN_FOLDER)
        found.add(path.relative_to(found.folder).as_posix(), path)


def _python_files(folder: Path) -> Iterable[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _may_hold_code(Path(parent) / name))
        yield from (Path(parent) / name for name in sorted(names) if name.endswith(".py"))


def _may_hold_code(folder: Path) -> bool:
    if folder.name in _NO_CODE or folder.name.startswith("."):
        return False
    # Runs hold copies of code, and environments hold other people's.
    return not any((folder / name).exists() for name in (MARKER, _ENVIRONMENT))


def _gather_recorded(found: _Gathering, run: RunFolder) -> None:
    """Add the code files of the recorded source, because a release of the source copies them."""
    if not (run.reference / RECORD_FILE).is_file():
        return
    model = Recording.load(run.reference).model
    for name, digest in model.get("files", {}).items():
        path = path_below(found.folder, name)
        found.add(name, path)
        if digest_of_file(path) != digest:
            raise _changed(path)
    source = run.resolved.source
    if source.kind is not SourceKind.CALLABLE and digest_of_model(source) != model.get("digest"):
        raise _changed(source.path)


def _changed(path: Path) -> ArtifactIntegrityError:
    return ArtifactIntegrityError(
        f"the source differs from that of the recorded reference: {path} was changed",
        hint="start a new run",
        command="convert-and-validate run SPEC",
    )


def _gather_origin(found: _Gathering, run: RunFolder) -> None:
    origin = Path(run.resolved.origin)
    if origin.suffix and (found.folder / origin.name).is_file():
        # The report's command to repeat the run names it.
        found.add(origin.name, found.folder / origin.name)


def moved_spec(spec: Mapping[str, Any], texts: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return a spec as JSON data with the new texts."""
    moved = {**spec}
    for (part, key), text in texts.items():
        moved[part] = {**moved[part], key: text}
    return moved
