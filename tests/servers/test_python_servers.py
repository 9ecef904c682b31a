"""A release on real servers written in Python, by the loaders of the page: `compare` judges what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.servers.conftest import GRPC, ROWS, SERVERS, Server, environment_of, golden, inputs, version_of

import paritygate as pg

pytestmark = [pytest.mark.servers, pytest.mark.thorough]


def judged(server: Server, name: str, tmp_path: Path) -> list[pg.Comparison]:
    """Return what `compare` says of a server's answers over each protocol, held against what NumPy computed."""
    reference = tmp_path / "golden.npz"
    np.savez(reference, **golden(0))
    addresses = [server.address, *([server.grpc] if name in GRPC else [])]
    return [pg.compare(reference, address, samples=inputs(), precision="fp32") for address in addresses]


def transport_of(found: pg.Comparison) -> str:
    """Return over what the server answered, as the comparison says it."""
    (note,) = [note for note in found.candidate.notes if "answered over" in note]
    return note.partition("answered over ")[2].partition(":")[0]


def test_a_release_is_served_and_another_model_is_not_taken_for_it(
    *,
    name: str,
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
        as_json = server.answer()
        right = judged(server, name, tmp_path)
    assert as_json is not None
    (score,) = [output for output in as_json["outputs"] if output["name"] == "score"]
    np.testing.assert_allclose(np.reshape(score["data"], score["shape"]), golden(0)["score"], rtol=0, atol=1e-5)
    for found in right:
        found.assert_passed()
        assert found.rows == ROWS
        assert {name: output.dtype for name, output in found.outputs.items()} == {"score": "float32", "label": "int64"}
        assert {check.name: check.status for check in found.checks}["contract"] == "pass"
        assert found.outputs["label"].max_abs_diff == 0

    with serve(other_release.root) as server:
        server.wait_until_ready()
        wrong = judged(server, name, tmp_path)
    assert {found.verdict for found in wrong} == {"fail"}

    with serve(with_other_bytes) as server:
        server.wait_until_it_says("scores version 1 is corrupt")
        assert server.answer() is None

    record(
        name,
        {
            "version": version_of(environment_of(name), SERVERS[name]),
            "loaded": f"{release.variants[0]} by ONNX Runtime {version_of(environment_of(name), 'onnxruntime')}",
            "protocols": list(dict.fromkeys(["HTTP with JSON", *map(transport_of, right)])),
            "is_described": not any("does not describe" in note for found in right for note in found.candidate.notes),
            "verdict": right[0].verdict,
            "rows": right[0].rows,
            "max_abs_diff": max(found.outputs["score"].max_abs_diff for found in right),
            "other_model": {
                "verdict": wrong[0].verdict,
                "max_abs_diff": min(found.outputs["score"].max_abs_diff for found in wrong),
            },
            "other_bytes": "refused",
            "seconds": seconds,
        },
    )
