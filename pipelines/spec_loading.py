"""Reading a spec: a YAML file, or one that comes with the package, and what is wrong with it in words."""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from paritygate.errors import InputFileError, UsageError
from paritygate.importing import is_object_path
from paritygate.pipelines.spec import ResolvedSpec, Spec
from paritygate.pipelines.spec_checks import check_spec
from paritygate.pipelines.targets import place_in_spec
from paritygate.validate.samples import SampleSource, open_samples

__all__ = ["load_spec", "load_spec_to_run", "packaged_specs", "parse_spec"]


def packaged_specs() -> tuple[str, ...]:
    """Return the names of the specs that come with the package."""
    folder = importlib.resources.files("paritygate.pipelines") / "specs"
    return tuple(sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")))


def load_spec(text: str) -> ResolvedSpec:
    """Return the spec written as a path, or as the name of a packaged one.

    Raises:
        InputFileError: There is no such spec.
        UsageError: The spec is wrong; the message says where.
    """
    path = Path(text)
    if path.exists() or path.suffix:
        return parse_spec(_read_spec(path), folder=path.resolve().parent, origin=str(path))
    packaged = importlib.resources.files("paritygate.pipelines") / "specs" / f"{text}.yaml"
    if text not in packaged_specs():
        close = difflib.get_close_matches(text, packaged_specs(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"packaged specs are: {', '.join(packaged_specs())}"
        msg = f"spec {text!r} is no file and no packaged spec"
        raise InputFileError(msg, hint=hint)
    # A packaged spec names modules, not paths; the current directory is the folder of what it may be given.
    return parse_spec(packaged.read_text(encoding="utf-8"), folder=Path.cwd(), origin=text)


def _read_spec(path: Path) -> str:
    if not path.is_file():
        msg = f"spec {path} is no file" if path.exists() else f"spec {path} does not exist"
        raise InputFileError(
            msg, hint=f"give a .yaml file, or one of the packaged specs: {', '.join(packaged_specs())}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        msg = f"spec {path} cannot be read: {err}"
        raise InputFileError(msg, hint="write it as text in UTF-8, and check that it may be read") from err


def load_spec_to_run(text: str, *, samples_path: str | None = None) -> ResolvedSpec:
    """Return the spec as `load_spec` does, once it is known that the files it names are there.

    What a `module:callable` reads is not known before it is called.

    Args:
        text: A path, or the name of a packaged spec.
        samples_path: What the command line gives in place of the spec's own samples.

    Raises:
        InputFileError: There is no such spec, or a file that it names does not exist.
        UsageError: The spec is wrong; the message says where.
    """
    if samples_path is not None and not Path(samples_path).exists():
        msg = f"samples {samples_path} do not exist"
        raise InputFileError(msg, hint="give the path of a samples file with --samples")
    resolved = load_spec(text)
    # Reading the property raises what is wrong with the source.
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
            msg = f"spec {resolved.origin}: model.files names {name!r}, and {path} is no file"
            raise InputFileError(msg, hint="paths in a spec are relative to its folder")
        if not path.is_relative_to(folder):
            msg = f"spec {resolved.origin}: model.files names {name!r}, which is outside of {folder}"
            raise UsageError(
                msg, hint="a release of the source takes its files along: put them below the spec's folder"
            )


def _check_samples(resolved: ResolvedSpec, samples: SampleSource, *, key: str) -> None:
    if not is_object_path(samples.text):
        # Opening reads nothing; it raises if the file is missing or of an unknown kind.
        open_samples(samples)
    elif samples.path is not None and not Path(samples.path).exists():
        msg = f"spec {resolved.origin}: {key}.path {samples.path} does not exist"
        raise InputFileError(msg, hint="paths in a spec are relative to its folder")


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: of two tolerances, one would silently not hold."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's own signature
        # A key that is no scalar is refused by the loader itself, and `<<` may merge several mappings.
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        seen = set()
        for key in keys:
            if key.value in seen:
                problem = f"the key {key.value!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def parse_spec(text: str, *, folder: Path, origin: str) -> ResolvedSpec:
    """Return the spec in a YAML text, checked.

    Raises:
        UsageError: It is no YAML, has a wrong key or value, or contradicts itself.
    """
    try:
        # A safe loader: it makes plain data only.
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        msg = f"spec {origin}{where} is no sound YAML: {getattr(err, 'problem', None) or err}"
        raise UsageError(msg, hint="check the indentation and the quotes there") from err
    if not isinstance(data, dict):
        msg = f"spec {origin} holds a {type(data).__name__}, not a mapping"
        raise UsageError(msg, hint="it needs the keys model, samples and targets; see docs/spec.md")
    try:
        spec = Spec.model_validate(data)
    except ValidationError as err:
        raise _spec_error(origin, err) from err
    resolved = ResolvedSpec(spec=spec, folder=folder, origin=origin)
    check_spec(resolved)
    return resolved


def _spec_error(origin: str, err: ValidationError) -> UsageError:
    lines = []
    hints = []
    for problem in err.errors():
        place = place_in_spec(problem["loc"])
        where = ".".join(map(str, place))
        if problem["type"] == "extra_forbidden":
            known = _keys_beside(place)
            close = difflib.get_close_matches(str(place[-1]), known, n=1)
            lines.append(f"{where}: unknown key (allowed: {', '.join(known)})")
            if close:
                hints.append(f"did you mean {close[0]!r} instead of {place[-1]!r}?")
        elif problem["type"] == "missing":
            lines.append(f"{where}: is missing")
        else:
            seen = repr(problem["input"])
            shown = seen if len(seen) <= 60 else seen[:57] + "..."  # noqa: PLR2004 - what fits a line
            lines.append(f"{where}: {problem['msg'].removeprefix('Value error, ')} (seen: {shown})")
    msg = f"spec {origin} is wrong: " + "; ".join(lines)
    return UsageError(msg, hint=" ".join(hints) or "convert-and-validate schema spec prints what is allowed")


def _keys_beside(location: Iterable[int | str]) -> list[str]:
    """Return the keys that are allowed where an unknown one was found."""
    part: Any = Spec
    is_inside_mapping = False
    for step in tuple(location)[:-1]:
        if is_inside_mapping or isinstance(step, int):
            # The step is a name that the user chose, such as that of an input, or a place in a list.
            is_inside_mapping = False
            continue
        if not (isinstance(part, type) and issubclass(part, BaseModel)):
            return []
        fields = {field.alias or name: field for name, field in part.model_fields.items()}
        annotation = fields[str(step)].annotation if str(step) in fields else None
        is_inside_mapping = "dict" in str(annotation)
        part = _model_in(annotation)
    if isinstance(part, type) and issubclass(part, BaseModel):
        return [field.alias or name for name, field in part.model_fields.items()]
    return []


def _model_in(annotation: object) -> object:
    """Return the model inside `dict[str, Model] | None` and the like."""
    from typing import get_args

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _model_in(inner)
        if isinstance(found, type):
            return found
    return None
