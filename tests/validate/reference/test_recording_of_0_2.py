"""What 0.2.0 recorded is read, and judged by the limits of today: its channels get a spread of their own.

`of_0_2` is the recording of `y = [x0 - 2 * x1 + x2 / 2 + 0.1, (x0 + 2 * x1 + 3 * x2) / 1000]` on 40 rows.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from paritygate.errors import ArtifactIntegrityError
from paritygate.precision import Precision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.earlier_recording import load_to_judge
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording

_WRITTEN = Path(__file__).with_name("of_0_2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the recording."""
    return Path(shutil.copytree(_WRITTEN, tmp_path / "reference"))


def test_its_profiles_are_made_anew_from_its_arrays(folder: Path) -> None:
    found = load_to_judge(folder).profiles["y"]

    answers = [(batch.outputs["y"], batch.rows) for batch in Recording.load(folder).batches()]
    today = profile_outputs("y", answers, axis=1, dtype="float32")
    assert found.axis == 1
    for name in ("center", "own_spread", "tail", "rms", "max_abs"):
        assert getattr(found, name).tolist() == getattr(today, name).tolist()
    assert found.own_spread[0] > 100 * found.own_spread[1] > 0


def test_its_digest_is_the_one_that_others_name(folder: Path) -> None:
    written = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))

    assert Recording.load(folder).digest == load_to_judge(folder).digest == written["digest"]


def test_a_small_column_is_judged_by_its_own_spread(folder: Path) -> None:
    recording = load_to_judge(folder)
    limits = limits_for(DEFAULT_TOLERANCES[Precision.FP32], recording.profiles["y"])
    expected = np.concatenate([batch.outputs["y"] for batch in recording.batches()]).astype(np.float64)
    zeroed = expected * [1, 0]

    assert limits.is_within(expected, expected).all()
    within = limits.is_within(zeroed, expected)
    assert within[:, 0].all()
    assert not within[:, 1].any()


def test_without_its_arrays_it_keeps_its_profiles(folder: Path) -> None:
    written = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    (folder / "chunk-000000.safetensors").unlink()

    found = load_to_judge(folder)

    assert found.digest == written["digest"]
    assert found.profiles["y"].axis is None
    assert found.profiles["y"].spread.tolist() == written["profiles"]["y"]["spread"]
    assert found.profiles["y"].own_spread.tolist() == [0]


def test_arrays_that_were_changed_are_noticed(folder: Path) -> None:
    path = folder / "chunk-000000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    with pytest.raises(ArtifactIntegrityError):
        load_to_judge(folder)


def test_a_profile_that_was_edited_is_noticed(folder: Path) -> None:
    path = folder / RECORD_FILE
    path.write_text(path.read_text(encoding="utf-8").replace('"rows": 40', '"rows": 41', 1), encoding="utf-8")

    with pytest.raises(ArtifactIntegrityError):
        Recording.load(folder)
