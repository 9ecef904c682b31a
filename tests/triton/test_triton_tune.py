"""`tune` on a real Triton: it loads other settings, answers right under load, and has its own again afterwards."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from tests.triton.conftest import _ROOT

from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.views.publish import PublishedView, publish_view
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.protobuf import data_of, text_of
from paritygate.pipelines.serving.triton.messages import config_of, parse_text
from paritygate.pipelines.serving.triton.settings import settings_of

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_EXPLICIT = ("--model-control-mode=explicit", "--load-model=perceptron")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """Return the benchmark of `tune`, with a model that is made at once."""
    monkeypatch.syspath_prepend(_ROOT / "benchmarks/triton")
    module = importlib.import_module("tune")
    monkeypatch.setattr(module, "_WIDTH", getattr(request, "param", 64))
    return module


@pytest.fixture
def published(
    tmp_path: Path, benchmark: ModuleType, servers: ModuleType, request: pytest.FixtureRequest
) -> PublishedView:
    """Release the model, and return its view, whose shadow the server runs on."""
    benchmark._release(tmp_path, getattr(request, "param", None))
    order = ViewRequest(command="triton", model="perceptron", which="prod", root=tmp_path / "models", name="perceptron")
    found = publish_view(tmp_path / "repository", order)
    servers.shadow_of(found.view, tmp_path / "models").write(Place(tmp_path / "shadow"))
    return found


def tune(tmp_path: Path, url: str, *more: str) -> tuple[int, dict[str, Any], str]:
    words = [
        *("tune", "perceptron", "--url", url, "--out", str(tmp_path / "models")),
        *("--repository", str(tmp_path / "repository"), "--samples", str(tmp_path / "inputs.npz")),
        *("--latency-budget", "1s", "--seconds", "0.5", "--callers", "16", "--instances", "1,2"),
        *("--json", str(tmp_path / "result.json"), *more),
    ]
    ran = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    return ran.return_value, json.loads((tmp_path / "result.json").read_text()), ran.output


def test_settings_are_loaded_measured_and_given_back(
    tmp_path: Path, start: Callable[..., Any], published: PublishedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Paths are shown as they are from here, and are never broken.
    monkeypatch.chdir(tmp_path)
    with start(*_EXPLICIT) as server:
        server.wait_until_ready("perceptron")
        before = server.get("/v2/models/perceptron/config")
        code, result, output = tune(tmp_path, f"http://{server.http}", "--max-batch-size", "1,16")
        after = server.get("/v2/models/perceptron/config")
        loaded = sum(event["event"] == "loaded" for event in server.done())

    assert (code, result["verdict"], result["wrong_answers"]) == (0, "pass", 0)
    assert (result["server"], result["server_version"], result["transport"]) == ("triton", "2.51.0", "HTTP with bytes")
    assert after == before
    measured = {json.dumps(point["settings"]) for point in result["points"]}
    assert len(measured) >= 3
    assert loaded >= len(measured)
    # The server counts where the time goes, and nothing that it was given for a while is left there.
    assert all(point["queue_ms"] >= 0 and point["compute_ms"] > 0 for point in result["points"])
    assert "paritygate_tune" not in json.dumps(after)
    # What the server says of its calls shows that it had the settings: of one row, each call has one.
    alone = [point for point in result["points"] if point["settings"]["max_batch_size"] == 1]
    assert alone
    assert {point["rows_per_call"] for point in alone} == {1.0}
    assert max(point["rows_per_call"] for point in result["points"]) > 1
    written = data_of(parse_text((tmp_path / "models/perceptron/config.pbtxt").read_text()))
    assert settings_of(written) == settings_of(_config_of(result["settings"]))
    assert max(map(len, output.splitlines())) <= 80
    assert published.view.name == "perceptron"


def _config_of(settings: dict[str, int]) -> dict[str, Any]:
    return {
        "max_batch_size": settings["max_batch_size"],
        "instance_group": [{"count": settings["instances"]}],
        "dynamic_batching": {"max_queue_delay_microseconds": settings["queue_delay_us"]},
    }


@pytest.mark.parametrize(("benchmark", "published"), [(1024, {"max_batch_size": 1})], indirect=True)
def test_a_server_on_the_written_folder_has_the_settings_afterwards(
    tmp_path: Path, start: Callable[..., Any], published: PublishedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server has no backend but its python backend: what is written to the view goes to the shadow as well.
    replace = Place.replace

    def both(self: Place, name: str, content: bytes) -> None:
        replace(self, name, content)
        if name.endswith("config.pbtxt"):
            shadow = tmp_path / "shadow" / name
            own = data_of(parse_text(shadow.read_text()))
            new = data_of(parse_text(content.decode()))
            config = {**new, "backend": own["backend"], "parameters": own["parameters"]}
            shadow.write_text(f"{shadow.read_text().splitlines()[0]}\n{text_of(config_of(config))}")

    monkeypatch.setattr(Place, "replace", both)
    with start(*_EXPLICIT) as server:
        server.wait_until_ready("perceptron")
        # One row a call is far from the best of a model whose weights take longest, so that something is written.
        code, result, output = tune(tmp_path, f"http://{server.http}", "--max-batch-size", "1,16")
        has = settings_of(server.get("/v2/models/perceptron/config"))

    assert (code, result["is_written"]) == (0, True)
    assert has.max_batch_size == 16
    assert has == settings_of(_config_of(result["settings"]))
    assert result["is_loaded"]
    assert "has not read" not in output
    assert published.view.name == "perceptron"


def test_without_model_control_the_server_is_measured_as_it_is(
    tmp_path: Path, start: Callable[..., Any], published: PublishedView
) -> None:
    with start() as server:
        server.wait_until_ready("perceptron")
        code, result, output = tune(tmp_path, f"http://{server.http}")

    assert code == 0
    assert "explicit model load / unload is not allowed" in " ".join(output.split())
    assert len({json.dumps(point["settings"]) for point in result["points"]}) == 1
    assert published.view.name == "perceptron"


def test_a_wrong_answer_of_a_real_server_under_load_is_found(
    tmp_path: Path, start: Callable[..., Any], published: PublishedView
) -> None:
    # As a backend that mixes up the rows of a merged call would answer: each call of one row alone is right.
    shadow = tmp_path / "shadow/perceptron/1/model.py"
    text = shadow.read_text()
    broken = text.replace(
        "            ends = np.cumsum", "            merged = [a[::-1] for a in merged]\n            ends = np.cumsum"
    )
    assert broken != text
    shadow.write_text(broken)

    with start(*_EXPLICIT) as server:
        server.wait_until_ready("perceptron")
        before = server.get("/v2/models/perceptron/config")
        code, result, _ = tune(tmp_path, f"http://{server.http}")
        after = server.get("/v2/models/perceptron/config")

    assert (code, result["verdict"]) == (1, "fail")
    assert result["wrong_answers"] > 0
    assert after == before
    assert not (tmp_path / "models/perceptron/tuned.json").exists()
    assert published.view.name == "perceptron"
