"""The way in: an ONNX model in FP32 becomes one in FP16 or BF16, but for the nodes that are to stay."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.convert.causes import one_line
from paritygate.convert.onnx.precision.constant_nodes import ConstantNodes
from paritygate.convert.onnx.precision.constants import ConstantRounding, load_external
from paritygate.convert.onnx.precision.keeping import Keeping, keeping_of
from paritygate.convert.onnx.precision.low_dtype import LowDtype, low_dtype
from paritygate.convert.onnx.precision.opset import raise_opset
from paritygate.convert.onnx.precision.plan import GraphPlan, NodePlan, Planner
from paritygate.convert.onnx.precision.result import KeptNode, RewriteResult
from paritygate.convert.onnx.precision.sparse import make_dense
from paritygate.convert.onnx.precision.writing import Writer
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import (
    QUANTIZATION_OPERATORS,
    UniqueNames,
    graphs_in,
    infer_value_types,
    name_nodes,
    names_in,
    nodes_in,
)
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

__all__ = ["rewrite_precision"]

# The oldest opset whose Cast knows dtypes as numbers; the oldest one whose Cast makes bfloat16.
_OLDEST = {Precision.FP16: 6, Precision.BF16: 13}
# The first IR version in which a weight need not be an input of the graph as well.
_IR_WITH_FREE_WEIGHTS = 4
# A protocol buffer, which the checker is given, ends at 2 GiB.
_CHECKABLE_BYTES = 2**31 - 1
# The values of small tensors, such as shapes, are needed to infer types.
_SMALL_TENSOR = 1024


def rewrite_precision(  # noqa: PLR0913 - one argument for each choice there is
    model: onnx.ModelProto,
    *,
    precision: Precision,
    keep_in_fp32: Collection[str] = (),
    keep_operators_in_fp32: Collection[str] = (),
    keep_io: bool = True,
    folder: Path | None = None,
) -> RewriteResult:
    """Return the model computing in FP16 or BF16.

    Every node that reads or makes FP32 tensors is converted if ONNX's schema of its operator allows that,
    unless it is to be kept. Values of other dtypes, float64 among them, stay as they are. A value that is
    read in a dtype other than the one it is made in is cast once, whatever the number of its readers.
    Local functions are inlined: their nodes are named `CALL/NODE`. What enters and leaves a subgraph (If,
    Loop, Scan) stays FP32, the nodes inside are treated like any other.

    The weights of the result are inside it: save a large one with external data. One above 2 GiB is not
    checked here, but has to be in its file.

    Args:
        model: The model; it is not changed. Its external data need not be loaded.
        precision: FP16 or BF16.
        keep_in_fp32: Names of nodes that stay in FP32, exactly these. A name shared by several nodes means
            all of them; that of an If, Loop, Scan or function call means all inside it too. A node
            without a name goes by the one that `paritygate.models.onnx.graph.name_nodes` gives it.
        keep_operators_in_fp32: Operators, such as `Softmax`, all of whose nodes stay in FP32.
        keep_io: Whether FP32 inputs and outputs of the model stay so.
        folder: Where the model's external data is; None if it has none or it is loaded.

    Raises:
        UsageError: Another precision was asked for, or there is no node or operator of a name to keep.
        InputFileError: External data is missing or damaged.
        ConversionError: The model is quantized, is of an opset without casts to this precision, or the
            result is not valid ONNX.
    """
    dtype = low_dtype(precision)
    work = _copied(model)
    opset_before = opset_of(work)
    keeping = _prepare(work, keep_in_fp32, keep_operators_in_fp32, folder)
    declared = [frozenset(value.name for value in graph.value_info) for graph in graphs_in(work.graph)]
    infer_value_types(work)
    notes: tuple[str, ...] = ()
    if precision is Precision.BF16:
        came_from, notes = raise_opset(work, dtype, keeping)
        keeping = _followed(keeping, came_from)
        infer_value_types(work)
    planner = Planner(dtype=dtype, keeping=keeping, opset=opset_of(work), keep_io=keep_io, declared=declared)
    plan = planner.plan(work.graph)
    _refuse_old_opset(plan, opset_of(work), dtype)
    rounding = ConstantRounding(dtype=dtype)
    casts_added = _write(work, plan, rounding, folder)
    notes += _free_weights(plan, dtype)
    _load_tensors(work, folder)
    _raise_ir_version(work, opset_before)
    _check(work, model)
    return RewriteResult(
        model=work,
        clamps=tuple(rounding.clamps),
        flushes=tuple(rounding.flushes),
        casts_added=casts_added,
        nodes_converted=tuple(_converted(plan, dtype)),
        nodes_kept=tuple(_kept(plan, dtype)),
        opset_before=opset_before,
        opset_after=opset_of(work),
        notes=notes,
    )


def _prepare(
    model: onnx.ModelProto, names: Collection[str], operators: Collection[str], folder: Path | None
) -> Keeping:
    """Name all nodes, inline functions, make constants dense; return which nodes are to stay in FP32."""
    renamed = name_nodes(model.graph)
    origins = inline_functions(model)
    _refuse_quantized(model.graph)
    make_dense(model.graph, folder)
    _load_tensors(model, folder, _SMALL_TENSOR)
    return keeping_of(model.graph, names, operators, renamed=renamed, origins=origins)


def _write(model: onnx.ModelProto, plan: GraphPlan, rounding: ConstantRounding, folder: Path | None) -> int:
    """Carry out the plan; return how many casts that took."""
    writer = Writer(
        ConstantNodes(
            rounding=rounding,
            values=UniqueNames(names_in(model.graph)),
            nodes=UniqueNames(node.name for node in nodes_in(model.graph)),
            folder=folder,
            opset=opset_of(model),
        )
    )
    writer.write(plan)
    return writer.casts_added


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _refuse_quantized(graph: onnx.GraphProto) -> None:
    for node in nodes_in(graph):
        if node.op_type in QUANTIZATION_OPERATORS:
            msg = f"the model is quantized (node {node.name!r} is a {node.op_type}): it has no FP32 weights to lower"
            raise ConversionError(msg, hint="give the model as it was before it was quantized, or serve it as int8")


def _refuse_old_opset(plan: GraphPlan, opset: int, dtype: LowDtype) -> None:
    oldest = _OLDEST[dtype.precision]
    if opset >= oldest or not any(dtype.element in {value.native, *value.wanted} for value in plan.all_values()):
        return
    msg = f"opset {opset} has no cast to {dtype.precision} (it takes {oldest} or above)"
    raise ConversionError(msg, hint="export the model again with --opset 17 or above")


def _followed(keeping: Keeping, came_from: dict[str, str]) -> Keeping:
    """Keep what a node to keep was replaced by as well."""
    return replace(keeping, names=keeping.names | {new for new, old in came_from.items() if old in keeping.names})


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for each in graphs_in(graph):
        yield from each.initializer
        for node in each.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t


def _load_tensors(model: onnx.ModelProto, folder: Path | None, limit: int | None = None) -> None:
    """Bring external data into the model, that of tensors up to so many elements only, if there is a limit."""
    for tensor in _tensors(model.graph):
        if tensor.data_location != tensor.EXTERNAL or (limit is not None and math.prod(tensor.dims) > limit):
            continue
        load_external(tensor, folder)


def _free_weights(plan: GraphPlan, dtype: LowDtype) -> tuple[str, ...]:
    """Take weights off the graph's inputs: an input is FP32, and what was given for it would be rounded unseen."""
    graph = plan.graph
    lowered = {each.name for each in plan.values.values() if each.constant is not None and dtype.element in each.names}
    listed = {item.name for item in graph.input}
    places = [place for place, item in enumerate(graph.input) if item.name in lowered]
    for place in reversed(places):
        del graph.input[place]
    if not places:
        return ()
    return (f"weights that were inputs of the graph too are constants now: {', '.join(sorted(lowered & listed))}",)


