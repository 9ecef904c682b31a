"""The spec: one model, its samples, what is decided on it, what it becomes, and when that may be released.

The pydantic models here are the Python API as well, and the published JSON Schema is made from them.
"""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from paritygate.convert.conversion import CONVERTERS, DERIVATIONS
from paritygate.convert.int8.nncf_tool import check_nncf_settings
from paritygate.convert.int8.settings import DYNAMIC, Int8Settings
from paritygate.errors import InputFileError, UsageError
from paritygate.fixed_shape import FixedShape
from paritygate.importing import is_object_path
from paritygate.pipelines.calibration import LEAST_ROWS
from paritygate.pipelines.choice_candidate import PREFERENCES
from paritygate.pipelines.constraint import check_limits
from paritygate.pipelines.repository.names import check_alias, check_name
from paritygate.pipelines.targets import Target, check_targets, fixed_shape_of, place_in_spec, variant_of_target
from paritygate.precision import Precision, Variant
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.source import Source, parse_source
from paritygate.validate.decisions import Decision, make_decision
from paritygate.validate.sample_split import SampleSplit, SplitSide
from paritygate.validate.samples import DEFAULT_BATCH_SIZE, SampleSource, open_samples
from paritygate.validate.tolerance import Tolerance, parse_tolerance

__all__ = [
    "AVAILABLE_TARGETS",
    "BenchmarkPart",
    "CalibrationPart",
    "ResolvedSpec",
    "Spec",
    "load_spec",
    "load_spec_to_run",
    "packaged_specs",
    "parse_spec",
    "schema_of_spec",
]

# What this version can make: a format is added together with its converters, its check and its runner.
AVAILABLE_TARGETS = tuple(
    dict.fromkeys(
        (
            *(Variant(format=form, precision=Precision.FP32) for _, form in CONVERTERS),
            *(Variant.parse(name) for name in DERIVATIONS),
        )
    )
)
# Of the rows of samples, where int8 is calibrated on some of them: the rest is compared.
_HELD_OUT_SHARE = 0.2
_SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorPart(_Part):
    """One input or output, under the name served."""

    dtype: str
    shape: list[Annotated[int, Field(ge=1)] | str]


class DimPart(_Part):
    """The sizes that a symbolic dim may take."""

    min: int = 1
    opt: int | None = None
    max: int


class ModelPart(_Part):
    """The trained model."""

    name: str = Field(pattern=_SAFE_NAME, description="Names the model in runs and releases.")
    source: str = Field(description="A path relative to the spec's folder, or module:callable.")
    inputs: dict[str, TensorPart] | None = Field(
        default=None, min_length=1, description="Needed where the source does not say them: for PyTorch modules."
    )
    outputs: dict[str, TensorPart] | None = Field(default=None, min_length=1)
    rename: dict[str, str] = Field(default_factory=dict, description="The source's name: the name served.")
    dims: dict[str, DimPart] = Field(default_factory=dict)
    files: list[str] = Field(default_factory=list, description="Files the source reads besides the modules it imports.")


class SamplesPart(_Part):
    """The real inputs."""

    source: str = Field(description="A .npz, .safetensors or .jsonl file, or module:callable.")
    path: str | None = Field(default=None, description="What a callable is given as its path.")
    batch_size: int | None = Field(default=None, ge=1)
    pad: dict[str, float] = Field(default_factory=dict)
    strata: list[str] = Field(default_factory=list)


