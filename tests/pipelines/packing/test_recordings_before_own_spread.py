"""A run whose reference was recorded before channels had a spread of their own is packed, restored and judged anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.codec import sealed
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import FORMAT_VERSION

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_NEW_IN_PROFILES = ("own_spread", "tail", "rms", "output_spread", "is_shares", "noise", "activation_floor")
_NEW_IN_NOISE = ("optimisations", "roundings")


def _made_old(folder: Path) -> str:
    """Write a recording as 0.2.0 did, with one scale for all columns, and return its digest."""
    path = folder / RECORD_FILE
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for profile in data["profiles"].values():
        for name in _NEW_IN_PROFILES:
            del profile[name]
        profile.update(axis=None)
        for name, merge in (("center", np.median), ("spread", np.max), ("max_abs", np.max)):
            profile[name] = [float(merge(profile[name]))]
    for name in _NEW_IN_NOISE:
        del data["settings"]["noise"][name]
    for kind, found in data["settings"]["noise"].items():
        if isinstance(found, dict):
            data["settings"]["noise"][kind] = {output: [max(values)] for output, values in found.items()}
    del data["digest"], data["format"]
    old = sealed(data, version=FORMAT_VERSION)
    path.write_text(json.dumps(old), encoding="utf-8")
    return str(old["digest"])


def test_it_is_packed_restored_and_judged_by_the_limits_of_today(desk: Desk) -> None:
    assert desk.call("export", "spec.yaml").code == 0
    assert desk.call("record", "--run", str(desk.run_folder)).code == 0
    digest = _made_old(desk.run_folder / "reference")
    packed = desk.call("pack", "--run", str(desk.run_folder), "--output", "old.paritygate.tar")
    assert packed.code == 0, str(packed)
    (desk.folder / "elsewhere").mkdir()
    restored = desk.call("unpack", "old.paritygate.tar", "--root", "elsewhere")
    assert restored.code == 0, str(restored)
    (run,) = (desk.folder / "elsewhere/runs/tiny").iterdir()

    called = desk.call("validate", "--run", str(run), "--verbose")

    assert called.code == 0, str(called)
    evidence = json.loads((run / "evidence.json").read_text(encoding="utf-8"))
    assert evidence["reference"]["digest"] == digest
    result = evidence["variants"][0]["result"]
    assert (result["limit_rule"], result["outputs"]["logits"]["axis"]) == (2, 1)
