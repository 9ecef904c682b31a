"""Load TorchScript files, and call them by the names of their forward's parameters."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.errors import InputFileError
from paritygate.models.source import SourceKind
from paritygate.models.torch.archive import check_archive
from paritygate.models.torch.module import TRAIN_FLAGS
from paritygate.models.torch.names import module_taking

if TYPE_CHECKING:
    import torch

_UNKNOWN = re.compile(r"(?<=Unknown builtin op: )(\w+)::\w+")
# The position of `allow_tf32` among the inputs of a traced convolution.
_CONVOLUTION, _ALLOWS_TF32 = "aten::_convolution", 12
_IN_TORCHSCRIPT = "The following operation failed in the TorchScript interpreter"
_ARROW = "<--- HERE"
_WHY = re.compile(r"[\w.]*(?:Error|Exception)\b.*:")


def load_torchscript(path: Path, device: str = "cpu") -> Any:  # noqa: ANN401 - a ScriptModule, which torch does not type
    """Return the module in the file, its tensors on the device. Loading runs code of the file's author.

    Raises:
        InputFileError: It is not TorchScript, corrupt, or of an unsupported PyTorch version.
    """
    require_backend("torch")
    check_archive(path, SourceKind.TORCHSCRIPT)
    import torch

    try:
        return _loaded(path, device)
    except Exception as err:
        reason = " ".join(str(err).split())[:300]
        msg = f"torch {torch.__version__} does not load {path}: {type(err).__name__}: {reason}"
        hint = "save it again with torch.jit.save, with this version of PyTorch"
        operator, package = _operator_of_a_package(err)
        if package:
            hint = f"{operator} is from the package {package}: install it here and wherever the file is served"
        raise InputFileError(msg, hint=hint) from err


def _loaded(path: Path, device: str) -> Any:  # noqa: ANN401 - as load_torchscript
    import torch

    try:
        return torch.jit.load(str(path), map_location=device)  # type: ignore[no-untyped-call]  # torch has no type
    except RuntimeError as err:
        # Importing torchvision, torchaudio and others registers their operators, whose prefix is the package.
        _, package = _operator_of_a_package(err)
        if not package or importlib.util.find_spec(package) is None:
            raise
        try:
            importlib.import_module(package)
        except Exception as broken:  # noqa: BLE001 - whatever a package raises, it does not import
            # The message names the failed import and the operator that needs it.
            raise RuntimeError(f"{type(broken).__name__}: {broken}, as {package} is imported; {err}") from err
        return torch.jit.load(str(path), map_location=device)  # type: ignore[no-untyped-call]  # as above


def _operator_of_a_package(err: Exception) -> tuple[str, str]:
    """Return the unknown operator and the package in its name; empty for PyTorch's own."""
    import torch

    unknown = _UNKNOWN.search(str(err))
    if unknown is None:
        return "", ""
    own_prefixes = {schema.name.partition("::")[0] for schema in torch._C._jit_get_all_schemas()}  # noqa: SLF001 - no other way
    return ("", "") if unknown[1] in own_prefixes else (unknown[0], unknown[1])


def taking_its_names(module: Any) -> torch.nn.Module:  # noqa: ANN401 - as load_torchscript
    """Return the module with a forward that has the parameters of the file's own.

    A tracer may generate these names, and then declared names apply in order.
    """
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    return module_taking(names, module, module)


def notes_of(module: Any) -> Iterator[str]:  # noqa: ANN401 - as load_torchscript
    """Yield a note for each operator that was traced in train mode, where it stays."""
    for operator, count in Counter(_traced_in_training(module)).items():
        yield f"{count} {operator} was traced in train mode, so eval mode does not reach it"


def in_training(module: Any) -> Iterator[str]:  # noqa: ANN401 - as load_torchscript
    """Yield the operators that were traced in train mode, and the parts in train mode whose code reads their mode."""
    yield from _traced_in_training(module)
    parts = dict(module.named_modules())
    for node in _nodes(module, "prim::GetAttr"):
        path = _path_of(node.input())
        if (
            node.s("name") == "training"
            and path in parts
            and parts[path].training
            and not _is_0(getattr(parts[path], "p", None))
        ):
            yield f"{path or 'the module itself'}: {parts[path].original_name}"


def _traced_in_training(module: Any) -> Iterator[str]:  # noqa: ANN401 - as load_torchscript
    for operator, (flag, needed) in TRAIN_FLAGS.items():
        for node in _nodes(module, f"aten::{operator}"):
            value = node.inputsAt(needed)
            if node.inputsAt(flag).toIValue() is True and not value.node().mustBeNone() and not _is_0(value.toIValue()):
                yield operator


def _is_0(value: Any) -> bool:  # noqa: ANN401 - a constant of TorchScript, such as a tensor
    return isinstance(value, int | float) and value == 0


def _path_of(value: Any) -> str:  # noqa: ANN401 - a value in a graph of TorchScript
    """Return the path of the part that a value is; empty for the module itself."""
    node = value.node()
    if node.kind() != "prim::GetAttr":
        return ""
    return ".".join(filter(None, (_path_of(node.input()), node.s("name"))))


def count_tf32_convolutions(module: Any) -> int:  # noqa: ANN401 - as load_torchscript
    """Return how many convolutions always compute in TF32 on a GPU, because they were traced so.

    Older versions of PyTorch traced a convolution without that switch.
    """
    return sum(
        node.inputsSize() > _ALLOWS_TF32 and node.inputsAt(_ALLOWS_TF32).toIValue() is True
        for node in _nodes(module, _CONVOLUTION)
    )


def reason_in_torchscript(err: BaseException) -> str:
    """Return the cause of an error in TorchScript, such as `RuntimeError: ...`; empty for other errors.

    PyTorch first lists the failed places, each with an arrow, and then the cause.
    """
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    if not lines or not lines[0].startswith(_IN_TORCHSCRIPT):
        return ""
    last = max((at for at, line in enumerate(lines) if line.endswith(_ARROW)), default=-1)
    return next((line for line in lines[last + 1 :] if _WHY.match(line)), lines[-1])


def constants_of(module: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - as load_torchscript
    """Yield the tensors in the module's graph, where a frozen module keeps its weights."""
    import torch

    for node in _nodes(module, "prim::Constant"):
        value = node.output().toIValue()
        if isinstance(value, torch.Tensor):
            yield value


def _nodes(module: Any, kind: str) -> Iterator[Any]:  # noqa: ANN401 - as load_torchscript
    # This name keeps the graph alive while its nodes are in use, because each access makes a new graph.
    graph = module.inlined_graph
    yield from graph.findAllNodes(kind, True)  # noqa: FBT003 - torch takes it in order only
