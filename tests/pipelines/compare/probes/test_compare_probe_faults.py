"""A probe that fails by itself is an error by name, one whose rows did not suffice a warning, both in what is said."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace
from onnx import helper

from paritygate.codec import from_data
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.report.tables.probes import probe_tables
from paritygate.validate.probes.catalogue import PROBES

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench

pytestmark = pytest.mark.usefixtures("asks_probes")

_FAULTY = """
import numpy as np

def derive(context):
    yield from ()
    np.zeros(3)[7]
"""


@pytest.fixture
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # The folder of the comparison is kept where a probe failed by itself.
    monkeypatch.setattr(tempfile, "tempdir", str(bench.folder))
    return bench


def _plant(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have a probe raise what no probe may."""
    module = f"faulty_{name}"
    (bench.folder / f"{module}.py").write_text(_FAULTY, encoding="utf-8")
    monkeypatch.syspath_prepend(bench.folder)
    faulty = replace(PROBES[name], module=module)
    monkeypatch.setitem(PROBES, name, faulty)  # type: ignore[arg-type]  # the table is a dictionary


def test_a_fault_of_a_probe_is_an_error_and_leaving_the_probe_out_goes_on(
    here: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(here, monkeypatch, "values")
    sides = here.linear("a"), here.linear("b", error=1e-7)
    options = ("--samples", here.samples(64), "--probes", "batches,values,repeats")

    found = here.compare(*sides, *options)
    again = re.search(r"probe values: to leave it out: (--probes \S+)", found.out)
    assert again is not None, (found.out, found.err)
    without = here.compare(*sides, *options[:2], *shlex.split(again[1]))

    assert (found.code, found.result["verdict"]) == (5, "error"), found.out
    asked = found.result["probes"]["asked"]
    assert {name: probe["status"] for name, probe in asked.items()} == {
        "batches": "pass",
        "values": "error",
        "repeats": "pass",
    }
    assert found.check("probe_values")["status"] == "error"
    assert "IndexError" in asked["values"]["error"]
    assert "error: probe_values: the probe itself failed" in found.out
    # The samples were measured all the same.
    assert found.status("max_abs_diff", "logits") == "pass"
    assert (without.code, "values" in without.result["probes"]["switched_off"]) == (0, True), without.out


def test_the_traceback_is_in_the_log_and_the_log_is_kept(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(here, monkeypatch, "values")

    found = here.compare(here.linear("a"), here.linear("b", error=1e-7), "--samples", here.samples(64))

    (note,) = [note for note in found.result["notes"] if note.startswith("the log of the comparison is in ")]
    assert Path(note.rpartition(" ")[2]).is_dir()
    # Here, what a child would log goes to standard error.
    assert "Traceback (most recent call last)" in found.err
    assert 'faulty_values.py", line 6, in derive' in found.err


def test_what_is_asked_again_of_a_probe_that_failed_is_an_error_too(
    here: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(here, monkeypatch, "batches")
    sides = here.linear("a"), here.linear("b", error=1e-7)

    found = here.compare(*sides, "--samples", here.samples(64), "--probes", "repeats")

    assert (found.code, found.result["verdict"]) == (5, "error"), found.out
    assert found.check("probe_repeats")["words"][0] == {"key": "probe.again_failed", "values": {"name": "batches"}}


def test_rows_that_did_not_suffice_are_a_warning_in_all_that_is_said(here: Bench) -> None:
    # Features are looked at one by one, and of so many inputs they do not fit into the rows of so few samples.
    names = [f"x{at}" for at in range(4)]

    def model(name: str, error: float) -> str:
        return here.model(
            name,
            [
                helper.make_node("Sum", names, ["sum"]),
                helper.make_node("MatMul", ["sum", "weight"], ["product"]),
                helper.make_node("Add", ["product", "error"], ["logits"]),
            ],
            inputs={name: ("float", ["batch", 24]) for name in names},
            outputs={"logits": ("float", ["batch", 3])},
            weights={"weight": here.normal(24, 3, seed=7), "error": np.full(1, error, dtype=np.float32)},
        )

    samples = here.npz("wide.npz", {name: here.normal(32, 24, seed=at) for at, name in enumerate(names)})
    found = here.compare(model("a", 0), model("b", 1e-7), "--samples", samples, "--probes", "values,ids")

    probe = found.result["probes"]["asked"]["values"]
    cut = probe["dropped_by"]["no_rows_left"]
    assert (found.code, found.check("probe_values")["status"], probe["status"]) == (0, "warning", "warning"), found.out
    words = f"{cut['batches']} batches beyond the 512 rows that a probe may use"
    assert re.search(rf"warning: probe_values: [^\n]*\b{probe['rows']} rows agree ", found.out)
    assert words in found.check("probe_values")["detail"]
    assert f"{cut['batches']} batches beyond the rows that a probe may use" in found.out
    assert probe["dropped"] == sum(item["batches"] for item in probe["dropped_by"].values())
    assert "probes that do not apply: " in found.out
    assert "ids (no input with rows is an id, or is looked up in a table)" in found.out
    (table,) = [
        item
        for item in probe_tables(from_data(ComparisonResult, found.result), here.folder)
        if item.caption == "Left out"
    ]
    assert words in [row[1].text for row in table.rows]


def test_what_the_reference_refuses_is_said_and_no_warning(here: Bench) -> None:
    def model(name: str, error: float) -> str:
        nodes = [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
            helper.make_node("Add", ["mean", "error"], ["logits"]),
        ]
        shapes = {"ids": ("int64", ["batch", "length"])}, {"logits": ("float", ["batch", 3])}
        weights = {"table": here.normal(100, 3), "error": np.full(1, error, dtype=np.float32)}
        return here.model(name, nodes, inputs=shapes[0], outputs=shapes[1], weights=weights)

    samples = here.npz("ids.npz", {"ids": np.random.default_rng(0).integers(0, 20, (64, 6))})
    found = here.compare(model("a", 0), model("b", 1e-8), "--samples", samples, "--probes", "ids")

    probe = found.result["probes"]["asked"]["ids"]
    assert (found.code, probe["status"], list(probe["dropped_by"])) == (0, "pass", ["not_answered"]), found.out
    count = probe["dropped_by"]["not_answered"]["batches"]
    words = f"{count} batches that the reference refuses, or does not answer finitely and repeatably"
    assert f"probes: left out: {words}" in found.out
    assert "warning: probe_ids" not in found.out