def _raise_ir_version(model: onnx.ModelProto, opset_before: int) -> None:
    import onnx

    needed = _IR_WITH_FREE_WEIGHTS
    if opset_of(model) > opset_before:
        needed = max(needed, onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))
    model.ir_version = max(model.ir_version, needed)


def _check(model: onnx.ModelProto, given: onnx.ModelProto) -> None:
    why = _unsoundness(model)
    if not why:
        return
    before = _unsoundness(given)
    if before:
        msg = f"the model given is not valid ONNX: {before}"
        raise ConversionError(msg, hint="export it again with another opset or exporter")
    msg = f"the model rewritten is not valid ONNX: {why}"
    raise ConversionError(msg, hint="keep the nodes of this operator in fp32")


def _unsoundness(model: onnx.ModelProto) -> str:
    """Return why the model is not valid; empty if it is, or is too large to be looked at here."""
    import onnx

    if model.ByteSize() > _CHECKABLE_BYTES:
        return ""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as err:
        return one_line(err)
    return ""


def _is_low(step: NodePlan, dtype: LowDtype) -> bool:
    reads = any(element == dtype.element for _, _, element in step.reads)
    return reads or any(value.native == dtype.element for _, value in step.makes)


def _converted(plan: GraphPlan, dtype: LowDtype) -> Iterator[str]:
    for step in plan.all_nodes():
        if not step.is_constant and _is_low(step, dtype):
            yield step.node.name


def _kept(plan: GraphPlan, dtype: LowDtype) -> Iterator[KeptNode]:
    for step in plan.all_nodes():
        if (step.reads or step.makes) and not step.is_constant and not _is_low(step, dtype):
            node = step.node
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            yield KeptNode(name=node.name, operator=operator, reason=step.reason)
