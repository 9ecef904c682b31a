"""Name where in a PyTorch model an operator is called: the module's path, and the line of the user's code."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from paritygate.validate.runners.torch import TorchRunner

if TYPE_CHECKING:
    import torch

# As frames have it, so without following the links of a checkout.
_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
# Folders of installed packages: what follows is the name of the file in its package.
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class Places:
    """Knows which module is running, and its weights.

    Attributes:
        named: The module of the runner, which takes and returns tensors in order.
    """

    def __init__(self, runner: TorchRunner) -> None:
        import torch

        self.named: torch.nn.Module = runner.named
        root = runner.loaded.model
        if not isinstance(root, torch.nn.Module):
            graphs = [part for part in self.named.modules() if isinstance(part, torch.fx.GraphModule)]
            root = graphs[0] if graphs else self.named
        self._folder = str(runner.loaded.ref.folder.resolve())
        self._torch = str(Path(torch.__file__).parent)
        self._paths = {id(part): name for name, part in root.named_modules()}
        tensors = (*self.named.named_parameters(), *self.named.named_buffers())
        self._weights = {id(tensor): name for name, tensor in tensors}
        self._weights |= {id(tensor): name for name, tensor in (*root.named_parameters(), *root.named_buffers())}
        self._graphs = {
            part.forward.__func__.__code__.co_filename: part
            for part in root.modules()
            if isinstance(part, torch.fx.GraphModule) and hasattr(part.forward, "__func__")
        }
        self._running: list[Any] = []

    def weight_of(self, tensor: torch.Tensor) -> str:
        """Return the name of a parameter or buffer; empty for another tensor."""
        return self._weights.get(id(tensor), "")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Follow which module is running."""
        from torch.nn.modules import module as hooks

        def enter(part: Any, _: Any) -> None:  # noqa: ANN401 - a hook of torch
            self._running.append(part)

        def leave(*_: Any) -> None:  # noqa: ANN401 - a hook of torch
            self._running.pop()

        self._running.clear()
        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def name_of(self, operator: str) -> str:
        """Return the path of the running module and the operator, such as `layers.3.attention.softmax`.

        A module of PyTorch's without parts is its operator, so its path is enough.
        """
        node = self._node()
        if node is not None:
            return _name_in_graph(node, operator)
        part = next((part for part in reversed(self._running) if id(part) in self._paths), None)
        path = "" if part is None else self._paths[id(part)]
        is_operator = part is not None and type(part).__module__.startswith("torch.nn.") and not list(part.children())
        return path if path and is_operator else ".".join(each for each in (path, operator) if each)

    def code(self) -> str:
        """Return the line of the user's code that is running, such as `net.py:41`; empty if there is none."""
        node = self._node()
        if node is not None:
            return self._line_in(node)
        for frame in _frames():
            file = frame.f_code.co_filename
            if not file.startswith((self._torch, _PACKAGE, "<")):
                return f"{self._shown(file)}:{frame.f_lineno}"
        return ""

    def _node(self) -> Any:  # noqa: ANN401 - a node of torch.fx, or None
        """Return the node of an exported program that is running."""
        for frame in _frames() if self._graphs else ():
            graph = self._graphs.get(frame.f_code.co_filename)
            if graph is not None and frame.f_code.co_name == "forward":
                at = getattr(graph, "_lineno_map", {}).get(frame.f_lineno - getattr(graph, "_prologue_start", 0))
                nodes = list(graph.graph.nodes)
                return nodes[at] if isinstance(at, int) and at < len(nodes) else None
        return None

    def _line_in(self, node: Any) -> str:  # noqa: ANN401 - a node of torch.fx
        lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
        for line in reversed([line for line in lines if line.startswith("File ")]):
            file, _, rest = line.removeprefix('File "').partition('", line ')
            if not file.startswith(self._torch):
                return f"{self._shown(file)}:{rest.partition(',')[0]}"
        return ""

    def _shown(self, file: str) -> str:
        path = Path(file)
        if path.is_relative_to(self._folder):
            return path.relative_to(self._folder).as_posix()
        after = [at for at, part in enumerate(path.parts) if part in _INSTALLED]
        return "/".join(path.parts[after[-1] + 1 :]) if after else path.name


def _name_in_graph(node: Any, operator: str) -> str:  # noqa: ANN401 - a node of torch.fx
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    path = str(path).removeprefix("L['self'].").removeprefix("L['self']")
    return path if path and str(kind).startswith("torch.nn.modules.") else ".".join(filter(None, (path, operator)))


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
