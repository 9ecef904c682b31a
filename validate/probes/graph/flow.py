"""Follow the values of an input through a graph while they stay the input's own, shifted, scaled or rounded.

The flow keeps which features they are, so that each table is known by the column that indexes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.models.onnx.graph import attribute_of
from paritygate.validate.probes.graph.constants import Constants

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# Features are the last axis of inputs of these ranks.
_FEATURE_RANKS = (2, 3)
_LIMITING = frozenset({"Clip", "Max", "Min"})
_SHIFTING = frozenset({"Add", "Sub"})
_SCALING = frozenset({"Div", "Mul"})
# Values of onnx.TensorProto.DataType: float16 and bfloat16, then bool.
_HALF_TYPES = frozenset({10, 16})
_BOOL = 9
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_ROUNDED_BY = {"Cast": 0.0, "Ceil": 0.0, "Floor": 0.0, "Round": 0.5}
# A larger end of a slice means "to the end": converters write any large number.
_MOST_COLUMNS = 1 << 16


class InputFlow(Struct, frozen=True, kw_only=True):
    """The values of an input that a tensor holds: as they are, `scale * value + shift`, or the whole number below that.

    - `columns`: the features; None for all, or unknown. `width`: the input's number of features; None if open.
    - `is_ordered`: the last axis is those features, in that order.
    - `is_whole`: whole numbers, by dtype or rounding. `after` is added to them: one number, or (feature, number) pairs.
    - `is_plain`: only casts, limits and changes of shape so far.
    - `where`: the condition that they were multiplied by, and its value where they remain; None for none.
    """

    rank: int | None
    columns: tuple[int, ...] | None = None
    width: int | None = None
    is_ordered: bool = False
    scale: float = 1.0
    shift: float = 0.0
    is_whole: bool = False
    is_rounded: bool = False
    after: int | tuple[tuple[int, int], ...] = 0
    is_plain: bool = True
    where: tuple[str, bool] | None = None

    @property
    def is_raw(self) -> bool:
        """True for the input's own values, without arithmetic."""
        return self.scale == 1 and self.shift == 0 and self.after == 0 and not self.is_rounded

    def features(self) -> tuple[int, ...] | None:
        """Return the features along the last axis, in order; None where they are unknown."""
        if not self.is_ordered:
            return None
        return self.columns if self.columns is not None else None if self.width is None else tuple(range(self.width))


def input_flow_from(value: onnx.ValueInfoProto, graph: onnx.GraphProto, constants: Constants) -> dict[str, InputFlow]:
    """Return all tensors of the main graph that hold values of an input, with the flow of each."""
    kind = value.type.tensor_type
    shape = kind.shape.dim if kind.HasField("shape") else None
    rank = None if shape is None else len(shape)
    has_features = rank in _FEATURE_RANKS
    width = shape[-1].dim_value or None if shape is not None and has_features else None
    is_float = kind.elem_type in {1, 11} | _HALF_TYPES
    flows = {value.name: InputFlow(rank=rank, width=width, is_ordered=has_features, is_whole=not is_float)}
    conditions: dict[str, tuple[str, bool]] = {}
    for node in graph.node:
        if node.op_type in _COMPARING:
            conditions[node.output[0]] = (node.output[0], True)
        elif node.op_type in {"Cast", "Identity", "Not"} and node.input[0] in conditions:
            name, is_met = conditions[node.input[0]]
            conditions[node.output[0]] = (name, is_met != (node.op_type == "Not"))
        handed = [flows.get(name) for name in node.input]
        if any(handed):
            by = [conditions.get(name) for name in node.input]
            results = zip(node.output, _through(node, handed, by, constants), strict=False)
            flows.update({name: carried for name, carried in results if carried is not None and name})
    return flows


def is_to_whole(node: onnx.NodeProto) -> bool:
    """Return whether a node rounds its input to whole numbers."""
    is_cast = node.op_type == "Cast" and attribute_of(node, "to") in _INTEGERS
    return is_cast or node.op_type in {"Ceil", "Floor", "Round"}


