"""Read ZipMap, through which classifiers of skl2onnx return one mapping a row, from class to probability.

It only names the columns of a table of numbers. That table is compared and served in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from paritygate.errors import InputFileError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_DOMAIN, _OPERATOR = "ai.onnx.ml", "ZipMap"


class ZipMap(Struct, frozen=True, kw_only=True):
    """A ZipMap that makes an output: its input `table`, one column a class, and the classes of the columns."""

    table: str
    classes: tuple[int | str, ...]

    def table_of(self, rows: Sequence[Mapping[int | str, float]]) -> NDArray[np.float32]:
        """Return the table of ONNX Runtime's output, one mapping a row."""
        table = [[row[label] for label in self.classes] for row in rows]
        return np.asarray(table, dtype=np.float32).reshape(len(rows), len(self.classes))


def zip_maps(model: onnx.ModelProto) -> dict[str, ZipMap]:
    """Return the outputs of the model that are made by a ZipMap, by name.

    Raises:
        InputFileError: One has no classes, or the same one twice, so its mappings lose columns.
    """
    outputs = {value.name for value in model.graph.output}
    return {name: _zip_map(node) for name, node in _nodes(model) if name in outputs}


def _nodes(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.NodeProto]]:
    for node in model.graph.node:
        if (node.domain, node.op_type) == (_DOMAIN, _OPERATOR):
            yield node.output[0], node


def _zip_map(node: onnx.NodeProto) -> ZipMap:
    attributes = {attribute.name: attribute for attribute in node.attribute}
    classes: list[int | str] = []
    if "classlabels_int64s" in attributes:
        classes += attributes["classlabels_int64s"].ints
    if "classlabels_strings" in attributes:
        classes += [text.decode() for text in attributes["classlabels_strings"].strings]
    if not classes or len(set(classes)) < len(classes):
        msg = f"the ZipMap that makes {node.output[0]!r} has wrong classes (got {classes}, expected one a column)"
        raise InputFileError(msg, hint="convert the model again with skl2onnx and options={'zipmap': False}")
    return ZipMap(table=node.input[0], classes=tuple(classes))
