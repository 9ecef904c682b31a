"""Copy ONNX with its external data, rewritten only for names, dims, a ZipMap or the IR version."""

from __future__ import annotations

import shutil

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.check_onnx import highest_ir_version
from paritygate.convert.onnx.rewrite import apply_signature, lower_ir_version, take_zip_maps_apart
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import external_files, opset_of, read_onnx, signature_of_onnx

_MAIN = "model.onnx"


def convert(job: ConversionJob) -> Conversion:
    """Copy the model to `model.onnx`, and its external data beside it under the names it refers to.

    The file is byte for byte the same, unless the signature has other names, another order or names of dims. Mappings
    as outputs, and an IR version that the installed ONNX Runtime cannot read, are also changed.

    Raises:
        ConversionError: Another opset was requested, or the dims contradict the signature.
    """
    source = job.source.path
    model = read_onnx(source)
    opset = opset_of(model)
    if job.opset is not None and job.opset != opset:
        msg = f"opset {job.opset} was requested, but an ONNX model is served unchanged, with opset {opset}"
        raise ConversionError(msg, hint=f"set opset {opset}, leave it out, or export the model again")
    before = model.SerializeToString(deterministic=True)
    notes = [*take_zip_maps_apart(model)]
    notes += apply_signature(model, job.signature, job.rename)
    limit = highest_ir_version()
    ir_note = lower_ir_version(model, limit) if limit is not None else None
    if ir_note:
        notes.append(ir_note)
    target = job.folder / _MAIN
    if model.SerializeToString(deterministic=True) == before:
        shutil.copyfile(source, target)
    else:
        target.write_bytes(model.SerializeToString())
    for name in external_files(model):
        data = job.folder / name
        if data == target:
            msg = f"the model's external data is in a file named {_MAIN}, which is the name of the copy"
            raise ConversionError(msg, hint="save the model again with another name for its external data")
        data.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, data)
    return Conversion(
        main=_MAIN,
        signature=signature_of_onnx(model),
        notes=tuple(notes),
        facts={"opset": opset, "ir_version": model.ir_version, "producer": model.producer_name},
    )
