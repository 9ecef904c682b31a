"""The mappings that a spec consists of, each as a pydantic model. Their docstrings are in the JSON Schema."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from paritygate.addresses import without_secrets
from paritygate.convert.int8.nncf_tool import check_nncf_settings
from paritygate.convert.int8.settings import Int8Settings
from paritygate.engine.settings import EngineSettings, HardwareCompatibility
from paritygate.pipelines.calibration.calibration import LEAST_ROWS
from paritygate.pipelines.spec.against import check_factors
from paritygate.pipelines.spec.limits import PREFERENCES, check_limits
from paritygate.pipelines.spec.part import SpecPart
from paritygate.signature import DTYPES
from paritygate.text import is_placeholder, nearest_first
from paritygate.validate.detections.rule import DEFAULT_IOU, DEFAULT_OTHER_TOLERANCE, DEFAULT_SCORE_TOLERANCE
from paritygate.validate.gold.rule import METRICS
from paritygate.validate.probes.catalogue import ALL_PROBES
from paritygate.validate.samples.columns import CastDtype
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.random_rows import RANDOM, RandomInput

# As `device_name` returns them.
_DEVICE = re.compile(r"cpu|cuda:sm[0-9]{2,3}")
_SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class TensorPart(SpecPart):
    """One input or output, under the name served."""

    dtype: str
    shape: list[Annotated[int, Field(ge=1)] | str]

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPES:
            raise ValueError(f"a dtype needs its NumPy name, one of {', '.join(nearest_first(dtype, sorted(DTYPES)))}")
        return dtype


class DimPart(SpecPart):
    """The sizes that a symbolic dim may take."""

    min: int = 1
    opt: int | None = None
    max: int

    @model_validator(mode="after")
    def _check_order(self) -> DimPart:
        opt = self.max if self.opt is None else self.opt
        if not 0 < self.min <= opt <= self.max:
            raise ValueError(f"0 < min <= opt <= max is needed (seen: min={self.min}, opt={opt}, max={self.max})")
        return self


class ModelPart(SpecPart):
    """The trained model."""

    name: str = Field(pattern=_SAFE_NAME, description="Names the model in runs and releases.")
    source: str = Field(description="A path relative to the spec's folder, or module:callable.")
    inputs: dict[str, TensorPart] | None = Field(
        default=None, min_length=1, description="Needed if the source does not declare them, as for PyTorch modules."
    )
    outputs: dict[str, TensorPart] | None = Field(default=None, min_length=1)
    rename: dict[str, str] = Field(default_factory=dict, description="The source's name: the name served.")
    dims: dict[str, DimPart] = Field(default_factory=dict)
    files: list[str] = Field(default_factory=list, description="Files the source reads besides the modules it imports.")
    signature: str | None = Field(
        default=None, min_length=1, description="Which signature of a SavedModel is meant; serving_default if absent."
    )
    exporter: Literal["dynamo", "torchscript"] | None = Field(
        default=None,
        description="What exports a PyTorch module to ONNX: dynamo, torch.onnx on top of torch.export, with its own "
        "attention or that of transformers written out; or torchscript. The first that converts it if absent.",
    )


class ImagesPart(SpecPart):
    """How the pictures of a folder are prepared."""

    input: str = Field(min_length=1, description="The input that a picture is.")
    size: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)] = Field(
        description="Height and width of the input."
    )
    resize: Literal["shorter", "exact"] = "shorter"
    shorter: int | None = Field(
        default=None, ge=1, description="With resize: shorter, the length of the shorter side before the crop."
    )
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    crop: Literal["center", "none"] = "center"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    scale: float | None = Field(default=None, description="What bytes are multiplied by; a 255th if absent.")
    mean: list[float] = Field(default=[0.0], min_length=1)
    std: list[float] = Field(default=[1.0], min_length=1)
    dtype: Literal["float32", "uint8"] = "float32"

    @model_validator(mode="after")
    def _says_what_can_be_done(self) -> ImagesPart:
        # Raises for contradictions.
        _ = self.rules
        return self

    @property
    def rules(self) -> PictureRules:
        """The rules of preparation; a ValueError for contradictions."""
        return PictureRules(**{**dict(self), **{name: tuple(getattr(self, name)) for name in ("size", "mean", "std")}})


class RandomInputPart(TensorPart):
    """The range of the generated values of one input."""

    low: float = 0.0
    high: float = 1.0
    mask: bool = Field(default=False, description="Ones up to some place of each row, and zeros from there on.")

    @model_validator(mode="after")
    def _can_be_made(self) -> RandomInputPart:
        # Raises for contradictions.
        _ = self.rule
        return self

    @property
    def rule(self) -> RandomInput:
        """The rule of generation; a ValueError for contradictions."""
        return RandomInput(**{**dict(self), "shape": tuple(self.shape)})


class RandomPart(SpecPart):
    """Generated rows where there are no real ones; they decide no verdict."""

    rows: Annotated[int, Field(ge=1)] = 128
    inputs: dict[str, RandomInputPart] = Field(min_length=1)


class SamplesPart(SpecPart):
    """The real inputs."""

    source: str = Field(description="A file, a folder, or module:callable: see the kinds of samples in docs/spec.md.")
    random: RandomPart | None = Field(
        default=None, description="Needed if the source is `random`: inputs to generate. The verdict is inconclusive."
    )
    path: str | None = Field(default=None, description="What a callable is given as its path.")
    batch_size: int | None = Field(default=None, ge=1)
    pad: dict[str, float] = Field(default_factory=dict)
    images: ImagesPart | None = Field(
        default=None, description="Needed where the source is a folder of pictures: how they are prepared."
    )
    columns: dict[str, str | Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Of a table: by input, the column that it is, or several side by side. No other column is read.",
    )
    cast: dict[str, CastDtype] = Field(
        default_factory=dict, description="By input, the dtype that its values are cast to, such as float32."
    )
    strata: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_what_is_random(self) -> SamplesPart:
        if (self.source == RANDOM) != (self.random is not None):
            raise ValueError("source: random and random: {inputs: ...} belong together, and one of them is missing")
        return self


class CalibrationPart(SpecPart):
    """The real inputs that choose the ranges of int8 targets; they are not compared."""

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
            raise ValueError("path, batch_size and pad need a calibration.source")
        if self.source is not None and self.share is not None:
            raise ValueError("share is the part of samples that is held out where there is no calibration.source")
        if self.tool == "nncf":
            check_nncf_settings(self.settings)
        return self

    @property
    def settings(self) -> Int8Settings:
        """The settings for quantizing ONNX."""
        return Int8Settings(tool=self.tool, method=self.method, activations=self.activations)


class ReportPart(SpecPart):
    """What reports, results and evidence hold."""

    inputs: Literal["show", "hide"] | None = Field(
        default=None,
        description="Ids of rows, rows that differ most and failing inputs: show them in all that is written, or hide "
        "them in all of it. If absent, they are shown on this machine, and hidden in report.md, releases and packs "
        "without inputs.",
    )


def _known_probe(value: str) -> str:
    if value not in ALL_PROBES:
        raise ValueError(f"{value!r} is not a probe (allowed: {', '.join(ALL_PROBES)}, or none instead of the list)")
    return value


def _real_reason(reason: str) -> str:
    if is_placeholder(reason):
        raise ValueError("the word REASON is a placeholder, not a reason")
    return reason


Reason = Annotated[str, AfterValidator(_real_reason)]
ProbeName = Annotated[str, AfterValidator(_known_probe)]


class DecisionPart(SpecPart):
    """The rule that turns an output into an answer: exactly one of threshold, argmax, top_k, multilabel.

    A text such as `argmax` or `threshold=3,axis=1` is allowed too, as after the output in `--decision`.
    """

    model_config = ConfigDict(json_schema_extra={"type": ["object", "string"]})

    threshold: float | str | None = None
    argmax: bool | None = None
    top_k: int | None = None
    multilabel: float | str | None = None
    axis: int | None = None
    constant: Reason | None = Field(
        default=None,
        min_length=1,
        pattern=r"\S",
        description="Why it is right that all rows of the samples have the same answer; recorded in a release.",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        pairs = (part.partition("=") for part in data.split(","))
        # Only argmax has no value.
        return {
            name.strip(): value.strip() if sign or name.strip() != "argmax" else True for name, sign, value in pairs
        }

    @model_validator(mode="after")
    def _one_rule(self) -> DecisionPart:
        rules = [name for name in ("threshold", "argmax", "top_k", "multilabel") if getattr(self, name) is not None]
        if len(rules) != 1 or self.argmax is False:
            seen = ", ".join(rules) or "none"
            raise ValueError(f"exactly one of threshold, argmax: true, top_k, multilabel is needed (seen: {seen})")
        return self


class GoldTolerancePart(SpecPart):
    """How much a metric against gold may lose: exactly one of ratio, max_drop, mlperf."""

    ratio: float | None = Field(default=None, description="The least share of the reference's metric.")
    max_drop: float | None = Field(default=None, description="What the metric may be below the reference's.")
    mlperf: float | None = Field(default=None, description="99 or 99.9: percent of the reference's, as in MLPerf.")

    @model_validator(mode="after")
    def _one_limit(self) -> GoldTolerancePart:
        limits = [name for name in ("ratio", "max_drop", "mlperf") if getattr(self, name) is not None]
        if len(limits) != 1:
            raise ValueError(f"exactly one of ratio, max_drop, mlperf is needed (seen: {', '.join(limits) or 'none'})")
        return self


class GoldPart(SpecPart):
    """A metric against the gold in the samples."""

    metric: str = Field(
        description=f"{', '.join(METRICS)}, or module:callable of (outputs, gold) -> float, where higher is better."
    )
    output: str
    tolerance: GoldTolerancePart | None = Field(
        default=None, description="What a variant may lose; the metric is information only if absent."
    )
    gold_above: float | None = Field(default=None, description="Gold above this is positive, where it is not a label.")


def _kind_of_gold(value: object) -> str:
    return "list" if isinstance(value, list) else "one"


GoldParts = Annotated[
    Annotated[GoldPart, Tag("one")] | Annotated[list[GoldPart], Tag("list")], Discriminator(_kind_of_gold)
]


class MatchPart(SpecPart):
    """Outputs that are a list of detections a row, whose order and number may differ."""

    boxes: str = Field(description="The output of boxes, (batch, N, 4); of one output, four columns, such as 0:4.")
    scores: int | str = Field(description="The output of scores, (batch, N), or the column.")
    classes: int | str | None = Field(
        default=None, description="The output of classes, (batch, N), or the column; compared after rounding."
    )
    output: str | None = Field(
        default=None, description="The one output of all numbers, (batch, N, numbers) or (batch, numbers, N)."
    )
    picture: int | None = Field(
        default=None, ge=0, description="The column with the place of the row, in one list for the whole batch."
    )
    axis: int | None = Field(
        default=None,
        ge=1,
        le=2,
        description="The axis along which the numbers of a detection lie; found by the shape if absent.",
    )
    num: str | None = Field(default=None, description="The output of how many of the N are meant; all if absent.")
    iou: float = Field(default=DEFAULT_IOU, description="From this overlap on, boxes are the same detection.")
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE
    score_floor: float = Field(default=0.0, description="The score from which on the model reports detections.")
    max_box_diff: float | None = None
    other_tolerance: float = Field(
        default=DEFAULT_OTHER_TOLERANCE, description="What columns that are not named may differ by."
    )
    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"


class OutputPart(SpecPart):
    """How one output is compared, or why it is not."""

    ignore: Reason | None = Field(
        default=None, min_length=1, pattern=r"\S", description="Why it is not compared; recorded in a release."
    )
    min_cosine_similarity: float | None = Field(
        default=None, ge=-1, le=1, description="The least cosine similarity of a row's two answers, each as one vector."
    )

    min_sqnr: float | None = Field(
        default=None, allow_inf_nan=False, description="The least signal-to-quantization-noise ratio, in dB."
    )

    valid_where: str | None = Field(
        default=None,
        min_length=1,
        description="The input that marks the positions that count, such as attention_mask: those where it is set.",
    )

    columns: list[str] | None = Field(
        default=None, min_length=1, description="The names of its columns, for limits by column and for messages."
    )

    @model_validator(mode="after")
    def _says_what_fits(self) -> OutputPart:
        others = [name for name in type(self).model_fields if name != "ignore"]
        if (self.ignore is None) == all(getattr(self, name) is None for name in others):
            raise ValueError(f"write either ignore: REASON, or one or more of {', '.join(others)}")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns names one column twice: {', '.join(self.columns)}")
        return self


# By output and name of a limit: one number, one a column, or numbers by column name.
OutputLimits = dict[str, dict[str, float | list[float | None] | dict[str, float]]]


def _real_author(author: str) -> str:
    if author.strip() == "AUTHOR":
        raise ValueError("the word AUTHOR is a placeholder, not a name")
    return author


class AcceptedRepairPart(SpecPart):
    """A repair that `repair` proposed: another exporter or opset, or changes of the file; who accepts it, and why."""

    author: Annotated[str, AfterValidator(_real_author)] = Field(pattern=r"\S")
    reason: Reason = Field(pattern=r"\S")
    exporter: Literal["dynamo", "torchscript"] | None = None
    opset: Annotated[int, Field(ge=1)] | None = None
    changes: dict[str, Any] = Field(
        default_factory=dict, description="The changes of weights, attributes and nodes, as `repair` prints them."
    )

    @field_validator("changes")
    @classmethod
    def _are_known(cls, changes: dict[str, Any]) -> dict[str, Any]:
        from paritygate.convert.onnx.changes import changes_of

        changes_of(changes)
        return changes

    @model_validator(mode="after")
    def _has_a_change(self) -> AcceptedRepairPart:
        if not (self.exporter or self.opset or any(self.changes.values())):
            raise ValueError("at least one of exporter, opset and changes is needed")
        return self


class RepairPart(SpecPart):
    """Repairs of conversions that fail in FP32."""

    accept: dict[Literal["onnx-fp32"], AcceptedRepairPart] = Field(
        default_factory=dict,
        description="The repairs that a run makes, as `repair` printed them; a release names them.",
    )


class PromotePart(SpecPart):
    """When and where a release is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    to: str = "artifacts/repository"
    alias: str | None = "prod"
    prefer: Literal["fastest", "smallest"] | list[str] | None = Field(
        default=None,
        description="Of variants that pass within the limits, release the fastest, the smallest or the first of these; "
        "all if absent.",
    )
    limits: Annotated[dict[str, float], AfterValidator(check_limits)] = Field(
        default_factory=dict, description="Limits on speed and size, such as latency_p95_ms: 20 or size_mb: 50."
    )
    against: Annotated[dict[str, float], AfterValidator(check_factors)] = Field(
        default_factory=dict,
        description="By how much a figure may be worse than that of the released version, as a factor: for `gate`.",
    )
    devices: list[str] | None = Field(
        default=None,
        alias="for",
        description="Where it will run: cpu, or cuda:smNN; the device that the run was validated on if absent.",
    )
    accept: dict[str, Literal["emulated"]] = Field(default_factory=dict)
    fallback: Literal["source", "replace", "none"] | None = Field(
        default=None,
        description="What is released where nothing fits, and nothing that is required failed: source, the source "
        "itself, if the alias has no release yet (the default); replace, also where it has one; none, nothing.",
    )
    after: str | list[str] = Field(
        default_factory=list,
        description="A command to run after a release or a move of its alias, with the manifest on standard input.",
    )

    @field_validator("prefer", mode="before")
    @classmethod
    def _known_preference(cls, value: object) -> object:
        if isinstance(value, str) and value not in PREFERENCES:
            raise ValueError(f"{value!r} is not a preference (allowed: {', '.join(PREFERENCES)}, a list of variants)")
        return value

    @field_validator("devices")
    @classmethod
    def _known_devices(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if not _DEVICE.fullmatch(name):
                msg = f"{name!r} is not a device (allowed: cpu, cuda:smNN for a compute capability, as in cuda:sm80)"
                raise ValueError(msg)
        return value

    @field_validator("after")
    @classmethod
    def _has_words(cls, value: str | list[str]) -> str | list[str]:
        # `shlex` names an unclosed quotation.
        words = shlex.split(value) if isinstance(value, str) else value
        if not all(words) or (isinstance(value, str) and not words):
            raise ValueError("a command is needed, as one text or as a list of words that are not empty")
        # The manifest and the log keep it. A query is often no secret.
        if any(without_secrets(each) != each for word in words for each in [word.partition("?")[0]]):
            raise ValueError("a user or password in an address, which the release would keep: read it from a variable")
        return value

    @property
    def after_words(self) -> tuple[str, ...]:
        """The words of the command after a release; none if there is no command."""
        return tuple(shlex.split(self.after) if isinstance(self.after, str) else self.after)


class ServePart(SpecPart):
    """Settings of model servers, in place of those that follow from the release."""

    triton: dict[str, Any] | None = Field(
        default=None,
        description="Fields of Triton's model configuration, such as dynamic_batching or instance_group; each takes "
        "the place of what the command triton would write, and null leaves it out.",
    )

    @field_validator("triton")
    @classmethod
    def _known_fields(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        from paritygate.pipelines.serving.triton.config import check_own

        check_own(value or {})
        return value


class OnnxruntimePart(SpecPart):
    """How ONNX Runtime runs ONNX targets."""

    provider: Literal["cuda", "tensorrt"] = Field(
        default="cuda", description="The execution provider that runs them where the device is cuda."
    )


class TensorrtPart(SpecPart):
    """How TensorRT engines are built."""

    workspace_mb: int | None = Field(
        default=None, ge=1, description="GPU memory for scratch, in MiB; TensorRT's default if absent."
    )
    optimization_level: int | None = Field(
        default=None, ge=0, le=5, description="0 builds fastest, 5 runs fastest; TensorRT's default if absent."
    )
    hardware_compatibility: HardwareCompatibility = Field(
        default=HardwareCompatibility.NONE, description="On which other GPUs an engine runs."
    )
    version_compatible: bool = Field(default=False, description="Whether later versions of TensorRT run it too.")
    timing_cache: str | None = Field(
        default=None, description="File of timings that builds read and add to, relative to the spec's folder."
    )

    def settings(self, folder: Path) -> EngineSettings:
        """Return the settings, with paths relative to `folder`."""
        cache = None if self.timing_cache is None else (folder / self.timing_cache).resolve()
        return EngineSettings(**{**dict(self), "timing_cache": cache})


class TensorrtRtxPart(SpecPart):
    """How TensorRT-RTX engines are built."""

    compute_capabilities: list[Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]] = Field(
        default_factory=list,
        description='The GPUs an engine is built for, such as "8.9"; if empty, those of 8.0 and above that '
        "TensorRT-RTX names (7.5 only on request).",
    )
    workspace_mb: int | None = Field(
        default=None, ge=1, description="GPU memory for scratch, in MiB; TensorRT-RTX's default if absent."
    )

    @property
    def settings(self) -> EngineSettings:
        """The settings for building."""
        return EngineSettings(
            workspace_mb=self.workspace_mb, compute_capabilities=tuple(dict.fromkeys(self.compute_capabilities))
        )


class BenchmarkPart(SpecPart):
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