def _through(
    node: onnx.NodeProto,
    handed: Sequence[InputFlow | None],
    by: Sequence[tuple[str, bool] | None],
    constants: Constants,
) -> Sequence[InputFlow | None]:
    first = handed[0]
    if node.op_type in {"Add", "Mul"} and (selected := _selected(node, handed, by)) is not None:
        return [selected]
    is_joining = node.op_type in _LIMITING | {"Concat", "Where"}
    if is_joining or node.op_type in _SHIFTING | _SCALING:
        if any(item is not None and item.where is not None for item in handed):
            # Parts of a selection are followed only to their sum.
            return []
        # The condition of Where carries no values.
        parts = [item for item in handed[node.op_type == "Where" :] if item is not None]
        if node.op_type == "Concat" and len(parts) == len(handed):
            return [_beside(node, parts) or _merged(node, parts)]
        return [_merged(node, parts) if is_joining else _moved(node, handed, constants)]
    if first is None:
        return []
    shaped = _SHAPED.get(node.op_type)
    return [_kept(node, first)] if shaped is None else shaped(node, first, constants)


def _kept(node: onnx.NodeProto, carried: InputFlow) -> InputFlow | None:
    """Return the flow after an elementwise node; None where the values are no longer the input's."""
    if is_to_whole(node):
        return _rounded(carried, _ROUNDED_BY[node.op_type])
    is_lossy = node.op_type == "Cast" and attribute_of(node, "to") in _HALF_TYPES | {_BOOL} and not carried.is_whole
    return carried if node.op_type in {"Cast", "Dropout", "Identity", "StringNormalizer"} and not is_lossy else None


def _merged(node: onnx.NodeProto, parts: list[InputFlow]) -> InputFlow | None:
    """Return the flow of a tensor that holds values of all parts; plain parts win over shifted ones."""
    if not parts:
        return None
    plain = [part for part in parts if part.is_plain] or parts
    first = plain[0]
    if any((part.scale, part.shift, part.after) != (first.scale, first.shift, first.after) for part in plain):
        return None
    if len(parts) == 1 and node.op_type != "Concat":
        return first
    features = [part.columns for part in parts]
    columns = None if None in features else tuple(sorted({at for part in features for at in part or ()}))
    is_same = node.op_type != "Concat" and all(part.features() == first.features() for part in parts)
    return replace(first, columns=columns if not is_same else first.columns, is_ordered=is_same and first.is_ordered)


def _beside(node: onnx.NodeProto, parts: Sequence[InputFlow]) -> InputFlow | None:
    """Return the flow of features joined along the last axis; None where their order is unknown."""
    first = parts[0]
    alike = (first.scale, first.shift, first.is_whole, first.is_rounded)
    features = [feature for part in parts for feature in part.features() or ()]
    if first.rank is None or any(part.rank != first.rank or part.features() is None for part in parts):
        return None
    if _axis(node, first) != first.rank - 1 or len(set(features)) != len(features):
        return None
    if any((part.scale, part.shift, part.is_whole, part.is_rounded) != alike for part in parts):
        return None
    added = {feature: number for part in parts for feature, number in _added(part, part.features() or ()).items()}
    return replace(first, columns=tuple(features), after=_after(added), is_plain=all(part.is_plain for part in parts))


def _added(carried: InputFlow, features: Sequence[int]) -> dict[int, int]:
    """Return the number added to each of these features."""
    if isinstance(carried.after, int):
        return dict.fromkeys(features, carried.after)
    return dict(carried.after)


def _after(added: Mapping[int, int]) -> int | tuple[tuple[int, int], ...]:
    numbers = set(added.values())
    return numbers.pop() if len(numbers) == 1 else tuple(sorted(added.items()))


def _selected(
    node: onnx.NodeProto, handed: Sequence[InputFlow | None], by: Sequence[tuple[str, bool] | None]
) -> InputFlow | None:
    """Return the flow of `a * condition + b * (not condition)`, which is how tf2onnx writes a selection; else None."""
    if len(handed) != 2:  # noqa: PLR2004 - both sides
        return None
    one, other = handed
    if node.op_type == "Mul":
        carried, condition = (one, by[1]) if one is not None else (other, by[0])
        is_part = carried is not None and condition is not None and carried.where is None
        return replace(carried, where=condition) if is_part and carried is not None else None
    if one is None or other is None or one.where is None or other.where is None:
        return None
    if one.where[0] != other.where[0] or one.where[1] == other.where[1]:
        return None
    return _merged(node, [replace(one, where=None), replace(other, where=None)])


