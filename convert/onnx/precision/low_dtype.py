"""Define FP16 and BF16 as targets of a rewrite, and read from ONNX's schemas what a node can compute in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.models.onnx.graph import NOT_A_TENSOR, OWN_DOMAINS, element_of, schema_of
from paritygate.models.onnx.weights import DTYPES, ELEMENT_TYPES, FLOAT
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

# Inputs that hold counts and coordinates, whose dtype is independent in the schema: FP16 has no 2049.
_COORDINATES = frozenset({("Resize", "roi"), ("OneHot", "indices"), ("OneHot", "depth")})
# These are about the bits of a value.
_BITWISE = frozenset({"BitCast"})
# ONNX Runtime's CPU provider (1.31) loads these in float16, and refuses to run them with a reduction.
_NO_FP16_REDUCTION = frozenset({"ScatterElements", "ScatterND"})


class LowDtype(Struct, frozen=True, kw_only=True):
    """A floating-point dtype of 16 bits."""

    precision: Precision
    element: int  # its onnx.TensorProto.DataType
    tensor_type: str  # its name in operators' schemas
    smallest_normal: float  # the smallest positive value with all bits


def low_dtype(precision: Precision) -> LowDtype:
    """Return the dtype of FP16 or BF16; raise UsageError for another precision."""
    import ml_dtypes

    if precision not in DTYPES:
        msg = f"an ONNX model cannot be rewritten to {precision} (allowed: fp16, bf16)"
        raise UsageError(msg, hint="name fp16 or bf16")
    dtype = DTYPES[precision]
    return LowDtype(
        precision=precision,
        element=ELEMENT_TYPES[precision],
        tensor_type=f"tensor({dtype.name})",
        smallest_normal=float(ml_dtypes.finfo(dtype).smallest_normal),
    )


class Support(Struct, frozen=True, kw_only=True):
    """The schema's support for one node in the lower precision."""

    low_inputs: frozenset[int] = frozenset()  # positions of FP32 inputs that can be of it
    low_outputs: frozenset[int] = frozenset()  # positions of FP32 outputs that follow the inputs
    reason: str = ""  # why there are none, as a part of a sentence, or empty


def support_of(
    node: onnx.NodeProto, inputs: Sequence[int | None], outputs: Sequence[int | None], *, opset: int, dtype: LowDtype
) -> Support:
    """Return which inputs and outputs of the node can be of the lower precision.

    The node reads or makes FP32 values, and has no inner graphs. Element types are as of `element_types`: 0 for one
    left out, None for an unknown one.
    """
    schema = schema_of(node.op_type, opset)
    barriers = (
        (node.domain not in OWN_DOMAINS, f"the operators of {node.domain!r} have no rules for their dtypes here"),
        (None in inputs or None in outputs, "the dtype of one of its values is not known"),
        (NOT_A_TENSOR in inputs or NOT_A_TENSOR in outputs, "it works on sequences or optionals"),
        (node.op_type in _BITWISE, "it works on the bits of its input"),
        (dtype.precision is Precision.FP16 and _reduces(node), "ONNX Runtime does not run its reduction in float16"),
    )
    reason = next((reason for is_barred, reason in barriers if is_barred), "")
    if schema is None or reason:
        return Support(reason=reason or f"ONNX has no such operator in opset {opset}")
    return _support_in(schema, node, inputs, outputs, dtype)


def _reduces(node: onnx.NodeProto) -> bool:
    modes = (attribute.s for attribute in node.attribute if attribute.name == "reduction")
    return node.op_type in _NO_FP16_REDUCTION and next(modes, b"none") != b"none"


def _support_in(
    schema: onnx.defs.OpSchema,
    node: onnx.NodeProto,
    inputs: Sequence[int | None],
    outputs: Sequence[int | None],
    dtype: LowDtype,
) -> Support:
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    wanted = {}
    for position, element in enumerate(inputs):
        formal = _formal(schema.inputs, position)
        if element == FLOAT and formal is not None and (schema.name, formal.name) not in _COORDINATES:
            wanted[position] = formal.type_str
    low = {name for name in wanted.values() if dtype.tensor_type in allowed.get(name, ())}
    made = {position: _formal(schema.outputs, position) for position, element in enumerate(outputs) if element == FLOAT}
    low_outputs = frozenset(position for position, formal in made.items() if formal and formal.type_str in low)
    since = f"{schema.name} of opset {schema.since_version}"
    if made and not low_outputs:
        tied = any(formal and formal.type_str in wanted.values() for formal in made.values())
        reason = f"{since} does not take {dtype.tensor_type[7:-1]}" if tied else f"{since} makes FP32 on its own"
        return Support(reason=reason)
    low_inputs = frozenset(position for position, name in wanted.items() if name in low)
    if not low_inputs:
        return Support(reason=f"{since} does not take {dtype.tensor_type[7:-1]}")
    if len(low_outputs) < len(made):
        # An output that is tied to no input, such as LayerNormalization's mean, has its own dtype.
        elements = [dtype.element if position in low_inputs else each for position, each in enumerate(inputs)]
        inferred = _inferred(schema, node, elements)
        low_outputs |= {position for position in made if inferred.get(node.output[position]) == dtype.element}
    return Support(low_inputs=low_inputs, low_outputs=low_outputs)


def _inferred(schema: onnx.defs.OpSchema, node: onnx.NodeProto, elements: Sequence[int | None]) -> dict[str, int]:
    """Return the element type of each output, which the schema infers from those of the inputs."""
    import onnx

    types = {
        name: onnx.helper.make_tensor_type_proto(element or 0, None)
        for name, element in zip(node.input, elements, strict=True)
        if name
    }
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {name: element_of(each) for name, each in inferred.items()}


def _formal(
    parameters: Sequence[onnx.defs.OpSchema.FormalParameter], position: int
) -> onnx.defs.OpSchema.FormalParameter | None:
    """Return the parameter at a position; a variadic last one covers all that follow."""
    import onnx

    if position < len(parameters):
        return parameters[position]
    last = parameters[-1] if parameters else None
    is_variadic = last is not None and last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return last if is_variadic else None


def fills_with(opset: int, dtype: LowDtype) -> bool:
    """Return whether ConstantOfShape of this opset makes tensors of the lower precision."""
    schema = schema_of("ConstantOfShape", opset)
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints} if schema else {}
    return schema is not None and dtype.tensor_type in allowed[schema.outputs[0].type_str]
