"""Estimate the traffic of a model between memory and operators, and its multiply-adds in the lower precision."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    import onnx

    from paritygate.models.onnx.lowering import Lowering
    from paritygate.pipelines.repair.values import ValueFacts

_BYTES = 4
_NOTHING: frozenset[int] = frozenset()


class Costs(Struct, frozen=True, kw_only=True):
    """The nodes of a model, with the shapes of its values and float constants, and the bytes of a lowered element."""

    nodes: Collection[onnx.NodeProto]
    outputs: Collection[str]
    values: Mapping[str, ValueFacts]
    constants: Mapping[str, tuple[int, ...]]
    lowered: Mapping[str, Lowering]
    low_bytes: int

    def share_of_traffic(self, kept: Collection[str]) -> float:
        """Return the bytes read and written by operators and Casts, as a share of those in FP32."""
        return self._traffic(kept) / max(1, self._traffic(self.lowered))

    def share_of_multiply_adds(self, kept: Collection[str]) -> float | None:
        """Return the share of multiply-adds in the lower precision; None of a model without any."""
        shares = self.shares_of_multiply_adds()
        low = sum(share for name, share in shares.items() if name in self.lowered and name not in kept)
        return low if shares else None

    def shares_of_multiply_adds(self) -> dict[str, float]:
        """Return the share of the multiply-adds of each node that has any."""
        counts = {node.name: count for node in self.nodes if (count := self._products(node))}
        total = sum(counts.values())
        return {name: count / total for name, count in counts.items()}

    def _traffic(self, kept: Collection[str]) -> int:
        total = 0
        made: dict[str, int] = {}
        cast: set[tuple[str, int]] = set()
        for node in self.nodes:
            lowering = None if node.name in kept else self.lowered.get(node.name)
            for position, name in enumerate(node.input):
                elements = self._elements(name)
                wanted = self.low_bytes if position in (lowering.inputs if lowering else _NOTHING) else _BYTES
                total += elements * wanted
                cast.add((name, wanted))
            for position, name in enumerate(node.output):
                made[name] = self.low_bytes if position in (lowering.outputs if lowering else _NOTHING) else _BYTES
                total += self._elements(name) * made[name]
        cast |= {(name, _BYTES) for name in self.outputs}
        # A constant is stored as it is read.
        wanted_casts = [name for name, wanted in cast if name in self.values and wanted != made.get(name, _BYTES)]
        return total + sum(self._elements(name) * (_BYTES + self.low_bytes) for name in wanted_casts)

    def _elements(self, name: str) -> int:
        if name in self.values:
            return self.values[name].elements
        return int(np.prod(self.constants[name], dtype=np.int64)) if name in self.constants else 0

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape if name in self.values else self.constants.get(name, ())

    def _products(self, node: onnx.NodeProto) -> int:
        """Return the multiply-adds of a node."""
        made = self._elements(node.output[0]) if node.output else 0
        return made * next(self._summed(node), 0)

    def _summed(self, node: onnx.NodeProto) -> Iterator[int]:
        """Yield how many products are summed for an element."""
        if node.op_type == "MatMul" and self._shape(node.input[0]):
            yield self._shape(node.input[0])[-1]
        elif node.op_type == "Gemm" and self._shape(node.input[0]):
            is_transposed = any(item.name == "transA" and item.i for item in node.attribute)
            yield self._shape(node.input[0])[0 if is_transposed else -1]
        elif node.op_type in {"Conv", "ConvTranspose"} and self._shape(node.input[1]):
            weight = self._shape(node.input[1])
            yield int(np.prod(weight[1:], dtype=np.int64))
