"""Tune a model on a real Triton, beside what Model Analyzer finds: `tune.py ENVIRONMENT --out FILE`.

The model is a perceptron that takes a processor some milliseconds a row, released as any other. Model Analyzer is no
package of this project: `--model-analyzer` and `--perf-analyzer` name its programs where it is to run as well, on the
same shadow of the view, over the same instances and batch sizes, with the same limit on latency. With `--waits` the
model is a small one that waits for so long a call and a row, as if a device computed it: then other work on the
machine's processors does not decide which settings are the best.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml
from triton_server import TritonServer, free_ports, shadow_of, why_no_server

from paritygate.artifact import Artifact, file_digests
from paritygate.files import digest_of_files, read_json, write_json_atomically
from paritygate.machine import machine_facts
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.views.publish import publish_view
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.serving.place import Place
from paritygate.precision import Variant
from paritygate.signature import Dim, Signature, TensorSpec

_MODEL, _WIDTH, _LAYERS = "perceptron", 2048, 6
_WIDTH_THAT_WAITS = 64
_INPUTS, _OUTPUTS, _ROWS = 256, 16, 64
_LARGEST, _INSTANCES, _CALLERS = 16, (1, 2), 32
_TOOL = Path(sys.executable).with_name("convert-and-validate")
_DIGEST = "sha256:" + "0" * 64


def _write_model(path: Path, hidden: int) -> None:
    random, width, last = np.random.default_rng(0), _INPUTS, "x"
    nodes, weights = [], []
    for layer in range(_LAYERS):
        weight = random.standard_normal((width, hidden)).astype(np.float32) / np.float32(np.sqrt(width))
        weights.append(onnx.numpy_helper.from_array(weight, f"weight{layer}"))
        nodes.append(onnx.helper.make_node("MatMul", [last, f"weight{layer}"], [f"sum{layer}"]))
        nodes.append(onnx.helper.make_node("Tanh", [f"sum{layer}"], [f"layer{layer}"]))
        width, last = hidden, f"layer{layer}"
    weight = random.standard_normal((width, _OUTPUTS)).astype(np.float32) / np.float32(np.sqrt(width))
    weights.append(onnx.numpy_helper.from_array(weight, "weight"))
    nodes.append(onnx.helper.make_node("MatMul", [last, "weight"], ["y"]))
    tensors = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", _INPUTS), ("y", _OUTPUTS))
    ]
    graph = onnx.helper.make_graph(nodes, _MODEL, tensors[:1], tensors[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True)
    onnx.save(model, str(path))


def _release(work: Path, serve: Mapping[str, Any] | None = None, *, hidden: int | None = None) -> None:
    """Release the model into `work/repository`, to be served so; it stands for one that a run judged."""
    folder = work / "artifact"
    _write_model(folder / "model.onnx", hidden or _WIDTH)
    shapes = {"x": ("batch", _INPUTS), "y": ("batch", _OUTPUTS)}
    tensors = {name: TensorSpec(name=name, dtype="float32", shape=shape) for name, shape in shapes.items()}
    artifact = Artifact(
        variant=Variant.parse("onnx-fp32"),
        folder=folder,
        main="model.onnx",
        signature=Signature(
            inputs=(tensors["x"],),
            outputs=(tensors["y"],),
            dims={"batch": Dim(min=1, opt=8, max=_LARGEST)},
        ),
        files=file_digests(folder),
    )
    artifact.save()
    evidence = VariantEvidence(
        verdict="pass",
        artifact=digest_of_files(artifact.files),
        kind="verified",
        device="cpu",
        runtime="onnxruntime",
        devices=("cpu",),
    )
    # Without preferred sizes, with which Model Analyzer makes configurations that Triton refuses.
    own = {"triton": {"dynamic_batching": {"preferred_batch_size": None}, **(serve or {})}}
    provenance = Provenance(
        source=_DIGEST, samples=_DIGEST, reference=_DIGEST, tools={}, device={}, tolerances={}, spec={"serve": own}
    )
    variant = VariantCandidate(
        name="onnx-fp32", folder=folder, record=read_json(folder / "artifact.json"), evidence=evidence
    )
    candidate = ReleaseCandidate(
        model=_MODEL, variants=[variant], provenance=provenance, evidence={"variants": []}, alias="prod"
    )
    promote(work / "repository", candidate)
    rows = np.random.default_rng(1).standard_normal((_ROWS, _INPUTS)).astype(np.float32)
    np.savez(work / "inputs.npz", x=rows)


def _tune(place: Path, work: Path, limit_ms: float) -> Mapping[str, Any]:
    with TritonServer(
        place, work / "shadow", work, mode=["--model-control-mode=explicit", f"--load-model={_MODEL}"]
    ) as server:
        server.wait_until_ready(_MODEL)
        words = [
            *("tune", _MODEL, "--url", f"http://{server.http}", "--out", str(work / "models")),
            *("--repository", str(work / "repository"), "--samples", str(work / "inputs.npz")),
            *("--latency-budget", f"{limit_ms:g}ms", "--instances", ",".join(map(str, _INSTANCES))),
            *("--callers", str(_CALLERS), "--verbose", "--json", str(work / "tuned.json")),
        ]
        subprocess.run([_TOOL, *words], check=False)
    found: Mapping[str, Any] = read_json(work / "tuned.json")
    return found


def _analyze(place: Path, work: Path, mode: str, limit_ms: float, programs: argparse.Namespace) -> dict[str, Any]:
    """Run Model Analyzer on the same shadow, and return what it found and how often it measured."""
    server = (place / "server/pytriton/tritonserver").absolute()
    folder = work / f"analyzer-{mode}"
    folder.mkdir()
    calls = folder / "calls.txt"
    site = next(place.absolute().glob("lib/python*/site-packages"))
    start = _program(
        folder / "tritonserver",
        f"export PARITYGATE_SHADOW_PATH={site} LD_LIBRARY_PATH={sysconfig.get_config_var('LIBDIR')}",
        f'exec {server}/bin/tritonserver "$@"',
    )
    measure = _program(
        folder / "perf_analyzer",
        f'echo "$@" >> {calls}',
        f"export LD_LIBRARY_PATH={Path(programs.perf_libraries).absolute()}",
        f'exec {Path(programs.perf_analyzer).absolute()} "$@"',
    )
    ports = free_ports(3)
    settings = {
        "model_repository": str(work / "shadow"),
        "output_model_repository_path": str(folder / "models"),
        "override_output_model_repository": True,
        "checkpoint_directory": str(folder / "checkpoints"),
        "export_path": str(folder / "results"),
        "triton_launch_mode": "local",
        "triton_server_path": str(start),
        "triton_http_endpoint": f"127.0.0.1:{ports[0]}",
        "triton_grpc_endpoint": f"127.0.0.1:{ports[1]}",
        "triton_metrics_url": f"http://127.0.0.1:{ports[2]}/metrics",
        "triton_server_flags": {
            "backend-directory": str(server / "backends"),
            **{f"{kind}-address": "127.0.0.1" for kind in ("http", "grpc", "metrics")},
        },
        "perf_analyzer_path": str(measure),
        "client_protocol": "http",
        "gpus": [],
        "run_config_search_mode": mode,
        "run_config_search_max_instance_count": max(_INSTANCES),
        "run_config_search_max_model_batch_size": _LARGEST,
        "run_config_search_max_concurrency": _CALLERS,
        "profile_models": {_MODEL: {"cpu_only": True, "constraints": {"perf_latency_p99": {"max": limit_ms}}}},
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    begin = time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        words = [Path(programs.model_analyzer).absolute(), "profile", "-f", folder / "settings.yaml"]
        # It leaves files where it is called.
        code = subprocess.run(words, stdout=log, stderr=log, cwd=folder, check=False).returncode
    table = folder / "results/results/metrics-model-inference.csv"
    rows = list(csv.DictReader(table.read_text().splitlines())) if table.is_file() else []
    within = [row for row in rows if row["Satisfies Constraints"] == "Yes"]
    return {
        "exit_code": code,
        "seconds": time.monotonic() - begin,
        "measurements": len(rows),
        "calls_of_perf_analyzer": len(calls.read_text().splitlines()) if calls.is_file() else 0,
        "best": max(within, key=lambda row: float(row["Throughput (infer/sec)"]), default=None),
        "rows": rows,
    }


def _program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    path.chmod(0o755)
    return path


def main() -> int:
    """Do what is asked for, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-ms", type=float, default=100.0)
    parser.add_argument("--waits", type=float, nargs=2, metavar=("CALL_MS", "ROW_MS"), default=())
    parser.add_argument("--model-analyzer", help="The program of Model Analyzer; it does not run if not given.")
    parser.add_argument("--perf-analyzer", help="The program perf_analyzer.")
    parser.add_argument("--perf-libraries", default=".", help="A folder of the libraries that it needs.")
    parser.add_argument("--modes", nargs="*", default=["quick", "brute"])
    given = parser.parse_args()
    why = why_no_server(given.place)
    if why:
        sys.exit(why)
    with tempfile.TemporaryDirectory(prefix="paritygate-tune-") as folder:
        work = Path(folder)
        _release(work, hidden=_WIDTH_THAT_WAITS if given.waits else None)
        order = ViewRequest(command="triton", model=_MODEL, which="prod", root=work / "models", name=_MODEL)
        published = publish_view(work / "repository", order)
        shadow_of(published.view, work / "models", waits_ms=given.waits).write(Place(work / "shadow"))
        found: dict[str, Any] = {"machine": machine_facts(), "processors": os.cpu_count(), "limit_ms": given.limit_ms}
        found["waits_ms"] = list(given.waits)
        found["tune"] = _tune(given.place, work, given.limit_ms)
        if given.model_analyzer:
            found["model_analyzer"] = {
                mode: _analyze(given.place, work, mode, given.limit_ms, given) for mode in given.modes
            }
        write_json_atomically(given.out, found)
    print(json.dumps({name: _short(value) for name, value in found.items()}, indent=2))
    return 0


def _short(value: Any) -> Any:  # noqa: ANN401 - JSON data
    left_out = {"points", "rows", "machine"}
    return {k: _short(v) for k, v in value.items() if k not in left_out} if isinstance(value, dict) else value


if __name__ == "__main__":
    sys.exit(main())
