"""Convert Keras 3 to a TensorFlow SavedModel whose serving_default has the names of the signature."""

from __future__ import annotations

from typing import Any

from paritygate.backends import backend_state, version_of
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.tensorflow.function import explained_tracing, tensor_spec
from paritygate.convert.tensorflow.keras_job import open_keras
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow
from paritygate.models.tensorflow.savedmodel import SERVING_SIGNATURE, signature_of_savedmodel


def convert(job: ConversionJob) -> Conversion:
    """Write the model, an object or a `.keras` file, in inference mode as a SavedModel into the job's folder itself.

    `model.export` would always name a single output `output_0`. Without a signature it is inferred, which fails for a
    subclassed model.
    """
    source = open_keras(job)
    keras, tf = import_keras(), import_tensorflow()

    def serve(*tensors: Any) -> dict[str, Any]:  # noqa: ANN401 - tensors of TensorFlow, which has no types
        outputs = source.function(*tensors)
        named = zip(source.signature.outputs, outputs, strict=True)
        return {spec.name: tf.identity(tensor) for spec, tensor in named}

    archive = keras.export.ExportArchive()
    archive.track(source.model)
    specs = [tensor_spec(spec.shape, spec.dtype, spec.name) for spec in source.signature.inputs]
    with explained_tracing():
        archive.add_endpoint(SERVING_SIGNATURE, serve, input_signature=specs)
        archive.write_out(str(job.folder), verbose=False)
    return Conversion(
        main=".",
        signature=signature_of_savedmodel(job.folder),
        notes=source.notes(),
        facts={"tensorflow": backend_state("tensorflow").version, "keras": version_of("keras")},
    )
