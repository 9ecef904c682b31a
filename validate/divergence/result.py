"""What is found where two models part."""

from __future__ import annotations

from dataclasses import dataclass

LOCATED, EQUAL, CONTRACT, CANNOT_TELL = "located", "equal", "contract", "cannot_tell"
PROVEN, LIKELY, POSSIBLE = "proven", "likely", "possible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A place at which the candidate parts from the reference.

    Attributes:
        candidate_nodes: Names as in the candidate's file; of a node without a name, its operator and a number.
        reference_nodes: The same for the reference; empty where it has nothing there.
        op_types: Operators of the candidate's nodes.
        what: The difference in words.
        proven: With the reference's values in this place, the candidate's outputs come right.
        certainty: `proven`, `likely` (few places) or `possible`.
    """

    candidate_nodes: tuple[str, ...]
    reference_nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    what: str
    proven: bool
    certainty: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """How far an inner tensor of the candidate is from its nearest partner.

    Attributes:
        error: The largest error, relative to a value plus the root mean square of the tensor; None without a partner.
    """

    tensor: str
    partner: str | None
    error: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Where two models part.

    Attributes:
        outcome: `located`, `equal` (the outputs do not differ), `contract` (inputs or outputs differ in kind) or
            `cannot_tell`.
        detail: For the last two, why.
        error: The largest relative error of the outputs; None if it has no end.
        tolerance: The relative error up to which inner tensors count as equal; None unless located.
        matched: Number of the candidate's inner tensors with a partner within the tolerance.
        tensors: Number of the candidate's inner tensors.
        growth: Each inner tensor of the candidate, in the order of computation.
    """

    outcome: str
    detail: str = ""
    error: float | None = 0.0
    tolerance: float | None = None
    matched: int = 0
    tensors: int = 0
    located: tuple[Located, ...] = ()
    growth: tuple[Step, ...] = ()
