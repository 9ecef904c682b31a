"""Load a model as far as a converter or a runner needs it.

It also finds models that Python code gives as objects. They run in this process because no other one has them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import BackendError, UsageError
from paritygate.files import digest_of_file
from paritygate.models.digest import digest_of_model, digest_of_parameters
from paritygate.models.example import Example
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.models.source import OF_ARRAYS, ModelRef, SourceKind, kind_of_object, load_source_object, source_files
from paritygate.models.source_copy import is_source_copy, load_source_copy
from paritygate.signature import Signature, rename_signature

_OBJECTS: ContextVar[Mapping[str, Any]] = ContextVar("live_objects")


class LoadedModel(Struct, frozen=True, kw_only=True):
    """A model that can be converted or run."""

    ref: ModelRef  # its kind known
    model: Any = None  # the object of Python code or of a `module:callable`; None for a path
    device: str = "cpu"  # or cuda
    is_optimised: bool = True  # ONNX Runtime rewrites the graph, as in production
    example: Example | None = None  # inputs to find an undeclared signature with; None not to run the model
    side: str = ""  # of a comparison, for messages: reference or candidate

    @property
    def digest(self) -> str | None:
        """The digest of the model's file or parameters; None for a function."""
        if self.model is None:
            return digest_of_model(self.ref)
        return None if self.ref.kind in OF_ARRAYS else digest_of_parameters(self.ref.kind, self.model)

    @property
    def is_served(self) -> bool:
        """Whether a server runs it, or a stage of it; True for stages that are not loaded."""
        if self.ref.kind is SourceKind.STAGES and self.model is not None:
            return any(isinstance(call, str) for _, call, *_ in self.model)
        return self.ref.kind in {SourceKind.ENDPOINT, SourceKind.STAGES}

    def describe(self, declared_files: Iterable[str] = ()) -> dict[str, Any]:
        """Return JSON data on the model: digest, kind, and the files that its code was imported from and reads.

        With the names served beside it, this is the content of `source_copy.SOURCE_FILE`.

        Args:
            declared_files: Files that the code reads, relative to the model's folder; only the user knows them.

        Raises:
            UsageError: A declared file is outside of the model's folder, or its name is not allowed.
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
        """Return the signature that the model itself declares, under the names served; None where it declares none.

        Raises:
            UsageError: A name to rename is not in the model, or a Keras model does not know its inputs.
            InputFileError: The file is corrupt.
        """
        kind, path, rename = self.ref.kind, self.ref.path, self.ref.rename
        if kind is SourceKind.ONNX:
            return rename_signature(signature_of_onnx(read_onnx(path)), rename)
        if kind is SourceKind.SAVEDMODEL:
            from paritygate.models.tensorflow.savedmodel import signature_of_savedmodel

            return rename_signature(signature_of_savedmodel(path, self.ref.signature_key), rename)
        if kind is SourceKind.KERAS:
            from paritygate.models.tensorflow.keras_model import load_keras_file, signature_of_keras

            return signature_of_keras(self.model or load_keras_file(path), rename)
        return None


def load_model(ref: ModelRef) -> LoadedModel:
    """Return the model loaded as far as a converter or runner needs it: a callable is called, a path is left.

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
    loaded_ref, model = (load_source_copy if is_source_copy(ref) else load_source_object)(ref)
    return LoadedModel(ref=loaded_ref, model=model)


def naming_signatures(ref: ModelRef) -> contextlib.AbstractContextManager[None]:
    """Return a context that names all signatures of a SavedModel in a UsageError on samples that do not fit."""
    if ref.kind is not SourceKind.SAVEDMODEL:
        return contextlib.nullcontext()
    from paritygate.models.tensorflow.savedmodel import signatures_named

    return signatures_named(ref.path, ref.text, ref.signature_key)


def kind_of_live(model: object) -> SourceKind:
    """Return the kind of an object that is given as a model, without importing any framework.

    Raises:
        UsageError: It is not a PyTorch module, Keras model, function or list of stages.
    """
    try:
        return kind_of_object(model)
    except UsageError:
        # A class makes a model, whereas a function is one.
        if callable(model) and not isinstance(model, type):
            return SourceKind.FUNCTION
        if isinstance(model, list | tuple):
            raise
    msg = f"a {type(model).__module__}.{type(model).__qualname__} is not a model"
    hint = (
        "give a path, module:callable, a torch.nn.Module, a keras.Model, a list of stages, or a function that takes a "
        "mapping of arrays and returns one"
    )
    raise UsageError(msg, hint=hint)


@contextlib.contextmanager
def live_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Let `live_object` find these objects, by the text of their source, and restore the process afterwards.

    A comparison changes evaluation mode, and whether float32 may be computed in less. Both are set back.
    """
    token = _OBJECTS.set(objects)
    path = list(sys.path)
    with contextlib.ExitStack() as stack:
        stack.callback(_OBJECTS.reset, token)
        stack.callback(sys.path.__setitem__, slice(None), path)
        if "torch" in sys.modules:
            from paritygate.models.torch.module import modes_kept, precision_kept

            for model in objects.values():
                if kind_of_live(model) is SourceKind.TORCH:
                    stack.enter_context(modes_kept(model))
            stack.enter_context(precision_kept())
        if "tensorflow" in sys.modules:
            stack.enter_context(_precision_of_tensorflow_kept())
        yield


def live_object(text: str) -> Any:  # noqa: ANN401 - whatever Python code gave
    """Return the object of a source; raise BackendError if another process has it."""
    objects = _OBJECTS.get({})
    if text not in objects:
        raise BackendError(f"{text!r} is an object of another process", hint="give a path, or module:callable")
    return objects[text]


@contextlib.contextmanager
def _precision_of_tensorflow_kept() -> Iterator[None]:
    import tensorflow as tf

    is_allowed = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(is_allowed)
