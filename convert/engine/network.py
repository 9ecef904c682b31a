"""An ONNX model as a strongly typed network of the library: precision is what stands in the ONNX graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.convert.engine.parser_errors import parser_error
from paritygate.engine.builder_log import BuilderLog, make_logger, said
from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.dtypes import NUMPY_DTYPES
from paritygate.engine.library import TENSORRT, EngineLibrary
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = [
    "ParsedNetwork",
    "check_inputs_and_outputs",
    "library_errors",
    "parse_network",
    "signature_of_network",
]

# From this version on a network is strongly typed whatever the flag says.
_ALWAYS_STRONGLY_TYPED = 11
_TYPED_HINT = "install a later version of the library"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedNetwork:
    """A network, and what has to live as long as it does.

    Attributes:
        builder: The library's Builder.
        network: Its INetworkDefinition.
        parser: The OnnxParser, which holds the weights that the network uses.
    """

    builder: Any
    network: Any
    parser: Any


@contextmanager
def library_errors(library: EngineLibrary, log: BuilderLog, what: str) -> Iterator[None]:
    """Turn what the library or Polygraphy raises into one error with the reason that stands in the log.

    Args:
        library: The library.
        log: Its log.
        what: What it was to do, such as `build the engine`.

    Raises:
        ConversionError: Something was raised.
    """
    from polygraphy.exception import PolygraphyException

    try:
        yield
    # The bindings raise TypeError where a constructor returns nothing.
    except (PolygraphyException, RuntimeError, TypeError) as err:
        reason = log.reason() or said(str(err)) or type(err).__name__
        msg = f"{library.title} does not {what}: {reason}"
        raise ConversionError(msg, hint=_hint_for(reason, library.name)) from err


def _hint_for(reason: str, name: str) -> str:
    lowered = reason.lower()
    if "workspace" in lowered:
        return f"raise {name.replace('-', '_')}.workspace_mb in the spec, or leave it out"
    if "memory" in lowered:
        return "free memory of the GPU, or limit workspace_mb in the spec"
    if "profile" in lowered or "dimension" in lowered:
        return "declare in model.dims only sizes that the model takes together"
    return "the log of the job holds all that the library said"


def parse_network(library: EngineLibrary, log: BuilderLog, path: Path, model: onnx.ModelProto) -> ParsedNetwork:
    """Return the network of the ONNX model in `path`.

    Args:
        library: The library.
        log: Where it writes what it says.
        path: The file, whose external data has been found to lie beside it.
        model: The same model, for the words of errors; weights that are not in the file are not needed.

    Raises:
        UnsupportedOperatorsError: The library does not take every operator and input; all are in its table.
        ConversionError: It does not read the model at all, or has no strongly typed networks.
    """
    trt = library.module
    logger = make_logger(library, log)
    with library_errors(library, log, "start"):
        # Some operators of ONNX are plugins of the library's own.
        trt.init_libnvinfer_plugins(logger, "")
        builder = trt.Builder(logger)
        network = _typed_network(library, builder)
        parser = trt.OnnxParser(network, logger)
        # The file, not its bytes: external data is looked for beside it.
        is_parsed = parser.parse_from_file(str(path))
    if not is_parsed or parser.num_errors:
        raise parser_error(parser, model, title=library.title, reason=log.reason())
    return ParsedNetwork(builder=builder, network=network, parser=parser)


def _typed_network(library: EngineLibrary, builder: Any) -> Any:  # noqa: ANN401 - of the bindings
    is_always = library.name == TENSORRT and library.major >= _ALWAYS_STRONGLY_TYPED
    has_flag = capabilities_of(library).strongly_typed_flag
    flag = library.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED if has_flag else None
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    if not is_always and (flag is None or not network.get_flag(flag)):
        msg = f"{library.title} has no strongly typed networks: it would choose the precision of each layer itself"
        raise ConversionError(msg, hint=_TYPED_HINT)
    return network


def signature_of_network(network: Any) -> Signature:  # noqa: ANN401 - an INetworkDefinition
    """Return the inputs and outputs of the network; dims that are open have no name.

    Raises:
        ConversionError: One has a dtype that NumPy has not.
    """
    return Signature(
        inputs=tuple(_spec(network.get_input(index)) for index in range(network.num_inputs)),
        outputs=tuple(_spec(network.get_output(index)) for index in range(network.num_outputs)),
    )


def _spec(tensor: Any) -> TensorSpec:  # noqa: ANN401 - an ITensor
    dtype = NUMPY_DTYPES.get(tensor.dtype.name)
    if dtype is None:
        msg = f"{tensor.name!r} is {tensor.dtype.name} in the network (allowed: {', '.join(NUMPY_DTYPES)})"
        raise ConversionError(msg, hint="give the model inputs and outputs of another dtype")
    try:
        shape = tuple(int(size) if size >= 0 else None for size in tensor.shape)
    except ValueError:
        # The library's way to say that the rank is not known: a length of -1.
        shape = None
    return TensorSpec(name=tensor.name, dtype=dtype, shape=shape)


def check_inputs_and_outputs(network: Any, model: onnx.ModelProto, *, title: str) -> None:  # noqa: ANN401 - a network
    """Do nothing if the network's inputs and outputs have the dtypes of the ONNX model, and inputs decide no shapes.

    Args:
        network: The INetworkDefinition.
        model: What it was made from.
        title: The library.

    Raises:
        ConversionError: A dtype was changed on the way, as float64 is, or an input's values are a shape.
    """
    wanted, found = signature_of_onnx(model), signature_of_network(network)
    dtypes = {spec.name: spec.dtype for spec in (*found.inputs, *found.outputs)}
    for spec in (*wanted.inputs, *wanted.outputs):
        if dtypes.get(spec.name, spec.dtype) != spec.dtype:
            msg = f"{spec.name!r} is {spec.dtype} in the ONNX model, and {title} makes it {dtypes[spec.name]}"
            hint = f"export the model with {spec.name!r} as {dtypes[spec.name]}, or serve it in ONNX"
            raise ConversionError(msg, hint=hint)
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            msg = (
                f"the values of input {tensor.name!r} decide a shape, and engines are built for ranges of shapes alone"
            )
            raise ConversionError(msg, hint="take the shape from that of another input, or serve the model in ONNX")
