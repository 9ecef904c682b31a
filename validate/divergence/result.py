"""Hold the places where two models part."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.validate.words.sentence import Words, render

LOCATED, EQUAL, CONTRACT, CANNOT_TELL, TRAIN_MODE = "located", "equal", "contract", "cannot_tell", "train_mode"
PROVEN, LIKELY, POSSIBLE = "proven", "likely", "possible"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorPair:
    """A tensor of the candidate, and the one of the reference in its place."""

    candidate: str
    reference: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnNode:
    """A node at a place (`is_here`) or near it, and the names of the drawn nodes that it reads."""

    name: str
    op_type: str
    reads: tuple[str, ...]
    is_here: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """Hold a place at which the candidate parts from the reference.

    Nodes are named as in their file; one without a name by its operator and a number. `reference_nodes` is empty where
    the reference has nothing there, and `reference_code` has the line that calls each, empty without code. `proven`
    means that the place is wrong by itself, and that the outputs agree within rounding once the reference's values are
    put in all proven places, and nowhere else. `certainty` is `proven`, `likely` (few places) or `possible`. `what` is
    the text of `words`.

    The place is between `reads`, the equal tensors that its nodes read, and `makes`, the tensor in which the models
    part. `makes` is None, and `reads` is empty, where not all nodes between them are known. The graphs are of at most
    ten nodes each, there and around it.
    """

    candidate_nodes: tuple[str, ...]
    reference_nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    words: Words
    proven: bool
    certainty: str
    reference_op_types: tuple[str, ...] = ()
    reads: tuple[TensorPair, ...] = ()
    makes: TensorPair | None = None
    reference_code: tuple[str, ...] = ()
    candidate_graph: tuple[DrawnNode, ...] = ()
    reference_graph: tuple[DrawnNode, ...] = ()
    what: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", render(self.words))


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """How far an inner tensor of the candidate, which `node` makes, is from its nearest partner.

    Attributes:
        error: The largest error, relative to a value plus the root mean square of the tensor; None without a partner.
    """

    tensor: str
    partner: str | None
    error: float | None
    node: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptConstant:
    """A constant of the minimal models; `is_drawn` means that none of its values comes from the models."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_drawn: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Minimal:
    """Describe the minimal models of the first place; `detail`, the text of `words`, explains why there are none.

    `error` is the largest relative error between their outputs, None if it is not finite.
    """

    words: Words = ()
    candidate_nodes: int = 0
    reference_nodes: int = 0
    error: float | None = None
    has_real_inputs: bool = False
    constants: tuple[KeptConstant, ...] = ()
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", render(self.words))


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Describe where two models part.

    `outcome` is `located`, `equal`, `contract` (inputs or outputs differ in kind), `train_mode` or `cannot_tell`;
    `detail`, the text of `words`, explains the last three. Of a candidate saved in train mode, no place is sought.
    `error` is the largest relative error of the outputs, None if it is not finite. `tolerance` is the relative error up
    to which inner tensors count as equal, None unless located. `matched` of the candidate's `tensors` inner tensors
    have a partner within it. `not_located` are outputs that differ and come from none of the places, or whose values
    cannot be compared. `growth` is of the inner tensors, in order of computation. `computed` counts the tensors of all
    runs; `is_partial` means that the search ended because they were too many. `minimal` describes the minimal models,
    if they were wanted.
    """

    outcome: str
    words: Words = ()
    error: float | None = 0.0
    tolerance: float | None = None
    matched: int = 0
    tensors: int = 0
    located: tuple[Located, ...] = ()
    not_located: tuple[str, ...] = ()
    growth: tuple[Step, ...] = ()
    computed: int = 0
    is_partial: bool = False
    minimal: Minimal | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", render(self.words))
