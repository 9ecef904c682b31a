"""What is found where two models part."""

from __future__ import annotations

from dataclasses import dataclass

LOCATED, EQUAL, CONTRACT, CANNOT_TELL = "located", "equal", "contract", "cannot_tell"
PROVEN, LIKELY, POSSIBLE = "proven", "likely", "possible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A place at which the candidate parts from the reference.

    Nodes have their names in the files, or their operator and a number. `op_types` are the candidate's operators.
    `certainty` is `proven`, `likely` (few places) or `possible`.
    """

    candidate_nodes: tuple[str, ...]
    reference_nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    what: str
    # With the reference's values in this place, the candidate's outputs agree.
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

    `outcome` is `located`, `equal` (the outputs agree), `contract` (inputs or outputs differ in kind) or `cannot_tell`.
    `error` is the largest relative error of the outputs; null if infinite. Inner tensors match up to `tolerance`.
    """

    outcome: str
    detail: str = ""
    error: float | None = 0.0
    tolerance: float | None = None
    matched: int = 0
    tensors: int = 0
    located: tuple[Located, ...] = ()
    # Of each inner tensor of the candidate, in the order of computation.
    growth: tuple[Step, ...] = ()
