"""The way in: an ONNX model in FP32 becomes one in FP16 or BF16, but for the nodes that are to stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.convert.onnx_precision.constant_nodes import ConstantNodes
from paritygate.convert.onnx_precision.constants import ConstantRounding, load_tensor
from paritygate.convert.onnx_precision.keeping import Keeping, keeping_of
from paritygate.convert.onnx_precision.low_dtype import LowDtype, low_dtype
from paritygate.convert.onnx_precision.opset import raise_opset
from paritygate.convert.onnx_precision.plan import GraphPlan, Planner
from paritygate.convert.onnx_precision.result import KeptNode, RewriteResult
from paritygate.convert.onnx_precision.writing import Writer
from paritygate.errors import ConversionError
from paritygate.onnx_file import opset_of
from paritygate.onnx_functions import inline_functions
from paritygate.onnx_graph import (
    QUANTIZATION_OPERATORS,
    UniqueNames,
    graphs_in,
    infer_value_types,
    name_nodes,
    names_in,
    nodes_in,
    subgraphs_of,
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


def rewrite_precision(
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

    The weights of the result are inside it: save a large one with external data.

    Args:
        model: The model; it is not changed. Its external data need not be loaded.
        precision: FP16 or BF16.
        keep_in_fp32: Names of nodes that stay in FP32, exactly these. A name shared by several nodes means
            all of them; that of an If, Loop, Scan or function call means all inside it too. A node
            without a name goes by the one that `paritygate.onnx_graph.name_nodes` gives it.
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
    renamed = name_nodes(work.graph)
    origins = inline_functions(work)
    _refuse_quantized(work.graph)
    keeping = keeping_of(
        work.graph, keep_in_fp32, keep_operators_in_fp32, renamed=renamed, origins=origins
    )
    _load_tensors(work, folder, _SMALL_TENSOR)
    declared = [frozenset(value.name for value in graph.value_info) for graph in graphs_in(work.graph)]
    infer_value_types(work)
    notes: tuple[str, ...] = ()
    if precision is Precision.BF16:
        came_from, notes = raise_opset(work, dtype)
        keeping = _followed(keeping, came_from)
        infer_value_types(work)
    _refuse_old_opset(work, precision)
    plan = Planner(dtype=dtype, keeping=keeping, opset=opset_of(work), keep_io=keep_io, declared=declared).plan(work.graph)
    rounding = ConstantRounding(dtype=dtype)
    writer = Writer(
        ConstantNodes(
            rounding=rounding,
            values=UniqueNames(names_in(work.graph)),
            nodes=UniqueNames(node.name for node in nodes_in(work.graph)),
            folder=folder,
            opset=opset_of(work),
        )
    )
    writer.write(plan)
    notes += _free_weights(plan, dtype)
    _load_tensors(work, folder, 0)
    _raise_ir_version(work)
    _check(work)
    return RewriteResult(
        model=work,
        clamps=tuple(rounding.clamps),
        flushes=tuple(rounding.flushes),
        casts_added=writer.casts_added,
        nodes_converted=tuple(_converted(plan, dtype)),
        nodes_kept=tuple(_kept(plan, dtype)),
        opset_before=opset_before,
        opset_after=opset_of(work),
        notes=notes,
    )
