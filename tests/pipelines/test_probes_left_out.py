"""What a release says was not asked: whatever is not known to have been."""

from __future__ import annotations

from typing import Any

import pytest

from paritygate.pipelines.cli.release_summary import concessions
from paritygate.pipelines.run.probes_left_out import edge_findings, edge_not_asked, probes_not_asked
from paritygate.validate.probes.catalogue import ALL_PROBES


def _asked(*, batches: int = 1, dropped: int = 0, unfit: int = 0) -> dict[str, int]:
    return {"batches": batches, "dropped": dropped, "unfit": unfit}


def _left_out(probes: dict[str, Any] | None) -> tuple[str, ...]:
    entry = {"variant": "onnx-fp32", "artifact": "sha256:0", "checks": [], "probes": probes}
    return probes_not_asked([{"variants": [entry]}]).get("onnx-fp32", ())


def _probes(asked: dict[str, Any], **other: list[str] | str) -> dict[str, Any]:
    return {"asked": asked, "switched_off": [], "not_recorded": [], "skipped": "", **other}


def test_where_all_was_asked_nothing_is_left_out() -> None:
    assert _left_out(_probes({name: _asked(batches=0) for name in ALL_PROBES})) == ()


def test_what_asks_again_is_left_out_where_what_it_asks_was_not_recorded() -> None:
    off = [name for name in ALL_PROBES if name not in {"batches", "repeats", "concurrent"}]

    assert set(_left_out(_probes({}, switched_off=off, not_recorded=["batches"]))) == set(ALL_PROBES)


@pytest.mark.parametrize("reason", [{"dropped": 3}, {"unfit": 2}])
def test_a_probe_of_which_no_batch_was_taken_is_left_out(reason: dict[str, int]) -> None:
    asked = {name: _asked() for name in ALL_PROBES} | {"values": _asked(batches=0, **reason)}

    assert _left_out(_probes(asked)) == ("values",)


@pytest.mark.parametrize("probes", [None, _probes({}, skipped="outputs that were recorded elsewhere")])
def test_of_evidence_without_probes_all_are_left_out(probes: dict[str, Any] | None) -> None:
    assert _left_out(probes) == tuple(ALL_PROBES)


_FINDING = {
    "edge": "an empty row of mask",
    "check": "max_abs_diff",
    "detail": "0.4 > 0.0001",
    "if_it_occurs": "roles: {mask: {empty: true}}",
    "if_it_never_occurs": "roles: {mask: {empty: false}}",
}


def _evidence(**entry: object) -> dict[str, Any]:
    return {"variants": [{"variant": "onnx-fp32", "artifact": "sha256:0", "checks": [], **entry}]}


def test_findings_of_several_devices_are_those_of_the_variant_each_once() -> None:
    other = {**_FINDING, "edge": "NaN in x"}
    documents = [_evidence(edge_findings=[_FINDING]), _evidence(edge_findings=[_FINDING, other]), _evidence()]

    assert edge_findings(documents) == {"onnx-fp32": [_FINDING, other]}


@pytest.mark.parametrize(("edge", "names"), [("off", ("onnx-fp32",)), ("warn", ()), (None, ())])
def test_what_was_not_asked_at_the_edge_is_named(edge: str | None, names: tuple[str, ...]) -> None:
    assert edge_not_asked([_evidence(probes=None if edge is None else _probes({}, edge=edge))]) == names


def test_a_release_says_what_differs_at_the_edge_and_what_was_not_asked() -> None:
    provenance = {"edge_findings": {"a": [_FINDING], "c": [_FINDING]}, "edge_not_asked": ["b"]}
    manifest = {"provenance": provenance, "variants": [{"name": "a"}, {"name": "b"}]}

    not_asked, finding = concessions(manifest)

    assert not_asked == "not asked of b: made-up rows that are unlike every sample, as edge: off says"
    assert finding == (
        "edge finding of a: an empty row of mask, as no sample has, is answered otherwise: max_abs_diff: 0.4 > 0.0001; "
        "if it can occur: roles: {mask: {empty: true}}; if it never can: roles: {mask: {empty: false}}"
    )
