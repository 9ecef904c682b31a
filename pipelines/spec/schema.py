"""The spec of one model: its samples, decisions, targets, and the conditions of a release.

The pydantic models are also the Python API, and make the published JSON Schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field

from paritygate.convert.conversion import CONVERTERS, DERIVATIONS
from paritygate.convert.int8.settings import DYNAMIC
from paritygate.engine.settings import EngineSettings
from paritygate.errors import UsageError
from paritygate.importing import is_object_path
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.named_call import is_default_output_name
from paritygate.models.source import ModelRef, parse_source, with_signature_key
from paritygate.pipelines.rules.table import RULES
from paritygate.pipelines.spec import parts
from paritygate.pipelines.spec.part import SpecPart
from paritygate.pipelines.spec.role_part import RolePart
from paritygate.pipelines.spec.targets import MixedTarget, Target, fixed_shape_of, variant_of_target
from paritygate.precision import Precision, Variant
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.detections.rule import MatchRule, make_match_rule
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gold.rule import GoldRule, make_gold_rule
from paritygate.validate.measure.decisions import Decision, make_decision, with_constants
from paritygate.validate.measure.tolerance import Tolerance
from paritygate.validate.probes.catalogue import ALL_PROBES, in_order
from paritygate.validate.probes.inputs.roles import DeclaredRole
from paritygate.validate.samples.random_rows import RandomRows
from paritygate.validate.samples.samples import DEFAULT_BATCH_SIZE, TABLES, SampleSource
from paritygate.validate.samples.split import SampleSplit

# A format needs its converters, its check and its runner.
AVAILABLE_TARGETS = tuple(
    dict.fromkeys(
        (
            *(Variant(format=form, precision=Precision.FP32) for _, form in CONVERTERS),
            *(Variant.parse(name) for name in DERIVATIONS),
        )
    )
)
# The share of samples that int8 is calibrated on by default, and that is not compared.
_HELD_OUT_SHARE = 0.2
# The share that a search for operators to keep in FP32 measures on: its result has to hold for the largest differences.
_SEARCHED_SHARE = 0.4


class Spec(SpecPart):
    """Everything that a run needs."""

    model: parts.ModelPart
    samples: parts.SamplesPart
    decisions: dict[str, parts.DecisionPart] = Field(default_factory=dict)
    targets: list[Target] = Field(min_length=1)
    required: list[str] | None = Field(
        default=None,
        description="The targets that the outcome of a run depends on; [] for none. Every target whose packages are "
        "installed, but for those that do not run on the device, if absent.",
    )
    tolerance: dict[str, dict[str, float | parts.OutputLimits]] = Field(default_factory=dict)
    argmax_of: dict[str, str] = Field(default_factory=dict)
    gold: parts.GoldParts = Field(default_factory=list, description="One metric against gold, or a list of them.")
    matches: dict[str, parts.MatchPart] = Field(default_factory=dict)
    outputs: dict[str, parts.OutputPart] = Field(
        default_factory=dict,
        description="Outputs that are not compared, each with the reason: {ignore: REASON}; or one more limit of those "
        "that are: {min_cosine_similarity: V}; or the input that says which positions count: {valid_where: INPUT}.",
    )
    axes: dict[str, int] = Field(default_factory=dict)
    non_finite: Literal["refuse", "match"] = "refuse"
    roles: dict[str, RolePart] = Field(
        default_factory=dict, description="What can occur in an input, and its role if inferred wrongly."
    )
    edge: Literal["fail", "warn", "off"] = Field(
        default="warn",
        description="What a difference means in generated rows unlike every sample; off runs none of them.",
    )
    probes: list[parts.ProbeName] | Literal["none"] | None = Field(
        default=None,
        description="The probes to make; all of them if absent. What is left out is recorded in a release.",
    )
    reason: parts.Reason | None = Field(
        default=None,
        pattern=r"\S",
        description="Why the spec checks less than a failed run of the same source: probes left out, declared limits "
        "raised, decisions dropped. Recorded in a release.",
    )
    min_rows: Annotated[int, Field(ge=1)] = 100
    repeat: Annotated[int, Field(ge=1)] = 1
    opset: int | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    calibration: parts.CalibrationPart = Field(default_factory=parts.CalibrationPart)
    benchmark: parts.BenchmarkPart | None = Field(
        default=None, description="Speed is measured if this key exists, even as `benchmark: {}`."
    )
    onnxruntime: parts.OnnxruntimePart = Field(default_factory=parts.OnnxruntimePart)
    tensorrt: parts.TensorrtPart = Field(default_factory=parts.TensorrtPart)
    tensorrt_rtx: parts.TensorrtRtxPart = Field(default_factory=parts.TensorrtRtxPart)
    repair: parts.RepairPart = Field(default_factory=parts.RepairPart)
    promote: parts.PromotePart = Field(default_factory=parts.PromotePart)
    serve: parts.ServePart = Field(default_factory=parts.ServePart)
    report: parts.ReportPart = Field(default_factory=parts.ReportPart)


def schema_of_spec() -> dict[str, Any]:
    """Return the JSON Schema of a spec."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Spec.model_json_schema(),
        "title": "paritygate spec",
    }


