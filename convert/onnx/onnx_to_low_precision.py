"""Convert ONNX in FP32 to FP16 or BF16, except inputs, outputs and the nodes that have to stay FP32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.error_origin import one_line
from paritygate.convert.onnx.precision.constants import ConstantChange, ConstantRounding, make_dense
from paritygate.convert.onnx.precision.crashes import crashing_transposes
from paritygate.convert.onnx.precision.guards import guarding_nodes
from paritygate.convert.onnx.precision.low_dtype import LowDtype, low_dtype
from paritygate.convert.onnx.precision.opset import raise_opset
from paritygate.convert.onnx.precision.plan import GraphPlan, NodePlan, Planner
from paritygate.convert.onnx.precision.sensitive import sensitive_nodes
from paritygate.convert.onnx.precision.writing import ConstantNodes, Writer
from paritygate.convert.onnx.rewrite import is_too_large, save_onnx
from paritygate.errors import ConversionError, NotAvailableError
from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx
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
from paritygate.models.onnx.lowering import Lowering
from paritygate.models.onnx.weights import load_external
from paritygate.precision import Precision
from paritygate.text import counted

if TYPE_CHECKING:
    import onnx

_MAIN = "model.onnx"
_SHOWN = 3
_INSIDE = "it is inside of an If, Loop or Scan"
# The oldest opset whose Cast has dtypes as numbers, and the oldest whose Cast makes bfloat16.
_OLDEST = {Precision.FP16: 6, Precision.BF16: 13}
# The first IR version whose weights need not be inputs of the graph.
_IR_WITH_FREE_WEIGHTS = 4
# Operators that pass values on unchanged; rounding only these is not a computation in the precision.
_MOVING = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
# Values of small tensors, such as shapes, are needed to infer types.
_SMALL_TENSOR = 1024


def convert(job: ConversionJob) -> Conversion:
    """Write the FP32 ONNX artifact as `model.onnx`, rewritten to the job's precision except its inputs and outputs.

    Raises:
        NotAvailableError: No node would compute in the precision.
    """
    source = job.source.path
    precision, kept = job.lower or job.precision, dict(job.kept)
    model = read_onnx(source)
    if job.lower is not None:
        # Whoever chose the nodes to keep measured these in FP32.
        kept |= _nodes_inside(model)
    result = rewrite_precision(model, precision=precision, kept=kept, folder=source.parent)
    if not _computes(result):
        # It would be the FP32 model under another name, with looser limits.
        listed = ", ".join(dict.fromkeys(node.operator for node in result.nodes_kept)) or "none"
        msg = f"no node that computes can be converted to {precision} (kept in fp32: {listed})"
        raise NotAvailableError(msg, hint=f"remove the {job.precision} target")
    path = job.folder / _MAIN
    save_onnx(result.model, path)
    converted, unconverted = len(result.nodes_converted), len(result.nodes_kept)
    casts = counted(result.casts_added, "cast")
    done = f"rewritten to {precision}: {counted(converted, 'node')}, {unconverted} kept in fp32, {casts} added"
    notes = [done, *result.notes]
    for what, changes in (("beyond its range", result.clamps), ("too small for it", result.flushes)):
        if changes:
            shown = "; ".join(map(str, changes[:_SHOWN]))
            more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            notes.append(f"constants {what} were changed: {shown}{more}")
    model = read_onnx(path)
    facts = {
        "opset": opset_of(model),
        "ir_version": model.ir_version,
        "nodes_converted": len(result.nodes_converted),
        "nodes_kept": [
            {"name": node.name, "operator": node.operator, "reason": node.reason} for node in result.nodes_kept
        ],
        "constants_clamped": [str(change) for change in result.clamps],
        "constants_flushed": [str(change) for change in result.flushes],
    }
    return Conversion(main=_MAIN, signature=signature_of_onnx(model), notes=tuple(notes), facts=facts)


def _nodes_inside(model: onnx.ModelProto) -> dict[str, str]:
    """Return the names of the nodes inside of If, Loop and Scan, with the reason why a mixed model keeps them."""
    copy = deepcopy(model)
    name_nodes(copy.graph)
    inline_functions(copy)
    outer = {node.name for node in copy.graph.node}
    return {node.name: _INSIDE for node in nodes_in(copy.graph) if node.name not in outer}


def _computes(result: RewriteResult) -> bool:
    converted = set(result.nodes_converted)
    return any(node.name in converted and node.op_type not in _MOVING for node in nodes_in(result.model.graph))


class KeptNode(Struct, frozen=True, kw_only=True):
    """A node that reads or makes FP32 values and still does so, by its name in the rewritten model."""

    name: str
    operator: str  # with a domain that is not ONNX's own
    reason: str  # a part of a sentence: `kept as asked`


class RewriteResult(Struct, frozen=True, kw_only=True):
    """A model in a lower precision, and every change to it.

    `clamps` are finite constants beyond the range, which became its largest finite value of that sign. `flushes` became
    zero, or, for a single value, the smallest value that is not zero. Infinities and NaN stay. `nodes_kept` lacks
    constants and nodes without FP32 values.
    """

    model: onnx.ModelProto  # all its weights inside it
    clamps: tuple[ConstantChange, ...]
    flushes: tuple[ConstantChange, ...]
    casts_added: int
    nodes_converted: tuple[str, ...]  # names
    nodes_kept: tuple[KeptNode, ...]
    notes: tuple[str, ...] = ()  # for the user, one sentence each


def rewrite_precision(
    model: onnx.ModelProto, *, precision: Precision, kept: Mapping[str, str] | None = None, folder: Path | None = None
) -> RewriteResult:
    """Return a copy of the model that computes in FP16 or BF16.

    Every node that reads or makes FP32 tensors is converted if ONNX's schema of its operator allows it and `kept` does
    not name it. Inputs and outputs of the model stay FP32, and values of other dtypes stay. A value that is read in
    another dtype than it is made in is cast once for all readers. Local functions are inlined, with nodes named
    `CALL/NODE`. Values that enter or leave a subgraph (If, Loop, Scan) stay FP32; nodes inside are treated like any
    other.

    `kept` has reasons by the names of nodes, as `name_nodes` gives them. `folder` has external data that is not loaded.
    The weights of the result are inside it, so a large one must be saved with external data. One above 2 GiB is only
    checked in its file.

    Raises:
        UsageError: The precision is another one.
        InputFileError: External data is missing or corrupt.
        ConversionError: The model is quantized, its opset lacks casts to the precision, or the result is not valid
            ONNX.
    """
    opset_before = opset_of(model)
    work, dtype, plan, notes = _planned(model, precision, kept or {}, folder)
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
        notes=notes,
    )


def lowered_nodes(
    model: onnx.ModelProto, *, precision: Precision, folder: Path | None = None
) -> tuple[onnx.ModelProto, dict[str, Lowering]]:
    """Return the model as it is planned, and the nodes of its main graph that a rewrite lowers if none is kept.

    Only nodes that make values of the precision are there; the others read what is made. Raises as `rewrite_precision`.
    """
    work, dtype, plan, _ = _planned(model, precision, {}, folder)
    lowered = {}
    for step in plan.nodes:
        outputs = frozenset(at for at, value in step.makes if value.native == dtype.element)
        if outputs and not step.is_constant:
            inputs = frozenset(at for at, _, element in step.reads if element == dtype.element)
            lowered[step.node.name] = Lowering(inputs=inputs, outputs=outputs)
    return work, lowered


def _planned(
    model: onnx.ModelProto, precision: Precision, kept: Mapping[str, str], folder: Path | None
) -> tuple[onnx.ModelProto, LowDtype, GraphPlan, tuple[str, ...]]:
    """Return a prepared copy of the model, the dtype, the plan of its rewrite, and notes."""
    dtype = low_dtype(precision)
    work = deepcopy(model)
    _prepare(work, folder)
    declared = [frozenset(value.name for value in graph.value_info) for graph in graphs_in(work.graph)]
    infer_value_types(work)
    notes: tuple[str, ...] = ()
    if precision is Precision.BF16:
        notes = raise_opset(work, dtype)
        infer_value_types(work)
    reasons = guarding_nodes(work.graph, dtype.smallest_normal) | sensitive_nodes(work.graph) | dict(kept)
    if precision is Precision.FP16:
        reasons |= crashing_transposes(work.graph)
    planner = Planner(dtype=dtype, kept=reasons, opset=opset_of(work), declared=declared)
    plan = planner.plan(work.graph)
    _refuse_old_opset(plan, opset_of(work), dtype)
    return work, dtype, plan, notes


def _prepare(model: onnx.ModelProto, folder: Path | None) -> None:
    """Name all nodes, inline functions, and make constants dense."""
    name_nodes(model.graph)
    inline_functions(model)
    _refuse_quantized(model.graph)
    make_dense(model.graph, folder)
    _load_tensors(model, folder, _SMALL_TENSOR)


def _write(model: onnx.ModelProto, plan: GraphPlan, rounding: ConstantRounding, folder: Path | None) -> int:
    """Carry out the plan; return the number of casts."""
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


def _refuse_quantized(graph: onnx.GraphProto) -> None:
    for node in nodes_in(graph):
        if node.op_type in QUANTIZATION_OPERATORS:
            msg = f"the model is quantized (node {node.name!r} is a {node.op_type}), so it has no FP32 weights to lower"
            raise ConversionError(msg, hint="give the model from before quantization, or serve this one as int8")


def _refuse_old_opset(plan: GraphPlan, opset: int, dtype: LowDtype) -> None:
    oldest = _OLDEST[dtype.precision]
    if opset >= oldest or not any(dtype.element in {value.native, *value.wanted} for value in plan.all_values()):
        return
    msg = f"opset {opset} has no cast to {dtype.precision} (expected {oldest} or higher)"
    raise ConversionError(msg, hint="export the model again with --opset 17 or higher")


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for each in graphs_in(graph):
        yield from each.initializer
        for node in each.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t


def _load_tensors(model: onnx.ModelProto, folder: Path | None, limit: int | None = None) -> None:
    """Load external data, with a limit only of tensors up to so many elements."""
    for tensor in _tensors(model.graph):
        if limit is None or math.prod(tensor.dims) <= limit:
            load_external(tensor, folder)


def _free_weights(plan: GraphPlan, dtype: LowDtype) -> tuple[str, ...]:
    """Remove lowered weights from the graph's inputs, which are FP32 and would be rounded silently."""
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
        msg = f"the given model is not valid ONNX: {before}"
        raise ConversionError(msg, hint="export it again with another opset or exporter")
    msg = f"the rewritten model is not valid ONNX: {why}"
    raise ConversionError(msg, hint="keep the nodes of this operator in fp32")


def _unsoundness(model: onnx.ModelProto) -> str:
    """Return why the model is not valid; empty if it is, or is too large for the check."""
    import onnx

    if is_too_large(model):
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
