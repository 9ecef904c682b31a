"""What a release says was not asked: whatever is not known to have been."""

from __future__ import annotations

from typing import Any

import pytest

from paritygate.pipelines.run.probes_left_out import probes_not_asked
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
