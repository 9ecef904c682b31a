"""What an engine computes in: from the census of the network it was built from, and from the engine where it says.

An engine says the dtypes of its layers only if it was built to. The census of the network is then all there is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from paritygate.precision import Precision

__all__ = ["describe_census", "inspected_dtypes", "precision_of_dtypes"]

# Layers that only move, convert, choose or hold values, in the words of networks and of engines: a cast to HALF is no
# computation in it. QUANTIZE is not among them: that its answers are INT8 is what tells a quantized network.
_MOVES = frozenset(
    {
        "ASSERTION", "CAST", "CONCATENATION", "CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT", "CONSTANT",
        "DEQUANTIZE", "FILL", "GATHER", "IDENTITY", "ITERATOR", "LOOP_OUTPUT", "NON_ZERO", "NOOP", "ONE_HOT",
        "PADDING", "RECURRENCE", "REFORMAT", "REVERSE_SEQUENCE", "SCATTER", "SELECT", "SHAPE", "SHUFFLE", "SLICE",
        "SQUEEZE", "TOPK", "TRIP_LIMIT", "UNSQUEEZE",
    }
)  # fmt: skip
_PRECISIONS: Mapping[str, Precision] = {
    "FLOAT": Precision.FP32,
    "HALF": Precision.FP16,
    "BF16": Precision.BF16,
    "INT8": Precision.INT8,
}
# The words of the engine's inspector, which differ between versions: `Half NC/8HW8`, `Row major linear FP16 format`.
_WORDS: Mapping[str, str] = {
    "float": "FLOAT",
    "fp32": "FLOAT",
    "half": "HALF",
    "fp16": "HALF",
    "bfloat16": "BF16",
    "bf16": "BF16",
    "int8": "INT8",
}
_WORD = re.compile(r"[a-z0-9]+")


def precision_of_dtypes(census: Mapping[str, Mapping[str, int]]) -> Precision | None:
    """Return the precision of the layers that compute: the lowest there is; None if none computes in floats.

    Args:
        census: How many outputs of layers there are, by dtype and type of layer, in the library's words.

    Returns:
        `mixed` where layers compute in FP16 and others in BF16.
    """
    found = {
        _PRECISIONS[dtype]
        for dtype, layers in census.items()
        if dtype in _PRECISIONS and any(count for layer, count in layers.items() if layer.upper() not in _MOVES)
    }
    if Precision.INT8 in found:
        return Precision.INT8
    if {Precision.FP16, Precision.BF16} <= found:
        return Precision.MIXED
    lower = found - {Precision.FP32}
    return lower.pop() if lower else next(iter(found), None)


def describe_census(census: Mapping[str, Mapping[str, int]]) -> str:
    """Return how many outputs of layers are of each dtype, such as `HALF 138, FLOAT 2`, the most first."""
    counts = Counter({dtype: sum(layers.values()) for dtype, layers in census.items()})
    return ", ".join(f"{dtype} {count}" for dtype, count in counts.most_common())


def inspected_dtypes(inspection: str) -> dict[str, dict[str, int]]:
    """Return the dtypes of the engine's layers as a census, by what its inspector said.

    Args:
        inspection: What the inspector said of the whole engine, as JSON.

    Returns:
        Empty where it names layers only, or says nothing that is known here.
    """
    try:
        layers = json.loads(inspection)["Layers"]
    except (ValueError, KeyError, TypeError):
        return {}
    census: dict[str, Counter[str]] = {}
    for layer in layers:
        # One that was built without details names its layers, and nothing else.
        if not isinstance(layer, dict):
            continue
        for dtype in _dtypes_of_outputs(layer):
            census.setdefault(dtype, Counter())[str(layer.get("LayerType", "unknown"))] += 1
    return {dtype: dict(counts) for dtype, counts in census.items()}


def _dtypes_of_outputs(layer: Mapping[str, Any]) -> Iterator[str]:
    for output in layer.get("Outputs", ()):
        if not isinstance(output, dict):
            continue
        said = " ".join(str(output.get(key, "")) for key in ("Format/Datatype", "Datatype", "Format"))
        known = [_WORDS[word] for word in _WORD.findall(said.lower()) if word in _WORDS]
        if known:
            yield known[0]
