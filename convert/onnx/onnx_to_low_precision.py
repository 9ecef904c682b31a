"""ONNX in FP32 to ONNX in FP16 or BF16, inputs and outputs still FP32."""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx
from paritygate.wording import counted

__all__ = ["convert"]

_MAIN = "model.onnx"
_SHOWN = 3


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.onnx`, rewritten to the job's precision but for its inputs and outputs.

    Args:
        job: Its source is an ONNX artifact in FP32.

    Raises:
        ConversionError: Nothing of the model would compute in the precision; it cannot be rewritten, or the
            result is not valid ONNX.
    """
    from paritygate.convert.onnx.precision.low_precision import rewrite_precision

    source = job.source.path
    result = rewrite_precision(read_onnx(source), precision=job.precision, folder=source.parent)
    if not result.nodes_converted:
        # It would be the FP32 model, held to looser limits under another name.
        kept = len(result.nodes_kept)
        msg = f"nothing to compute in {job.precision}: no node of the model is converted to it, {kept} stay in fp32"
        raise ConversionError(msg, hint=f"remove the {job.precision} target")
    path = job.folder / _MAIN
    save_onnx(result.model, path)
    converted, kept = len(result.nodes_converted), len(result.nodes_kept)
    casts = counted(result.casts_added, "cast")
    done = f"rewritten to {job.precision}: {counted(converted, 'node')}, {kept} kept in fp32, {casts} added"
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
