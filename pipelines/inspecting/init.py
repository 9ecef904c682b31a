"""Write the first spec of a model to a new file, for `init`."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from paritygate.codec import to_data
from paritygate.errors import BackendError, UsageError
from paritygate.files import write_bytes_atomically
from paritygate.importing import is_object_path
from paritygate.models.hugging_face import holds_weights
from paritygate.models.source import ModelRef, SourceKind, is_there, parse_source, with_signature_key
from paritygate.pipelines.inspecting.draft import draft_of
from paritygate.pipelines.inspecting.hugging_face import WeightsModule, module_of_weights
from paritygate.pipelines.inspecting.inspection import Inspection
from paritygate.pipelines.inspecting.naming import GivenName, guessed_name
from paritygate.pipelines.inspecting.survey import BATCH_DIM, ModelSurvey
from paritygate.pipelines.process.child import ChildJob, Progress
from paritygate.pipelines.process.lone_child import result_of_lone_child
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import Spec
from paritygate.validate.samples.source import SampleSource

# Kinds that nothing is converted from.
_MADE = frozenset({SourceKind.OPENVINO, SourceKind.TFLITE, SourceKind.TENSORRT, SourceKind.TENSORRT_RTX})
# With the comment sign, it fits 80 columns.
_COMMENT = 78

_Found = TypeVar("_Found", Inspection, ModelSurvey)


@dataclass(frozen=True, kw_only=True, slots=True)
class InitRequest:
    """A model to write a spec for."""

    model: str  # a path, or `module:callable`
    samples: str | None  # a path, or `module:callable`; None for generated rows
    here: Path  # the base of relative paths
    out: Path  # the file to write
    name: str | None = None  # None to guess it
    signature: str | None = None  # of a SavedModel; None for `serving_default`
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by input; empty to guess
    is_replacing: bool = False  # an existing file

    @property
    def words(self) -> list[str]:
        """The command of this request, without the file to write."""
        words = ["convert-and-validate", "init", self.model]
        for option, value in (("--samples", self.samples), ("--signature", self.signature)):
            words += [option, value] if value else []
        columns = [("--columns", f"{name}={','.join(names)}") for name, names in self.columns.items()]
        return [*words, *itertools.chain.from_iterable(columns)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenSpec:
    """A spec that was written."""

    path: Path
    name: str  # of the model
    targets: tuple[str, ...]
    guesses: tuple[str, ...]  # one line each
    notes: tuple[str, ...]  # other facts for the user
    rows: int  # of the samples
    min_rows: int  # fewer are inconclusive
    is_random: bool
    next_command: str


def inspect_model(
    model: str, samples: str | None, *, here: Path, time_limit_s: float, progress: Progress
) -> Inspection:
    """Return the facts on a model: a path, or `module:callable`, both relative to `here`.

    `samples` are rows for a model that does not declare its inputs.

    Raises:
        ParitygateError: The model, or the samples, cannot be read.
    """
    ref = parse_source(model, here)
    source = None if samples is None else SampleSource(text=samples, folder=here, batch_size=BATCH_DIM.opt)
    return _child(Inspection, ref, source, time_limit_s=time_limit_s, progress=progress)


def write_spec(request: InitRequest, *, time_limit_s: float, progress: Progress) -> WrittenSpec:
    """Write a first spec of a model, whole or not at all.

    Raises:
        UsageError: The file exists, nothing is converted from such a model, or the samples do not fit it.
        InputFileError: The model or the samples cannot be read.
        BackendError: The model fails on the samples.
        StorageError: The file cannot be written.
    """
    if request.columns and request.samples is None:
        msg = "--columns names columns of a table, but there are no samples"
        raise UsageError(msg, hint="add the table: --samples rows.csv")
    out = request.here / request.out
    folder = out.parent.resolve()
    _check_free(request)
    if holds_weights(request.here / request.model):
        return _write_of_weights(request, out, folder, time_limit_s=time_limit_s, progress=progress)
    source, samples = (_beside(text, request.here, folder) for text in (request.model, request.samples))
    assert source is not None  # noqa: S101 - a model was named
    read = None if samples is None else SampleSource(text=samples, folder=folder, batch_size=BATCH_DIM.opt)
    return _write(_Sources(model=source, samples=read), request, out, time_limit_s=time_limit_s, progress=progress)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sources:
    """A model and its samples as the spec names them, with the other keys of both."""

    model: str
    samples: SampleSource | None
    files: tuple[str, ...] = ()
    path: str | None = None
    note: str = ""


def _write_of_weights(
    request: InitRequest, out: Path, folder: Path, *, time_limit_s: float, progress: Progress
) -> WrittenSpec:
    """Write the spec of a folder of weights, and the module that loads it; neither, if the model fails."""
    samples = None if request.samples is None else request.here / request.samples
    made = module_of_weights(request.here / request.model, folder, samples if samples and samples.exists() else None)
    if not request.is_replacing:
        made = _beside_others(made, folder)
    file = folder / f"{made.name}.py"
    before = file.read_bytes() if file.is_file() else None
    write_bytes_atomically(file, made.text.encode(), elsewhere="name another file with --out")
    text = _beside(request.samples, request.here, folder)
    read = None if text is None else SampleSource(text=text, folder=folder, batch_size=BATCH_DIM.opt)
    if made.columns and text is not None and read is not None:
        read = replace(read, text=f"{made.name}:rows", path=str((folder / text).resolve()))
    if made.images is not None and read is not None:
        read = replace(read, images=made.images)
    sources = _Sources(
        model=f"{made.name}:load", samples=read, files=made.files, path=text if made.columns else None, note=made.note
    )
    try:
        return _write(sources, request, out, time_limit_s=time_limit_s, progress=progress)
    except BaseException:
        if before is None:
            file.unlink(missing_ok=True)
        else:
            write_bytes_atomically(file, before)
        raise


def _write(
    sources: _Sources, request: InitRequest, out: Path, *, time_limit_s: float, progress: Progress
) -> WrittenSpec:
    folder = out.parent.resolve()
    ref = with_signature_key(parse_source(sources.model, folder), request.signature, "--signature")
    if ref.kind in _MADE:
        msg = f"{request.model} is a model of kind {str(ref.kind)!r}, from which nothing can be converted"
        raise UsageError(msg, hint="name the trained model; to compare two models use compare")
    survey = _child(
        ModelSurvey,
        ref,
        # In a run's batches.
        None if sources.samples is None else replace(sources.samples, columns=request.columns),
        time_limit_s=time_limit_s,
        progress=progress,
    )
    named = guessed_name(request.model) if request.name is None else GivenName(name=request.name)
    samples = None if sources.samples is None else sources.samples.text
    draft = draft_of(survey, named=named, source=sources.model, samples=samples, signature=request.signature)
    if sources.files:
        draft.data["model"]["files"] = list(sources.files)
    if sources.note:
        draft.notes.append(f"model.source: {sources.note}")
    if sources.path is not None:
        draft.data["samples"]["path"] = sources.path
    run = shlex.join(["convert-and-validate", "run", str(request.out)])
    text = draft.text(
        *_with_command("Written by:", shlex.join(request.words)),
        "What is marked guess may be wrong: look at it, and correct it. All keys are in docs/spec.md.",
        *_with_command("Then:", run),
    )
    spec = parse_spec(text, folder=folder, origin=str(request.out)).spec
    if spec != Spec.model_validate(draft.data):
        msg = f"the spec of {request.model} differs when read again: {text!r}"
        raise BackendError(msg, hint="write the spec by hand as in docs/spec.md, and report this")
    write_bytes_atomically(out, text.encode(), elsewhere="name another file with --out")
    return WrittenSpec(
        path=request.out,
        name=named.name,
        targets=tuple(draft.data["targets"]),
        guesses=tuple(draft.guesses),
        notes=tuple(draft.notes),
        rows=survey.rows,
        min_rows=spec.min_rows,
        is_random=survey.random is not None,
        next_command=run,
    )


def _with_command(words: str, command: str) -> list[str]:
    """Return lines of a comment that end with a command, on its own line if it is long."""
    line = f"{words} {command}"
    return [line] if len(line) <= _COMMENT else [words, f"  {command}"]


def _check_free(request: InitRequest) -> None:
    """Raise a UsageError if the file is there, with a command that writes another one."""
    out = request.here / request.out
    if not is_there(out) or (request.is_replacing and not out.is_dir()):
        return
    names = (request.out.with_stem(f"{request.out.stem}-{number}") for number in itertools.count(2))
    free = next(name for name in names if not is_there(request.here / name))
    words = [*request.words, *(["--name", request.name] if request.name else []), "--out", str(free)]
    msg = f"{request.out} exists, so init does not replace it"
    advice = "write another file" if out.is_dir() else "add --force to replace it, or write another file"
    raise UsageError(msg, hint=advice, command=shlex.join(words))


def _beside_others(made: WeightsModule, folder: Path) -> WeightsModule:
    """Return the module by the first name that no other module has; one with the same code is used again."""
    code = made.text.encode()
    names = itertools.chain([made.name], (f"{made.name}_{number}" for number in itertools.count(2)))
    files = ((name, folder / f"{name}.py") for name in names)
    free = next(name for name, file in files if not is_there(file) or (file.is_file() and file.read_bytes() == code))
    return replace(made, name=free)


def _beside(text: str | None, here: Path, folder: Path) -> str | None:
    """Return a path relative to the spec's folder; a `module:callable`, which is found there, stays."""
    if text is None or (is_object_path(text) and not is_there(here / text)):
        return text
    return text if Path(text).is_absolute() else os.path.relpath((here / text).resolve(), folder)


def _child(
    kind: type[_Found], ref: ModelRef, samples: SampleSource | None, *, time_limit_s: float, progress: Progress
) -> _Found:
    args = {
        "source": to_data(ref),
        "samples": None if samples is None else to_data(samples),
        "is_surveyed": kind is ModelSurvey,
    }

    def job_in(place: Path) -> ChildJob:
        return ChildJob(
            name="inspect",
            args=args,
            folder=place,
            what=f"the inspection of {ref.text}",
            time_limit_s=time_limit_s,
            is_log_kept=False,
        )

    return result_of_lone_child(kind, job_in, progress)
