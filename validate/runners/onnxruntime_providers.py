"""The execution providers of ONNX Runtime: the request, its options, and the session's own ones.

Nothing here lowers the precision of the file. CUDA's provider has an option for TF32. TensorRT's has none, so
NVIDIA_TF32_OVERRIDE bars it there, which CUDA's libraries read when they start.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.engine.settings import ProfileShapes, profile_of
from paritygate.errors import BackendError, UsageError
from paritygate.models.onnx.graph import QUANTIZATION_OPERATORS, graphs_in, nodes_in
from paritygate.signature import Signature
from paritygate.text import counted, one_or_many

if TYPE_CHECKING:
    import onnx

    from paritygate.validate.runners.onnxruntime_placement import GraphNode, PlacedNode, Placement

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
# By the names that users give them, and the device of each.
PROVIDERS: Mapping[str, tuple[str, str]] = {"cpu": (CPU, "cpu"), "cuda": (CUDA, "cuda"), "tensorrt": (TENSORRT, "cuda")}
_TF32 = "NVIDIA_TF32_OVERRIDE"
_CUDA_OPTIONS: Mapping[str, str] = {
    "use_tf32": "0",
    # EXHAUSTIVE, the default, times the algorithms in each session, so the same file could give other outputs the next
    # time.
    "cudnn_conv_algo_search": "HEURISTIC",
}
_NOTE_ON_ALGORITHMS = (
    "cuDNN chose the algorithms of convolutions by rule (cudnn_conv_algo_search=HEURISTIC), the same in every session; "
    "by default ONNX Runtime times them, and may serve others"
)
# Engines and timings of an earlier build would give another engine than this file does.
_TENSORRT_OPTIONS: Mapping[str, str] = {"trt_engine_cache_enable": "0", "trt_timing_cache_enable": "0"}
_LOWERING = ("trt_fp16_enable", "trt_int8_enable")
_BF16 = "trt_bf16_enable"
_PROFILE = "trt_profile_"
_ON = frozenset({"1", "true"})


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """The settings of a session to open.

    `providers` are the requested one, `name`, and those that may run nodes it lacks, with options. `notes` are for the
    user, and `warnings` about open questions. `is_tf32_barred` is true where TF32 is kept from libraries without an
    option.
    """

    name: str
    providers: tuple[tuple[str, Mapping[str, str]], ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_tf32_barred: bool = True


def check_provider(provider: str, device: str) -> str:
    """Return ONNX Runtime's name of a provider; raise UsageError where it is unknown or not of the device."""
    if provider not in PROVIDERS:
        msg = f"provider {provider!r} is not known (allowed: {', '.join(PROVIDERS)})"
        raise UsageError(msg, hint="name one of the providers above")
    name, of_device = PROVIDERS[provider]
    if of_device != device:
        msg = f"provider {provider!r} runs on device {of_device}, but the requested device is {device!r}"
        raise UsageError(msg, hint=f"use --device {of_device}, or leave --provider out")
    return name


def provider_request(
    provider: str | None, device: str, *, own: Signature, served: Signature | None, dtypes: frozenset[str]
) -> ProviderRequest:
    """Return the settings of a session to open.

    `provider` is None for that of the device. `served` declares the sizes of symbolic dims. `dtypes` are those of the
    graph below float32: of `float16`, `bfloat16`, `int8`.
    """
    name = check_provider(provider or device, device)
    if name == CPU:
        return ProviderRequest(name=name, providers=((CPU, {}),))
    if name == CUDA:
        return ProviderRequest(name=name, providers=((CUDA, _CUDA_OPTIONS),), notes=(_NOTE_ON_ALGORITHMS,))
    return _tensorrt_request(own, served, dtypes)


