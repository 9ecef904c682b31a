"""Loading a source in a child process: the model object, and what it turned out to consist of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from paritygate.files import digest_of_file
from paritygate.models.digest import digest_of_model
from paritygate.models.live import kind_of_live, live_object
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.models.parameters_digest import digest_of_parameters
from paritygate.models.source import Source, SourceKind, load_source_object, source_files
from paritygate.models.source_copy import is_source_copy, load_source_copy
from paritygate.models.tensorflow.keras_model import load_keras_file, signature_of_keras
from paritygate.models.tensorflow.savedmodel import signature_of_savedmodel
from paritygate.signature import Signature, rename_signature

__all__ = ["HOW_TO_RENAME", "LoadedModel", "load_model", "signature_said"]

# How an input MODEL of the source is served under the samples' KEY, in a run.
HOW_TO_RENAME = "model.rename: {MODEL: KEY} in the spec"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A source with its kind known, and its model object if it is a `module:callable` or was given as an object."""

    source: Source
    model: Any

    @property
    def digest(self) -> str | None:
        """The digest of the model's file, or of its parameters; None of a function, which has none."""
        if self.model is None:
            return digest_of_model(self.source)
        return None if self.source.kind is SourceKind.FUNCTION else digest_of_parameters(self.source.kind, self.model)

    def describe(self, declared_files: Iterable[str] = ()) -> dict[str, Any]:
        """Return what the source is, as JSON data: digest, kind, the files that its code came from and reads.

        With the names served beside it, this is what `source_copy.SOURCE_FILE` holds.

        Args:
            declared_files: Files that the code reads, relative to the source's folder: only the user knows them.

        Raises:
            UsageError: A declared file is outside of the source's folder, or a name cannot be kept.
        """
        files = source_files(self.source, declared_files, has_code=self.model is not None)
        return {
            "text": self.source.text,
            "kind": str(self.source.kind),
            "executes_code": self.source.executes_code,
            "digest": self.digest,
            "files": {name: digest_of_file(path) for name, path in files.items()},
        }


def signature_said(loaded: LoadedModel, rename: Mapping[str, str]) -> Signature | None:
    """Return the signature that a model says itself, under the names served; None where it says none.

    Raises:
        UsageError: A name to be served otherwise is none of the model's, or a Keras model does not say what it takes.
        InputFileError: The file is damaged.
        MissingBackendError: The model's framework is not installed.
    """
    kind, path = loaded.source.kind, loaded.source.path
    if kind is SourceKind.ONNX:
        return rename_signature(signature_of_onnx(read_onnx(path)), rename)
    if kind is SourceKind.SAVEDMODEL:
        return rename_signature(signature_of_savedmodel(path), rename)
    if kind is SourceKind.KERAS:
        return signature_of_keras(loaded.model or load_keras_file(path), rename)
    return None


def load_model(source: Source) -> LoadedModel:
    """Return the source loaded as far as a converter or runner needs it: a callable is called, a path is left.

    An object is found as it was given.

    Raises:
        UsageError: The callable is not found, or returns no model.
        ArtifactIntegrityError: It is the copy of a source, and makes other parameters than the source did.
        BackendError: It is an object of another process.
    """
    if source.kind is SourceKind.LIVE:
        model = live_object(source.text)
        return LoadedModel(source=replace(source, kind=kind_of_live(model)), model=model)
    if source.kind is not SourceKind.CALLABLE:
        return LoadedModel(source=source, model=None)
    found, model = (load_source_copy if is_source_copy(source) else load_source_object)(source)
    return LoadedModel(source=found, model=model)
