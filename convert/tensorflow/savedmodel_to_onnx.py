"""Convert one signature of a TensorFlow SavedModel to ONNX with tf2onnx."""

from __future__ import annotations

from typing import Any

from paritygate.convert.contract import notes_left_out
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.tensorflow.function import function_to_onnx
from paritygate.errors import UsageError
from paritygate.models.named_call import check_rename, source_names
from paritygate.models.tensorflow.savedmodel import SavedFunction, load_savedmodel
from paritygate.signature import Signature, TensorSpec


def convert(job: ConversionJob) -> Conversion:
    """Write the signature that the source names, or serving_default, as `model.onnx`.

    Without a signature in the job, the model's own is used, with inputs and outputs sorted by name.
    """
    saved = load_savedmodel(job.source.path, job.source.signature_key)
    signature = job.signature or _served(saved.signature, job)
    check_rename(signature, job.rename)
    inputs = source_names(signature.inputs, job.rename)
    outputs = source_names(signature.outputs, job.rename)
    _check_names("input", inputs, saved, are_all_needed=True)
    _check_names("output", outputs, saved, are_all_needed=False)

    def function(*tensors: Any) -> tuple[Any, ...]:  # noqa: ANN401 - tensors of TensorFlow, which has no types
        results = saved(dict(zip(inputs, tensors, strict=True)))
        return tuple(results[name] for name in outputs)

    left_out = [spec.name for spec in saved.signature.outputs if spec.name not in outputs]
    return function_to_onnx(
        function, signature=signature, folder=job.folder, opset=job.opset, notes=lambda: notes_left_out(left_out)
    )


def _served(signature: Signature, job: ConversionJob) -> Signature:
    def served(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(name=job.rename.get(spec.name, spec.name), dtype=spec.dtype, shape=spec.shape)

    return Signature(inputs=tuple(map(served, signature.inputs)), outputs=tuple(map(served, signature.outputs)))


def _check_names(side: str, names: tuple[str, ...], saved: SavedFunction, *, are_all_needed: bool) -> None:
    there = [spec.name for spec in (saved.signature.inputs if side == "input" else saved.signature.outputs)]
    unknown = [name for name in names if name not in there]
    if unknown:
        msg = f"the SavedModel has no {side} {unknown[0]!r} (it has: {', '.join(there)})"
        raise UsageError(msg, hint="correct the declared names, or rename: {name in the source: name served}")
    unfed = [name for name in there if name not in names]
    if unfed and are_all_needed:
        msg = f"the SavedModel needs the input {unfed[0]!r}, which the signature does not have"
        raise UsageError(msg, hint="declare all the model's inputs")
