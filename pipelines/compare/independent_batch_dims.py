"""Find inputs of a SavedModel with different rows, such as the parts of a ragged tensor, by the samples.

TensorFlow leaves the first dim of each input open, equal or not. They are assumed to be the batch's rows, as in nearly
all models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.models.loading import load_model
from paritygate.models.source import SourceKind
from paritygate.signature import BATCH, Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from paritygate.batch import Batch
    from paritygate.models.source import ModelRef


def with_rows_apart(ref: ModelRef, read: Callable[[], Iterable[Batch]]) -> ModelRef:
    """Return a SavedModel with separate first dims of its inputs, if the samples have such rows.

    Other models, and declared signatures, do not change. `read` starts reading the samples.

    Raises:
        InputFileError: It is not a SavedModel, or has no such signature.
        UsageError: The model has no name that is to be renamed.
        MissingBackendError: TensorFlow is not installed.
    """
    if ref.kind is not SourceKind.SAVEDMODEL or ref.signature is not None:
        return ref
    signature = load_model(ref).signature_said()
    if signature is None:
        return ref
    apart = rows_apart(signature, read)
    return ref if apart is signature else replace(ref, signature=apart)


def rows_apart(signature: Signature, read: Callable[[], Iterable[Batch]]) -> Signature:
    """Return the signature with a first dim for each input if the first batch needs it, else the same object."""
    names = [spec.name for spec in signature.inputs if _has_rows(spec)]
    first = next((batch for batch in read() if batch.rows), None) if len(names) > 1 else None
    if first is None:
        return signature
    arrays = [first.inputs[name] for name in names if name in first.inputs]
    if len({array.shape[0] for array in arrays if array.ndim}) < 2:  # noqa: PLR2004 - one is what was taken for granted
        return signature
    return replace(
        signature, inputs=tuple(map(_apart, signature.inputs)), outputs=tuple(map(_apart, signature.outputs))
    )


def _has_rows(spec: TensorSpec) -> bool:
    return (spec.shape or ("",))[0] == BATCH


def _apart(spec: TensorSpec) -> TensorSpec:
    """Return the tensor with its own name for its first dim."""
    if spec.shape is None or not _has_rows(spec):
        return spec
    return replace(spec, shape=(f"{spec.name}_dim0", *spec.shape[1:]))
