"""What paritygate costs beside another version of it: the same commands with both, in CPU seconds and as a ratio.

Run it with `python benchmarks/version_cost.py OTHER/src compare distilbert gpt`, where `OTHER` is a checkout of the
other version whose dependencies are installed here. The cases are a comparison of two small ONNX files without probes,
and runs of models of `gate_cost_models.py` to two targets, without the cache and with an empty one. Both versions take
turns, and the least of each counts. CPU seconds are those of the command and of all that it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cache_cost import spent
from gate_cost import SHAPES, inference_seconds

HERE = Path(__file__).parent
TARGETS = ("onnx-fp32", "openvino-fp32")
_OWN = HERE.parent / "src"


def write_small_onnx(folder: Path) -> list[str]:
    """Write two ONNX files of three nodes and samples, and return the words of the comparison."""
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(0)
    wide, narrow = random.standard_normal((16, 32)), random.standard_normal((32, 4))
    for name, factor in (("a", 1.0), ("b", 1.0 + 1e-7)):
        weights = {"W": (wide * factor).astype(np.float32), "V": narrow.astype(np.float32)}
        nodes = [("MatMul", ["x", "W"], ["h"]), ("Relu", ["h"], ["r"]), ("MatMul", ["r", "V"], ["y"])]
        graph = helper.make_graph(
            [helper.make_node(*node) for node in nodes],
            "small",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 16])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
            [numpy_helper.from_array(array, key) for key, array in weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, str(folder / f"{name}.onnx"))
    np.savez(folder / "rows.npz", x=random.standard_normal((128, 16)).astype(np.float32))
    return ["compare", "a.onnx", "b.onnx", "--samples", "rows.npz", "--probes", "none"]


def write_spec(name: str, folder: Path) -> None:
    """Write the spec of a model to two targets, and its samples."""
    inference_seconds(name, folder)
    spec: Mapping[str, Any] = {
        "model": {"name": name, "source": f"gate_cost_models:{name}", **SHAPES[name]},
        "samples": {"source": f"{name}.npz"},
        "targets": list(TARGETS),
        "required": [],
    }
    (folder / f"{name}.yaml").write_text(json.dumps(spec), encoding="utf-8")


def commands(case: str, folder: Path) -> dict[str, list[str]]:
    """Return the commands of a case, by their names in the output."""
    if case == "compare":
        return {"compare": write_small_onnx(folder)}
    write_spec(case, folder)
    words = ["run", f"{case}.yaml", "--no-promote", "--no-benchmark"]
    return {f"{case}, no cache": [*words, "--no-cache"], f"{case}, first run with the cache": words}


def cpu_seconds(words: list[str], source: Path) -> float:
    """Return the CPU seconds of a command by the version at `source`."""
    os.environ["PYTHONPATH"] = str(source)
    with tempfile.TemporaryDirectory(prefix="paritygate-root-") as root:
        own_root = ["--root", root] if words[0] == "run" else []
        return spent([sys.executable, "-m", "paritygate", *words, *own_root])["cpu_s"]


def main() -> None:
    """Measure the cases that are named, and print a row of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="The folder src of another version.")
    parser.add_argument("cases", nargs="*", default=["compare"], help=f"compare, {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    other = arguments.other.resolve()
    # Without bytecode, the first one to run would compile the modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for source in (other, _OWN):
        os.environ["PYTHONPATH"] = str(source)
        subprocess.run([sys.executable, "-m", "paritygate", "run", "--help"], check=True, stdout=subprocess.DEVNULL)
    print(f"{'case':<36}{'other':>9}{'this':>9}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="paritygate-version-cost-") as place:
        os.chdir(place)
        for case in arguments.cases:
            for name, words in commands(case, Path(place)).items():
                turns = [[cpu_seconds(words, source) for source in (other, _OWN)] for _ in range(arguments.rounds)]
                before, now = (min(turn) for turn in zip(*turns, strict=True))
                print(f"{name:<36}{before:8.2f}s{now:8.2f}s{now / before:8.2f}", flush=True)


if __name__ == "__main__":
    main()
