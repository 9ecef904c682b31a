"""The request for the probes of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from paritygate.signature import Dim
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.inputs.roles import DeclaredRole


class Graph(Struct, frozen=True, kw_only=True):
    """An ONNX file of the model, which shows how it uses its inputs."""

    path: Path
    rename: Mapping[str, str] = field(default_factory=dict)  # the served name, by the file's


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """The probes to record, and how to make them."""

    names: tuple[str, ...] = tuple(PROBES)
    dims: Mapping[str, Dim] = field(default_factory=dict)  # sizes of symbolic dims
    roles: Mapping[str, DeclaredRole] = field(default_factory=dict)  # of inputs, as declared
    graph: Graph | None = None
    seed: int = 0
