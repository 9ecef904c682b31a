"""Read the facts on a model of any kind from its file, or from real rows for an object that declares nothing."""

from __future__ import annotations

import contextlib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from paritygate.engine.record import EngineRecord
from paritygate.errors import BackendError, InputFileError, ParitygateError, UsageError
from paritygate.files import parse_json
from paritygate.models.declaration import Answer, signature_of_rows
from paritygate.models.digest import files_of_model
from paritygate.models.example import example_of
from paritygate.models.half_precision import half_dtype, half_dtype_of_model
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind, check_is_no_function
from paritygate.pipelines.inspecting.inspection import Inspection, Tensor
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.reference.refused_rows import refused_row
from paritygate.validate.runners.runner import reason_of

if TYPE_CHECKING:
    from paritygate.batch import Arrays, Batch

# Starts reading the samples; None where there are none.
ReadSamples = Callable[[], "Iterator[Batch]"]

# Their key among the unknown facts.
INPUTS_AND_OUTPUTS = "inputs and outputs"
_NOT_WRITTEN = "the file does not say which PyTorch wrote it"


class ModelFacts(Struct, frozen=True, kw_only=True):
    """The facts read from a model; None means unknown."""

    signature: Signature | None = None  # under its own names
    rows: int | None = None  # that show the signature; None if declared
    parameters: tuple[str, ...] = ()  # of a model that only declares these names
    precision: Precision | None = None  # of its weights
    counts: Counter[str] = field(default_factory=Counter)
    counted: str = "operators"  # or layers
    weight_bytes: int | None = None  # of an object, which has no file
    made_with: Mapping[str, str] = field(default_factory=dict)  # versions of its maker or reader
    signatures: tuple[str, ...] = ()
    half_precision: str | None = None  # float16 or bfloat16 of a PyTorch model
    unknown: Mapping[str, str] = field(default_factory=dict)  # with the reasons


