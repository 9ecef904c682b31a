"""Memory of a comparison does not grow with the number of rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

pytestmark = pytest.mark.children

_MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
_ROWS = (500, 12_000)


def _conv_net(bench: Bench, name: str, head: NDArray[np.float32]) -> str:
    import onnx

    nodes = [
        onnx.helper.make_node("Conv", ["x", "kernel"], ["maps"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["maps"], ["active"]),
        onnx.helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        onnx.helper.make_node("Flatten", ["pooled"], ["features"]),
        onnx.helper.make_node("MatMul", ["features", "head"], ["logits"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 3, 16, 16])},
        outputs={"logits": ("float", ["batch", 10])},
        weights={"kernel": bench.normal(8, 3, 3, 3, seed=1), "head": head},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak is that of Linux")
@pytest.mark.thorough
def test_the_peak_does_not_grow_with_the_rows(bench: Bench, tool: list[str]) -> None:
    head = bench.normal(8, 10, seed=2)
    reference, candidate = _conv_net(bench, "reference", head), _conv_net(bench, "candidate", head * (1 + 1e-7))
    peaks_kb, sizes_kb = [], []
    for rows in _ROWS:
        samples = bench.npz(f"{rows}.npz", {"x": bench.normal(rows, 3, 16, 16)})
        sizes_kb.append(Path(samples).stat().st_size // 1024)
        options = ["--samples", samples, "--repeat", "3", "--probes", "none", "--decision", "logits:argmax", "--quiet"]
        command = [sys.executable, "-c", _MEASURE, *tool, "compare", reference, candidate, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks_kb.append(int(done.stdout))

    # The larger file would take its whole size if it were read at once; what varies from run to run is a few MB.
    assert peaks_kb[1] - peaks_kb[0] < (sizes_kb[1] - sizes_kb[0]) // 2
