"""Convert Keras 3 to ONNX, with tf2onnx on the traced model.

A SavedModel in between would write every weight twice, refuse some names, and lose the order of inputs.
"""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.tensorflow.function import function_to_onnx
from paritygate.convert.tensorflow.keras_job import open_keras


def convert(job: ConversionJob) -> Conversion:
    """Write the model, an object or a `.keras` file, in inference mode as `model.onnx`.

    Without a signature it is inferred, which fails for a subclassed model.
    """
    keras = open_keras(job)
    return function_to_onnx(
        keras.function, signature=keras.signature, folder=job.folder, opset=job.opset, notes=keras.notes
    )
