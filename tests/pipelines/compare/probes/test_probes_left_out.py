"""What a release says was not asked: whatever is not known to have been."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields

from paritygate.codec import to_data
from paritygate.pipelines.compare.result import (
    ComparisonResult,
    ProbeFailureResult,
    ProbeResult,
    ProbesResult,
    SideResult,
)
from paritygate.pipelines.report.terminal.release import concessions
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry, ReferenceFacts, SamplesFacts
from paritygate.pipelines.run.probes_left_out import edge_findings, edge_not_asked, probes_not_asked
from paritygate.pipelines.run.stage import Stage
from paritygate.validate.probes.catalogue import ALL_PROBES


def _asked(*, batches: int = 1, dropped: int = 0, unfit: int = 0) -> ProbeResult:
    return ProbeResult(
        looks_for="faults", status="pass", detail="", batches=batches, rows=batches, dropped=dropped, unfit=unfit,
        unfit_first=[], failed=0, failures=[], seconds=0.0, reference_seconds=None,
    )  # fmt: skip


def _evidence(**result: Any) -> Evidence:  # noqa: ANN401 - any field of a result
    found = ComparisonResult(
        verdict="pass",
        exit_code=0,
        rows=100,
        precision="fp32",
        reference=SideResult(name="source", kind="onnx"),
        candidate=SideResult(name="onnx-fp32", kind="onnx", device="cpu"),
        samples="samples.npz",
        **result,
    )
    entry = EvidenceEntry(
        variant="onnx-fp32",
        artifact="sha256:0",
        verdict="pass",
        exit_code=0,
        evidence="verified",
        stage=Stage(name="compare onnx-fp32", reads={}, rules="rules"),
        result=found,
    )
    return Evidence(
        paritygate="0.2.0",
        model="model",
        run="run",
        device="cpu",
        machine={"cores": 4},
        samples=SamplesFacts(digest="digest of samples", rows=100),
        reference=ReferenceFacts(model={}, digest="digest of outputs", runtime={}),
        variants=(entry,),
    )


def _left_out(probes: ProbesResult) -> tuple[str, ...]:
    return probes_not_asked([_evidence(probes=probes)]).get("onnx-fp32", ())


def test_where_all_was_asked_nothing_is_left_out() -> None:
    assert _left_out(ProbesResult(asked={name: _asked(batches=0) for name in ALL_PROBES})) == ()


def test_what_asks_again_is_left_out_where_what_it_asks_was_not_recorded() -> None:
    off = [name for name in ALL_PROBES if name not in {"batches", "repeats", "concurrent"}]

    assert set(_left_out(ProbesResult(switched_off=off, not_recorded=["batches"]))) == set(ALL_PROBES)


@pytest.mark.parametrize("reason", [{"dropped": 3}, {"unfit": 2}])
def test_a_probe_of_which_no_batch_was_taken_is_left_out(reason: dict[str, int]) -> None:
    asked = {name: _asked() for name in ALL_PROBES} | {"values": _asked(batches=0, **reason)}

    assert _left_out(ProbesResult(asked=asked)) == ("values",)


def test_where_no_probe_was_asked_all_are_left_out() -> None:
    assert _left_out(ProbesResult(skipped="outputs that were recorded elsewhere")) == tuple(ALL_PROBES)


_FINDING = {
    "edge": "an empty row of mask",
    "check": "max_abs_diff",
    "detail": "0.4 > 0.0001",
    "if_it_occurs": "roles: {mask: {empty: true}}",
    "if_it_never_occurs": "roles: {mask: {empty: false}}",
}


def test_findings_of_several_devices_are_those_of_the_variant_each_once() -> None:
    words = {field.name: "" for field in fields(ProbeFailureResult) if field.required}
    one, other = (ProbeFailureResult(**{**words, "edge": edge}) for edge in ("an empty row of mask", "NaN in x"))
    documents = [_evidence(edge_findings=[one]), _evidence(edge_findings=[one, other]), _evidence()]

    assert edge_findings(documents) == {"onnx-fp32": [to_data(one), to_data(other)]}


@pytest.mark.parametrize(("edge", "names"), [("off", ("onnx-fp32",)), ("warn", ())])
def test_what_was_not_asked_at_the_edge_is_named(edge: str, names: tuple[str, ...]) -> None:
    assert edge_not_asked([_evidence(probes=ProbesResult(edge=edge))]) == names


def test_a_release_says_what_differs_at_the_edge_and_what_was_not_asked() -> None:
    provenance = {"edge_findings": {"a": [_FINDING], "c": [_FINDING]}, "edge_not_asked": ["b"]}
    manifest = {"provenance": provenance, "variants": [{"name": "a"}, {"name": "b"}]}

    not_asked, finding = concessions(manifest)

    assert not_asked == "did not run for b: generated rows unlike every sample, because of edge: off"
    assert finding == (
        "out-of-sample finding of a: an empty row of mask, unlike every sample: outputs "
        "differ: max_abs_diff: 0.4 > 0.0001; if it can occur: roles: "
        "{mask: {empty: true}}; if it never can: roles: {mask: {empty: false}}"
    )