class CalibrationPart(_Part):
    """The real inputs that int8 targets choose their ranges by; none of them is compared."""

    source: str | None = Field(
        default=None, description="As samples.source, with other rows; if absent, a share of samples is held out."
    )
    path: str | None = Field(default=None, description="What a callable is given as its path.")
    batch_size: int | None = Field(default=None, ge=1)
    pad: dict[str, float] = Field(default_factory=dict)
    share: float | None = Field(
        default=None, gt=0, lt=1, description="Without a source: the share of samples that is held out; 0.2 if absent."
    )
    rows: Annotated[int, Field(ge=LEAST_ROWS)] = 128
    tool: Literal["onnxruntime", "nncf"] = Field(default="onnxruntime", description="What quantizes onnx-int8.")
    method: Literal["minmax", "entropy", "percentile", "dynamic"] = Field(
        default="minmax", description="How onnxruntime chooses ranges; dynamic, for matrix products, needs no rows."
    )
    activations: Literal["int8", "uint8"] = Field(
        default="int8", description="With onnxruntime: int8 runs everywhere, uint8 is faster on x86 CPUs."
    )

    @model_validator(mode="after")
    def _of_one_piece(self) -> CalibrationPart:
        if self.source is None and (self.path is not None or self.batch_size is not None or self.pad):
            msg = "path, batch_size and pad belong to a calibration.source, and there is none"
            raise ValueError(msg)
        if self.source is not None and self.share is not None:
            msg = "share is the part of samples that is held out where there is no calibration.source"
            raise ValueError(msg)
        if self.tool == "nncf":
            check_nncf_settings(self.settings)
        return self

    @property
    def settings(self) -> Int8Settings:
        """How to quantize ONNX."""
        return Int8Settings(tool=self.tool, method=self.method, activations=self.activations)


class DecisionPart(_Part):
    """The rule that turns an output into an answer: exactly one of threshold, argmax, top_k, multilabel."""

    threshold: float | str | None = None
    argmax: bool | None = None
    top_k: int | None = None
    multilabel: float | str | None = None
    axis: int | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> DecisionPart:
        rules = [name for name in ("threshold", "argmax", "top_k", "multilabel") if getattr(self, name) is not None]
        if len(rules) != 1 or self.argmax is False:
            seen = ", ".join(rules) or "none"
            msg = f"exactly one of threshold, argmax: true, top_k, multilabel is needed (seen: {seen})"
            raise ValueError(msg)
        return self


