"""Whether a converted ONNX model is sound: onnx.checker's full check, known operators, a load in ONNX Runtime.

A precision that ONNX Runtime's CPU provider does not run is not loaded, and the facts say so.
"""

from __future__ import annotations

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.load import load_in_onnxruntime
from paritygate.convert.onnx.operators import check_operators
from paritygate.formats import why_not_run
from paritygate.models.onnx.file import check_onnx, read_onnx, signature_of_onnx
from paritygate.precision import Variant

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
    # What cannot be loaded here is no failure of the converter: where it runs is where it is proved.
    reason = why_not_run(Variant(format="onnx", precision=job.precision), "cpu")
    loaded_in = f"onnxruntime {load_in_onnxruntime(path)}" if reason is None else f"nothing: {reason}"
    facts = {"loaded_in": loaded_in}
    return as_promised(job, conversion, signature_of_onnx(model), facts, keeps_names=True)
