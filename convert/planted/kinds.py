"""What is planted: the table of fault classes and innocent rewrites, and what their functions take and return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from paritygate.convert.planted.graph_edit import GraphEdit

__all__ = ["PLANTS", "NotApplicable", "PlantContext", "PlantKind", "Planted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantContext:
    """What is known of the model besides its graph.

    Attributes:
        random: Where choices come from.
        masks: Inputs that are masks.
        ids: Inputs that are ids: the largest one that the model takes, or None where that is not known.
        seen_ids: Inputs that are ids: those that the samples hold.
        sizes: Every input: its shape in the first batch of the samples.
        largest_batch: Rows of the largest batch of the samples.
        most_rows: The most rows that a batch may have; None where that is not declared.
        scales: Float outputs: what the limits are scaled by.
    """

    random: np.random.Generator
    masks: tuple[str, ...] = ()
    ids: Mapping[str, int | None] = field(default_factory=dict)
    seen_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    largest_batch: int = 1
    most_rows: int | None = None
    scales: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """What was changed.

    Attributes:
        what: In words, with names and numbers.
        reached_by: The inputs that show it; empty where any does.
    """

    what: str
    reached_by: str = ""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why the model has nothing to plant this into."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantKind:
    """One row of the table.

    Attributes:
        name: Its name in options and reports.
        module: Where its function is.
        function: `function(edit, context)`, which changes the model or says why it has nothing to change.
        title: The class, in words.
        is_innocent: Whether a right conversion may do this.
    """

    name: str
    module: str
    function: str
    title: str
    is_innocent: bool

    def plant(self, edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
        """Change the model."""
        import importlib

        found: Planted | NotApplicable = getattr(importlib.import_module(self.module), self.function)(edit, context)
        return found


def _family(module: str, titles: Mapping[str, str], *, is_innocent: bool = False) -> tuple[PlantKind, ...]:
    return tuple(
        PlantKind(
            name=name,
            module=f"paritygate.convert.planted.{module}",
            function=name.replace("-", "_"),
            title=title,
            is_innocent=is_innocent,
        )
        for name, title in titles.items()
    )


_FAMILIES = (
    _family(
        "rounded_weights",
        {
            "weights-bf16": "weights rounded to bfloat16 behind a float32 name",
            "weights-fp16": "weights rounded to float16 behind a float32 name",
            "weights-tf32": "weights of products rounded to TF32",
            "weights-int8": "weights rounded to 255 steps a tensor",
        },
    ),
    _family(
        "lost_weights",
        {
            "weight-row-zeroed": "one row of a weight lost",
            "embedding-row-lost": "one row of an embedding lost",
            "weight-transposed": "a square weight transposed",
            "bias-dropped": "a bias dropped",
            "constant-off": "a constant off by 0.001",
        },
    ),
    _family(
        "outputs",
        {
            "offset-added": "a constant offset on an output",
            "output-scaled": "an output 1 % too large",
            "outputs-swapped": "two outputs swapped under their names",
            "output-off-by-one": "an integer output off by one",
            "output-squeezed": "an output without its dim of size 1",
            "output-dtype": "an output in another dtype",
            "output-nan-cleared": "NaN in an output replaced by 0",
            "output-not-activated": "the last activation lost: scores instead of probabilities",
        },
    ),
    _family(
        "rows",
        {
            "rows-reversed": "rows returned in reverse order",
            "last-row-as-first": "the last row of a batch answered as the first",
            "rows-as-first": "all rows of a batch answered as the first",
            "rows-beyond-seen": "rows beyond the samples' largest batch answered as the first",
            "row-noise": "noise on a few rows of some calls",
        },
    ),
    _family(
        "inputs",
        {
            "input-ignored": "an input taken from the first row for all rows",
            "inputs-swapped": "two inputs swapped",
            "mask-dropped": "a mask ignored",
            "mask-of-first-row": "the first row's mask applied to all rows",
            "mask-as-length": "a mask taken for filled up on the right",
            "ids-float32": "ids passed through float32",
            "ids-int16": "ids passed through int16",
            "input-nan-cleared": "NaN in an input replaced by 0",
            "negatives-lost": "negative values of an input taken for 0",
            "channels-reversed": "the channels of an image in reverse order",
        },
    ),
    _family("sizes", {"size-baked": "an open size traced as a constant"}),
    _family(
        "activations",
        {
            "gelu-tanh": "GELU with erf approximated by tanh",
            "relu-lost": "a ReLU lost",
            "relu-leaky": "a ReLU that leaks",
            "sigmoid-hard": "a sigmoid approximated by straight lines",
            "softmax-axis": "a softmax over another axis",
            "softmax-temperature": "a softmax at temperature 1.1",
            "epsilon-lost": "the epsilon of a normalisation lost",
            "float16-range": "inner values clipped to the range of float16",
        },
    ),
    _family(
        "structure",
        {
            "layer-skipped": "a layer skipped",
            "branch-lost": "one side of a choice taken for all values",
            "concat-swapped": "the two parts of a concatenation swapped",
            "pad-value": "padding with another value",
            "padding-side": "padding on the other side",
            "floor-truncates": "a floor that rounds towards zero",
            "ties-last": "ties of an argmax to the last index",
        },
    ),
    _family(
        "innocent_layout",
        {
            "tensors-renamed": "inner tensors and nodes renamed",
            "outputs-reordered": "outputs in another order",
            "inputs-reordered": "inputs in another order",
            "nodes-reordered": "nodes in another valid order",
            "identities-added": "operators that do nothing, at every input and output",
            "weights-as-constants": "weights as nodes of the graph",
            "newer-opset": "a newer operator set",
        },
        is_innocent=True,
    ),
    _family(
        "innocent_arithmetic",
        {
            "constants-folded": "constants folded",
            "operators-fused": "operators fused by ONNX Runtime",
            "layernorm-unfused": "LayerNormalization as single operators",
            "batchnorm-unfused": "BatchNormalization as one product and one sum",
            "gemm-unfused": "Gemm as a product and a sum",
            "sums-reassociated": "the sums of products added up in another order",
        },
        is_innocent=True,
    ),
)

PLANTS: Mapping[str, PlantKind] = {kind.name: kind for family in _FAMILIES for kind in family}