def read_model(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    """Return the facts on a model. Reads all of its weights, to find their precision.

    `read` starts reading the samples, which a model without a signature runs on.

    Raises:
        InputFileError: The file is corrupt.
        MissingBackendError: Its reader is not installed.
        UsageError: The samples lack inputs, or the model is a function, which cannot be read.
        BackendError: The model fails on the samples.
    """
    check_is_no_function(loaded.ref)
    return _READERS[loaded.ref.kind](loaded, read)


def inspection_of(loaded: LoadedModel, facts: ModelFacts) -> Inspection:
    """Return the facts on a model as `inspect` shows them."""
    files = {} if loaded.model is not None else files_of_model(loaded.ref)
    size = sum(path.stat().st_size for path in files.values()) if files else facts.weight_bytes
    signature, unknown = facts.signature, dict(facts.unknown)
    inputs = (
        tuple(map(Tensor.of, signature.inputs)) if signature else tuple(Tensor(name=name) for name in facts.parameters)
    )
    if facts.precision is None:
        unknown.setdefault("precision", "the weights are packed, none is a float, or there are none")
    return Inspection(
        model=loaded.ref.text,
        kind=str(loaded.ref.kind),
        files=len(files),
        size_bytes=size,
        inputs=inputs or None,
        outputs=tuple(map(Tensor.of, signature.outputs)) if signature else None,
        dims=signature.dims if signature else {},
        rows=facts.rows,
        precision=None if facts.precision is None else str(facts.precision),
        counts=dict(facts.counts.most_common()),
        counted=facts.counted,
        made_with=facts.made_with,
        signatures=facts.signatures,
        unknown=unknown,
    )


def _onnx(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    from paritygate.models.onnx.file import precision_of_onnx, read_onnx, signature_of_onnx
    from paritygate.models.onnx.graph import all_nodes

    del read
    path = loaded.ref.path
    model = read_onnx(path)
    opsets = {entry.domain or "ai.onnx": str(entry.version) for entry in model.opset_import}
    writer = f"{model.producer_name} {model.producer_version}".strip()
    signature, unknown = _signature_or_why(lambda: signature_of_onnx(model))
    return ModelFacts(
        signature=signature,
        precision=precision_of_onnx(model, path.parent),
        counts=Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in all_nodes(model)),
        made_with={
            "opset": ", ".join(
                version if name == "ai.onnx" else f"{name} {version}" for name, version in opsets.items()
            ),
            "IR version": str(model.ir_version),
            **({"written by": writer} if writer else {}),
        },
        unknown=unknown if writer else {**unknown, "written by": "the file does not say it"},
    )


def _savedmodel(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    from paritygate.models.tensorflow.importing import import_tensorflow
    from paritygate.models.tensorflow.savedmodel import load_savedmodel, serving_graph
    from paritygate.validate.runners.tensorflow import nodes_of_function, precision_of_savedmodel

    del read
    graph = serving_graph(loaded.ref.path)
    written = str(graph.meta_info_def.tensorflow_version)
    signatures = tuple(sorted(name for name in graph.signature_def if not name.startswith("__")))
    made_with = {
        **({"written by": f"tensorflow {written}"} if written else {}),
        "read with": f"tensorflow {import_tensorflow().__version__}",
    }
    try:
        function = load_savedmodel(loaded.ref.path, loaded.ref.signature_key)
    except InputFileError as err:
        # Without the signature that is served, the other facts are still useful.
        return ModelFacts(made_with=made_with, signatures=signatures, unknown={INPUTS_AND_OUTPUTS: str(err)})
    return ModelFacts(
        signature=function.signature,
        precision=precision_of_savedmodel(function),
        counts=Counter(node.op for node in nodes_of_function(function.function)),
        made_with=made_with,
        signatures=signatures,
    )


def _keras(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    from paritygate.models.tensorflow.importing import import_keras
    from paritygate.models.tensorflow.keras_model import load_keras_file, signature_of_keras, tensors_of_keras
    from paritygate.validate.runners.tensorflow import precision_of_keras

    model = load_keras_file(loaded.ref.path) if loaded.model is None else loaded.model
    signature, unknown = _signature_or_why(lambda: signature_of_keras(model, {}))
    rows = None
    if signature is None and read is not None:
        signature, rows = _seen(tensors_of_keras(model), read)
        unknown = {}
    made_with = {"read with": f"keras {import_keras().__version__}"}
    if loaded.model is None:
        made_with = {**_written_by_keras(loaded), **made_with}
    return ModelFacts(
        signature=signature,
        rows=rows,
        precision=precision_of_keras(model),
        counts=Counter(_layers(model)),
        counted="layers",
        weight_bytes=sum(weight.numpy().nbytes for weight in model.weights),
        made_with=made_with,
        unknown=unknown,
    )


def _written_by_keras(loaded: LoadedModel) -> dict[str, str]:
    with (
        contextlib.suppress(OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile),
        zipfile.ZipFile(loaded.ref.path) as file,
    ):
        return {"written by": f"keras {parse_json(file.read('metadata.json'))['keras_version']}"}
    return {}


def _layers(layer: Any) -> Iterator[str]:  # noqa: ANN401 - a keras.Layer, and Keras has no types
    for part in getattr(layer, "layers", ()):
        if getattr(part, "layers", ()):
            yield from _layers(part)
        else:
            yield type(part).__name__


def _torch(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    import torch

    from paritygate.models.torch.module import parameters_of_forward
    from paritygate.validate.runners.torch import precision_of_module

    module: torch.nn.Module = loaded.model
    signature, rows = (None, None) if read is None else _seen_of_module(module, read)
    return ModelFacts(
        signature=signature,
        rows=rows,
        parameters=tuple(parameters_of_forward(module)),
        precision=precision_of_module(module),
        half_precision=half_dtype_of_model(module),
        counts=Counter(type(part).__name__ for part in module.modules() if not any(part.children())),
        counted="layers",
        weight_bytes=sum(item.numel() * item.element_size() for item in (*module.parameters(), *module.buffers())),
        made_with={"read with": f"torch {torch.__version__}"},
        unknown={} if signature else {INPUTS_AND_OUTPUTS: "a PyTorch module does not declare them"},
    )


def _torchscript(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    import torch

    from paritygate.models.torch.archive import names_in_archive
    from paritygate.models.torch.torchscript_file import constants_of, load_torchscript, taking_its_names
    from paritygate.validate.runners.torch import precision_of_tensors

    module = load_torchscript(loaded.ref.path)
    in_file = names_in_archive(loaded.ref.path)
    signature, rows = (None if in_file is None else in_file.signature), None
    if signature is None and read is not None:
        signature, rows = _seen_of_module(taking_its_names(module), read)
    unknown = {} if signature else {INPUTS_AND_OUTPUTS: "a TorchScript file does not declare them"}
    # This name keeps the graph alive while its nodes are in use.
    graph = module.inlined_graph
    names = (node.kind() for node in _nodes_of_script(graph))
    return ModelFacts(
        signature=signature,
        rows=rows,
        parameters=tuple(argument.name for argument in module.forward.schema.arguments[1:]),
        precision=precision_of_tensors((*module.parameters(), *module.buffers(), *constants_of(module))),
        half_precision=half_dtype((*module.parameters(), *module.buffers(), *constants_of(module))),
        # Names with prim:: hold values and call nothing.
        counts=Counter(name for name in names if not name.startswith("prim::")),
        made_with={"read with": f"torch {torch.__version__}"},
        unknown={**unknown, "written by": _NOT_WRITTEN},
    )


def _nodes_of_script(graph: Any) -> Iterator[Any]:  # noqa: ANN401 - a graph or block of TorchScript's
    for node in graph.nodes():
        yield node
        for block in node.blocks():
            yield from _nodes_of_script(block)


def _pt2(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    import torch

    from paritygate.models.torch.pt2_file import interface_of, known_names, load_pt2
    from paritygate.validate.runners.torch import precision_of_tensors

    del read
    path = loaded.ref.path
    program = load_pt2(path)
    signature, unknown = _signature_or_why(
        lambda: interface_of(program, known_names(path, program, None, {})).signature
    )
    constants = (item for item in program.constants.values() if isinstance(item, torch.Tensor))
    return ModelFacts(
        signature=signature,
        precision=precision_of_tensors((*program.state_dict.values(), *constants)),
        half_precision=half_dtype(program.state_dict.values()),
        counts=Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function"),
        made_with={"read with": f"torch {torch.__version__}"},
        unknown={**unknown, "written by": _NOT_WRITTEN},
    )


def _openvino(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    from paritygate.models.openvino.model import (
        nodes_of_openvino,
        openvino_version,
        precision_of_openvino,
        read_openvino,
        signature_of_openvino,
    )

    del read
    model = read_openvino(loaded.ref.path)
    nodes = (node.get_type_name() for node in nodes_of_openvino(model))
    return ModelFacts(
        signature=signature_of_openvino(model),
        precision=precision_of_openvino(model),
        counts=Counter(name for name in nodes if name not in {"Constant", "Parameter", "Result"}),
        made_with={"read with": f"openvino {openvino_version()}"},
    )


def _tflite(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    from paritygate.models.tensorflow.tflite_file import open_tflite
    from paritygate.models.tensorflow.tflite_graph import operators, precision_of_tflite

    del read
    model = open_tflite(loaded.ref.path)
    return ModelFacts(
        signature=model.signature,
        precision=precision_of_tflite(model.graph),
        counts=operators(model.graph),
        made_with={"TFLite schema": str(model.graph.Version()), "read with": f"litert {model.version}"},
        unknown={"written by": "the file does not say it"},
    )


def _engine(loaded: LoadedModel, read: ReadSamples | None) -> ModelFacts:
    del read
    record = EngineRecord.load(loaded.ref.path)
    counts: Counter[str] = Counter()
    for layers in record.dtype_counts.values():
        counts.update(layers)
    return ModelFacts(
        signature=record.signature,
        precision=record.precision,
        counts=counts,
        counted="layers",
        made_with={record.library: record.version, "runs on": record.targets},
    )


def _seen_of_module(module: Any, read: ReadSamples) -> tuple[Signature, int]:  # noqa: ANN401 - a torch.nn.Module
    from paritygate.models.torch.module import signature_of_module, tensors_of

    answer = tensors_of(module)
    # It reports missing inputs better than PyTorch does.
    try:
        signature_of_module(module, example_of(read, None), {})
    except BackendError as err:
        raise _refused(answer, read, next(read()).inputs) or err from err
    return _seen(answer, read)


def _seen(answer: Answer, read: ReadSamples) -> tuple[Signature, int]:
    """Return the signature that the samples show, and their number of rows.

    Raises:
        BackendError: The model fails on them, or returns no tensor.
    """
    failed: list[Arrays] = []

    def noted(rows: Arrays) -> Any:  # noqa: ANN401 - of `answer`
        failed.append(rows)
        tensors = answer(rows)
        failed.clear()
        return tensors

    try:
        seen = signature_of_rows(noted, read())
    except ParitygateError:
        raise
    except Exception as err:
        refused = _refused(answer, read, failed[-1]) if failed else None
        if refused is not None:
            raise refused from err
        msg = f"the model failed on the samples: {reason_of(err)}"
        raise BackendError(msg, hint="give rows that the model accepts, under the names of its inputs") from err
    if seen is None:
        msg = "the model returned no tensor for the samples"
        raise BackendError(msg, hint="return a tensor, a tuple of tensors, or a mapping of tensors by name")
    return seen.signature, seen.rows


def _refused(answer: Answer, read: ReadSamples, rows: Arrays) -> UsageError | None:
    """Return the error of the row at fault in a batch that the model does not answer; None if no single row is."""

    def run(alone: Arrays) -> None:
        try:
            answer(alone)
        except Exception as err:
            raise BackendError(reason_of(err)) from err

    rows_before = 0
    for batch in read():
        # By their bytes, because NaN equals nothing.
        same = (batch.inputs[name].tobytes() == array.tobytes() for name, array in rows.items())
        if all(same):
            return refused_row(run, batch, rows, rows_before=rows_before, has_answered=False, is_trimmed=True)
        rows_before += batch.rows
    return None


def _signature_or_why(said: Callable[[], Signature]) -> tuple[Signature | None, dict[str, str]]:
    """Return the signature, or why there is none, because the other facts are still useful."""
    try:
        return said(), {}
    except (UsageError, InputFileError) as err:
        return None, {INPUTS_AND_OUTPUTS: str(err)}


_READERS: Mapping[SourceKind, Callable[[LoadedModel, ReadSamples | None], ModelFacts]] = {
    SourceKind.ONNX: _onnx,
    SourceKind.SAVEDMODEL: _savedmodel,
    SourceKind.KERAS: _keras,
    SourceKind.TORCH: _torch,
    SourceKind.TORCHSCRIPT: _torchscript,
    SourceKind.PT2: _pt2,
    SourceKind.OPENVINO: _openvino,
    SourceKind.TFLITE: _tflite,
    SourceKind.TENSORRT: _engine,
    SourceKind.TENSORRT_RTX: _engine,
}
