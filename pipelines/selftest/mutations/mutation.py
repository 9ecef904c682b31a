"""The table of mutations, and how one of them is made in an ONNX file: a known fault, or an equivalent rewrite.

The file made is a new one, checked to be valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.errors import InputFileError, UsageError
from paritygate.models.onnx.file import check_onnx, read_onnx
from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit
from paritygate.text import meant, nearest_first

if TYPE_CHECKING:
    import numpy as np
    import onnx

_T = TypeVar("_T")
# Names in a hint, because all of them fill a screen.
_NAMED = 5


class MutationContext(Struct, frozen=True, kw_only=True):
    """Facts about the model besides its graph.

    - `ids`: the largest valid id of each id input, or None. `seen_ids`: those in the samples.
    - `sizes`: each input's shape in the first batch of the samples. `largest_batch`: rows of their largest.
    - `most_rows`: the declared largest batch; None if undeclared. `scales`: of float outputs, as limits use them.
    - `columns`: the spread by column of float outputs of rank 2, 0 for a constant column.
    """

    random: np.random.Generator
    masks: tuple[str, ...] = ()
    ids: Mapping[str, int | None] = field(default_factory=dict)
    seen_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    largest_batch: int = 1
    most_rows: int | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def pick(self, items: Sequence[_T]) -> _T:
        """Return one of the items, at random."""
        return items[int(self.random.integers(len(items)))]


class Mutated(Struct, frozen=True, kw_only=True):
    """The change that a mutation made, as text; `reached_by` are the inputs that show it, empty for any."""

    what: str
    reached_by: str = ""


class NotApplicableError(Exception):
    """A model has nothing that a mutation could change; the message is the reason."""


def need(found: _T | None, reason: str) -> _T:
    """Return what a mutation needs of a model; raise NotApplicableError if it is None, false or empty."""
    if not found:
        raise NotApplicableError(reason)
    return found


class NotApplicable(Struct, frozen=True):
    """The reason why a model has nothing that this mutation could change."""

    reason: str


class Mutation(Struct, frozen=True, kw_only=True):
    """A row of the table; `function(edit, context)` changes the model or returns why it cannot."""

    name: str
    module: str
    function: str
    title: str
    is_equivalent: bool

    def apply(self, edit: GraphEdit, context: MutationContext) -> Mutated | NotApplicable:
        """Change the model, or return why it has nothing to change."""
        import importlib

        try:
            mutated: Mutated = getattr(importlib.import_module(self.module), self.function)(edit, context)
        except NotApplicableError as err:
            return NotApplicable(str(err))
        return mutated


def _family(module: str, titles: Mapping[str, str], *, is_equivalent: bool = False) -> tuple[Mutation, ...]:
    return tuple(
        Mutation(
            name=name,
            module=f"paritygate.pipelines.selftest.mutations.{module}",
            function=name.replace("-", "_"),
            title=title,
            is_equivalent=is_equivalent,
        )
        for name, title in titles.items()
    )


_FAMILIES = (
    _family(
        "weights",
        {
            "weights-bf16": "weights rounded to bfloat16 behind a float32 name",
            "weights-fp16": "weights rounded to float16 behind a float32 name",
            "weights-tf32": "weights of products rounded to TF32",
            "weights-int8": "weights rounded to 255 steps a tensor",
        },
    ),
    _family(
        "weights",
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
            "column-zeroed": "the column that varies least lost",
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
    _family("rows", {"size-baked": "an open size traced as a constant"}),
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
        "equivalents",
        {
            "tensors-renamed": "inner tensors and nodes renamed",
            "outputs-reordered": "outputs in another order",
            "inputs-reordered": "inputs in another order",
            "nodes-reordered": "nodes in another valid order",
            "identities-added": "operators that do nothing, at every input and output",
            "weights-as-constants": "weights as nodes of the graph",
            "newer-opset": "a newer operator set",
        },
        is_equivalent=True,
    ),
    _family(
        "equivalents",
        {
            "constants-folded": "constants folded",
            "operators-fused": "operators fused by ONNX Runtime",
            "layernorm-unfused": "LayerNormalization as single operators",
            "batchnorm-unfused": "BatchNormalization as one product and one sum",
            "gemm-unfused": "Gemm as a product and a sum",
            "sums-reassociated": "the sums of products added up in another order",
        },
        is_equivalent=True,
    ),
)


MUTATIONS: Mapping[str, Mutation] = {kind.name: kind for family in _FAMILIES for kind in family}


def chosen_mutations(names: Iterable[str]) -> tuple[str, ...]:
    """Return the named mutations (all without a name) in the order of the table; raise UsageError for other names."""
    wanted = list(names)
    for name in wanted:
        if name not in MUTATIONS:
            near = meant(name, MUTATIONS)
            msg = f"--fault {name!r} is not a planted fault or equivalent rewrite{near}"
            nearest = ", ".join(nearest_first(name, MUTATIONS)[:_NAMED])
            raise UsageError(msg, hint=f"write one of: {nearest}; without --fault, all {len(MUTATIONS)} are planted")
    return tuple(name for name in MUTATIONS if not wanted or name in wanted)


def mutate(
    model: onnx.ModelProto, name: str, context: MutationContext
) -> tuple[onnx.ModelProto, Mutated] | NotApplicable:
    """Return the mutated model and the change, using up the given model; raise UsageError for an unknown fault."""
    if name not in MUTATIONS:
        msg = f"no fault is named {name!r}"
        raise UsageError(msg, hint=f"faults and equivalent rewrites are: {', '.join(MUTATIONS)}")
    edit = GraphEdit(model)
    outcome = MUTATIONS[name].apply(edit, context)
    return outcome if isinstance(outcome, NotApplicable) else (edit.finish(), outcome)


def mutate_file(source: Path, name: str, context: MutationContext, target: Path) -> Mutated | NotApplicable:
    """Write the ONNX model in `source` with a fault to `target`, and return the change or why there is none.

    Raises:
        UsageError: There is no such fault.
        InputFileError: `source` is not an ONNX model.
        StorageError: The disk is full.
    """
    import onnx

    model = read_onnx(source)
    onnx.external_data_helper.load_external_data_for_model(model, str(source.parent))
    outcome = mutate(model, name, context)
    if isinstance(outcome, NotApplicable):
        return outcome
    changed, mutated = outcome
    save_onnx(changed, target)
    try:
        check_onnx(target)
    except InputFileError as err:
        return NotApplicable(f"the result is not a valid model: {err}")
    return mutated
