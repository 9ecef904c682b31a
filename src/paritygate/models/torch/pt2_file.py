"""Load programs of torch.export from `.pt2` files, and call them by the names that they keep."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.errors import InputFileError, UsageError
from paritygate.models.named_call import default_output_names
from paritygate.models.source import SourceKind
from paritygate.models.torch.archive import check_archive, names_in_archive
from paritygate.models.torch.module import TRAIN_FLAGS
from paritygate.models.torch.names import KnownNames, module_taking, named_file
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.text import a_or_an

if TYPE_CHECKING:
    import torch


def load_pt2(path: Path) -> torch.export.ExportedProgram:
    """Return the program in the file. Loading may run code of the file's author.

    Raises:
        InputFileError: It is not a program of torch.export, corrupt, or of an unsupported PyTorch version.
    """
    require_backend("torch")
    check_archive(path, SourceKind.PT2)
    import torch

    try:
        # Opened here, because PyTorch mistakes a path without its suffix.
        with path.open("rb") as stream:
            return torch.export.load(stream)
    except Exception as err:
        reason = " ".join(str(err).split())[:300]
        # PyTorch unpickles parts of it before it detects a fault in the others.
        ran = "code of its author may have run before that"
        msg = f"torch {torch.__version__} does not load {path}: {type(err).__name__}: {reason}; {ran}"
        hint = "save it again with torch.export.save, with this version of PyTorch, from a model on the CPU"
        raise InputFileError(msg, hint=hint) from err


def known_names(
    path: Path, program: torch.export.ExportedProgram, declared: Signature | None, rename: Mapping[str, str]
) -> KnownNames:
    """Return the names of the program in the file and in the spec.

    Raises:
        UsageError: There are none, and the program does not show them.
        InputFileError: The names in the file are corrupt.
    """
    in_file = names_in_archive(path)
    in_program = kept_signature(program) if in_file is None and declared is None else None
    return KnownNames(file=path, said=in_file, kept=in_program, declared=declared, rename=rename)


def taking_its_names(
    program: torch.export.ExportedProgram, call: Callable[..., Any], part: torch.nn.Module | None
) -> torch.nn.Module:
    """Return a module that takes the program's inputs flat, by the names of its parameters or in their order.

    `call` is `program.module()` or a replacement with the same arguments. `part` is its module, if it is one.

    Raises:
        UsageError: An input is a dict or a list of tensors.
    """
    from torch.utils import _pytree

    in_spec = program.call_spec.in_spec

    def flat(*arrays: Any) -> Any:  # noqa: ANN401 - what the program takes and returns
        arguments, keywords = _pytree.tree_unflatten(list(arrays), in_spec)
        return call(*arguments, **keywords)

    return module_taking(_input_names(program), flat, part)


def _input_names(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """Return the names of the program's inputs, flat, in its order."""
    from torch.utils import _pytree

    in_spec = program.call_spec.in_spec
    positional, keywords = _pytree.tree_unflatten(list(range(in_spec.num_leaves)), in_spec)
    names = dict(enumerate(program.graph_signature.user_inputs))
    called = program.module_call_graph[0].signature
    forward = getattr(called, "forward_arg_names", None) or ()
    names |= dict(zip(positional, forward, strict=False)) if all(isinstance(item, int) for item in positional) else {}
    names |= {index: name for name, index in keywords.items() if isinstance(index, int)}
    if not all(isinstance(item, int) for item in (*positional, *keywords.values())):
        msg = f"the program expects tensors inside a dict or list ({', '.join(str(name) for name in names.values())})"
        raise UsageError(msg, hint="export a module that takes each tensor as a separate parameter")
    return tuple(str(names[index]) for index in range(in_spec.num_leaves))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tensor:
    """A placeholder for one tensor of a program: its position, dtype and shape."""

    position: int
    dtype: str = ""
    shape: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """The positions of a signature's tensors in a program, whose tensors have an order and no names."""

    signature: Signature  # the one served
    inputs: tuple[int, ...]  # by input of the program, its index in the signature
    outputs: tuple[int, ...]  # by output of the signature, its index in the program
    found: Signature  # the program's dtypes and fixed sizes, its dims named as in the signature


