"""ONNX in FP32 to ONNX in FP16, inputs and outputs still FP32: the step after a converter to ONNX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paritygate.convert.conversion import Conversion
from paritygate.convert.onnx_rewrite import save_onnx
from paritygate.onnx_file import external_files, read_onnx, signature_of_onnx
from paritygate.precision import Precision

__all__ = ["lower_to_fp16"]

_SHOWN = 3


def lower_to_fp16(folder: Path, conversion: Conversion) -> Conversion:
    """Rewrite the model of a conversion in place and return the conversion as it is then.

    Args:
        folder: Where the conversion wrote to.
        conversion: The conversion to FP32 ONNX, checked.

    Raises:
        ConversionError: The model cannot be rewritten, or the result is not valid ONNX.
    """
    from paritygate.convert.onnx_precision.low_precision import rewrite_precision

    path = folder / conversion.main
    model = read_onnx(path)
    result = rewrite_precision(model, precision=Precision.FP16, folder=folder)
    for name in external_files(model):
        (folder / name).unlink()
    save_onnx(result.model, path)
    converted, kept = len(result.nodes_converted), len(result.nodes_kept)
    done = f"rewritten to fp16: {converted} nodes, {kept} kept in fp32, {result.casts_added} casts added"
    notes = [done, *result.notes]
    for what, changes in (("beyond its range", result.clamps), ("too small for it", result.flushes)):
        if changes:
            shown = "; ".join(map(str, changes[:_SHOWN]))
            more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            notes.append(f"constants {what} were changed: {shown}{more}")
    facts = {
        "nodes_converted": len(result.nodes_converted),
        "nodes_kept": [
            {"name": node.name, "operator": node.operator, "reason": node.reason} for node in result.nodes_kept
        ],
        "constants_clamped": [str(change) for change in result.clamps],
        "constants_flushed": [str(change) for change in result.flushes],
    }
    return replace(
        conversion,
        signature=signature_of_onnx(read_onnx(path)),
        notes=(*conversion.notes, *notes),
        facts={**conversion.facts, **facts},
    )
