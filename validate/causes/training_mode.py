"""Operators of a file that are in training mode: they use the batch's statistics, or drop values at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.graph import all_nodes, graphs_in
from paritygate.models.source import SourceKind
from paritygate.text import first_of
from paritygate.validate.causes.cause import Case
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.measure.check import NAMED, Cause
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import onnx

_NAMED_NODES = 3
# The place of `training_mode` among a Dropout's inputs.
_MODE = 2


def find(case: Case) -> Iterator[Cause]:
    """Yield the operators in training mode, if the candidate's file has any and it ran."""
    if case.result.measurement.refused_count >= case.result.measurement.batches:
        return
    if isinstance(case.candidate, ModelCandidate) and case.candidate.facts.in_training:
        words = say("cause.saved_in_train_mode", names=first_of(case.candidate.facts.in_training, _NAMED_NODES))
        yield Cause(kind="training_mode", outcome=NAMED, words=words)
    if case.model is None or case.model.kind is not SourceKind.ONNX:
        return
    nodes = list(training_nodes(read_onnx(case.model.path)))
    if nodes:
        names = [node.name or node.op_type for node in nodes[:_NAMED_NODES]]
        words = say("cause.training_mode", count=len(nodes), names=names)
        yield Cause(kind="training_mode", outcome=NAMED, words=words)


def training_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield each BatchNormalization and Dropout that is in training mode, those of functions included."""
    graphs = list(graphs_in(model.graph))
    nodes = list(all_nodes(model))
    named = [(tensor.name, tensor) for graph in graphs for tensor in graph.initializer]
    named += [(node.output[0], item.t) for node in nodes for item in node.attribute if item.name == "value"]
    is_set = {name for name, tensor in named if any(tensor.int32_data) or any(tensor.raw_data[:1])}
    for node in nodes:
        modes = [item.i for item in node.attribute if item.name == "training_mode"]
        is_batch = node.op_type == "BatchNormalization" and any(modes)
        is_dropout = node.op_type == "Dropout" and len(node.input) > _MODE and node.input[_MODE] in is_set
        if is_batch or is_dropout:
            yield node
