"""Make the configuration of a model on Triton from an artifact, and merge in the spec's own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.pipelines.serving.protobuf import ConfigError
from paritygate.pipelines.serving.triton.backends import backend_of, served_signature
from paritygate.pipelines.serving.triton.messages import DATA_TYPES, config_of
from paritygate.pipelines.serving.triton.settings import TunedSettings, TunedUse, settings_of, with_settings
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec

# A lone client waits as long for others: 20 ms cost 99 % of the throughput, a tenth of one hardly any.
QUEUE_DELAY_US = 100
# The default without a declared number of rows.
DEFAULT_MAX_BATCH = 8
# Fields that follow from the release or the command line.
_NOT_OWN: Mapping[str, str] = {
    "name": "--name gives it",
    "version_policy": "the alias decides which version is served",
    "backend": "it follows from the variant",
    "platform": "it follows from the variant",
    "default_model_filename": "it follows from the variant",
}
_ANY = -1
_OPENVINO = "openvino"


class ServedModel(Struct, frozen=True, kw_only=True):
    """One version of a model for a server."""

    artifact: Artifact
    name: str  # on the server
    version: int
    devices: Sequence[str] = ()  # where it was verified, such as cpu and cuda:sm90; no other serves it
    own: Mapping[str, Any] = field(default_factory=dict)  # the spec's `serve: {triton: ...}`, which replaces values
    server: str | None = None  # its release, such as 25.10
    tuned: TunedSettings = field(default_factory=TunedSettings)  # measured by tune


class ModelConfig(Struct, frozen=True, kw_only=True):
    """A configuration under Triton's names, and notes on decisions with reasons."""

    data: Mapping[str, Any]
    notes: Sequence[str] = field(default_factory=tuple)


class WarmupInput(Struct, frozen=True, kw_only=True):
    """An input that the server is warmed up with."""

    name: str  # on the server
    dtype: str  # NumPy's name
    shape: tuple[int, ...]  # of one row, (1, ...)
    file: str  # below the model's folder `warmup`


def check_own(own: Mapping[str, Any]) -> None:
    """Raise ConfigError if the spec's own values are not fields or types of Triton, or not the spec's to set."""
    for name, why in _NOT_OWN.items():
        if name in own:
            raise ConfigError(f"{name!r} must not be in serve.triton: {why}")
    config_of(_without_none(own))


def make_config(model: ServedModel, *, warmup: Sequence[WarmupInput] = ()) -> ModelConfig:
    """Return the configuration that serves one version of a model, with inputs for a warm-up, if any.

    Raises:
        UsageError: Triton does not serve the format or a dtype, or the rank of a tensor is unknown.
        ConfigError: The spec's own values are no configuration.
    """
    artifact, own = model.artifact, model.own
    check_own(own)
    signature = served_signature(artifact)
    notes: list[str] = []
    rows = _max_batch_size(artifact, signature, own, notes)
    data: dict[str, Any] = {
        "name": model.name,
        "backend": backend_of(artifact.variant.format).name,
        "version_policy": {"specific": {"versions": [model.version]}},
        "max_batch_size": rows,
        "input": [_tensor(spec, is_batched=rows > 0) for spec in signature.inputs],
        "output": [_tensor(spec, is_batched=rows > 0) for spec in signature.outputs],
        "instance_group": [{"count": 1, "kind": _kind(artifact, model.devices)}],
    }
    if rows > 1:
        # Without preferred sizes: a server that merges to them sends fewer rows a call. Triton's
        # documentation only advises them for models that are fast at a few sizes, such as engines with
        # several profiles.
        data["dynamic_batching"] = {"max_queue_delay_microseconds": QUEUE_DELAY_US}
    if artifact.variant.format == _OPENVINO:
        data.update(_precision_of_openvino(artifact, notes))
    if warmup:
        requests = sorted({1, _usual_batch(signature, rows)})
        inputs = {item.name: _warmup_input(item, is_batched=rows > 0) for item in warmup}
        data["model_warmup"] = [{"name": f"samples_{size}", "batch_size": size, "inputs": inputs} for size in requests]
    merged = _merged(data, own)
    if model.tuned.settings is not None and model.tuned.use is not TunedUse.LEFT_OUT:
        settings = model.tuned.settings
        if own and model.tuned.use is TunedUse.CARRIED_OVER:
            # The spec may allow less than that of the measured version.
            settings = settings.within(settings_of(merged))
        merged = with_settings(merged, settings)
    if model.tuned.note:
        notes.append(model.tuned.note)
    return ModelConfig(data=merged, notes=tuple(notes))