def interface_of(program: torch.export.ExportedProgram, known: KnownNames) -> Interface:
    """Return the positions of a program's tensors.

    The calls that run the program find them, with positions in place of tensors. So a name always means the same
    tensor.

    Raises:
        UsageError: The signature does not fit the program.
    """
    from torch.utils import _pytree

    outputs = list(_values(program, program.graph_signature.user_outputs))
    fed: list[_Tensor] = []

    def record(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as the program is called
        fed.extend(_pytree.tree_leaves((arguments, keywords)))
        return _pytree.tree_unflatten(outputs, program.call_spec.out_spec)

    named, signature = named_file(taking_its_names(program, record, None), known)
    picked = named(*(_Tensor(position=index) for index in range(len(signature.inputs))))
    taken = tuple(item.position for item in fed)
    inputs = list(_values(program, program.graph_signature.user_inputs))
    symbols = _symbols(signature, taken, inputs)
    found_inputs = [
        _spec(signature.inputs[index].name, value, symbols) for index, value in zip(taken, inputs, strict=True)
    ]
    own_signature = Signature(
        inputs=tuple(found_inputs[taken.index(index)] for index in range(len(taken))),
        outputs=tuple(_spec(spec.name, value, symbols) for spec, value in zip(signature.outputs, picked, strict=True)),
    )
    positions = tuple(item.position for item in picked)
    return Interface(signature=signature, inputs=taken, outputs=positions, found=own_signature)


def _values(program: torch.export.ExportedProgram, names: Any) -> Iterator[_Tensor]:  # noqa: ANN401 - names or constants
    nodes = {node.name: node for node in program.graph.nodes}
    for position, name in enumerate(names):
        value = nodes[name].meta.get("val") if name in nodes else None
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        yield _Tensor(position=position, dtype=dtype, shape=tuple(getattr(value, "shape", ())))


def _symbols(signature: Signature, taken: tuple[int, ...], inputs: list[_Tensor]) -> dict[str, str]:
    names: dict[str, str] = {}
    for index, value in zip(taken, inputs, strict=True):
        for dim, size in zip(signature.inputs[index].shape or (), value.shape, strict=False):
            if isinstance(dim, str) and not isinstance(size, int):
                names.setdefault(str(size), dim)
    return names


def _spec(name: str, value: _Tensor, symbols: dict[str, str]) -> TensorSpec:
    return TensorSpec(name=name, dtype=value.dtype, shape=tuple(_size(size, symbols) for size in value.shape))


def _size(size: Any, symbols: dict[str, str]) -> int | str:  # noqa: ANN401 - an int or a SymInt
    if isinstance(size, int):
        return size
    # An expression such as 2*s77, with the names of the signature.
    return re.sub(r"\w+", lambda found: symbols.get(found[0], found[0]), str(size))


def kept_signature(program: torch.export.ExportedProgram) -> Signature:
    """Return the signature with the names that the program keeps: parameters, and keys of a returned dict.

    Unnamed outputs are `output_0`, `output_1`, ... Open dims are `batch` on axis 0 of the first, else named after the
    input.

    Raises:
        UsageError: It takes or returns tensors inside of a dict or list.
    """
    from torch.utils import _pytree

    outputs = list(_values(program, program.graph_signature.user_outputs))
    returned = _pytree.tree_unflatten(outputs, program.call_spec.out_spec)
    named = dict(returned) if isinstance(returned, dict) else None
    if named is None:
        fields = getattr(returned, "_fields", None)
        values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        named = dict(zip(fields or default_output_names(len(values)), values, strict=True))
    for name, value in named.items():
        if not isinstance(value, _Tensor):
            msg = f"output {name!r} of the program is {a_or_an(type(value).__name__)}, not a tensor"
            raise UsageError(msg, hint="export a module that returns each tensor by itself, or a dict of tensors")
    inputs = dict(zip(_input_names(program), _values(program, program.graph_signature.user_inputs), strict=True))
    symbols: dict[str, str] = {}
    ranges: dict[str, Dim] = {}
    for name, value in inputs.items():
        for axis, size in enumerate(value.shape):
            if isinstance(size, int) or str(size) in symbols:
                continue
            symbols[str(size)] = "batch" if axis == 0 and "batch" not in symbols.values() else f"{name}_dim{axis}"
            ranges |= _range(symbols[str(size)], program.range_constraints.get(size.node.expr))
    return Signature(
        inputs=tuple(_spec(name, value, symbols) for name, value in inputs.items()),
        outputs=tuple(_spec(str(name), value, symbols) for name, value in named.items()),
        dims=ranges,
    )


def _range(name: str, allowed: Any) -> dict[str, Dim]:  # noqa: ANN401 - ValueRanges of torch's
    if allowed is None or not str(allowed.upper).isdigit():
        return {}
    low, high = max(1, int(allowed.lower)), int(allowed.upper)
    return {name: Dim(min=low, opt=high, max=high)}


def notes_of(program: torch.export.ExportedProgram) -> Iterator[str]:
    """Yield a note for each operator that was exported in train mode, where it stays."""
    for operator, count in Counter(in_training(program)).items():
        yield f"{count} {operator} was exported in train mode, so eval mode does not reach it"


def in_training(program: torch.export.ExportedProgram) -> Iterator[str]:
    """Yield each operator that was exported in train mode."""
    for node in program.graph.nodes:
        operator = str(node.target).removeprefix("aten.").partition(".")[0]
        flag, needed = TRAIN_FLAGS.get(operator, (0, 0))
        is_set = flag and len(node.args) > flag and node.args[flag] is True and node.args[needed] not in {None, 0}
        # A decomposed dropout is the numbers that it draws.
        _, part = next(reversed((node.meta.get("nn_module_stack") or {"": ("", "")}).values()))
        if is_set or (operator.startswith("bernoulli") and "drop" in str(part).lower()):
            yield operator
