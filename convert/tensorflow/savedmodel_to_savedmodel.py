"""Copy a SavedModel file by file, or save it again to serve another of its signatures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.tensorflow.function import tensor_spec
from paritygate.errors import UsageError
from paritygate.files import files_below
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.models.tensorflow.savedmodel import (
    SERVING_SIGNATURE,
    SavedFunction,
    load_savedmodel,
    signature_of_savedmodel,
)


def convert(job: ConversionJob) -> Conversion:
    """Copy the SavedModel into the job's folder itself, with the chosen signature as serving_default.

    Servers use serving_default, so another signature is saved again under that name.

    Raises:
        UsageError: The job renames tensors, which a copy cannot.
    """
    if any(source != served for source, served in job.rename.items()):
        msg = "rename does not apply to a SavedModel, which is served unchanged"
        raise UsageError(msg, hint="leave out rename, or save the model again with the names to be served")
    source, key = job.source.path, job.source.signature_key or SERVING_SIGNATURE
    signature_of_savedmodel(source, key)
    if key != SERVING_SIGNATURE:
        _save_again(load_savedmodel(source, key), job.folder)
        return Conversion(main=".", signature=signature_of_savedmodel(job.folder))
    for file in files_below(source):
        target = job.folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return Conversion(main=".", signature=signature_of_savedmodel(job.folder))


def _save_again(saved: SavedFunction, folder: Path) -> None:
    tf = import_tensorflow()
    inputs = saved.signature.inputs
    specs = [tensor_spec(spec.shape, spec.dtype, spec.name) for spec in inputs]

    @tf.function(input_signature=specs, autograph=False)  # type: ignore[untyped-decorator]
    def serve(*tensors: Any) -> dict[str, Any]:  # noqa: ANN401 - tensors of TensorFlow, which has no types
        results = saved({spec.name: tensor for spec, tensor in zip(inputs, tensors, strict=True)})
        return {spec.name: tf.identity(results[spec.name]) for spec in saved.signature.outputs}

    tf.saved_model.save(saved.model, str(folder), signatures={SERVING_SIGNATURE: serve.get_concrete_function()})
