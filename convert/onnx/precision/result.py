"""What a rewriting to a lower precision did, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["ConstantChange", "KeptNode", "RewriteResult"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantChange:
    """Values of one constant that the lower precision cannot hold, and what they became.

    Attributes:
        tensor: Name of the initializer, or of the value that the constant node makes.
        count: Number of its elements this happened to.
        before: Of these, the value of the largest magnitude.
        after: What that one became.
    """

    tensor: str
    count: int
    before: float
    after: float

    def __str__(self) -> str:
        values = "value" if self.count == 1 else "values"
        return f"{self.tensor}: {self.count} {values}, {self.before:g} became {self.after:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptNode:
    """A node that reads or makes FP32 values and still does so.

    Attributes:
        name: Its name in the rewritten model.
        operator: Its operator, with the domain where that is not ONNX's own.
        reason: Why, as a part of a sentence: `kept as asked`.
    """

    name: str
    operator: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteResult:
    """A model in a lower precision and all that was done to it.

    Attributes:
        model: The rewritten model, all its weights inside it.
        clamps: Finite constants beyond the range of the lower precision, which became its largest
            finite value of that sign. Infinities stay infinities, NaN stays NaN.
        flushes: Constants that are not zero and became zero, or, where the constant is one single value, the
            smallest value that is not zero.
        casts_added: Number of Cast nodes that the model has now and had not before.
        nodes_converted: Names of the nodes that compute in the lower precision now.
        nodes_kept: Nodes that still compute in FP32, with the reason. A node that has nothing to do
            with FP32 values is in neither list, nor is a constant.
        opset_before: Version of the default operator set.
        opset_after: The same, or higher where bfloat16 needs it.
        notes: What the user should know besides, one sentence each.
    """

    model: onnx.ModelProto
    clamps: tuple[ConstantChange, ...]
    flushes: tuple[ConstantChange, ...]
    casts_added: int
    nodes_converted: tuple[str, ...]
    nodes_kept: tuple[KeptNode, ...]
    opset_before: int
    opset_after: int
    notes: tuple[str, ...] = ()
