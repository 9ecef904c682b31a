"""A SavedModel as it is: a copy, file by file."""

from __future__ import annotations

import shutil

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import UsageError
from paritygate.files import files_below
from paritygate.models.tensorflow.savedmodel import signature_of_savedmodel

__all__ = ["convert"]


def convert(job: ConversionJob) -> Conversion:
    """Copy the SavedModel into the job's folder itself.

    Raises:
        InputFileError: The source is no SavedModel.
        UsageError: The job renames tensors, which a copy cannot.
        StorageError: A link in the source leaves its folder.
        MissingBackendError: TensorFlow is not installed.
    """
    if any(source != served for source, served in job.rename.items()):
        msg = "rename does not apply to a SavedModel that is served as it is"
        raise UsageError(msg, hint="leave out rename, or save the model again with the names to be served")
    source = job.source.path
    signature_of_savedmodel(source)
    for file in files_below(source):
        target = job.folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return Conversion(main=".", signature=signature_of_savedmodel(job.folder))