def _tensorrt_request(own: Signature, served: Signature | None, dtypes: frozenset[str]) -> ProviderRequest:
    options = dict(_TENSORRT_OPTIONS)
    options["trt_fp16_enable"] = "1" if "float16" in dtypes else "0"
    options["trt_int8_enable"] = "1" if "int8" in dtypes else "0"
    if "bfloat16" in dtypes:
        # Only named here, because versions without the option refuse it, and lack the precision.
        options[_BF16] = "1"
    warnings = []
    lower = ", ".join(sorted(dtypes))
    if dtypes:
        warnings.append(
            f"the file holds {lower}, so TensorRT may compute in it, where the file says float32 too: "
            "this provider builds networks that are not strongly typed"
        )
    profile = None if served is None else _profile(own, served)
    if profile:
        options |= _profile_options(profile)
    elif any(isinstance(dim, str) or dim is None for spec in own.inputs for dim in spec.shape or (None,)):
        warnings.append(
            "no sizes of the inputs' symbolic dims are declared: TensorRT builds another engine when a shape comes "
            "that is outside of those before, so the answers may be those of several engines"
        )
    return ProviderRequest(
        name=TENSORRT, providers=((TENSORRT, options), (CUDA, _CUDA_OPTIONS)), warnings=tuple(warnings)
    )


def _profile(own: Signature, served: Signature) -> Mapping[str, ProfileShapes]:
    """Return the shapes of the inputs with symbolic dims, by the file's names; empty where a size is not declared."""
    declared = Signature(inputs=own.inputs, outputs=own.outputs, dims=served.dims)
    try:
        shapes = profile_of(declared)
    except UsageError:
        return {}
    return {
        spec.name: shapes[spec.name] for spec in own.inputs if any(not isinstance(dim, int) for dim in spec.shape or ())
    }


def _profile_options(profile: Mapping[str, ProfileShapes]) -> dict[str, str]:
    return {
        f"{_PROFILE}{end}_shapes": ",".join(
            f"{name}:{'x'.join(map(str, getattr(shapes, end)))}" for name, shapes in profile.items()
        )
        for end in ("min", "opt", "max")
    }


def lower_dtypes(model: onnx.ModelProto) -> frozenset[str]:
    """Return which of `float16`, `bfloat16` and `int8` (quantized) the graph's tensors use."""
    from onnx import TensorProto

    names = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
    dtypes = {names.get(value.type.tensor_type.elem_type) for value in (*model.graph.input, *model.graph.output)}
    dtypes |= {names.get(tensor.data_type) for graph in graphs_in(model.graph) for tensor in graph.initializer}
    for node in nodes_in(model.graph):
        if node.op_type in QUANTIZATION_OPERATORS:
            dtypes.add("int8")
        for attribute in node.attribute:
            dtypes.add(names.get(attribute.t.data_type))
            if attribute.name in {"to", "dtype"}:
                dtypes.add(names.get(attribute.i))
    return frozenset(name for name in dtypes if name)


@functools.cache
def bar_tf32() -> bool:
    """Forbid TF32 to CUDA libraries that start after this, and return whether that is all of them.

    TensorRT's provider has no option for it, and TensorRT allows it by default. The result is that of the first call.
    """
    if os.environ.get(_TF32, "").strip() == "0":
        return True
    os.environ[_TF32] = "0"
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def prepare_process(provider: str | None) -> None:
    """Prepare a process for a provider, by its users' name, before anything in it starts CUDA."""
    if provider == "tensorrt":
        bar_tf32()


def say_provider(provider: str | None) -> tuple[str, ...]:
    """Return the provider that ran a model; empty for the CPU, where it is obvious."""
    return () if provider in {None, CPU} else (f"ONNX Runtime ran it by {provider}",)


def load_libraries(onnxruntime: object, provider: str) -> None:
    """Load the libraries of a provider from the packages that hold them, so that it finds them.

    Others are left to the system, or for the session to miss.
    """
    if provider == CPU:
        return
    preload = getattr(onnxruntime, "preload_dlls", None)
    if preload is not None:
        preload()
    if provider == TENSORRT:
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module("tensorrt_libs")


