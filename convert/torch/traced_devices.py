"""Let a trace make tensors on the device of its inputs, not on that of the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_CONSTANT = "prim::Constant"
_DEVICE = "DeviceObjType"
_TENSOR = "TensorType"
# By operator, the position of an input that has to be on the CPU.
_TAKEN_ON_THE_CPU = {"aten::_pack_padded_sequence": 1}


def have_devices_follow(script: Any) -> int:  # noqa: ANN401 - a ScriptModule, which torch does not type
    """Make every tensor that a traced module creates on the device of its inputs, in place.

    A trace of `torch.arange(n, device=x.device)` stores x's device, so a module traced on the CPU fails on a GPU.
    `prim::device` of an input replaces that device, module by module. Inputs that an operator takes only on the CPU are
    moved there, because a CPU trace of `n.cpu()` equals that of `n.to(x.device)`.

    Returns the number of places whose device stays, because the module there gets no tensor.
    """
    stays = 0
    for graph in _graphs(script):
        places = [node for node in graph.findAllNodes(_CONSTANT, True) if _is_device(node)]  # noqa: FBT003 - as torch has it
        source = _given(graph)
        if source is None:
            stays += len(places)
            continue
        for node in places:
            device = graph.create("prim::device", [source], 1)
            device.output().setType(node.output().type())
            device.insertBefore(node)
            node.output().replaceAllUsesWith(device.output())
            node.destroy()
        for operator, at in _TAKEN_ON_THE_CPU.items():
            for node in graph.findAllNodes(operator, True):  # noqa: FBT003 - as above
                moved = graph.create("aten::cpu", [node.inputsAt(at)], 1)
                moved.insertBefore(node)
                node.replaceInput(at, moved.output())
    return stays


def _graphs(script: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yield the graph of every call, because a part has a method for each call, or none."""
    for module in script.modules():
        for name in module._c._method_names():  # noqa: SLF001 - torch shows the first call alone
            yield module._c._get_method(name).graph  # noqa: SLF001 - as above


def _is_device(node: Any) -> bool:  # noqa: ANN401 - torch types no graph
    return bool(node.output().type().kind() == _DEVICE)


def _given(graph: Any) -> Any:  # noqa: ANN401 - as above
    """Return the input whose device is followed; not a number passed as a tensor, which is on the CPU."""
    tensors = [value for value in graph.inputs() if value.type().kind() == _TENSOR]
    return next((value for value in tensors if value.type().dim()), None)
