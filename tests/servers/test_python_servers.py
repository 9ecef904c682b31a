"""A release on real servers written in Python, by the loaders of the page: `compare` judges what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.servers.conftest import ROWS, SERVERS, Server, golden, inputs, version_of

import paritygate as pg

pytestmark = [pytest.mark.servers, pytest.mark.thorough, pytest.mark.timeout(600)]


def judged(server: Server, tmp_path: Path) -> pg.Comparison:
    """Return what `compare` says of a server's answers, held against what NumPy computed."""
    reference = tmp_path / "golden.npz"
    np.savez(reference, **golden(0))
    return pg.compare(reference, server.address, samples=inputs(), precision="fp32")


def test_a_release_is_served_and_another_model_is_not_taken_for_it(
    *,
    name: str,
    environment: Path,
    serve: Callable[[Path], AbstractContextManager[Server]],
    release: pg.Release,
    other_release: pg.Release,
    with_other_bytes: Path,
    tmp_path: Path,
    record: Callable[[str, Mapping[str, Any]], None],
) -> None:
    with serve(release.root) as server:
        seconds = server.wait_until_ready()
        assert not server.listens_elsewhere()
        right = judged(server, tmp_path)
    right.assert_passed()
    assert right.rows == ROWS
    assert {name: output.dtype for name, output in right.outputs.items()} == {"score": "float32", "label": "int64"}
    assert {check.name: check.status for check in right.checks}["contract"] == "pass"
    assert right.outputs["label"].max_abs_diff == 0

    with serve(other_release.root) as server:
        server.wait_until_ready()
        wrong = judged(server, tmp_path)
    assert wrong.verdict == "fail"

    with serve(with_other_bytes) as server:
        server.wait_until_it_says("scores version 1 is not what was released")
        assert not server.answers()

    record(
        name,
        {
            "version": version_of(environment, SERVERS[name]),
            "loaded": f"{release.variants[0]} by ONNX Runtime {version_of(environment, 'onnxruntime')}",
            "is_described": not any("does not describe" in note for note in right.candidate.notes),
            "verdict": right.verdict,
            "rows": right.rows,
            "max_abs_diff": right.outputs["score"].max_abs_diff,
            "other_model": {
                "verdict": wrong.verdict,
                "max_abs_diff": wrong.outputs["score"].max_abs_diff,
            },
            "other_bytes": "refused",
            "seconds": seconds,
        },
    )
