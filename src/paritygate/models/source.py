"""Name a model before it is loaded: a path, a `module:callable`, an object, an address or recorded outputs."""

from __future__ import annotations

import inspect
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.engine.record import RECORD_FILE, EngineRecord
from paritygate.errors import InputFileError, UsageError
from paritygate.file_names import check_names
from paritygate.importing import collecting_rarely, is_object_path, load_object, missing_module, user_files
from paritygate.models.endpoint import EndpointLimits, Protocol, is_url, parse_endpoint
from paritygate.models.json_mapping import JsonMapping
from paritygate.signature import Dim, Signature
from paritygate.text import StrEnum, a_or_an, beside_meant


class SourceKind(StrEnum):
    """The framework and form of a model."""

    ONNX = "onnx"
    SAVEDMODEL = "savedmodel"
    KERAS = "keras"
    TORCH = "torch"
    TORCHSCRIPT = "torchscript"
    PT2 = "pt2"
    OPENVINO = "openvino"
    TFLITE = "tflite"
    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt-rtx"
    CALLABLE = "callable"
    LIVE = "live"
    FUNCTION = "function"
    STAGES = "stages"
    RECORDED = "recorded"
    ENDPOINT = "endpoint"


_STAGES = "(name, callable), (name, address) or (name, address, mapping)"
# They take and return a dict of arrays, and nothing else is known of them.
OF_ARRAYS = frozenset({SourceKind.FUNCTION, SourceKind.STAGES})
# Models whose inputs and outputs may be unknown.
OBJECTS = frozenset({SourceKind.CALLABLE, SourceKind.LIVE, SourceKind.ENDPOINT})
OF_TORCH = frozenset({SourceKind.TORCH, SourceKind.TORCHSCRIPT, SourceKind.PT2})
OF_TENSORFLOW = frozenset({SourceKind.KERAS, SourceKind.SAVEDMODEL})
# Models whose inner tensors can be read; a callable returns a PyTorch module or a Keras model, or one that is refused.
_GRAPHS = frozenset({SourceKind.ONNX, SourceKind.OPENVINO, SourceKind.TFLITE})
WITH_INNER_TENSORS = OF_TORCH | OF_TENSORFLOW | _GRAPHS | {SourceKind.CALLABLE}
MODELS_WITH_INNER_TENSORS = "a model of ONNX, PyTorch, TensorFlow, OpenVINO or TFLite"
# An engine is a program for the GPU, and a version-compatible one also brings code for the CPU.
_EXECUTES_CODE = OF_TORCH | {SourceKind.CALLABLE, SourceKind.TENSORRT, SourceKind.TENSORRT_RTX}
_KIND_OF_SUFFIX = {
    ".onnx": SourceKind.ONNX,
    ".keras": SourceKind.KERAS,
    ".pt": SourceKind.TORCHSCRIPT,
    ".ts": SourceKind.TORCHSCRIPT,
    ".pt2": SourceKind.PT2,
    ".xml": SourceKind.OPENVINO,
    ".tflite": SourceKind.TFLITE,
}
# By the library that its record names.
_ENGINES = {str(kind): kind for kind in (SourceKind.TENSORRT, SourceKind.TENSORRT_RTX)}
_ENGINE_SUFFIX = ".plan"
# A folder with one of these is a model.
_CONFIG = "config.json"
_FILES_OF_FOLDERS = ("saved_model.pb", _CONFIG)
# The kinds of files that can be told without a framework, and how to write them.
_ARCHIVES = {
    SourceKind.KERAS: ("a Keras file", "write it again with model.save('model.keras')"),
    SourceKind.TORCHSCRIPT: ("a TorchScript file", "write it again with torch.jit.save(module, 'model.pt')"),
    SourceKind.PT2: ("a torch.export file", "write it again with torch.export.save(program, 'model.pt2')"),
}


class ModelRef(Struct, frozen=True, kw_only=True):
    """A model that is named and not loaded yet, with everything that another process needs to open it.

    The kind is CALLABLE until a child process called it, and LIVE until the object of Python code was inspected.
    RECORDED is an npz file or a recording.
    """

    text: str  # as the user wrote it: `module:callable`, a path or an address
    folder: Path  # of relative paths and user modules
    kind: SourceKind
    name: str = ""  # in messages and results
    signature: Signature | None = None  # as served, where the model has none (PyTorch) or no ranges of dims
    rename: Mapping[str, str] = field(default_factory=dict)  # {name in the model: name served}; other names stay
    fixed_shape: Path | None = None  # the file with the rule for fixed dims
    provider: str | None = None  # ONNX Runtime's cpu, cuda or tensorrt; None for that of the device
    engine: Path | None = None  # the engine that it replaces, on the engine's shapes only
    signature_key: str | None = None  # of a SavedModel; None for serving_default
    endpoint_limits: EndpointLimits | None = None  # None for the defaults
    endpoint_json: JsonMapping | None = None  # for servers without a known protocol
    takes: tuple[str, ...] = ()  # inputs of the samples, if not those of the other model
    dims: Mapping[str, Dim] = field(default_factory=dict)  # released ranges of symbolic dims

    @property
    def path(self) -> Path:
        """The file or folder of a model that is a path."""
        return self.folder / self.text

    @property
    def place(self) -> Path | None:
        """The file or folder of the model, links followed; None for a `module:callable`."""
        return self.path.resolve() if self.path.exists() else None

    @property
    def is_recorded(self) -> bool:
        """Whether it is recorded outputs and no model."""
        return self.kind is SourceKind.RECORDED

    @property
    def executes_code(self) -> bool:
        """Whether loading this model runs code of the user's."""
        return self.kind in _EXECUTES_CODE or is_object_path(self.text)


