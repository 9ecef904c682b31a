"""What an engine says of its own layers: their dtypes, if it was built to say them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paritygate.engine.deserialized import LoadedEngine

__all__ = ["inspect_engine", "inspected_dtypes"]

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


def inspect_engine(loaded: LoadedEngine) -> dict[str, dict[str, int]]:
    """Return how many outputs of layers the engine has, by dtype and layer; nothing where it was not built to say."""
    trt = loaded.library.module
    if loaded.cuda_engine.profiling_verbosity != trt.ProfilingVerbosity.DETAILED:
        return {}
    inspector = loaded.cuda_engine.create_engine_inspector()
    return inspected_dtypes(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


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
