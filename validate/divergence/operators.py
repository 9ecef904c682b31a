"""Find the operators of two frameworks that compute the same."""

from __future__ import annotations

import re

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
    ("pow", "square", "squareddifference"),
    ("maxpool", "maxpoolwithindices"),
    ("averagepool", "avgpool"),
    ("swish", "silu"),
    ("slice", "stridedslice", "select"),
    ("cast", "to"),
    ("where", "select", "selectv", "maskedfill"),
    ("batchnorm", "fusedbatchnormv", "nativebatchnorm", "fusedbatchnorm"),
    ("relu", "clamp", "clip"),
)
_MEANING = {word: words[0] for words in reversed(_WORDS) for word in words}
_PARTS = re.compile(r"^(reduce|native|adaptive|global|fused)|(alization|\d+d?|nd)$")


def are_alike(operator: str, other: str) -> bool:
    """Return whether two operators have one meaning, such as `layer_norm` and `LayerNormalization`."""
    return _meaning(operator) == _meaning(other)


def _meaning(operator: str) -> str:
    word = operator.lower().replace("_", "")
    return _MEANING.get(word) or _MEANING.get(_short(word), _short(word))


def _short(word: str) -> str:
    shorter = _PARTS.sub("", word)
    return word if not shorter or shorter == word else _short(shorter)