def _moved(node: onnx.NodeProto, handed: Sequence[InputFlow | None], constants: Constants) -> InputFlow | None:
    at = 0 if handed[0] is not None else 1
    carried, other = handed[at], constants.values.get(node.input[1 - at])
    if carried is None or other is None or handed[1 - at] is not None or (at and node.op_type in {"Div", "Sub"}):
        return None
    numbers = other.astype(np.float64).reshape(-1)
    sign = -1 if node.op_type == "Sub" else 1
    if carried.is_whole:
        return _with_after(carried, other, sign) if node.op_type in _SHIFTING else None
    if numbers.size != 1 or not np.isfinite(numbers).all():
        return None
    number = float(numbers[0])
    if node.op_type in _SHIFTING:
        return replace(carried, shift=carried.shift + sign * number, is_plain=False)
    if number == 0:
        return None
    factor = 1 / number if node.op_type == "Div" else number
    return replace(carried, scale=carried.scale * factor, shift=carried.shift * factor, is_plain=False)


def _with_after(carried: InputFlow, other: NDArray[np.generic], sign: int) -> InputFlow | None:
    numbers = other.astype(np.float64).reshape(-1) * sign
    if not (numbers == np.rint(numbers)).all():
        return None
    whole, features = [int(number) for number in numbers], carried.features()
    if len(whole) == 1:
        if isinstance(carried.after, int):
            return replace(carried, after=carried.after + whole[0], is_plain=False)
        return replace(carried, after=tuple((at, number + whole[0]) for at, number in carried.after), is_plain=False)
    if features is None or len(features) != len(whole) or other.shape[-1] != len(whole):
        return None
    added = _added(carried, features)
    for feature, number in zip(features, whole, strict=True):
        added[feature] += number
    return replace(carried, after=_after(added), is_plain=False)


def _rounded(carried: InputFlow, half: float) -> InputFlow:
    if carried.is_whole:
        return carried
    return replace(carried, shift=carried.shift + half, is_whole=True, is_rounded=True, is_plain=False)


def _axis(node: onnx.NodeProto, carried: InputFlow, default: int = 0) -> int | None:
    axis = int(attribute_of(node, "axis", default))
    return axis if axis >= 0 else None if carried.rank is None else axis + carried.rank


def _chosen(carried: InputFlow, at: Sequence[int] | None) -> InputFlow:
    """Return the flow with these places of its last axis alone; None means unknown places."""
    features = carried.features()
    if at is None or (features is None and (not carried.is_ordered or min(at, default=0) < 0)):
        return replace(carried, is_ordered=False)
    if features is None:
        return replace(carried, columns=tuple(at))
    inside = [place for place in at if -len(features) <= place < len(features)]
    return replace(carried, columns=tuple(features[place] for place in inside))