def parse_source(text: str, folder: Path) -> ModelRef:
    """Return the model written as `text`, a path relative to `folder` or `module:callable`, without importing it.

    Raises:
        InputFileError: The path does not exist, is not a model of a known kind, or an engine without its record.
    """
    if is_object_path(text) and not is_there(folder / text):
        return ModelRef(text=text, folder=folder, kind=SourceKind.CALLABLE, name=text)
    path = folder / text
    if not is_there(path):
        module = path.with_name(f"{path.name}.py")
        if path.name.isidentifier() and module.is_file():
            msg = f"model {path} does not exist, but {module.name} is Python code"
            raise InputFileError(msg, hint=f"name the function in it that returns the model: {path.name}:FUNCTION")
        msg = f"model {path} does not exist{beside_meant(path)}"
        raise InputFileError(msg, hint="give the path of a model, or module:callable")
    return ModelRef(text=text, folder=folder, kind=_kind_of_path(path), name=text)


def with_signature_key(model: ModelRef, key: str | None, where: str) -> ModelRef:
    """Return the model with one of its signatures chosen; unchanged for None. `where` names the option in messages.

    Raises:
        UsageError: It is not a SavedModel, which alone has several.
    """
    if key is None:
        return model
    if not (model.kind is SourceKind.SAVEDMODEL or _is_tensorflow_serving(model)):
        what = "recorded outputs" if model.is_recorded else f"a model of kind {str(model.kind)!r}"
        msg = f"{where} names the signature {key!r}, and {model.text} is {what}, but only a SavedModel has signatures"
        raise UsageError(msg, hint=f"leave {where} out, or give a SavedModel folder")
    return replace(model, signature_key=key)


def _is_tensorflow_serving(model: ModelRef) -> bool:
    if model.kind is not SourceKind.ENDPOINT or model.endpoint_json is not None:
        return False
    return parse_endpoint(model.text).protocol is Protocol.TENSORFLOW_SERVING


def may_be_model(text: str) -> bool:
    """Return whether a text looks like a model: a known suffix or folder, or `module:callable`."""
    path = Path(text)
    is_folder = any((path / name).is_file() for name in _FILES_OF_FOLDERS)
    return is_object_path(text) or path.suffix in {*_KIND_OF_SUFFIX, _ENGINE_SUFFIX} or is_folder


def is_there(path: Path) -> bool:
    """Return whether the path exists; raise InputFileError if it is impossible or may not be read."""
    try:
        return path.exists()
    except OSError as err:
        msg = f"{path} cannot be read: {err.strerror}"
        raise InputFileError(msg, hint="check the path and its permissions") from err


def _kind_of_path(path: Path) -> SourceKind:
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return SourceKind.SAVEDMODEL
        if (path / _CONFIG).is_file():
            msg = f"{path} is a Hugging Face folder, which only Python code can load"
            hint = f"write a spec and the module that loads it: convert-and-validate init {path} --samples FILE"
            raise InputFileError(msg, hint=hint)
        msg = f"{path} is not a TensorFlow SavedModel: the folder has no saved_model.pb"
        raise InputFileError(msg, hint="give a SavedModel folder, or the path of a .onnx or .keras file")
    if path.suffix == _ENGINE_SUFFIX:
        return _kind_of_engine(path)
    kind = _KIND_OF_SUFFIX.get(path.suffix)
    if kind is None and (path.parent / _CONFIG).is_file():
        msg = f"{path} is one file of a Hugging Face folder (got {path.suffix!r}, expected the folder)"
        raise InputFileError(msg, hint=f"name the folder: {path.parent}")
    if kind is None:
        allowed = f"{', '.join(_KIND_OF_SUFFIX)}, {_ENGINE_SUFFIX}, a SavedModel folder"
        msg = f"{path} is not a model of a known kind (suffix {path.suffix!r}; allowed: {allowed})"
        raise InputFileError(msg, hint="for a PyTorch module give module:callable, a function that returns the module")
    if kind in _ARCHIVES and not zipfile.is_zipfile(path):
        what, hint = _ARCHIVES[kind]
        raise InputFileError(f"{path} is not {what}: not a zip archive", hint=hint)
    return kind


