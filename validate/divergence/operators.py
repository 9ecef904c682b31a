"""Find the operators of two frameworks that compute the same, and the attributes by which they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.validate.divergence.node_differences import attributes_of, shown
from paritygate.validate.divergence.weights import constants_of
from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_Side = tuple[TensorGraph, Sequence["onnx.NodeProto"]]
# The names in PyTorch and OpenVINO, and those in ONNX. What changes only the training is not here, such as momentum.
_NAMES: Mapping[str, str] = {
    "eps": "epsilon", "negative_slope": "alpha", "dim": "axis", "keepdim": "keepdims", "keep_dims": "keepdims",
    "kernel_size": "kernel_shape", "stride": "strides", "dilation": "dilations", "groups": "group",
}  # fmt: skip
_COMPARED = frozenset({*_NAMES.values(), "alpha", "approximate", "ceil_mode", "count_include_pad", "num_groups"})
_EPSILON, _AXIS = "epsilon", "axis"
# No constant of another meaning is added that is so small.
_SMALL = 1e-2
# ONNX stores floats in 32 bits.
_EQUAL = 1e-6
# Words of one meaning, the first of which stands for all.
_WORDS = (
    ("reshape", "view", "unsafeview", "flatten", "unflatten", "squeeze", "unsqueeze", "expanddims"),
    ("transpose", "permute", "t"),
    (
        "matmul",
        "linear",
        "gemm",
        "bmm",
        "addmm",
        "mm",
        "dense",
        "batchmatmul",
        "batchmatmulv",
        "fullyconnected",
        "einsum",
    ),
    ("gather", "embedding", "indexselect", "index", "gatherv", "resourcegather"),
    ("concat", "cat", "concatv", "stack", "pack", "concatenate"),
    ("split", "chunk", "unbind", "splitv"),
    ("add", "biasadd", "addv", "addn"),
    ("pow", "power", "square", "squareddifference"),
    ("maxpool", "maxpoolwithindices"),
    ("averagepool", "avgpool"),
    ("swish", "silu"),
    ("slice", "stridedslice", "select"),
    ("cast", "to"),
    ("where", "select", "selectv", "maskedfill"),
    ("layernorm", "mvn", "groupnorm", "instancenorm"),
    ("batchnorm", "fusedbatchnormv", "nativebatchnorm", "fusedbatchnorm"),
    ("relu", "clamp", "clip"),
    ("mul", "multiply"),
    ("sub", "subtract"),
    ("div", "divide", "realdiv"),
    ("conv", "convolution", "groupconvolution", "depthwiseconv"),
    ("sigmoid", "logistic"),
)
_MEANING = {word: words[0] for words in reversed(_WORDS) for word in words}
_PARTS = re.compile(r"^(reduce|native|adaptive|global|fused)|(alization|\d+d?|nd)$")


class Difference(Struct, frozen=True, kw_only=True):
    """A node of the candidate, its partners, and how they differ; `constant` is a wrong one, and its right values."""

    node: onnx.NodeProto
    others: Sequence[onnx.NodeProto]
    words: Words
    constant: tuple[str, NDArray[Any]] | None = None


def attributes_that_differ(candidate: _Side, reference: _Side, rank: int | None) -> list[Difference]:
    """Return the pairs of nodes of one meaning whose attributes differ.

    `rank` is that of the tensor that they make, None if unknown.
    """
    found = []
    for node in candidate[1]:
        others = [other for other in reference[1] if are_alike(node.op_type, other.op_type)]
        same = [each for each in candidate[1] if others and are_alike(each.op_type, others[0].op_type)]
        if len(others) != 1 or len(same) != 1:
            continue
        ours, theirs = _compared(node, candidate[0]), _compared(others[0], reference[0])
        words = [
            say("divergence.attribute", name=name, candidate=shown(value), reference=shown(theirs[key][1]))
            for key, (name, value) in ours.items()
            if key in theirs and _differ(_place(key, value, rank), _place(key, theirs[key][1], rank))
        ]
        if words:
            found.append(Difference(node=node, others=others, words=joined(words, "; ")))
    return found


def epsilon_that_differs(candidate: _Side, reference: _Side) -> list[Difference]:
    """Return the Add of the candidate whose small constant is not the epsilon of the reference's normalisation."""
    values = [_compared(node, reference[0]).get(_EPSILON, ("", None))[1] for node in reference[1]]
    wanted = [value for value in values if isinstance(value, float)]
    added = [
        (node, node.input[at], constant)
        for node in candidate[1]
        if node.op_type == "Add"
        for at, constant in constants_of(candidate[0], node).items()
        if constant.size == 1 and abs(float(constant.reshape(-1)[0])) < _SMALL
    ]
    if len(wanted) != 1 or len(added) != 1:
        return []
    ((node, name, constant),) = added
    value = float(constant.reshape(-1)[0])
    if not _differ(value, wanted[0]):
        return []
    words = say("divergence.attribute", name="epsilon", candidate=shown(value), reference=shown(wanted[0]))
    return [Difference(node=node, others=reference[1], words=words, constant=(name, np.full_like(constant, wanted[0])))]


def _compared(node: onnx.NodeProto, graph: TensorGraph) -> dict[str, tuple[str, Any]]:
    """Return the name and the value of each attribute that is compared, by its name in ONNX."""
    named = {_NAMES.get(name, name): (name, value) for name, value in attributes_of(node, graph).items()}
    return {key: item for key, item in named.items() if key in _COMPARED}


def _place(key: str, value: Any, rank: int | None) -> Any:  # noqa: ANN401 - a value of an attribute
    """Return an attribute, an axis counted from the first one."""
    return value % rank if key == _AXIS and rank and isinstance(value, int) else value


def _differ(value: Any, other: Any) -> bool:  # noqa: ANN401 - values of attributes
    """Return whether two values differ; not where it is unknown, such as axes counted from both ends."""
    if isinstance(value, bytes | str) or isinstance(other, bytes | str):
        return _text(value) != _text(other)
    many = [list(each) if isinstance(each, list | tuple) else [each] for each in (value, other)]
    longest = max(map(len, many))
    if not all(many) or any(len(each) not in {1, longest} for each in many):
        return False
    one, two = (each * longest if len(each) == 1 else each for each in many)
    if any(first < 0 <= second or second < 0 <= first for first, second in zip(one, two, strict=True)):
        return False
    return not all(math.isclose(*pair, rel_tol=_EQUAL) for pair in zip(one, two, strict=True))


def _text(value: Any) -> str:  # noqa: ANN401 - a value of an attribute
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def are_alike(operator: str, other: str) -> bool:
    """Return whether two operators have one meaning, such as `layer_norm` and `LayerNormalization`."""
    return _meaning(operator) == _meaning(other)


def _meaning(operator: str) -> str:
    word = operator.lower().replace("_", "")
    return _MEANING.get(word) or _MEANING.get(_short(word), _short(word))


def _short(word: str) -> str:
    shorter = _PARTS.sub("", word)
    return word if not shorter or shorter == word else _short(shorter)
