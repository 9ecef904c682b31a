"""What is inside: made-up rows that samples and signature show to occur, each of which has to hold by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.signature import Dim
from paritygate.validate.measure.check import Status
from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Asked, ProbeDesk

    from paritygate.validate.probes.recording import BatchRecord

    Samples = list[dict[str, NDArray[Any]]]

_RANDOM = np.random.default_rng(7)
_WEIGHTS = {"table": _RANDOM.normal(size=(40, 4)).astype(np.float32), "one": np.array([1]), "two": np.array([2])}
_POOLED = """(int64[B, {dim}] ids, int64[B, {dim}] mask) => (float[B, 4] out) {{
  emb = Gather(table, ids)
  m = Cast<to=1>(mask)
  m3 = Unsqueeze(m, two)
  kept = Mul(emb, m3)
  out = ReduceSum<keepdims=0>(kept, one)
}}"""
_TABULAR = "(float[B, 3] x) => (float[B, 3] out) { out = Tanh(x) }"
_NAMED, _UNNAMED = _POOLED.format(dim="S"), _POOLED.format(dim="?")


def _padded(*, lengths: tuple[int, int] = (2, 5), sizes: tuple[int, ...] = (5, 8)) -> Samples:
    """Return rows padded on the right, of so many real positions, each batch of one size."""
    found = []
    for at in range(12):
        size = sizes[at % len(sizes)]
        mask = (np.arange(size) < _RANDOM.integers(*lengths, size=(4, 1), endpoint=True)).astype(np.int64)
        found.append({"ids": _RANDOM.integers(1, 10, size=(4, size)) * mask, "mask": mask})
    return found


def _features() -> Samples:
    return [{"x": _RANDOM.uniform(-1, 1, size=(4, 3)).astype(np.float32)} for _ in range(8)]


class _Case(Struct, frozen=True):
    """What `about` of some batches begins with, of shapes all of it, and whether every row of these is inside."""

    probe: str
    about: str
    is_inside: bool
    model: str = _NAMED
    samples: Samples = field(default_factory=_padded)
    roles: Mapping[str, DeclaredRole] = field(default_factory=dict)
    dims: Mapping[str, Dim] = field(default_factory=dict)


def _said(**said: Any) -> dict[str, DeclaredRole]:  # noqa: ANN401 - whatever a role says
    return {"mask": DeclaredRole(**said)}


_RIGHT = "padding on the right"
_CASES = {
    # Rows in other batches and orders.
    "rows alone, repeated and among other rows": _Case("batches", "", is_inside=True),
    "numbers in other batches": _Case("batches", "", is_inside=True, model=_TABULAR, samples=_features()),
    # New combinations of seen values.
    "an input from other rows": _Case("sensitivity", "ids from other rows", is_inside=True),
    "zeros within the range": _Case("values", "x: zeros", is_inside=True, model=_TABULAR, samples=_features()),
    "the largest everywhere": _Case("values", "x: the largest value seen, everywhere", is_inside=True, model=_TABULAR,
                                    samples=_features()),
    "constant rows": _Case("values", "x: the mean, everywhere", is_inside=True, model=_TABULAR, samples=_features()),
    "rising rows": _Case("values", "x: rising", is_inside=True, model=_TABULAR, samples=_features()),
    # Sizes: of a named dim 2 to twice the largest, of a declared one all, of one without a name those seen.
    "size 2 of a named dim": _Case("shapes", "S of 2", is_inside=True),
    "twice the largest of a named dim": _Case("shapes", "S of 16", is_inside=True),
    "size 1 of a named dim": _Case("shapes", "S of 1", is_inside=False),
    "far beyond a named dim": _Case("shapes", "S of 40", is_inside=False),
    "the smallest of a declared dim": _Case("shapes", "S of 1", is_inside=True, dims={"S": Dim(min=1, opt=8, max=30)}),
    "the largest of a declared dim": _Case("shapes", "S of 30", is_inside=True, dims={"S": Dim(min=1, opt=8, max=30)}),
    "between sizes of a dim without a name": _Case("shapes", "the dim of size 8 of 7", is_inside=True, model=_UNNAMED,
                                                    samples=_padded(sizes=(8, 5))),
    "twice a dim without a name": _Case("shapes", "the dim of size 8 of 16", is_inside=False, model=_UNNAMED,
                                        samples=_padded(sizes=(8, 5))),
    "size 1 of a dim without a name": _Case("shapes", "the dim of size 8 of 1", is_inside=False, model=_UNNAMED,
                                            samples=_padded(sizes=(8,))),
    # Lengths and kinds of padding that the samples have.
    "no padding": _Case("masks", "no padding", is_inside=True),
    "padding on the right": _Case("masks", _RIGHT, is_inside=True),
    "as short as a sample": _Case("masks", "as few positions", is_inside=True),
    "shorter than any sample": _Case("masks", "one position", is_inside=False),
    "shorter, as roles say": _Case("masks", "one position", is_inside=True, roles=_said(shortest=1)),
    "padding on the left": _Case("masks", "padding on the left", is_inside=False),
    "padding on the left, as roles say": _Case("masks", "padding on the left", is_inside=True,
                                               roles=_said(padding=(Padding.RIGHT, Padding.LEFT))),
    "padding inside": _Case("masks", "padding inside", is_inside=False),
    "an empty row": _Case("masks", "an empty row alone", is_inside=False),
    "an empty row, as roles say": _Case("masks", "an empty row alone", is_inside=True, roles=_said(empty=True)),
    "an empty row that a sample has": _Case("masks", "an empty row alone", is_inside=True,
                                            samples=_padded(lengths=(0, 5))),
    # Every id of a table, and none outside.
    "every id of a table": _Case("ids", "ids 0 to", is_inside=True),
    "the last id of a table": _Case("ids", "the last id", is_inside=True),
    "an id below the table": _Case("ids", "the value -1", is_inside=False),
    # Values beyond, NaN and infinity.
    "twice what was seen": _Case("values", "x: 2 times what was seen", is_inside=False, model=_TABULAR,
                                 samples=_features()),
    "twice, as roles say": _Case("values", "x: 2 times what was seen", is_inside=True, model=_TABULAR,
                                 samples=_features(), roles={"x": DeclaredRole(low=-9, high=9)}),
    "infinity": _Case("values", "x: inf everywhere", is_inside=False, model=_TABULAR, samples=_features()),
    "infinity, as roles say": _Case("values", "x: inf everywhere", is_inside=True, model=_TABULAR, samples=_features(),
                                    roles={"x": DeclaredRole(infinity=True)}),
}  # fmt: skip


def _ask(desk: ProbeDesk, case: _Case) -> Asked:
    model = desk.model(case.model, _WEIGHTS if case.model != _TABULAR else {})
    return desk.ask(model, case.samples, declared=case.roles, dims=case.dims, names=[case.probe], max_rows=512)


def _found(asked: Asked, case: _Case) -> list[BatchRecord]:
    (probe,) = asked.probes.probes
    if case.probe == "shapes":
        return [batch for batch in probe.batches if batch.about == case.about]
    return [batch for batch in probe.batches if batch.about.startswith(case.about)]


@pytest.mark.parametrize("name", _CASES)
def test_what_is_inside_and_what_at_the_edge(desk: ProbeDesk, name: str) -> None:
    case = _CASES[name]

    found = _found(_ask(desk, case), case)

    assert found, "nothing of the kind is asked"
    assert {bool(batch.edges) for batch in found} == {not case.is_inside}, found
    assert all(batch.is_at_edge is not case.is_inside for batch in found)


@pytest.mark.parametrize(
    ("roles", "probe", "never"),
    [
        (_said(empty=False), "masks", "an empty row"),
        (_said(padding=(Padding.RIGHT,)), "masks", "padding on the left"),
        (_said(padding=(Padding.RIGHT,)), "masks", "padding inside"),
        (_said(shortest=2), "masks", "one position"),
        ({"ids": DeclaredRole(low=0)}, "ids", "the value -1"),
    ],
)
def test_what_roles_say_that_never_occurs_is_not_asked(
    desk: ProbeDesk, roles: dict[str, DeclaredRole], probe: str, never: str
) -> None:
    asked = _ask(desk, _Case(probe, never, is_inside=False, roles=roles))

    assert _found(asked, _Case(probe, never, is_inside=False)) == []
    # What may occur is asked all the same, and rows of several kinds beside each other with it.
    assert len(asked.probes.probes[0].batches) > 2
    if probe == "masks":
        assert _found(asked, _Case(probe, "rows with different padding in one batch", is_inside=True))


def test_values_that_never_occur_are_not_asked(desk: ProbeDesk) -> None:
    roles = {"x": DeclaredRole(low=-1, high=1, nan=False, infinity=False)}
    asked = _ask(desk, _Case("values", "", is_inside=True, model=_TABULAR, samples=_features(), roles=roles))

    (probe,) = asked.probes.probes
    (stored,) = {float(np.abs(batch.inputs["x"]).max()) <= 1 for batch in asked.probes.batches(probe)}
    assert stored
    assert any("never occur, as roles say" in item for item in [str(desk.answer(asked, desk.model(_TABULAR, {})))])


@pytest.mark.parametrize(
    ("edge", "status", "findings"), [("warn", Status.EDGE, 1), ("fail", Status.FAIL, 1), ("off", Status.PASS, 0)]
)
def test_a_difference_at_the_edge_counts_as_the_spec_says(
    desk: ProbeDesk, edge: str, status: Status, findings: int
) -> None:
    model = "(float[B, 3] x) => (float[B, 3] out) { out = Identity(x) }"
    clipped = "(float[B, 3] x) => (float[B, 3] out) { out = Clip(x, low, high) }"
    ends = {"low": np.float32(-1.5), "high": np.float32(1.5)}
    asked = desk.ask(desk.model(model, {}), _features(), names=["values"])

    (outcome,) = desk.answer(asked, desk.model(clipped, ends), edge=edge).outcomes

    assert outcome.status is status
    assert len(outcome.findings) >= findings
    assert bool(outcome.findings) is bool(findings)
    assert bool(outcome.edge_off) is (edge == "off")
    words = "unlike every sample, as edge: off says" if edge == "off" else "values of x beyond those seen"
    assert words in outcome.detail


def test_a_finding_says_what_to_write_either_way(desk: ProbeDesk) -> None:
    asked = _ask(desk, _CASES["padding on the left"])

    (probe,) = asked.probes.probes
    edges = {str(edge): edge for batch in probe.batches for edge in batch.edges}

    left = edges["padding on the left in mask"]
    assert left.if_it_occurs == "roles: {mask: {padding: [right, left]}}"
    assert left.if_it_never_occurs == "roles: {mask: {padding: right}}"
    assert edges["an empty row of mask"].if_it_never_occurs == "roles: {mask: {empty: false}}"


def test_what_is_declared_of_an_input_stays_in_what_to_write(desk: ProbeDesk) -> None:
    declared = {"mask": DeclaredRole(role=Role.MASK, of="ids", shortest=2)}
    asked = _ask(desk, replace(_CASES["an empty row"], roles=declared))

    (probe,) = asked.probes.probes
    edges = {str(edge): edge for batch in probe.batches for edge in batch.edges}

    empty = edges["an empty row of mask"]
    assert empty.if_it_occurs == "roles: {mask: {role: mask, of: ids, shortest: 2, empty: true}}"


def test_one_range_is_not_advised_where_columns_have_ranges_of_their_own(desk: ProbeDesk) -> None:
    model = desk.model("(float[B, 3] x) => (float[B, 3] out) { out = Identity(x) }", {})
    rows = np.random.default_rng(0).uniform(-1, 1, (64, 3)).astype(np.float32)
    found = {}
    for name, scales in (("alike", [1, 1, 1]), ("unlike", [1, 1, 40])):
        samples = [{"x": rows * np.asarray(scales, dtype=np.float32)}]
        asked = desk.ask(model, samples, names=["values"])
        (probe,) = asked.probes.probes
        found[name] = {
            edge.if_it_never_occurs for batch in probe.batches for edge in batch.edges if "values of x" in str(edge)
        }

    assert "" not in found["alike"]
    assert found["alike"]
    assert found["unlike"] == {""}


def test_every_id_is_asked_where_the_role_is_declared_with_its_last_id_alone(desk: ProbeDesk) -> None:
    # Nothing of the graph says that these are ids: they are computed with.
    model = desk.model("(float[N] x, int64[N] kind) => (float[N] y) {\n k = Cast<to=1>(kind)\n y = Mul(x, k)\n}", {})
    random = np.random.default_rng(3)
    samples = [{"x": random.random(8, dtype=np.float32), "kind": np.arange(8, dtype=np.int64) % 3}]

    asked = desk.ask(model, samples, declared={"kind": DeclaredRole(role=Role.ID, high=11)}, names=["ids"])

    assert (asked.context.roles["kind"].low, asked.context.roles["kind"].high) == (0, 11)
    (ids,) = (probe for probe in asked.probes.probes if probe.name == "ids")
    seen = {int(value) for batch in asked.probes.batches(ids) for value in batch.inputs["kind"]}
    assert set(range(12)) <= seen


def test_what_holds_other_values_is_no_mask_whatever_is_declared(desk: ProbeDesk) -> None:
    model = desk.model(_NAMED, _WEIGHTS)

    with pytest.raises(UsageError, match=r"input 'ids' is declared a mask, but the samples hold \d+ to \d+ in it"):
        desk.ask(model, _padded(), declared={"ids": DeclaredRole(role=Role.MASK)}, names=["masks"])


def test_a_row_of_another_size_holds_no_padding_where_its_mask_is_set(desk: ProbeDesk) -> None:
    asked = desk.ask(desk.model(_NAMED, _WEIGHTS), _padded(), names=["shapes"])

    (shapes,) = (probe for probe in asked.probes.probes if probe.name == "shapes")
    batches = [batch.inputs for batch in asked.probes.batches(shapes)]
    assert batches
    for inputs in batches:
        assert not (inputs["ids"][inputs["mask"] == 1] == 0).any()
