"""Keras 3 to ONNX, by tf2onnx on the traced model.

Why not by way of a SavedModel? That would write every weight twice, and a SavedModel does not allow all
names and does not keep the order of inputs.
"""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.tensorflow.function import function_to_onnx
from paritygate.convert.tensorflow.keras_job import open_keras


def convert(job: ConversionJob) -> Conversion:
    """Write the model, in inference mode, as `model.onnx`.

    Args:
        job: Its `model` is a `keras.Model`, or its source a `.keras` file. Without a signature it is
            inferred, which a subclassed model does not allow.
    """
    keras = open_keras(job)
    return function_to_onnx(
        keras.function, signature=keras.signature, folder=job.folder, opset=job.opset, notes=keras.notes
    )
