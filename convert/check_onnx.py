"""Whether a converted ONNX model is sound: onnx.checker's full check, known operators, a load in ONNX Runtime."""

from __future__ import annotations

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx_load import load_in_onnxruntime
from paritygate.convert.onnx_operators import check_operators
from paritygate.onnx_file import check_onnx, read_onnx, signature_of_onnx

__all__ = ["check"]

_OPERATOR_HINT = "write the model with operators that ONNX has, or serve it in its own format"


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the signature promised, once the file has proved sound.

    Raises:
        ConversionError: It is not; UnsupportedOperatorsError where it is for operators.
        MissingBackendError: ONNX Runtime is not installed.
    """
    path = job.folder / conversion.main
    with our_file():
        model = read_onnx(path)
        check_operators(model, hint=_OPERATOR_HINT)
        check_onnx(path)
    version = load_in_onnxruntime(path)
    facts = {"loaded_in": f"onnxruntime {version}"}
    return as_promised(job, conversion, signature_of_onnx(model), facts, keeps_names=True)