class LeftOutTargets(Struct, frozen=True, kw_only=True):
    """The targets that `--target` left out of a run: those on the spec's list of required ones, and the others."""

    required: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class ResolvedSpec(Struct, frozen=True, kw_only=True):
    """A spec whose paths and names have been checked."""

    spec: Spec
    folder: Path  # where its paths start
    origin: str  # where it was read, for messages
    left_out: LeftOutTargets = LeftOutTargets()

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
        """The names of the targets, in their order: of folders, limits and releases."""
        return tuple(map(str, self.variants))

    def fixed_shape(self, variant: Variant, signature: Signature) -> FixedShape | None:
        """Return how the dims of a target of this signature are fixed, None if none is; raises as `fixed_shape_of`."""
        targets = (target for target in self.spec.targets if variant_of_target(target) == variant)
        target = next(targets, None)
        return None if target is None else fixed_shape_of(target, signature)

    def mixed(self, variant: Variant) -> MixedTarget | None:
        """Return the settings of a target of mixed precision, None for any other."""
        targets = (target for target in self.spec.targets if isinstance(target, MixedTarget))
        return next((target for target in targets if variant_of_target(target) == variant), None)

    def repair(self, name: str) -> parts.AcceptedRepairPart | None:
        """Return the accepted repair of the conversion to a variant, None if there is none."""
        return next((part for key, part in self.spec.repair.accept.items() if key == name), None)

    @property
    def source(self) -> ModelRef:
        """The trained model, with the served names.

        Raises:
            InputFileError: It does not exist.
            UsageError: It has a signature key, and is not a SavedModel.
        """
        ref = parse_source(self.spec.model.source, self.folder)
        ref = with_signature_key(ref, self.spec.model.signature, "model.signature")
        return replace(ref, name=self.name, signature=self.signature, rename=self.rename)

    @property
    def signature(self) -> Signature | None:
        """The declared signature; None if it comes from the source."""
        model = self.spec.model
        if model.inputs is None or model.outputs is None:
            return None
        return Signature(
            inputs=tuple(_tensor(name, part) for name, part in model.inputs.items()),
            outputs=tuple(_tensor(name, part) for name, part in model.outputs.items()),
            dims=self.dims,
        )

    @property
    def dims(self) -> dict[str, Dim]:
        """The declared sizes of symbolic dims."""
        return {
            name: Dim(min=part.min, opt=part.max if part.opt is None else part.opt, max=part.max)
            for name, part in self.spec.model.dims.items()
        }

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decision rules."""
        declared = []
        for output, part in self.spec.decisions.items():
            rule = next(
                name for name in ("threshold", "argmax", "top_k", "multilabel") if getattr(part, name) is not None
            )
            value = None if rule == "argmax" else getattr(part, rule)
            declared.append(make_decision(output, rule=rule, value=value, axis=part.axis))
        return with_constants(declared, self.constant_decisions)

    @property
    def constant_decisions(self) -> dict[str, str]:
        """The reasons of decisions that may be the same for all rows, by output."""
        return {name: part.constant for name, part in self.spec.decisions.items() if part.constant}

    def samples(self, path: str | None = None) -> SampleSource:
        """Return the source of the samples.

        A `path` from the command line, relative to the current directory, goes to a callable or replaces a file.
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
        return SampleSource(
            text=text,
            folder=self.folder,
            path=chosen,
            batch_size=size,
            pad=part.pad,
            images=None if part.images is None else part.images.rules,
            columns={
                name: (column,) if isinstance(column, str) else tuple(column) for name, column in part.columns.items()
            },
            cast=dict(part.cast),
            random=self._random_rows if path is None else None,
            key="samples",
        )

    @property
    def _random_rows(self) -> RandomRows | None:
        part = self.spec.samples.random
        if part is None:
            return None
        inputs = {name: item.rule for name, item in part.inputs.items()}
        return RandomRows(inputs=inputs, rows=part.rows, dims=self.dims, seed=self.spec.seed)

    def calibration_samples(self, path: str | None = None, *, is_searched: bool = False) -> SampleSource:
        """Return the source of rows for calibration, or for a search; `path` replaces that of the samples only."""
        part, samples = self.spec.calibration, self.samples(path)
        if part.source is None:
            default = _SEARCHED_SHARE if is_searched else _HELD_OUT_SHARE
            return replace(samples, split=SampleSplit(share=part.share or default, seed=self.spec.seed))
        return SampleSource(
            text=part.source,
            folder=self.folder,
            path=None if part.path is None else str((self.folder / part.path).resolve()),
            batch_size=part.batch_size or samples.batch_size,
            pad=part.pad,
            images=samples.images if (self.folder / part.source).is_dir() else None,
            columns=samples.columns if Path(part.source).suffix in TABLES else {},
            cast=samples.cast,
            key="calibration",
        )

    @property
    def calibrated(self) -> tuple[Variant, ...]:
        """The targets that need calibration rows."""
        is_dynamic = self.spec.calibration.method == DYNAMIC
        return tuple(
            variant
            for variant in self.variants
            if variant.precision is Precision.MIXED
            or (variant.precision is Precision.INT8 and not (is_dynamic and variant.format == "onnx"))
        )

    def engine_settings(self, variant: Variant) -> EngineSettings:
        """Return how to build the engine of a variant; the defaults where it is none."""
        if variant.format == "tensorrt":
            return self.spec.tensorrt.settings(self.folder)
        return self.spec.tensorrt_rtx.settings if variant.format == "tensorrt-rtx" else EngineSettings()

    def provider(self, variant: Variant, device: str) -> str | None:
        """Return ONNX Runtime's provider for a variant; None for the default of the device, or another runtime."""
        return self.spec.onnxruntime.provider if variant.format == "onnx" and device == "cuda" else None

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes to run, in catalogue order."""
        wanted = self.spec.probes
        return in_order(ALL_PROBES if wanted is None else () if wanted == "none" else wanted)

    @property
    def gold(self) -> tuple[GoldRule, ...]:
        """The metrics against gold; a `UsageError` for a wrong metric or tolerance."""
        gold = [self.spec.gold] if isinstance(self.spec.gold, parts.GoldPart) else self.spec.gold
        return tuple(
            make_gold_rule(
                part.metric,
                part.output,
                gold_above=part.gold_above,
                **({} if part.tolerance is None else part.tolerance.model_dump()),
            )
            for part in gold
        )

    @property
    def matches(self) -> tuple[MatchRule, ...]:
        """The outputs that are lists of detections; a `UsageError` for values that do not fit."""
        return tuple(make_match_rule(name, **part.model_dump()) for name, part in self.spec.matches.items())

    @property
    def outputs_asked(self) -> dict[str, tuple[str, ...]]:
        """The outputs that the spec names, by the key that names them."""
        spec = self.spec
        return {
            "decisions": tuple(spec.decisions),
            "argmax_of": tuple(name for pair in spec.argmax_of.items() for name in pair),
            "gold.output": tuple(rule.output for rule in self.gold),
            **{f"matches.{rule.name}": rule.outputs for rule in self.matches},
            "axes": tuple(spec.axes),
            "outputs": tuple(spec.outputs),
        }

    @property
    def rename(self) -> dict[str, str]:
        """The served name, by the source's name.

        Outputs of Keras models have the names of their layers. Earlier versions called them `output_0` and so on, so
        such a name in the spec still works. No other source has second names.
        """
        rename = dict(self.spec.model.rename)
        may_be_keras = is_object_path(self.spec.model.source) or self.spec.model.source.endswith(".keras")
        if self.signature is None and may_be_keras:
            names_in_rules = {name for names in self.outputs_asked.values() for name in names}
            rename.update(
                {name: name for name in sorted(names_in_rules - set(rename.values())) if is_default_output_name(name)}
            )
        return rename

    @property
    def ignored(self) -> dict[str, str]:
        """The outputs that are not compared, each with the reason."""
        return self._of_outputs("ignore")

    @property
    def valid_where(self) -> dict[str, str]:
        """By output, the input that masks its positions."""
        return self._of_outputs("valid_where")

    @property
    def roles(self) -> dict[str, DeclaredRole]:
        """The declared roles of inputs."""
        return {name: part.role_of_input for name, part in self.spec.roles.items()}

    def hides_inputs(self, *, is_leaving: bool) -> bool:
        """Return whether ids of rows and failing inputs are left out of files, which may be leaving this machine."""
        inputs = self.spec.report.inputs
        return inputs == "hide" or (is_leaving and inputs is None)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The names of columns, by output."""
        return {name: tuple(columns) for name, columns in self._of_outputs("columns").items()}

    def _tolerance(self, variant: Variant) -> Tolerance:
        mixed = self.mixed(variant)
        # Operators in FP16 have the limits of mixed precision, and integers need their own.
        is_int8 = mixed is not None and Precision(mixed.lower) is Precision.INT8
        try:
            return parse_tolerance(
                Precision.INT8 if is_int8 else variant.precision,
                self.spec.tolerance.get(str(variant), {}),
                self.columns,
            )
        except UsageError as err:
            raise UsageError(f"spec {self.origin}: {variant}: {err}", **err.next_step) from err

    def rules(self, variant: Variant) -> GateRules:
        """Return the gate's rules for a variant."""
        return GateRules(
            tolerance=self._tolerance(variant),
            decisions=self.decisions,
            gold=self.gold,
            matches=self.matches,
            columns=self.columns,
            strata=tuple(self.spec.samples.strata),
            probes=self.probes,
            **{rule.field: rule.made(self._value(rule.key)) for rule in RULES if rule.key},
        )

    def _value(self, key: str) -> Any:  # noqa: ANN401 - each rule has its own type
        """Return the value at a key; by output for a key below `outputs`."""
        part, _, name = key.partition(".")
        return self._of_outputs(name) if name else getattr(self.spec, part)

    def _of_outputs(self, name: str) -> dict[str, Any]:
        values = {output: getattr(part, name) for output, part in self.spec.outputs.items()}
        return {output: value for output, value in values.items() if value is not None}


def _tensor(name: str, part: parts.TensorPart) -> TensorSpec:
    return TensorSpec(name=name, dtype=part.dtype, shape=tuple(part.shape))
