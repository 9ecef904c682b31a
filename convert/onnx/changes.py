"""Change an exported ONNX file: copy weights or nodes from the source, and set attributes of operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.codec import from_data
from paritygate.convert.onnx.grafts import Graft, graft, unfit
from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import name_nodes, schema_of, stored_tensors

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray


class Origin(Struct, frozen=True, kw_only=True):
    """The source of changes: its weights by name, and the model and its folder where it is an ONNX file."""

    weight_of: Callable[[str], NDArray[Any] | None]
    model: onnx.ModelProto | None = None
    folder: Path = Path()


class ChangedWeight(Struct, frozen=True, kw_only=True):
    """A weight of the file that gets the values of the source's weight `source`, or the number `value`.

    `axes` is the order of the source's axes in the file; empty for the source's own. `was` is how the values differed.
    """

    name: str
    source: str = ""
    axes: tuple[int, ...] = ()
    value: float | None = None
    was: str = ""


class ChangedAttribute(Struct, frozen=True, kw_only=True):
    """An attribute of a node of the file, and its new value; None removes it. `was` is the value before."""

    node: str
    name: str
    value: Any
    was: Any = None


class Changes(Struct, frozen=True, kw_only=True):
    """The changes of one file."""

    weights: tuple[ChangedWeight, ...] = ()
    attributes: tuple[ChangedAttribute, ...] = ()
    grafts: tuple[Graft, ...] = ()

    def __len__(self) -> int:
        return len(self.weights) + len(self.attributes) + len(self.grafts)

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            weights=self.weights + other.weights,
            attributes=self.attributes + other.attributes,
            grafts=self.grafts + other.grafts,
        )

    def parts(self) -> list[Changes]:
        """Return each change by itself."""
        return [
            *(Changes(weights=(item,)) for item in self.weights),
            *(Changes(attributes=(item,)) for item in self.attributes),
            *(Changes(grafts=(item,)) for item in self.grafts),
        ]


_KINDS: Mapping[str, Any] = {"weights": ChangedWeight, "attributes": ChangedAttribute, "grafts": Graft}


def changes_of(data: Mapping[str, Any]) -> Changes:
    """Return changes from JSON or YAML data; raise a ValueError if they are none."""
    known = Changes.__struct_fields__
    for name, items in data.items():
        if name not in known or not isinstance(items, list):
            raise ValueError(f"{name} is not a list of changes (allowed: {', '.join(known)})")
        for item in items:
            _check_keys(name, item)
    changes = from_data(Changes, {name: list(data.get(name, ())) for name in known})
    for weight in changes.weights:
        if bool(weight.source) == (weight.value is not None):
            raise ValueError(f"the weight {weight.name} needs either source or value")
    values: list[tuple[str, Any]]
    values = [(f"the weight {each.name}", each.value) for each in changes.weights if each.value is not None]
    values += [(f"{each.name} of {each.node}", item) for each in changes.attributes for item in _items(each.value)]
    for what, value in values:
        is_plain = isinstance(value, int | float | str) and not isinstance(value, bool)
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"the value of {what} is {value!r} (allowed: finite numbers, texts, lists of these, null)")
    return changes


def _check_keys(name: str, item: object) -> None:
    """Raise a ValueError for a key that no change of this kind has, because it would be ignored."""
    allowed = _KINDS[name].__struct_fields__
    unknown = [key for key in item if key not in allowed] if isinstance(item, Mapping) else []
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a key of {name} (allowed: {', '.join(allowed)})")


def _items(value: Any) -> Iterator[Any]:  # noqa: ANN401 - the value of an attribute
    yield from value if isinstance(value, list) else () if value is None else (value,)


def read_to_change(path: Path) -> onnx.ModelProto:
    """Return the model in `path` with every node in a graph and named, as changes name them."""
    model = read_onnx(path)
    inline_functions(model)
    name_nodes(model.graph)
    return model


def change(model: onnx.ModelProto, changes: Changes, origin: Origin) -> None:
    """Make the changes in a model that `read_to_change` returned, in place.

    Raises:
        ConversionError: The file has no such weight, node or attribute, or the source has no weight that fits.
    """
    stored = stored_tensors(model.graph)
    for weight in changes.weights:
        if weight.name not in stored:
            raise unfit(f"the file has no weight {weight.name!r}")
        _change_weight(stored[weight.name], weight, origin)
    nodes = {node.name: node for node in model.graph.node}
    for attribute in changes.attributes:
        if attribute.node not in nodes:
            raise unfit(f"the file has no node {attribute.node!r}")
        _change_attribute(nodes[attribute.node], attribute, _opset(model, nodes[attribute.node].domain))
    for item in changes.grafts:
        if origin.model is None:
            raise unfit("only nodes of an ONNX file can be grafted")
        graft(model, item, origin.model, origin.folder)


def change_file(path: Path, changes: Changes, origin: Origin) -> None:
    """Make the changes in an ONNX file; raises as `change`."""
    model = read_to_change(path)
    change(model, changes, origin)
    save_onnx(model, path)


def _change_weight(tensor: onnx.TensorProto, weight: ChangedWeight, origin: Origin) -> None:
    from onnx import helper, numpy_helper

    dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    if weight.value is not None:
        values = np.full(shape, weight.value)
    else:
        found = origin.weight_of(weight.source)
        if found is None:
            raise unfit(f"the source has no weight {weight.source!r}")
        if weight.axes and sorted(weight.axes) != list(range(found.ndim)):
            raise unfit(f"the axes of {weight.source!r} are not {list(weight.axes)}")
        values = found.transpose(weight.axes) if weight.axes else found
        if values.size != int(np.prod(shape, dtype=np.int64)):
            raise unfit(f"{weight.source!r} has the shape {list(values.shape)}, and {weight.name!r} {list(shape)}")
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values.reshape(shape).astype(dtype)), name))


def _change_attribute(node: onnx.NodeProto, attribute: ChangedAttribute, opset: int) -> None:
    import onnx
    from onnx import helper

    kind = attribute_type(node, attribute.name, opset)
    if kind is None:
        raise unfit(f"{node.op_type} {node.name!r} has no attribute {attribute.name!r}")
    kept = [item for item in node.attribute if item.name != attribute.name]
    if attribute.value is not None:
        try:
            made = helper.make_attribute(attribute.name, _value_of(kind, attribute.value), attr_type=kind)
        except (TypeError, ValueError) as err:
            allowed = onnx.AttributeProto.AttributeType.Name(kind).lower()
            msg = f"{attribute.name} of {node.name!r} cannot be {attribute.value!r} (allowed: {allowed})"
            raise unfit(msg) from err
        kept.append(made)
    copies = [type(item).FromString(item.SerializeToString()) for item in kept]
    del node.attribute[:]
    node.attribute.extend(copies)


def attribute_type(node: onnx.NodeProto, name: str, opset: int) -> int | None:
    """Return the type of an attribute of a node, as AttributeProto numbers it; None if its operator has none such."""
    import onnx

    there = next((item.type for item in node.attribute if item.name == name), None)
    if there is not None:
        return int(there)
    schema = schema_of(node.op_type, opset, node.domain)
    known = None if schema is None else schema.attributes.get(name)
    # The members of both enumerations have the same names, such as `AttrType.FLOAT`.
    return None if known is None else int(onnx.AttributeProto.AttributeType.Value(str(known.type).rpartition(".")[2]))


def _value_of(kind: int, value: Any) -> Any:  # noqa: ANN401 - the value of an attribute
    """Return a value from JSON or YAML as an attribute of this type has it."""
    import onnx

    types = onnx.AttributeProto
    if kind in {types.INTS, types.FLOATS} and isinstance(value, list):
        return [_number(item, is_whole=kind == types.INTS) for item in value]
    if kind in {types.INT, types.FLOAT}:
        return _number(value, is_whole=kind == types.INT)
    if kind == types.STRING and isinstance(value, str):
        return value
    raise TypeError("only numbers, texts and lists of numbers are set")


def _number(value: Any, *, is_whole: bool) -> int | float:  # noqa: ANN401 - the value of an attribute
    """Return a number; YAML reads 1e-5 as a text. A ValueError is raised for a fraction in the place of an integer."""
    number = float(value)
    if not is_whole:
        return number
    if number != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _opset(model: onnx.ModelProto, domain: str) -> int:
    return next((item.version for item in model.opset_import if item.domain == domain), 1)
