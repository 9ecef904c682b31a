"""The range of ordinary values of an output, and recordings that were made before there was one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from paritygate.files import read_json
from paritygate.signature import Signature
from paritygate.validate.measure.profile import OutputProfile, profile_outputs
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording


def _profile(*batches: NDArray[np.generic]) -> OutputProfile:
    return profile_outputs("y", [(batch, len(batch)) for batch in batches], axis=None, dtype=batches[0].dtype.name)


@given(
    hnp.arrays(np.float32, (12, 3), elements=st.floats(-8, 8, width=32) | st.sampled_from([np.nan, np.inf, -np.inf])),
    st.integers(1, 11),
)
def test_it_is_that_of_the_finite_values_however_they_are_cut(values: NDArray[np.float32], cut: int) -> None:
    found = _profile(values[:cut], values[cut:])

    ordinary = values[np.isfinite(values)]
    assert found.low == (float(ordinary.min()) if ordinary.size else None)
    assert found.high == (float(ordinary.max()) if ordinary.size else None)


def test_fill_values_and_positions_that_do_not_count_are_outside_it() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    values[0, 0], values[1, 1] = np.finfo(np.float32).min, 1000.0
    mask = np.zeros(values.shape, dtype=bool)
    mask[1, 1] = True

    found = _profile(np.ma.MaskedArray(values, mask=mask))

    assert (found.low, found.high) == (1.0, 11.0)


def _recording(folder: Path, profile: OutputProfile) -> Recording:
    return Recording(
        folder=folder,
        chunks={},
        rows=4,
        samples_digest="sha256:" + "0" * 64,
        model={},
        runtime={},
        signature=Signature(inputs=(), outputs=()),
        shapes={},
        dtypes={"y": "float32"},
        profiles={"y": profile},
        health=(),
    )


def test_a_range_is_bound_by_the_digest_as_all_else_is(tmp_path: Path) -> None:
    profile = _profile(np.arange(4, dtype=np.float32).reshape(4, 1))
    recording = _recording(tmp_path, profile)
    recording.save()

    assert read_json(tmp_path / RECORD_FILE)["profiles"]["y"]["high"] == 3.0
    assert Recording.load(tmp_path).profiles["y"].low == 0.0
    assert recording.digest != _recording(tmp_path, replace(profile, high=4.0)).digest
