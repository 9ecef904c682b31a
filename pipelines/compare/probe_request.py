"""What probes of a recording are asked for, and from what they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paritygate.signature import Dim
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.inputs.roles import DeclaredRole


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """An ONNX file of the model, for what it does with its inputs.

    Attributes:
        path: The file.
        rename: The name in the file: the name served.
    """

    path: Path
    rename: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRequest:
    """Which probes to make, and from what.

    Attributes:
        names: The probes that are to be asked, by the table of all.
        dims: The declared sizes of symbolic dims.
        roles: What the user says that inputs are.
        graph: An ONNX file of the model; None where there is none.
        seed: Seed of all choices.
    """

    names: tuple[str, ...] = tuple(PROBES)
    dims: Mapping[str, Dim] = field(default_factory=dict)
    roles: Mapping[str, DeclaredRole] = field(default_factory=dict)
    graph: Graph | None = None
    seed: int = 0
