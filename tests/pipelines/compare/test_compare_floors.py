"""`compare --min-cosine-similarity` and `--min-sqnr`: least figures of outputs, beside their limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import paritygate as pg


def _files(folder: Path, noise: float) -> tuple[str, str]:
    rng = np.random.default_rng(1)
    expected = rng.standard_normal((40, 8)).astype(np.float32)
    for name, key, array in (
        ("samples", "x", expected),
        ("reference", "embedding", expected),
        ("candidate", "embedding", expected + np.float32(noise) * rng.standard_normal((40, 8)).astype(np.float32)),
    ):
        np.savez(folder / f"{name}.npz", **{key: array})
    return str(folder / "reference.npz"), str(folder / "candidate.npz")


@pytest.mark.parametrize(("noise", "verdict"), [(1e-3, "pass"), (0.5, "fail")])
def test_rows_are_held_to_it_beside_their_limits(tmp_path: Path, noise: float, verdict: str) -> None:
    result = pg.compare(
        *_files(tmp_path, noise),
        samples=tmp_path / "samples.npz",
        tolerance={"max_abs_diff": 9, "mean_abs_diff": 9, "max_row_rel_diff": 9},
        min_cosine_similarity={"embedding": 0.999},
    )

    assert result.verdict == verdict
    assert {check.name: check.status for check in result.checks}["min_cosine_similarity"] == verdict


def test_an_output_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(pg.ParitygateError, match=r"names 'pooled', which is not a float output .*there are: embedding"):
        pg.compare(*_files(tmp_path, 0), samples=tmp_path / "samples.npz", min_cosine_similarity={"pooled": 0.9})


def test_what_is_no_cosine_similarity_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(pg.ParitygateError, match=r"min_cosine_similarity embedding=1\.5 is not a cosine similarity"):
        pg.compare(*_files(tmp_path, 0), samples=tmp_path / "samples.npz", min_cosine_similarity={"embedding": 1.5})


def _quantized(weights: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """Return weights rounded to so many bits, with one scale for all of them."""
    scale = np.abs(weights).max() / (2 ** (bits - 1) - 1)
    return (np.round(weights / scale) * scale).astype(np.float32)


@pytest.mark.parametrize(("bits", "verdict"), [(8, "pass"), (6, "fail")])
def test_weights_of_too_few_bits_fail_by_their_noise_alone(tmp_path: Path, bits: int, verdict: str) -> None:
    rng = np.random.default_rng(0)
    x, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32, 8)))
    for name, arrays in (
        ("samples", {"x": x}),
        ("reference", {"y": x @ weights}),
        ("candidate", {"y": x @ _quantized(weights, bits)}),
    ):
        np.savez(tmp_path / f"{name}.npz", **arrays)

    result = pg.compare(
        tmp_path / "reference.npz",
        tmp_path / "candidate.npz",
        samples=tmp_path / "samples.npz",
        precision="int8",
        min_sqnr={"y": 40},
    )

    assert result.verdict == verdict
    assert [check.name for check in result.checks if check.status == "fail"] == ["min_sqnr"] * (verdict == "fail")
    (check,) = (check for check in result.checks if check.name == "min_sqnr")
    assert check.measured == result.outputs["y"].sqnr_db


@pytest.mark.parametrize("least", [float("nan"), float("inf")])
def test_what_is_no_number_of_decibels_is_wrong_usage(tmp_path: Path, least: float) -> None:
    with pytest.raises(pg.ParitygateError, match="min_sqnr is wrong"):
        pg.compare(*_files(tmp_path, 0), samples=tmp_path / "samples.npz", min_sqnr={"embedding": least})