def check_options(request: ProviderRequest, found: Mapping[str, Mapping[str, str]]) -> None:
    """Raise BackendError where a session's options differ, or allow a precision that was not requested."""
    for provider, options in request.providers:
        has = found.get(provider, {})
        for name, value in options.items():
            # Shapes change no output: a call beyond them fails.
            if not name.startswith(_PROFILE) and not _is_same(has.get(name), value):
                msg = f"{provider} was given {name}={value} but runs with {name}={has.get(name, 'nothing')}"
                raise BackendError(msg, hint="use another version of onnxruntime-gpu")
        for name in (*_LOWERING, _BF16):
            if name not in options and has.get(name, "0").lower() in _ON:
                msg = f"{provider} runs with {name}={has[name]}, which was not requested"
                raise BackendError(msg, hint=f"unset ORT_TENSORRT_{name.removeprefix('trt_').upper()}")


def _is_same(found: str | None, asked: str) -> bool:
    if found is None:
        return False
    # Some versions write their booleans as words.
    words = {"false": "0", "true": "1"}
    return words.get(found.lower(), found) == asked


def tf32_of(request: ProviderRequest, found: Mapping[str, Mapping[str, str]]) -> bool | None:
    """Return whether a session may use TF32; None on the CPU, where there is none."""
    if request.name == CPU:
        return None
    # A build that lacks the option has TF32 on for convolutions.
    is_on = found.get(CUDA, {}).get("use_tf32", "1") != "0"
    return is_on if request.name == CUDA else is_on or not request.is_tf32_barred


def check_placement(
    request: ProviderRequest,
    placed: Sequence[PlacedNode] | None,
    nodes: Sequence[GraphNode],
    *,
    version: str,
    optimised: Callable[[], Iterable[GraphNode]] = tuple,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check that computing nodes run on the requested provider, and return notes and warnings.

    `placed` is None where ONNX Runtime does not report it. BackendError is raised where nodes that compute floats are
    on the CPU, or the provider runs none.
    """
    if request.name == CPU:
        return (), ()
    if placed is None:
        return (), (
            f"onnxruntime {version} does not tell where nodes run: some may run on the CPU and not on {request.name}",
        )
    from paritygate.validate.runners.onnxruntime_placement import judge, say_nodes

    placement = judge(placed, nodes, cpu=CPU, optimised=optimised)
    if placement.computing:
        msg = (
            f"{request.name} was requested, but onnxruntime {version} computes {len(placement.computing)} of "
            f"{len(placed)} nodes on the CPU: {say_nodes(placement.computing)}"
        )
        raise BackendError(
            msg,
            hint="the GPU has no kernel for these operators or types: export the model without them, or use device cpu",
        )
    if not placement.counts.get(request.name):
        msg = f"{request.name} was requested, but runs none of {counted(len(placed), 'node')}"
        raise BackendError(msg, hint="use --provider cuda, or another model")
    return tuple(_notes(request, placement)), tuple(_warnings(request, placement, placed))


def _notes(request: ProviderRequest, placement: Placement) -> list[str]:
    notes = [f"{request.name} runs {placement.counts[request.name]} of {sum(placement.counts.values())} nodes"]
    if placement.arithmetic:
        few = one_or_many(
            placement.arithmetic,
            "node that computes shapes or indices runs",
            "nodes that compute shapes and indices run",
        )
        notes.append(f"{placement.arithmetic} {few} on the CPU, as ONNX Runtime does")
    return notes


def _warnings(request: ProviderRequest, placement: Placement, placed: Sequence[PlacedNode]) -> list[str]:
    from paritygate.validate.runners.onnxruntime_placement import say_nodes

    warnings = []
    if not request.is_tf32_barred:
        warnings.append(f"CUDA was in use before {_TF32}=0 could be set: whether TensorRT uses TF32 was not seen")
    if count := len(placement.undecided):
        warnings.append(
            f"{counted(count, 'node')} without a name {one_or_many(count, 'runs', 'run')} on the CPU, and whether "
            f"{one_or_many(count, 'it computes', 'they compute')} floats cannot be told: "
            f"{say_nodes(placement.undecided)}"
        )
    others = [node for node in placed if node.provider not in {CPU, request.name}]
    if others:
        names = ", ".join(sorted({node.provider for node in others}))
        warnings.append(
            f"{len(others)} of {len(placed)} nodes run on {names} and not on {request.name}: {say_nodes(others)}"
        )
    return warnings
