"""The probes of a run belong to its reference: without them, or with others, nothing is measured."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from paritygate.files import digest_of_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Desk


@pytest.fixture
def probes(desk: Desk) -> Path:
    """Return the folder of the probes of a run that was recorded."""
    spec = desk.spec(probes=["batches", "values"])
    for words in (("export", spec), ("record", "--run")):
        target = () if words[-1] == spec else (str(desk.run_folder),)
        called = desk.call(*words, *target, "--quiet")
        assert called.code == 0, str(called)
    return desk.run_folder / "reference" / "probes"


def test_probes_that_are_gone_are_an_error_and_no_warning(desk: Desk, probes: Path) -> None:
    shutil.rmtree(probes)

    called = desk.json("validate", "--run", str(desk.run_folder), "--quiet")

    (entry,) = desk.evidence()["variants"]
    assert (called.code, entry["verdict"]) == (5, "error"), str(called)
    assert entry["reason"] == f"{probes / 'probes.json'} is missing, and was recorded with the reference"


def test_other_probes_in_their_place_are_an_error(desk: Desk, probes: Path) -> None:
    path = probes / "probes.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data.pop("digest")
    data["probes"] = data["probes"][:1]
    path.write_text(json.dumps({**data, "digest": digest_of_json(data)}), encoding="utf-8")

    called = desk.json("validate", "--run", str(desk.run_folder), "--quiet")

    (entry,) = desk.evidence()["variants"]
    assert (called.code, entry["verdict"]) == (5, "error"), str(called)
    assert entry["reason"].startswith(f"{path} differs ")


def test_of_a_reference_from_before_there_were_probes_that_is_said(desk: Desk, probes: Path) -> None:
    shutil.rmtree(probes)
    record = probes.parent / "record.json"
    data = json.loads(record.read_text(encoding="utf-8"))
    data.pop("digest")
    data["settings"].pop("probes")
    record.write_text(json.dumps({**data, "digest": digest_of_json(data)}), encoding="utf-8")

    called = desk.json("validate", "--run", str(desk.run_folder), "--quiet")

    (entry,) = desk.evidence()["variants"]
    assert (called.code, entry["verdict"]) == (0, "pass"), str(called)
    assert any(check["name"] == "probes" and check["status"] == "warning" for check in entry["result"]["checks"])
