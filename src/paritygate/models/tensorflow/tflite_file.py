"""Open a TFLite file in LiteRT, read its signature, and call it by name."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.backends import backend_state, require_backend
from paritygate.batch import Arrays
from paritygate.errors import BackendError, InputFileError
from paritygate.models.tensorflow.savedmodel import SERVING_SIGNATURE
from paritygate.models.tensorflow.tflite_graph import TensorFacts, custom_operators, dtype_name, tensor_facts
from paritygate.signature import Signature, TensorSpec, name_unknown_dims

_IDENTIFIER = b"TFL3"
# LiteRT's name for the node with all operators of a delegate such as XNNPACK.
_DELEGATE = "DELEGATE"
# The prefix of TensorFlow's own kernels, which LiteRT lacks.
_FLEX = "Flex"


class TfliteModel(Struct, frozen=True, kw_only=True):
    """One signature of a TFLite file in an interpreter, which serves one call at a time."""

    signature: Signature  # each side sorted by name, open dims named by name_unknown_dims
    call: Any  # LiteRT's runner: arrays by name in and out
    graph: Any  # the parsed file, for tflite_graph
    threads: int  # the most of the kernels
    uses_xnnpack: bool | None  # None where this version of LiteRT does not show it
    version: str  # of LiteRT
    inputs: Mapping[str, int]  # the numbers of the tensors, by name
    outputs: Mapping[str, int]

    def __call__(self, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs by name; a new shape allocates the tensors again.

        Raises:
            RuntimeError: A kernel failed, or does not take the shapes.
            ValueError: LiteRT does not take an array.
        """
        return dict(self.call(**inputs))


def open_tflite(path: Path, *, threads: int = 1) -> TfliteModel:
    """Return the signature `serving_default` of the file, or the only one it has, ready to be called.

    Raises:
        InputFileError: It is not a TFLite file, is cut off, or has no signature to be called by name.
        BackendError: LiteRT cannot run it.
    """
    require_backend("litert")
    from ai_edge_litert.interpreter import Interpreter

    _check_identifier(path)
    try:
        # LiteRT verifies the whole file before it makes an interpreter. Reading it is only safe afterwards.
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
    except ValueError as err:
        msg = f"LiteRT does not read {path}: {tflite_reason(err)}"
        raise InputFileError(msg, hint="convert the model again; the file may be cut off") from err
    graph = _read(path)
    definition = _signature_definition(graph, path)
    signature = _signature(graph, definition)
    _allocate(interpreter, graph, signature, path)
    uses_xnnpack = _uses_xnnpack(interpreter)
    return TfliteModel(
        signature=signature,
        # Not earlier, because an interpreter with a runner refuses to allocate.
        call=interpreter.get_signature_runner(definition.SignatureKey().decode()),
        graph=graph,
        threads=threads,
        uses_xnnpack=uses_xnnpack,
        version=backend_state("litert").version or "unknown",
        inputs=_numbers(map(definition.Inputs, range(definition.InputsLength()))),
        outputs=_numbers(map(definition.Outputs, range(definition.OutputsLength()))),
    )


def _numbers(items: Iterable[Any]) -> dict[str, int]:
    return {item.Name().decode(): int(item.TensorIndex()) for item in items}


def tflite_reason(err: BaseException) -> str:
    """Return LiteRT's message on one line, each complaint once.

    LiteRT joins complaints without a blank: `failed to reshape runtimeNode number 3 failed`.
    """
    text = " ".join(str(err).split()) or type(err).__name__
    complaints = dict.fromkeys(part.rstrip(".") for part in re.split(r"(?<=\.)(?=[A-Z])", text))
    return re.sub(r"(?<=[^\s;])\s*(?=Node number \d)", "; ", "; ".join(complaints))


def _check_identifier(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as err:
        msg = f"{path} cannot be read: {err.strerror}"
        raise InputFileError(msg, hint="check the path and its permissions") from err
    if start[4:] != _IDENTIFIER:
        msg = f"{path} is not a TFLite model: bytes 4 to 7 are {start[4:]!r}, not {_IDENTIFIER!r}"
        raise InputFileError(msg, hint="give a file that TensorFlow's TFLiteConverter wrote")


def _read(path: Path) -> Any:  # noqa: ANN401 - of generated code without types
    from ai_edge_litert import schema_py_generated

    with path.open("rb") as file:
        return schema_py_generated.Model.GetRootAs(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _signature_definition(graph: Any, path: Path) -> Any:  # noqa: ANN401 - as _read
    items = map(graph.SignatureDefs, range(graph.SignatureDefsLength()))
    definitions = {item.SignatureKey().decode(): item for item in items}
    if SERVING_SIGNATURE in definitions:
        return definitions[SERVING_SIGNATURE]
    if len(definitions) == 1:
        return next(iter(definitions.values()))
    msg = f"{path} has no signature {SERVING_SIGNATURE!r} (it has: {', '.join(sorted(definitions)) or 'none'})"
    hint = f"convert it again: TFLiteConverter.from_saved_model(folder, signature_keys=['{SERVING_SIGNATURE}'])"
    raise InputFileError(msg, hint=hint)


def _signature(graph: Any, definition: Any) -> Signature:  # noqa: ANN401 - as _read
    subgraph = graph.Subgraphs(definition.SubgraphIndex())

    def specs(items: list[Any]) -> list[TensorSpec]:
        tensors = {item.Name().decode(): tensor_facts(subgraph.Tensors(item.TensorIndex())) for item in items}
        return [_spec(name, facts) for name, facts in sorted(tensors.items())]

    return name_unknown_dims(
        specs([definition.Inputs(index) for index in range(definition.InputsLength())]),
        specs([definition.Outputs(index) for index in range(definition.OutputsLength())]),
    )


def _spec(name: str, facts: TensorFacts) -> TensorSpec:
    shape = None if facts.shape is None else tuple(None if size < 0 else size for size in facts.shape)
    return TensorSpec(name=name, dtype=dtype_name(facts.type), shape=shape)


def _allocate(interpreter: Any, graph: Any, signature: Signature, path: Path) -> None:  # noqa: ANN401 - as _read
    custom = custom_operators(graph)
    flex = [name.removeprefix(_FLEX) for name in custom if name.startswith(_FLEX)]
    if flex:
        msg = f"{path} needs TensorFlow's own kernels, which LiteRT does not have: {', '.join(flex)}"
        raise BackendError(msg, hint="convert it with TFLite's own operators only, or serve it as a SavedModel")
    try:
        interpreter.allocate_tensors()
    except RuntimeError as err:
        # Open dims are 1 in the file, which not every model accepts. A batch has real sizes.
        if signature.symbols and not custom:
            return
        msg = f"LiteRT refused {path}: {tflite_reason(err)}"
        raise BackendError(msg, hint="convert the model again with this version of TensorFlow") from err


def _uses_xnnpack(interpreter: Any) -> bool | None:  # noqa: ANN401 - as _read
    # LiteRT has no public function for the operators of its delegate.
    details = getattr(interpreter, "_get_ops_details", None)
    return None if details is None else any(node["op_name"] == _DELEGATE for node in details())
