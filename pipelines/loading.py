"""Loading a source in a child process: the model object, and what it turned out to consist of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paritygate.files import digest_of_file
from paritygate.model_digest import digest_of_model
from paritygate.source import Source, SourceKind, load_source_object, user_files

__all__ = ["LoadedModel", "load_model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A source with its kind known, and its model object if it is a `module:callable`."""

    source: Source
    model: Any

    def describe(self, declared_files: Iterable[str] = ()) -> dict[str, Any]:
        """Return what the source is, as JSON data: digest, kind, the files that its code came from and reads.

        Args:
            declared_files: Files that the code reads, relative to the source's folder: only the user knows them.
        """
        root = self.source.folder.resolve()
        imported = user_files(root).values() if self.model is not None else ()
        files = {*imported, *((root / name).resolve() for name in declared_files)}
        return {
            "text": self.source.text,
            "kind": str(self.source.kind),
            "executes_code": self.source.executes_code,
            "digest": digest_of_model(self.source) if self.model is None else digest_of_parameters(self),
            "files": {path.relative_to(root).as_posix(): digest_of_file(path) for path in sorted(files)},
        }


def load_model(source: Source) -> LoadedModel:
    """Return the source loaded as far as a converter or runner needs it: a callable is called, a path is left.

    Raises:
        UsageError: The callable is not found, or returns no model.
    """
    if source.kind is not SourceKind.CALLABLE:
        return LoadedModel(source=source, model=None)
    found, model = load_source_object(source)
    return LoadedModel(source=found, model=model)


def digest_of_parameters(loaded: LoadedModel) -> str:
    """Return a digest over names, dtypes, shapes and bytes of the parameters and buffers of a model object."""
    state = hashlib.sha256()
    if loaded.source.kind is SourceKind.TORCH:
        named = [(name, tensor.detach().cpu()) for name, tensor in loaded.model.state_dict().items()]
        arrays = [(name, _torch_bytes(tensor), str(tensor.dtype), tuple(tensor.shape)) for name, tensor in named]
    else:
        arrays = []
        for variable in loaded.model.weights:
            value = np.ascontiguousarray(variable.numpy())
            arrays.append((variable.path, value.tobytes(), str(value.dtype), value.shape))
    for name, raw, dtype, shape in arrays:
        state.update(f"{name}:{dtype}:{shape}:".encode())
        state.update(raw)
    return f"sha256:{state.hexdigest()}"


def _torch_bytes(tensor: Any) -> bytes:  # noqa: ANN401 - torch is not imported here
    import torch

    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()) if tensor.numel() else b""