def _gathered(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    index, axis = constants.values.get(node.input[1]), _axis(node, carried)
    if index is None:
        return [replace(carried, rank=None, is_ordered=False)]
    rank = None if carried.rank is None else carried.rank - 1 + index.ndim
    if axis is None or carried.rank is None:
        return [replace(carried, rank=rank, is_ordered=False)]
    if axis != carried.rank - 1:
        return [replace(carried, rank=rank)]
    chosen = _chosen(carried, [int(at) for at in index.reshape(-1)])
    return [replace(chosen, rank=rank, is_ordered=chosen.is_ordered and index.ndim == 1)]


def _sliced(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    starts, ends, axes, steps = (_numbers(node, at, name, constants) for at, name in enumerate(_OF_SLICE, start=1))
    if starts is None or ends is None or carried.rank is None or (axes is None and _has(node, 3)):
        return [replace(carried, is_ordered=False)]
    if steps is None and _has(node, 4):
        return [replace(carried, is_ordered=False)]
    for place, axis in enumerate(axes if axes is not None else range(len(starts))):
        if axis in {-1, carried.rank - 1}:
            part = slice(starts[place], ends[place], 1 if steps is None else steps[place])
            return [_chosen(carried, _places(carried, part))]
    return [carried]


def _places(carried: InputFlow, part: slice) -> list[int] | None:
    features = carried.features()
    if features is not None:
        return list(range(len(features)))[part]
    is_plain = part.start >= 0 and 0 <= part.stop <= _MOST_COLUMNS and part.step > 0
    return list(range(part.start, part.stop, part.step)) if is_plain else None


_OF_SLICE = ("starts", "ends", "axes", "steps")


def _has(node: onnx.NodeProto, at: int) -> bool:
    return len(node.input) > at and bool(node.input[at])


def _numbers(node: onnx.NodeProto, at: int, name: str, constants: Constants) -> list[int] | None:
    """Return whole numbers that newer opsets take as an input and older ones as an attribute."""
    if _has(node, at):
        value = constants.values.get(node.input[at])
        return None if value is None else [int(item) for item in value.reshape(-1)]
    numbers: list[int] | None = attribute_of(node, name)
    return None if numbers is None else list(numbers)


def _split(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    axis, count = _axis(node, carried), len(node.output)
    if axis is None or carried.rank is None or axis != carried.rank - 1:
        return [replace(carried, is_ordered=carried.is_ordered and axis is not None)] * count
    features = carried.features()
    sizes = _numbers(node, 1, "split", constants)
    if sizes is None and features is not None and not _has(node, 1):
        whole = -(-len(features) // count)
        sizes = [min(whole, len(features) - at * whole) for at in range(count)]
    if sizes is None:
        return [replace(carried, is_ordered=False)] * count
    ends = np.cumsum(sizes)
    return [_chosen(carried, list(range(end - size, end))) for end, size in zip(ends.tolist(), sizes, strict=True)]


def _squeezed(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    axes = _numbers(node, 1, "axes", constants)
    if axes is None or carried.rank is None:
        return [replace(carried, rank=None, is_ordered=False)]
    is_last = bool({-1, carried.rank - 1} & set(axes))
    return [replace(carried, rank=carried.rank - len(axes), is_ordered=carried.is_ordered and not is_last)]


def _unsqueezed(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    axes = _numbers(node, 1, "axes", constants)
    if axes is None or carried.rank is None:
        return [replace(carried, rank=None, is_ordered=False)]
    rank = carried.rank + len(axes)
    is_last = bool({-1, rank - 1} & set(axes))
    # A single feature with its own axis is the whole axis.
    is_alone = is_last and len(axes) == 1 and len(carried.columns or ()) == 1 and not carried.is_ordered
    return [replace(carried, rank=rank, is_ordered=is_alone or (carried.is_ordered and not is_last))]


def _reshaped(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    shape = _numbers(node, 1, "shape", constants)
    features = carried.features()
    is_kept = shape is not None and bool(shape) and features is not None and shape[-1] == len(features)
    return [replace(carried, rank=None if shape is None else len(shape), is_ordered=is_kept)]


def _flattened(node: onnx.NodeProto, carried: InputFlow, _: Constants) -> Sequence[InputFlow | None]:
    is_kept = carried.rank is not None and _axis(node, carried, 1) == carried.rank - 1
    return [replace(carried, rank=2, is_ordered=carried.is_ordered and is_kept)]


def _transposed(node: onnx.NodeProto, carried: InputFlow, _: Constants) -> Sequence[InputFlow | None]:
    order: Any = attribute_of(node, "perm")
    is_kept = carried.rank is not None and order is not None and order[-1] == carried.rank - 1
    return [replace(carried, is_ordered=carried.is_ordered and is_kept)]


def _extracted(node: onnx.NodeProto, carried: InputFlow, constants: Constants) -> Sequence[InputFlow | None]:
    """Return the flow after ai.onnx.ml's choice of features."""
    index = constants.values.get(node.input[1])
    return [_chosen(carried, None if index is None else [int(at) for at in index.reshape(-1)])]


def _split_texts(_: onnx.NodeProto, carried: InputFlow, __: Constants) -> Sequence[InputFlow | None]:
    return [replace(carried, rank=None if carried.rank is None else carried.rank + 1, is_ordered=False)]


def _expanded(_: onnx.NodeProto, carried: InputFlow, __: Constants) -> Sequence[InputFlow | None]:
    return [replace(carried, rank=None, is_ordered=False)]


_SHAPED: Mapping[str, Callable[[Any, InputFlow, Constants], Sequence[InputFlow | None]]] = {
    "ArrayFeatureExtractor": _extracted,
    "Expand": _expanded,
    "Flatten": _flattened,
    "Gather": _gathered,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _squeezed,
    "StringSplit": _split_texts,
    "Tile": _expanded,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
