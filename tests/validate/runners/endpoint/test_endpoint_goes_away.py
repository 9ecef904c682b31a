"""A server that is killed while it is asked: what is said of it, and what is known of the comparison all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tests.validate.runners.endpoint.conftest import WEIGHTS

from paritygate.codec import from_data
from paritygate.files import read_json
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.compare.result import ComparisonResult

_ROOT = Path(__file__).resolve().parents[4]
# It answers four batches, and ends with the test if nobody kills it.
_SERVER = """
import os, signal, sys
from tests.loopback import serving
from tests.validate.runners.endpoint.conftest import Server, handler_of

told = Server(instead=lambda count: os.kill(os.getpid(), signal.SIGKILL) if count >= 4 else None)
with serving(handler_of(told)) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a server in a process of its own, which kills itself at the fifth batch."""
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the model and samples, in which commands are given."""
    monkeypatch.chdir(tmp_path)
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
            onnx.helper.make_node("Tanh", ["product"], ["logits"]),
        ],
        "tiny",
        [onnx.helper.make_tensor_value_info("x", float32, ["batch", 3])],
        [onnx.helper.make_tensor_value_info("logits", float32, ["batch", 2])],
        [onnx.numpy_helper.from_array(WEIGHTS, "weight")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), str(tmp_path / "model.onnx"))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32))
    return tmp_path


def _compare(address: str) -> tuple[str, ComparisonResult]:
    """Return what is printed, and the result."""
    asked = ["compare", "model.onnx", address, "--samples", "x.npz", "--batch-size", "8", "--json", "result.json"]
    ran = CliRunner().invoke(cli, asked, env={"COLUMNS": "300"})
    return ran.output, from_data(ComparisonResult, read_json(Path("result.json")))


@pytest.mark.usefixtures("files")
def test_a_server_that_is_killed_went_away_and_was_no_wrong_address(address: str) -> None:
    printed, _ = _compare(f"{address}/v2/models/tiny")

    error, compared, hint = [line for line in printed.splitlines() if not line.startswith("comparing")]
    # What the server and the model are was asked first.
    wanted = f"error: the server at {address} went away after 6 answers: it closed the connection without an answer"
    assert error == wanted
    assert compared == "32 rows had been compared by then, and a part gives no verdict"
    assert "logs of the server" in hint


@pytest.mark.usefixtures("files")
def test_the_result_says_what_was_known_when_it_broke_off(address: str) -> None:
    _, result = _compare(f"{address}/v2/models/tiny")

    assert (result.verdict, result.exit_code, result.rows) == ("error", 5, 32)
    assert (result.reference.kind, result.reference.runtime) == ("onnx", "onnxruntime")
    assert result.reference.digest is not None
    assert (result.candidate.kind, result.candidate.runtime) == ("endpoint", "tiny-server")


@pytest.mark.usefixtures("files")
def test_models_that_were_not_opened_have_their_kinds() -> None:
    printed, result = _compare("http://127.0.0.1:9/v2/models/tiny")

    assert "the server at http://127.0.0.1:9 does not answer: nothing takes connections there" in printed
    assert (result.reference.kind, result.candidate.kind, result.rows) == ("onnx", "endpoint", 0)
    assert result.reference.digest is not None
