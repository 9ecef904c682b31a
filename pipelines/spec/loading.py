"""Read a spec from a YAML file or from the package, and check it."""

from __future__ import annotations

import importlib.resources
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paritygate.errors import InputFileError, UsageError
from paritygate.importing import is_object_path
from paritygate.models.source import may_be_model
from paritygate.pipelines.spec.checks import check_spec
from paritygate.pipelines.spec.errors import spec_error, words_of
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.pipelines.spec.yaml import MOST_BYTES, load_yaml
from paritygate.text import beside_meant, hint_of_meant
from paritygate.validate.samples.samples import SUFFIXES, SampleSource, open_samples


def packaged_specs() -> tuple[str, ...]:
    """Return the names of the specs that come with the package."""
    folder = importlib.resources.files("paritygate.pipelines") / "specs"
    return tuple(sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")))


def load_spec(text: str) -> ResolvedSpec:
    """Return the spec at a path, or the packaged one of that name.

    Raises:
        InputFileError: There is no such spec.
        UsageError: The spec is wrong.
    """
    path = Path(text)
    _check_is_no_model(str(text))
    if path.exists() or path.suffix:
        return parse_spec(_read_spec(path), folder=path.resolve().parent, origin=str(path))
    packaged = importlib.resources.files("paritygate.pipelines") / "specs" / f"{text}.yaml"
    if text not in packaged_specs():
        hint = hint_of_meant(str(text), packaged_specs(), f"packaged specs are: {', '.join(packaged_specs())}")
        raise InputFileError(f"no file or packaged spec is named {text!r}", hint=hint)
    # A packaged spec names modules, not paths; other paths start from the current directory.
    return parse_spec(packaged.read_text(encoding="utf-8"), folder=Path.cwd(), origin=text)


def _check_is_no_model(text: str) -> None:
    """Refuse a model or samples, with the command that writes a spec of them."""
    if Path(text).suffix in SUFFIXES:
        msg = f"{text} holds samples (expected: a spec, which is a .yaml file)"
        raise UsageError(
            msg, hint="write a spec first", command=f"convert-and-validate init MODEL --samples {shlex.quote(text)}"
        )
    code = Path(text) if Path(text).suffix == ".py" else Path(f"{text}.py")
    if code.is_file() and (code == Path(text) or not Path(text).exists()):
        msg = f"{code} is Python code (expected: a spec, which is a .yaml file)"
        command = f"convert-and-validate init {shlex.quote(code.stem)}:FUNCTION --samples FILE"
        raise UsageError(msg, hint=f"name the function in it that returns the model, and write a spec: {command}")
    if may_be_model(text):
        msg = f"{text} is a model (expected: a spec, which is a .yaml file)"
        command = f"convert-and-validate init {shlex.quote(text)} --samples FILE"
        raise UsageError(msg, hint=f"write a spec of the model first: {command}")


def _read_spec(path: Path) -> str:
    if not path.is_file():
        msg = f"spec {path} does not exist{beside_meant(path)}"
        if path.exists():
            msg = f"the folder {path} holds no spec (.yaml or .yml)" if path.is_dir() else f"spec {path} is not a file"
        raise InputFileError(
            msg, hint=f"give a .yaml file, or one of the packaged specs: {', '.join(packaged_specs())}"
        )
    try:
        with path.open("rb") as stream:
            # One byte more shows that it is too large.
            return stream.read(MOST_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        msg = f"spec {path} cannot be read: {err}"
        raise InputFileError(msg, hint="save the file as text in UTF-8, and check that you may read it") from err


def load_spec_to_run(spec: str | Spec | Mapping[str, Any], *, samples_path: str | None = None) -> ResolvedSpec:
    """Return the spec as `load_spec` does, after checking that the files it names exist.

    Files that a `module:callable` reads are unknown until it is called. Paths of a spec that was made in Python start
    from the current directory. `samples_path` replaces the spec's own samples.

    Raises:
        InputFileError: There is no such spec, or a file that it names does not exist.
        UsageError: The spec is wrong.
    """
    if samples_path is not None and not Path(samples_path).exists():
        msg = f"samples {samples_path} do not exist{beside_meant(Path(samples_path))}"
        raise InputFileError(msg, hint="give the path of a samples file with --samples")
    resolved = load_spec(spec) if isinstance(spec, str) else _spec_of(spec, folder=Path.cwd(), origin="given in Python")
    # Raises for a bad source.
    _ = resolved.source
    _check_model_files(resolved)
    _check_samples(resolved, resolved.samples(samples_path), key="samples")
    if resolved.calibrated:
        _check_samples(resolved, resolved.calibration_samples(samples_path), key="calibration")
    return resolved


def _check_model_files(resolved: ResolvedSpec) -> None:
    folder = resolved.folder.resolve()
    for name in resolved.spec.model.files:
        path = (folder / name).resolve()
        if not path.is_file():
            msg = f"spec {resolved.origin}: model.files names {name!r}, but {path} is not a file"
            raise InputFileError(msg, hint="paths in a spec are relative to its folder")
        if not path.is_relative_to(folder):
            msg = f"spec {resolved.origin}: model.files names {name!r}, which is outside of {folder}"
            raise UsageError(
                msg, hint="put its files below the spec's folder, because a release of the source includes them"
            )


def _check_samples(resolved: ResolvedSpec, samples: SampleSource, *, key: str) -> None:
    if not is_object_path(samples.text):
        # Opening reads nothing, and raises if the file is missing or of an unknown kind.
        open_samples(samples)
    elif samples.path is not None and not Path(samples.path).exists():
        msg = f"spec {resolved.origin}: {key}.path {samples.path} does not exist"
        raise InputFileError(msg, hint="paths in a spec are relative to its folder")


def parse_spec(text: str, *, folder: Path, origin: str) -> ResolvedSpec:
    """Return the spec in a YAML text, or raise a `UsageError` for bad YAML, keys, values or contradictions."""
    data = load_yaml(text, origin=origin)
    if not isinstance(data, dict):
        msg = f"spec {origin} is not a mapping (got {words_of(data)})"
        raise UsageError(msg, hint="add the keys model, samples and targets; see docs/spec.md")
    return _spec_of(data, folder=folder, origin=origin)


def _spec_of(data: Spec | Mapping[str, Any], *, folder: Path, origin: str) -> ResolvedSpec:
    try:
        spec = data if isinstance(data, Spec) else Spec.model_validate(data)
    except ValidationError as err:
        raise spec_error(origin, dict(data), err) from err
    resolved = ResolvedSpec(spec=spec, folder=folder, origin=origin)
    check_spec(resolved)
    return resolved
