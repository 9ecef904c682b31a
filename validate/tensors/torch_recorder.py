"""Record the operators of one run of a PyTorch module, and what they compute."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.errors import BackendError
from paritygate.validate.runners.torch import array_of, tensor_of
from paritygate.validate.tensors.tensor_graph import shown_attributes
from paritygate.validate.tensors.torch_places import Places

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

# Operators that return what they take: no node.
_PASSED = frozenset({"detach", "lift_fresh", "alias", "dropout", "contiguous"})
# Attention is one operator, and of many steps, in each of which a converter may be wrong.
_OF_MANY_STEPS = frozenset({"scaled_dot_product_attention", "_scaled_dot_product_attention_math"})


class Operation(Struct, frozen=True, kw_only=True):
    """An operator as it ran, with its numbers and texts; `code` is the line that called it, empty if unknown."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    code: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Records one run.

    Attributes:
        operations: In order.
        constants: The tensors read and not computed.
        outputs: The names of the returned tensors.
        inner: The operators' own names of these.
        values: The wanted tensors.
    """

    def __init__(self, places: Places, wanted: Collection[str], given: Mapping[str, NDArray[np.generic]]) -> None:
        """Take the names of the wanted tensors, and values that replace others."""
        from torch.utils.weak import WeakTensorKeyDictionary

        self.operations: list[Operation] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.outputs: list[str] = []
        self.inner: dict[str, str] = {}
        self.values: dict[str, NDArray[np.generic]] = {}
        self._places, self._wanted, self._given = places, wanted, given
        # The name of a tensor, and how often its memory had been written to when it was named.
        self._names: Any = WeakTensorKeyDictionary()
        self._writes: dict[int, int] = {}
        self._writer: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        # The names of the module's inputs and outputs, which no other tensor has.
        self._ends: frozenset[str] = frozenset()
        # What the runner does before and after the module is not a part of it.
        self.is_paused = True

    @contextlib.contextmanager
    def recording(self, names: Sequence[str], outputs: Sequence[str]) -> Iterator[None]:
        """Record what the watched module does, whose inputs and outputs have these names."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def before(_: Any, args: tuple[Any, ...]) -> None:  # noqa: ANN401 - a hook of torch
            for name, tensor in zip(names, args, strict=True):
                self._name(tensor, name)
                self._keep(name, tensor)
            self.is_paused = False

        def after(_: Any, __: Any, result: Sequence[Any]) -> None:  # noqa: ANN401 - a hook of torch
            self.is_paused = True
            for name, tensor in zip(outputs, result, strict=True):
                self._add_output(name, tensor)

        self._ends = frozenset((*names, *outputs))
        fast = torch.backends.mha.get_fastpath_enabled()
        hooks = [self._places.named.register_forward_pre_hook(before), self._places.named.register_forward_hook(after)]
        torch.backends.mha.set_fastpath_enabled(value=False)
        try:
            with sdpa_kernel(SDPBackend.MATH), _mode_of(self):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(value=fast)
            for hook in hooks:
                hook.remove()
        missing = self._given.keys() - self.values.keys()
        if missing:
            msg = f"no operator of the PyTorch module computes {min(missing)}"
            raise BackendError(msg, hint="give rows with which the module runs the same operators")
        self.values.update({name: array_of(self.constants[name]) for name in self._wanted if name in self.constants})

    def record(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - of any operator
        """Run an operator, add it, and return what it returns or the values that are given in its place."""
        operator = _operator_of(func)
        taken = _tensors_in((args, kwargs))
        inputs = tuple(self._name_of(tensor) for tensor in taken)
        result = func(*args, **kwargs)
        made = _tensors_in(result)
        if operator in _PASSED and len(made) == 1 and taken and made[0].shape == taken[0].shape:
            self._name(made[0], inputs[0])
            return result
        if not made:
            return result
        written = _written(func, args, kwargs)
        for storage in written:
            self._writes[storage] = self._writes.get(storage, 0) + 1
        name = self._unique(self._places.name_of(operator))
        outputs = (self._inner(name),) if len(made) == 1 else tuple(f"{name}:{at}" for at in range(len(made)))
        self.operations.append(
            Operation(
                name=name,
                operator=operator,
                inputs=inputs,
                outputs=outputs,
                code=self._places.code(),
                attributes=_attributes(func, args, kwargs),
            )
        )
        self._writer.update(dict.fromkeys(written, outputs[0]))
        if self._given.keys() & set(outputs):
            result = self._replaced(result, outputs)
        for output, tensor in zip(outputs, _tensors_in(result), strict=True):
            self._name(tensor, output)
            self._keep(output, tensor)
        return result

    def _replaced(self, result: Any, outputs: Sequence[str]) -> Any:  # noqa: ANN401 - of any operator
        import torch
        from torch.utils import _pytree

        names = iter(outputs)

        def new(tensor: torch.Tensor) -> torch.Tensor:
            name = next(names)
            if name not in self._given:
                return tensor
            self.values[name] = self._given[name]
            return tensor_of(self._given[name], tensor.device.type).reshape(tensor.shape)

        return _pytree.tree_map_only(torch.Tensor, new, result)

    def _keep(self, name: str, tensor: torch.Tensor) -> None:
        if name in self._wanted:
            self.values[name] = array_of(tensor)

    def _name(self, tensor: torch.Tensor, name: str) -> None:
        self._names[tensor] = (name, self._writes.get(_storage_of(tensor), 0))

    def _name_of(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor, a new one if its memory was written to through another tensor."""
        if tensor not in self._names:
            name = self._inner(self._places.weight_of(tensor) or self._unique("constant"))
            self.constants[name] = tensor
            self._name(tensor, name)
        name, writes = self._names[tensor]
        storage = _storage_of(tensor)
        if writes != self._writes.get(storage, 0):
            seen = self._unique(f"{self._writer.get(storage, name)}.seen")
            inputs = (name, self._writer[storage]) if storage in self._writer else (name,)
            self.operations.append(Operation(name=seen, operator="alias", inputs=inputs, outputs=(seen,)))
            self._name(tensor, seen)
            self._keep(seen, tensor)
            return seen
        return str(name)

    def _inner(self, name: str) -> str:
        """Return the name for an inner tensor: a module is often named like the output that it is for."""
        return f"{name}:0" if name in self._ends else name

    def _unique(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def _add_output(self, output: str, tensor: torch.Tensor) -> None:
        """Give the operator's tensor the name of the output; where it has one already, add a node."""
        name = self._name_of(tensor)
        self.outputs.append(output)
        at = next((at for at, each in enumerate(self.operations) if name in each.outputs), None)
        if at is None or name in self.outputs:
            self.operations.append(
                Operation(name=self._unique(output), operator="output", inputs=(name,), outputs=(output,))
            )
        else:
            self.inner[output] = name
            self._names[tensor] = (output, self._names[tensor][1])
            self.operations[at:] = [_renamed(each, name, output) for each in self.operations[at:]]
        if output in self._given:
            self.values[output] = self._given[output]
        elif output in self._wanted:
            self.values[output] = array_of(tensor)


def _renamed(operation: Operation, name: str, other: str) -> Operation:
    return replace(
        operation,
        inputs=tuple(other if each == name else each for each in operation.inputs),
        outputs=tuple(other if each == name else each for each in operation.outputs),
    )


def _mode_of(recorder: Recorder) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which PyTorch gives each operator to the recorder."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch has no types for it
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - of any operator
            if recorder.is_paused:
                return func(*args, **(kwargs or {}))
            if _operator_of(func) in _OF_MANY_STEPS:
                with self:
                    result = func.decompose(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
            return recorder.record(func, args, kwargs or {})

    return Mode()  # type: ignore[no-untyped-call]  # as above


def _operator_of(func: Any) -> str:  # noqa: ANN401 - an operator of torch
    return str(func.overloadpacket.__name__)


def _attributes(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - an operator, and what it takes
    """Return the arguments that are a number, a text or a list of numbers, defaults included."""
    schema = func._schema.arguments  # noqa: SLF001 - PyTorch shows it nowhere else
    values = {item.name: item.default_value for item in schema}
    values |= dict(zip((item.name for item in schema), args, strict=False)) | kwargs
    return shown_attributes(values)


def _tensors_in(values: Any) -> list[torch.Tensor]:  # noqa: ANN401 - what operators take and return
    import torch
    from torch.utils import _pytree

    return [item for item in _pytree.tree_leaves(values) if isinstance(item, torch.Tensor)]


def _written(func: Any, args: Any, kwargs: Any) -> list[int]:  # noqa: ANN401 - an operator, and what it takes
    """Return the memory that the operator writes to."""
    schema = func._schema  # noqa: SLF001 - PyTorch shows it nowhere else
    if not schema.is_mutable:
        return []
    values = dict(zip((item.name for item in schema.arguments), args, strict=False)) | kwargs
    return [
        _storage_of(tensor)
        for item in schema.arguments
        if item.is_write
        for tensor in _tensors_in(values.get(item.name))
    ]


def _storage_of(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except NotImplementedError:
        # A sparse tensor has no memory of its own.
        return id(tensor)
