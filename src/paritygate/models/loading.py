"""Loading a model as far as a converter or a runner needs it: its object made, its kind known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from paritygate.files import digest_of_file
from paritygate.models.digest import digest_of_model, digest_of_parameters
from paritygate.models.example import Example
from paritygate.models.live import kind_of_live, live_object
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.models.source import ModelRef, SourceKind, load_source_object, source_files
from paritygate.models.source_copy import is_source_copy, load_source_copy
from paritygate.models.tensorflow.keras_model import load_keras_file, signature_of_keras
from paritygate.models.tensorflow.savedmodel import signature_of_savedmodel
from paritygate.signature import Signature, rename_signature

__all__ = ["LoadedModel", "load_model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model that can be converted or run.

    Attributes:
        ref: Which model it is, its kind known.
        model: The model object of a `module:callable`, or the object that was given; None for a path.
        device: Where it is to run: `cpu`, or `cuda`.
        is_optimised: Whether ONNX Runtime rewrites the graph, as it does where it is deployed. Nothing to the other
            runners.
        example: Real inputs, by which a model object is asked for its signature where it does not say it and none is
            given; None where none is to be asked.
    """

    ref: ModelRef
    model: Any = None
    device: str = "cpu"
    is_optimised: bool = True
    example: Example | None = None

    @property
    def digest(self) -> str | None:
        """The digest of the model's file, or of its parameters; None of a function, which has none."""
        if self.model is None:
            return digest_of_model(self.ref)
        return None if self.ref.kind is SourceKind.FUNCTION else digest_of_parameters(self.ref.kind, self.model)

    def describe(self, declared_files: Iterable[str] = ()) -> dict[str, Any]:
        """Return what the model is, as JSON data: digest, kind, the files that its code came from and reads.

        With the names served beside it, this is what `source_copy.SOURCE_FILE` holds.

        Args:
            declared_files: Files that the code reads, relative to the model's folder: only the user knows them.

        Raises:
            UsageError: A declared file is outside of the model's folder, or a name cannot be kept.
        """
        files = source_files(self.ref, declared_files, has_code=self.model is not None)
        return {
            "text": self.ref.text,
            "kind": str(self.ref.kind),
            "executes_code": self.ref.executes_code,
            "digest": self.digest,
            "files": {name: digest_of_file(path) for name, path in files.items()},
        }

    def signature_said(self) -> Signature | None:
        """Return the signature that the model says itself, under the names served; None where it says none.

        Raises:
            UsageError: A name to be served otherwise is none of the model's, or a Keras model does not say what it
                takes.
            InputFileError: The file is damaged.
            MissingBackendError: The model's framework is not installed.
        """
        kind, path, rename = self.ref.kind, self.ref.path, self.ref.rename
        if kind is SourceKind.ONNX:
            return rename_signature(signature_of_onnx(read_onnx(path)), rename)
        if kind is SourceKind.SAVEDMODEL:
            return rename_signature(signature_of_savedmodel(path), rename)
        if kind is SourceKind.KERAS:
            return signature_of_keras(self.model or load_keras_file(path), rename)
        return None


def load_model(ref: ModelRef) -> LoadedModel:
    """Return the model loaded as far as a converter or runner needs it: a callable is called, a path is left.

    An object is found as it was given.

    Raises:
        UsageError: The callable is not found, or returns no model.
        ArtifactIntegrityError: It is the copy of a source, and makes other parameters than the source did.
        BackendError: It is an object of another process.
    """
    if ref.kind is SourceKind.LIVE:
        model = live_object(ref.text)
        return LoadedModel(ref=replace(ref, kind=kind_of_live(model)), model=model)
    if ref.kind is not SourceKind.CALLABLE:
        return LoadedModel(ref=ref)
    found, model = (load_source_copy if is_source_copy(ref) else load_source_object)(ref)
    return LoadedModel(ref=found, model=model)