def _kind_of_engine(path: Path) -> SourceKind:
    """Return the library of the engine from its record, because the files look alike."""
    library = EngineRecord.load(path).library
    if library not in _ENGINES:
        msg = f"{path.parent / RECORD_FILE} names the library {library!r} (allowed: {', '.join(_ENGINES)})"
        raise InputFileError(msg, hint="build the engine again", command="convert-and-validate build --run DIR")
    return _ENGINES[library]


def kind_of_object(model: object) -> SourceKind:
    """Return the kind of a model object without importing any framework.

    Raises:
        UsageError: The object is no PyTorch module, no Keras model and no list of stages.
    """
    roots = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(model).__mro__}
    if "torch.nn.modules.module.Module" in roots:
        return SourceKind.TORCH
    if any(name.startswith("keras.") and name.endswith(".Model") for name in roots):
        return SourceKind.KERAS
    if is_stages(model):
        return SourceKind.STAGES
    if isinstance(model, list | tuple):
        number, item = next(((at, item) for at, item in enumerate(model, start=1) if not _is_stage(item)), (0, None))
        what = f"entry {number} of the list is no stage (got {item!r:.80})" if model else "the list of stages is empty"
        raise UsageError(what, hint=f"write {_STAGES}; an address begins with http://, https:// or grpc://")
    msg = f"the callable returned a {type(model).__module__}.{type(model).__qualname__}, which is not a model"
    raise UsageError(msg, hint="return a torch.nn.Module, a keras.Model, or a list of stages: (name, callable)")


def is_stages(model: object) -> TypeGuard[Sequence[tuple[Any, ...]]]:
    """Return whether an object is a list of stages."""
    return isinstance(model, list | tuple) and bool(model) and all(map(_is_stage, model))


def _is_stage(item: object) -> bool:
    if not isinstance(item, tuple) or len(item) not in {2, 3} or not isinstance(item[0], str):
        return False
    is_address = isinstance(item[1], str) and is_url(item[1])
    return is_address or (callable(item[1]) and not item[2:])


@collecting_rarely()
def load_source_object(source: ModelRef) -> tuple[ModelRef, Any]:
    """Call the source's `module:callable` and return the source with its kind, and the model.

    A path is a folder of weights. An attribute that already is a model is used as it is. So is a function with a
    required argument, which is the model.

    Raises:
        UsageError: The callable is not found or returns no model.
    """
    if not is_object_path(source.text):
        from paritygate.models.hugging_face import load_weights

        return replace(source, kind=SourceKind.TORCH), load_weights(source.path)
    target = load_object(source.text, source.folder)
    is_model_already = is_stages(target) or (
        not isinstance(target, type)
        and any(cls.__module__.startswith(("torch.nn", "keras.")) for cls in type(target).__mro__)
    )
    if not is_model_already and not callable(target):
        msg = f"{source.text!r} is {a_or_an(type(target).__name__)}, neither a model nor a function that returns one"
        raise UsageError(msg, hint="name a function without arguments that returns the model, as module:callable")
    if inspect.isfunction(target) and _has_to_be_given_something(target):
        return replace(source, kind=SourceKind.FUNCTION), target
    try:
        model = target if is_model_already else target()
    except ModuleNotFoundError as err:
        raise missing_module(source.text, err) from err
    return replace(source, kind=kind_of_object(model)), model


def _has_to_be_given_something(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD for item in parameters)


def check_is_no_function(source: ModelRef) -> None:
    """Raise UsageError if a loaded source is a function, because it cannot be inspected or converted."""
    if source.kind in OF_ARRAYS:
        msg = f"{source.text} is a function with an argument or a list of stages, which only compare accepts"
        raise UsageError(msg, hint="name a function without arguments that returns the model")


def source_files(source: ModelRef, declared: Iterable[str], *, has_code: bool = True) -> dict[str, Path]:
    """Return the files of a loaded source besides its model file, by path relative to its folder.

    `declared` files are read by the code, relative to the source's folder; only the user knows them. With `has_code`,
    the files that user code was imported from count.

    Raises:
        UsageError: A declared file is outside of the folder, or a name is not allowed on every machine.
    """
    root = source.folder.resolve()
    files = set(user_files(root)) if has_code else set()
    for name in declared:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            msg = f"model.files names {name!r}, which is outside of {root}"
            raise UsageError(msg, hint="put the files that the code reads below the spec's folder")
        files.add(path)
    paths = {path.relative_to(root).as_posix(): path for path in sorted(files)}
    try:
        check_names(paths)
    except ValueError as err:
        raise UsageError(f"the files of {source.text} cannot be kept with it: {err}", hint="rename the file") from err
    return paths