class PromotePart(_Part):
    """When and where a release is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    to: str = "artifacts/repository"
    alias: str | None = "prod"
    prefer: Literal["fastest", "smallest"] | list[str] | None = Field(
        default=None,
        description="Of what passed within the limits, release the fastest, the smallest, or the first of these; "
        "all of it if absent.",
    )
    limits: dict[str, float] = Field(
        default_factory=dict, description="Limits on speed and size, such as latency_p95_ms: 20 or size_mb: 50."
    )
    devices: list[str] | None = Field(
        default=None, alias="for", description="Where the release will run; this machine's device if absent."
    )
    accept: dict[str, Literal["emulated"]] = Field(default_factory=dict)
    fallback: Literal["source", "none"] = "source"

    @field_validator("prefer", mode="before")
    @classmethod
    def _known_preference(cls, value: object) -> object:
        if isinstance(value, str) and value not in PREFERENCES:
            msg = f"{value!r} is no preference (allowed: {', '.join(PREFERENCES)}, or a list of variants)"
            raise ValueError(msg)
        return value

    @field_validator("limits")
    @classmethod
    def _known_limits(cls, value: dict[str, float]) -> dict[str, float]:
        return check_limits(value)


class BenchmarkPart(_Part):
    """How speed is measured."""

    batch_sizes: list[Annotated[int, Field(ge=1)]] | None = Field(
        default=None, min_length=1, description="Rows a call; variants are chosen by the first."
    )
    concurrency: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1], min_length=1, description="Instances side by side; variants are chosen by the first."
    )
    rounds: Annotated[int, Field(ge=2)] = 7
    seconds: float = Field(
        default=0.25, gt=0, allow_inf_nan=False, description="How long each variant, point and round is timed at least."
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="What the machine costs; without it no cost is given."
    )


class Spec(_Part):
    """Everything that a run needs to know."""

    model: ModelPart
    samples: SamplesPart
    decisions: dict[str, DecisionPart] = Field(default_factory=dict)
    targets: list[Target] = Field(min_length=1)
    required: list[str] | None = Field(
        default=None, min_length=1, description="Every target whose backend is installed, if absent."
    )
    tolerance: dict[str, dict[str, float]] = Field(default_factory=dict)
    argmax_of: dict[str, str] = Field(default_factory=dict)
    axes: dict[str, int] = Field(default_factory=dict)
    non_finite: Literal["refuse", "match"] = "refuse"
    min_rows: Annotated[int, Field(ge=1)] = 100
    repeat: Annotated[int, Field(ge=1)] = 1
    opset: int | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    calibration: CalibrationPart = Field(default_factory=CalibrationPart)
    benchmark: BenchmarkPart | None = Field(
        default=None, description="Measured where this is there, `benchmark: {}` included."
    )
    promote: PromotePart = Field(default_factory=PromotePart)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSpec:
    """A spec whose paths and names have been checked.

    Attributes:
        spec: As written.
        folder: What its paths are relative to.
        origin: Where it was read from, for messages.
    """

    spec: Spec
    folder: Path
    origin: str

    @property
    def name(self) -> str:
        """The model's name."""
        return self.spec.model.name

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The targets, in their order."""
        return tuple(variant_of_target(target) for target in self.spec.targets)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the targets, in their order: of folders, of limits, of releases."""
        return tuple(map(str, self.variants))

    def fixed_shape(self, variant: Variant, signature: Signature) -> FixedShape | None:
        """Return how the dims of a target are fixed, given the model's signature; None if none is.

        Raises:
            UsageError: They cannot be fixed so.
        """
        found = (target for target in self.spec.targets if variant_of_target(target) == variant)
        target = next(found, None)
        return None if target is None else fixed_shape_of(target, signature)

    @property
    def source(self) -> Source:
        """The trained model.

        Raises:
            InputFileError: It does not exist.
        """
        return parse_source(self.spec.model.source, self.folder)

    @property
    def signature(self) -> Signature | None:
        """The declared signature; None if it is to be taken from the source."""
        model = self.spec.model
        if model.inputs is None or model.outputs is None:
            return None
        dims = {
            name: Dim(min=part.min, opt=part.max if part.opt is None else part.opt, max=part.max)
            for name, part in model.dims.items()
        }
        return Signature(
            inputs=tuple(_tensor(name, part) for name, part in model.inputs.items()),
            outputs=tuple(_tensor(name, part) for name, part in model.outputs.items()),
            dims=dims,
        )

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decision rules."""
        found = []
        for output, part in self.spec.decisions.items():
            rule = next(
                name for name in ("threshold", "argmax", "top_k", "multilabel") if getattr(part, name) is not None
            )
            value = None if rule == "argmax" else getattr(part, rule)
            found.append(make_decision(output, rule=rule, value=value, axis=part.axis))
        return tuple(found)

    def samples(self, path: str | None = None) -> SampleSource:
        """Return where the samples come from.

        Args:
            path: What the command line gives in place of the spec's own path: it goes to a callable,
                and stands in for a file. Relative to the current directory.
        """
        part = self.spec.samples
        batch = self.spec.model.dims.get("batch")
        size = part.batch_size or (batch.opt if batch is not None and batch.opt else DEFAULT_BATCH_SIZE)
        chosen = part.path if path is None else str(Path(path).resolve())
        if chosen is not None and path is None:
            chosen = str((self.folder / chosen).resolve())
        text = part.source
        if path is not None and not is_object_path(text):
            text, chosen = str(Path(path).resolve()), None
        found = SampleSource(text=text, folder=self.folder, path=chosen, batch_size=size, pad=part.pad)
        return replace(found, split=self._split(SplitSide.VALIDATION)) if self._holds_out else found

    def calibration_samples(self, path: str | None = None) -> SampleSource:
        """Return where the rows come from that int8 targets are calibrated on.

        Args:
            path: As of `samples`; it does not stand in for a source of the calibration's own.
        """
        part, samples = self.spec.calibration, self.samples(path)
        if part.source is None:
            return replace(samples, split=self._split(SplitSide.CALIBRATION))
        return SampleSource(
            text=part.source,
            folder=self.folder,
            path=None if part.path is None else str((self.folder / part.path).resolve()),
            batch_size=part.batch_size or samples.batch_size,
            pad=part.pad,
        )

    @property
    def calibrated(self) -> tuple[Variant, ...]:
        """The targets that calibration rows are needed for."""
        is_dynamic = self.spec.calibration.method == DYNAMIC
        return tuple(
            variant
            for variant in self.variants
            if variant.precision is Precision.INT8 and not (is_dynamic and variant.format == "onnx")
        )

    @property
    def _holds_out(self) -> bool:
        return self.spec.calibration.source is None and bool(self.calibrated)

    def _split(self, side: SplitSide) -> SampleSplit:
        return SampleSplit(side=side, share=self.spec.calibration.share or _HELD_OUT_SHARE, seed=self.spec.seed)

    def tolerance(self, variant: Variant) -> Tolerance:
        """Return the limits of a variant."""
        return parse_tolerance(variant.precision, self.spec.tolerance.get(str(variant), {}))


def _tensor(name: str, part: TensorPart) -> TensorSpec:
    return TensorSpec(name=name, dtype=part.dtype, shape=tuple(part.shape))


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
    _check(resolved)
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


def _check(resolved: ResolvedSpec) -> None:
    """Check what the shape of the data does not say: that names refer to something, and values to each other."""
    _check_targets(resolved)
    _check_names(resolved)
    for variant in resolved.variants:
        # Raises what is wrong with the limits.
        resolved.tolerance(variant)


def _check_targets(resolved: ResolvedSpec) -> None:
    spec, origin = resolved.spec, resolved.origin
    check_targets(spec.targets, available=AVAILABLE_TARGETS, signature=resolved.signature, origin=origin)
    targets = resolved.target_names
    lists: dict[str, list[str]] = {
        "required": list(spec.required or ()),
        "tolerance": list(spec.tolerance),
        "promote.prefer": spec.promote.prefer if isinstance(spec.promote.prefer, list) else [],
        "promote.accept": list(spec.promote.accept),
    }
    for key, names in lists.items():
        for name in names:
            if name not in targets:
                msg = f"spec {origin}: {key} names {name!r}, which is no target (targets: {', '.join(targets)})"
                raise UsageError(msg, hint="name one of the targets, or add it to them")


def _check_names(resolved: ResolvedSpec) -> None:
    spec, origin = resolved.spec, resolved.origin
    # Refused here, where it costs nothing, rather than at the end of the run.
    check_name("model", spec.model.name)
    if spec.promote.alias is not None:
        check_alias(spec.promote.alias)
    if (spec.model.inputs is None) != (spec.model.outputs is None):
        msg = f"spec {origin}: model.inputs and model.outputs are given together or not at all"
        raise UsageError(msg, hint="add the other one, or leave both to be taken from the source")
    # Making them raises what is wrong with a dtype, a dim or a rule.
    signature, decisions = resolved.signature, resolved.decisions
    if signature is None:
        return
    for name in spec.model.dims:
        if name not in signature.symbols:
            msg = f"spec {origin}: model.dims names {name!r}, which no input or output has"
            raise UsageError(msg, hint=f"symbolic dims are: {', '.join(signature.symbols) or 'none'}")
    outputs = [item.name for item in signature.outputs]
    for decision in decisions:
        if decision.output not in outputs:
            known = ", ".join(outputs)
            msg = f"spec {origin}: decisions names {decision.output!r}, which is no output (outputs: {known})"
            raise UsageError(msg, hint="name one of model.outputs")


def schema_of_spec() -> dict[str, Any]:
    """Return the JSON Schema of a spec."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Spec.model_json_schema(),
        "title": "paritygate spec",
    }
