"""Check a view before it is published for mistakes that make Triton refuse it, answer wrongly, or die.

Each rule was seen on a real server, or read in a backend's source, see docs/triton.md. A ready server proves little,
because most mistakes in names, dtypes and dims show at the first request, or never.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from paritygate.pipelines.serving.protobuf import ConfigError, data_of
from paritygate.pipelines.serving.triton.backends import BACKENDS, model_file_of
from paritygate.pipelines.serving.triton.messages import DATA_TYPES, parse_text
from paritygate.pipelines.serving.triton.servers import OnnxVersion, server_of
from paritygate.signature import Signature, TensorSpec

PARSING = "text"
_ANY = -1
_VERSION = re.compile(r"[1-9][0-9]*")
_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_UINT16", "TYPE_INT16", "TYPE_FP16", "TYPE_BF16"), 2),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_INT32", "TYPE_FP32"), 4),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_INT64", "TYPE_FP64"), 8),
}
_SIDES = ("input", "output")


class View(Struct, frozen=True, kw_only=True):
    """A planned folder of a model, and facts on the model."""

    folder: str  # its name, which is the model's
    text: str  # of config.pbtxt
    files: Mapping[str, int]  # sizes in bytes of all other files, by name
    signature: Signature | None = None  # under the names served
    devices: Sequence[str] = field(default_factory=tuple)  # where the model was verified
    onnx: OnnxVersion | None = None  # the version of its ONNX file, if it matters
    server: str | None = None  # the release of Triton, such as 25.10

    @property
    def folders(self) -> list[str]:
        """The folders in it: versions, warm-up inputs, and others."""
        return sorted({name.split("/")[0] for name in self.files if "/" in name})

    @property
    def versions(self) -> list[int]:
        """The versions that the server sees."""
        return [int(name) for name in self.folders if _VERSION.fullmatch(name)]


class Problem(Struct, frozen=True, kw_only=True):
    """A broken rule and the message."""

    rule: str
    words: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


def lint(view: View) -> list[Problem]:
    """Return the problems of a view, rule by rule; none if it may be published."""
    try:
        config = data_of(parse_text(view.text))
    except ConfigError as err:
        return [Problem(rule=PARSING, words=str(err))]
    return [Problem(rule=name, words=words) for name, rule in RULES.items() for words in rule(config, view)]


def _name(config: Mapping[str, Any], view: View) -> Iterator[str]:
    name = config.get("name", view.folder)
    if name != view.folder:
        yield f"the model is named {name!r}, and its folder {view.folder!r}: the server loads neither"


def _backend(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del view
    names = [item.name for item in BACKENDS.values()]
    if config.get("backend") not in names:
        yield f"backend is {config.get('backend')!r} (allowed: {', '.join(names)})"


def _max_batch_size(config: Mapping[str, Any], view: View) -> Iterator[str]:
    rows = _rows(config)
    if rows < 0:
        yield f"max_batch_size is {rows} (allowed: 0, which is not a batching, and more)"
    declared = _declared_rows(view.signature)
    if declared is not None and rows > declared:
        yield f"max_batch_size is {rows}, and the model was made and verified for at most {declared} rows a call"


def _tensors(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del view
    for side in _SIDES:
        tensors = config.get(side, [])
        if not tensors:
            yield f"there is no {side}"
        for at, tensor in enumerate(tensors):
            name = tensor.get("name") or f"{side} {at}"
            if not tensor.get("name"):
                yield f"{side} {at} has no name"
            if tensor.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
                yield f"{name} has no data_type"
            wrong = [dim for dim in _dims(tensor) if dim < 1 and dim != _ANY]
            if not _dims(tensor):
                yield f"{name} has no dims (without any it is dims: [1], with a reshape to [] where it is batched)"
            if wrong:
                yield f"{name} has the dims {_dims(tensor)} (allowed: 1 and more, and -1 for any size)"
        for name, count in Counter(tensor.get("name") for tensor in tensors).items():
            if name and count > 1:
                yield f"{count} of the {side}s are named {name!r}: the server is ready, and answers wrongly"


def _reshape(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del view
    for tensor in [tensor for side in _SIDES for tensor in config.get(side, [])]:
        if "reshape" not in tensor:
            continue
        shape, dims = [int(size) for size in tensor["reshape"].get("shape", [])], _dims(tensor)
        if not shape and _rows(config) == 0:
            yield f"{tensor.get('name')} is reshaped to [], which a model that is not batched cannot be"
        if dims.count(_ANY) != shape.count(_ANY) or (_ANY not in dims and math.prod(dims) != math.prod(shape)):
            yield f"{tensor.get('name')} has the dims {dims}, and is reshaped to {shape}, which is of another size"


def _batching(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del view
    if "dynamic_batching" not in config:
        return
    rows = _rows(config)
    if rows < 1:
        yield "dynamic_batching stands beside max_batch_size 0: the server is ready, and merges nothing"
    for size in config["dynamic_batching"].get("preferred_batch_size", []):
        if not 0 < size <= rows:
            yield f"preferred_batch_size {size} is not allowed (allowed: 1 to max_batch_size, which is {rows})"


def _padding(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del view
    padding = config.get("parameters", {}).get("ENABLE_BATCH_PADDING", {}).get("string_value", "")
    if config.get("backend") == "openvino" and _rows(config) > 0 and padding.upper() != "YES":
        yield (
            f"the OpenVINO backend answers {_rows(config)} rows together and refuses fewer, unless parameters say "
            'ENABLE_BATCH_PADDING: {string_value: "YES"}; max_batch_size 0 takes any number of rows a request'
        )


def _warmup(config: Mapping[str, Any], view: View) -> Iterator[str]:
    inputs = {tensor.get("name"): tensor for tensor in config.get("input", [])}
    most = max(1, _rows(config))
    for at, request in enumerate(config.get("model_warmup", [])):
        what = f"warm-up {request.get('name') or at}"
        size = request.get("batch_size", 0)
        if not 1 <= size <= most:
            yield f"{what} has batch_size {size} (allowed: 1 to {most}): more kills the whole server"
        tensors = request.get("inputs", {})
        if set(tensors) != set(inputs):
            yield f"{what} gives {', '.join(tensors) or 'nothing'}, but the model expects {', '.join(map(str, inputs))}"
        for name, tensor in tensors.items():
            if name in inputs:
                yield from (f"{what}: {name} {words}" for words in _warmup_input(tensor, inputs[name], view))


def _warmup_input(given: Mapping[str, Any], wanted: Mapping[str, Any], view: View) -> Iterator[str]:
    dims, kind = _dims(given), given.get("data_type", "TYPE_INVALID")
    if kind != wanted.get("data_type"):
        yield f"is {kind}, but the model expects {wanted.get('data_type')}"
    allowed = _dims(wanted)
    fits = len(dims) == len(allowed) and all(b in {_ANY, a} for a, b in zip(dims, allowed, strict=False))
    if any(dim < 1 for dim in dims) or not fits:
        yield f"has the dims {dims}, and is to have sizes of its own that fit {allowed}"
        return
    if "input_data_file" in given:
        path = f"warmup/{given['input_data_file']}"
        size = view.files.get(path)
        if size is None:
            yield f"is to be read from {path}, which is not there"
        elif kind in _BYTES and size != math.prod(dims) * _BYTES[kind]:
            yield f"takes {math.prod(dims) * _BYTES[kind]} bytes a row, and {path} has {size}"
    elif not given.get("zero_data") and not given.get("random_data"):
        yield "says neither zero_data, random_data nor input_data_file"


def _instances(config: Mapping[str, Any], view: View) -> Iterator[str]:
    is_on_cpu = bool(view.devices) and all(device == "cpu" for device in view.devices)
    is_on_gpu = bool(view.devices) and "cpu" not in view.devices
    for at, group in enumerate(config.get("instance_group", [])):
        kind = group.get("kind", "KIND_AUTO")
        if group.get("count", 1) < 1:
            yield f"instance_group {at} has count {group['count']} (allowed: 1 and more)"
        if kind == "KIND_GPU" and is_on_cpu:
            yield f"instance_group {at} is KIND_GPU, and the release was verified on the CPU alone"
        if kind == "KIND_CPU" and is_on_gpu:
            yield f"instance_group {at} is KIND_CPU, and the release was verified on {', '.join(view.devices)} alone"
        if kind == "KIND_CPU" and config.get("backend") == "tensorrt":
            yield f"instance_group {at} is KIND_CPU, and an engine of TensorRT runs on a GPU"


def _version_policy(config: Mapping[str, Any], view: View) -> Iterator[str]:
    policy = config.get("version_policy", {"latest": {"num_versions": 1}})
    there = ", ".join(map(str, view.versions)) or "none"
    if "latest" in policy and policy["latest"].get("num_versions", 0) < 1:
        yield "version_policy is the latest 0 versions: none is served"
    wanted = [int(version) for version in policy.get("specific", {}).get("versions", [])]
    if "specific" in policy and (not wanted or any(version not in view.versions for version in wanted)):
        yield f"version_policy names the versions {wanted}, and there are: {there}"
    elif not view.versions:
        yield f"there is no version that could be served (folders: {', '.join(view.folders) or 'none'})"


def _version_folders(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del config
    for name in view.folders:
        if name != "warmup" and not _VERSION.fullmatch(name):
            yield f"the folder {name!r} is not a version (allowed: a number without a leading 0): it is ignored"


def _model_file(config: Mapping[str, Any], view: View) -> Iterator[str]:
    name = config.get("default_model_filename") or model_file_of(config.get("backend", ""))
    for version in view.versions if name else ():
        path = f"{version}/{name}"
        if path not in view.files and not any(other.startswith(f"{path}/") for other in view.files):
            yield f"version {version} has no {name}, which the backend opens"


def _onnx_version(config: Mapping[str, Any], view: View) -> Iterator[str]:
    del config
    if view.server is None or view.onnx is None:
        return
    ships, seen = server_of(view.server), view.onnx
    if seen.ir > ships.reads.ir or seen.opset > ships.reads.opset:
        yield (
            f"the model is of IR {seen.ir} and opset {seen.opset}, and Triton {view.server} has ONNX Runtime "
            f"{ships.onnxruntime}, which opens up to IR {ships.reads.ir} and opset {ships.reads.opset}"
        )


def _model_tensors(config: Mapping[str, Any], view: View) -> Iterator[str]:
    if view.signature is None:
        return
    for side, specs in zip(_SIDES, (view.signature.inputs, view.signature.outputs), strict=True):
        tensors = {tensor.get("name"): tensor for tensor in config.get(side, [])}
        own = {spec.name: spec for spec in specs}
        if set(tensors) != set(own):
            yield f"the {side}s are {', '.join(map(str, tensors))}, and the model has {', '.join(own)}"
        for name in own.keys() & tensors.keys():
            yield from _model_tensor(tensors[name], own[name], side, _rows(config))


def _model_tensor(tensor: Mapping[str, Any], spec: TensorSpec, side: str, rows: int) -> Iterator[str]:
    kind = tensor.get("data_type", "TYPE_INVALID")
    if kind != DATA_TYPES[spec.dtype]:
        yield f"{spec.name} is {kind}, and of the model {DATA_TYPES[spec.dtype]}"
    if spec.shape is None:
        return
    if rows > 0 and (not spec.shape or isinstance(spec.shape[0], int)):
        yield f"the model takes no batches: {spec} has no first dim of any size, and max_batch_size is {rows}"
        return
    full = [size if isinstance(size, int) else _ANY for size in spec.shape]
    wanted = full[1:] if rows > 0 else full
    dims = [int(size) for size in tensor["reshape"].get("shape", [])] if "reshape" in tensor else _dims(tensor)
    if dims == wanted or (not wanted and not rows and dims == [1]):
        return
    if rows > 0 and dims == full:
        yield f"the dims of {spec.name} are {dims}: that of the batch stands in them, and max_batch_size adds another"
        return
    # The ONNX Runtime backend compares outputs exactly, but allows narrower dims for an input of any size.
    is_narrower = len(dims) == len(wanted) and all(b in {_ANY, a} for a, b in zip(dims, wanted, strict=True))
    if side == "output" or not is_narrower:
        yield f"the dims of {spec.name} are {dims}, and of the model {wanted}"


def _rows(config: Mapping[str, Any]) -> int:
    return int(config.get("max_batch_size", 0))


def _declared_rows(signature: Signature | None) -> int | None:
    if signature is None:
        return None
    first = {spec.shape[0] for spec in signature.inputs if spec.shape}
    sizes = [signature.dims[dim].max for dim in first if isinstance(dim, str) and dim in signature.dims]
    return min(sizes, default=None)


def _dims(tensor: Mapping[str, Any]) -> list[int]:
    return [int(size) for size in tensor.get("dims", [])]


# By the name that a problem begins with.
RULES: Mapping[str, Callable[[Mapping[str, Any], View], Iterator[str]]] = {
    "name": _name,
    "backend": _backend,
    "max_batch_size": _max_batch_size,
    "tensors": _tensors,
    "reshape": _reshape,
    "dynamic_batching": _batching,
    "padding": _padding,
    "warm-up": _warmup,
    "instance_group": _instances,
    "version_policy": _version_policy,
    "version folders": _version_folders,
    "model file": _model_file,
    "onnx version": _onnx_version,
    "model": _model_tensors,
}
