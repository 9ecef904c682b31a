"""`compare --min-cosine-similarity`: the two answers to every row point the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
    with pytest.raises(pg.ParitygateError, match=r"min_cosine_similarity embedding=1\.5 is no cosine similarity"):
        pg.compare(*_files(tmp_path, 0), samples=tmp_path / "samples.npz", min_cosine_similarity={"embedding": 1.5})
