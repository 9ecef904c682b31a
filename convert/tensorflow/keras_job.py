"""Open the Keras model of a job, with its signature and its function."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from paritygate.convert.contract import notes_left_out
from paritygate.convert.conversion import ConversionJob
from paritygate.models.tensorflow.keras_model import (
    NamedKerasModel,
    as_named_function,
    load_keras_file,
    notes_on_names,
    signature_of_keras,
)
from paritygate.signature import Signature


class KerasSource(Struct, frozen=True, kw_only=True):
    """A Keras model ready to be exported."""

    model: Any
    signature: Signature  # the job's, or inferred from the model
    function: NamedKerasModel  # of the tensors of the signature
    on_names: tuple[str, ...] = ()  # notes on the names of its outputs

    def notes(self) -> tuple[str, ...]:
        """Return notes for the user once the function has been traced."""
        return (*self.on_names, *notes_left_out(self.function.unused_outputs))


def open_keras(job: ConversionJob) -> KerasSource:
    """Return the job's model object, or the one in its `.keras` file, with its signature."""
    model = job.model if job.model is not None else load_keras_file(job.source.path)
    signature = job.signature or signature_of_keras(model, job.rename)
    return KerasSource(
        model=model,
        signature=signature,
        function=as_named_function(model, signature, job.rename),
        on_names=notes_on_names(model, signature, job.rename),
    )
