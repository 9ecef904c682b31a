"""The noise of a reference without graph optimisations, and on inputs that are a rounding away, by channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import from_data
from paritygate.models.loading import LoadedModel
from paritygate.models.source import parse_source
from paritygate.precision import Precision
from paritygate.validate.measure.limits import floor_of_bulk, limits_for
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.noise_floor import NoiseFloor
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recording import Recording
from paritygate.validate.reference.rerun import moved_by_rounding
from paritygate.validate.runners.opening import open_runner

_ROWS = 64


def _record(folder: Path, body: str, x: NDArray[np.float32], **weights: NDArray[np.float32]) -> Recording:
    shape = ", ".join(map(str, x.shape[1:]))
    text = (
        f'<ir_version: 9, opset_import: ["" : 17]> model (float[batch, {shape}] x) => (float[batch, n] y) {{ {body} }}'
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "model.onnx")
    runner = open_runner(LoadedModel(ref=parse_source("model.onnx", folder)))

    def read() -> Iterator[Batch]:
        for at in range(0, len(x), 16):
            yield Batch(inputs={"x": x[at : at + 16]}, ids=[str(row) for row in range(at, at + 16)])

    (folder / "reference").mkdir()
    return record_reference(runner, read, RecordPlan(folder=folder / "reference", model={"name": "m"}, axes={}))


def _noise(recording: Recording) -> NoiseFloor:
    return from_data(NoiseFloor, recording.settings["noise"])


def test_a_column_that_subtracts_large_numbers_has_the_noise_of_its_inputs(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((_ROWS, 2)).astype(np.float32)
    x[:, 0] += 10_000

    recording = _record(tmp_path, "y = Sub(x, c)", x, c=np.array([10_000, 0], np.float32))

    noise, step = recording.profiles["y"].noise, float(np.spacing(np.float32(10_000)))
    assert noise[0] == pytest.approx(step)
    assert noise[1] < 1e-6
    assert _noise(recording).roundings["y"].tolist() == noise.tolist()
    profile, tolerance = recording.profiles["y"], DEFAULT_TOLERANCES[Precision.FP32]
    # Twice the noise, up to ten limits.
    assert floor_of_bulk(tolerance, profile)[0] == pytest.approx(min(2 * step, 1e-3 * profile.scale[0]))
    limits = limits_for(tolerance, profile)
    expected = np.zeros((1, 2))
    assert limits.is_within(np.array([[step, 0]]), expected).all()
    assert not limits.is_within(np.array([[0, step]]), expected).all()


def test_single_rows_that_jump_are_no_noise_of_the_others(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(0.1, 0.9, (_ROWS, 1)).astype(np.float32)
    # A rounding below 1, and above it, are two whole numbers.
    x[:3] = 1

    recording = _record(tmp_path, "f = Floor(x) y = Add(f, x)", x)

    assert recording.profiles["y"].noise.max() < 1e-6


def test_what_graph_optimisations_round_otherwise_is_noise(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((_ROWS, 8, 1, 1)).astype(np.float32)

    recording = _record(
        tmp_path,
        "c = Conv(x, w) s = Mul(c, factor) y = Flatten(s)",
        x,
        w=random.standard_normal((3, 8, 1, 1)).astype(np.float32),
        factor=np.full((1, 3, 1, 1), 1 / 3, np.float32),
    )

    # The factor becomes a part of the weights.
    found = _noise(recording).optimisations["y"]
    assert (found > 0).any()
    assert (found < 1e-5).all()
    assert (recording.profiles["y"].noise >= found).all()


def test_each_float_is_moved_to_a_neighbour_and_nothing_else() -> None:
    x = np.array([[1.0, np.nan, 0.0], [-np.inf, 1e30, -2.0]], np.float32)
    ids = np.array([[1, 2]])

    moved = moved_by_rounding({"x": x, "ids": ids})

    assert moved is not None
    assert moved["ids"] is ids
    finite = np.isfinite(x)
    ulps = np.abs(moved["x"][finite].view(np.int32).astype(np.int64) - x[finite].view(np.int32).astype(np.int64))
    assert set(ulps[x[finite] != 0].tolist()) == {1}
    assert np.array_equal(moved["x"][~finite], x[~finite], equal_nan=True)
    assert moved_by_rounding({"ids": ids}) is None