def _dims_of(spec: TensorSpec, *, is_batched: bool) -> list[int]:
    """Return the dims of a tensor in a configuration: -1 for any size, without the batch's.

    Raises:
        UsageError: The rank is unknown.
    """
    if spec.shape is None:
        msg = f"the rank of {spec.name!r} is unknown, but Triton needs its dims"
        raise UsageError(msg, hint="declare the shape in the spec: model.outputs, and release it again")
    dims = [size if isinstance(size, int) else _ANY for size in spec.shape]
    return dims[1:] if is_batched else dims


def _precision_of_openvino(artifact: Artifact, notes: list[str]) -> dict[str, Any]:
    """Return the parameters that set OpenVINO's precision, which is not in its files."""
    if artifact.variant.precision is Precision.BF16:
        return {"parameters": {"HINT_BF16": {"string_value": "YES"}}}
    notes.append(
        "Triton's OpenVINO backend takes no hint to compute in f32, as the release was verified: on a CPU that has "
        "BF16 OpenVINO chooses that by itself; compare where it is served"
    )
    return {}


def _max_batch_size(artifact: Artifact, signature: Signature, own: Mapping[str, Any], notes: list[str]) -> int:
    own_rows = own.get("max_batch_size")
    if own_rows is not None:
        return int(own_rows)
    if artifact.variant.format == _OPENVINO:
        notes.append(
            "requests are not batched: Triton's OpenVINO backend fixes the batch at max_batch_size and refuses fewer "
            "rows, unless it pads them: serve: {triton: {max_batch_size: N, parameters: {ENABLE_BATCH_PADDING: "
            '{string_value: "YES"}}}}'
        )
        return 0
    batch = signature.batch_dim
    if batch is None:
        notes.append(
            "requests are not batched: not every input and output has the same symbolic first dim, which Triton asks "
            "of a model that it batches"
        )
        return 0
    flat = [
        spec.name for spec in (*signature.inputs, *signature.outputs) if spec.shape is not None and len(spec.shape) == 1
    ]
    if flat:
        notes.append(
            f"requests are not batched: {', '.join(flat)} has no dim but the batch's, and Triton would answer it with "
            "one dim more; serve: {triton: {max_batch_size: N}} takes that"
        )
        return 0
    if batch in signature.dims:
        return signature.dims[batch].max
    notes.append(
        f"max_batch_size is {DEFAULT_MAX_BATCH}: nobody declared how many rows a call may have; declare "
        f"model.dims.{batch} in the spec, or serve: {{triton: {{max_batch_size: N}}}}"
    )
    return DEFAULT_MAX_BATCH


def _usual_batch(signature: Signature, rows: int) -> int:
    """Return the rows of a warm-up call: the usual number, else the most."""
    batch = signature.batch_dim
    if batch is not None and batch in signature.dims and signature.dims[batch].opt <= rows:
        return signature.dims[batch].opt
    return max(1, rows)


def _tensor(spec: TensorSpec, *, is_batched: bool) -> dict[str, Any]:
    dims = _dims_of(spec, is_batched=is_batched)
    entry: dict[str, Any] = {"name": spec.name, "data_type": DATA_TYPES[spec.dtype], "dims": dims or [1]}
    if not dims and is_batched:
        # Triton needs a dim, so the tensor outside has one of size 1, which the model lacks.
        entry["reshape"] = {"shape": []}
    return entry


def _warmup_input(item: WarmupInput, *, is_batched: bool) -> dict[str, Any]:
    dims = list(item.shape[1:]) if is_batched else list(item.shape)
    return {"data_type": DATA_TYPES[item.dtype], "dims": dims or [1], "input_data_file": item.file}


def _kind(artifact: Artifact, devices: Sequence[str]) -> str:
    kinds = {"KIND_CPU" if device == "cpu" else "KIND_GPU" for device in devices}
    if artifact.variant.format == "tensorrt":
        return "KIND_GPU"
    return next(iter(kinds)) if len(kinds) == 1 else "KIND_AUTO"


def _merged(data: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with the spec's values: a mapping is merged by keys, anything else replaced; None removes it."""
    merged = dict(data)
    for name, value in own.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged


def _without_none(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in own.items()
        if value is not None
    }
