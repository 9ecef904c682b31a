"""Finish every ONNX file of PyTorch: check its opset, write names and dims of the signature, remove paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import version_of
from paritygate.convert.conversion import Conversion
from paritygate.convert.onnx.rewrite import apply_signature, lower_ir_version
from paritygate.errors import ConversionError, UsageError
from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import graphs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx

    from paritygate.signature import Signature

# Names for the exporters, which use names such as `mean` or `embedding` for inner values as well, and write both.
_INPUT = "served_input_"
_OUTPUT = "served_output_"
_STACK_TRACE = "pkg.torch.onnx.stack_trace"


def neutral_names(signature: Signature) -> tuple[list[str], list[str]]:
    """Return the names of inputs and outputs of a signature during the export, in their order.

    Raises:
        UsageError: An input and an output have one name, which are two values in ONNX.
    """
    both = {spec.name for spec in signature.inputs} & {spec.name for spec in signature.outputs}
    if both:
        name = min(both)
        msg = f"{name!r} is the name of an input and of an output, but ONNX needs different names"
        other = f"{name}_out"
        hint = f"name the output {other!r} in model.outputs, and add it to model.rename: {{{name}: {other}}}"
        raise UsageError(msg, hint=hint)
    inputs = [f"{_INPUT}{index}" for index in range(len(signature.inputs))]
    return inputs, [f"{_OUTPUT}{index}" for index in range(len(signature.outputs))]


def finished(
    path: Path,
    signature: Signature,
    asked_opset: int | None,
    notes: Iterable[str | None],
    ties: Mapping[str, str] | None = None,
) -> Conversion:
    """Return the conversion that wrote the ONNX file, after giving the file names, order and dims of the signature.

    The file has the neutral names; other outputs are dropped. `ties` are expressions that a dim of the inputs always
    equals.

    Raises:
        ConversionError: The exporter wrote another opset than the requested one.
    """
    model = read_onnx(path)
    opset = opset_of(model)
    if asked_opset is not None and opset != asked_opset:
        msg = f"opset {asked_opset} was requested, but the exporter could not convert the model from opset {opset}"
        raise ConversionError(msg, hint=f"set opset {opset}, or leave it out")
    ir_note = lower_ir_version(model)
    served = [spec.name for spec in (*signature.inputs, *signature.outputs)]
    neutral = [name for names in neutral_names(signature) for name in names]
    dropped = apply_signature(model, signature, dict(zip(neutral, served, strict=True)), ties)
    _remove_traces(model)
    path.write_bytes(model.SerializeToString())
    facts: dict[str, Any] = {"opset": opset, "ir_version": model.ir_version, "torch": version_of("torch")}
    return Conversion(
        main=path.name,
        signature=signature_of_onnx(model),
        notes=tuple(note for note in (*notes, *dropped, ir_note) if note),
        facts={**facts, "onnxscript": version_of("onnxscript")},
    )


def _remove_traces(model: onnx.ModelProto) -> None:
    # The traces hold paths of this machine, so files would differ between checkouts.
    for graph in graphs_in(model.graph):
        for node in graph.node:
            entries = [entry for entry in node.metadata_props if entry.key != _STACK_TRACE]
            del node.metadata_props[:]
            node.metadata_props.extend(entries)
            # The legacy exporter puts them here.
            node.ClearField("doc_string")
