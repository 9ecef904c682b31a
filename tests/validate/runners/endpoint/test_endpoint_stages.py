"""The limits on requests reach the servers of a chain, and errors of a stage name what helps there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import paritygate as pg
from paritygate.errors import BackendError, UsageError
from paritygate.models.endpoint import EndpointLimits
from paritygate.pipelines.cli.app import cli
from paritygate.validate.runners.endpoint.stages import stages_of

if TYPE_CHECKING:
    from tests.validate.runners.endpoint.conftest import Server

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
_CODE = """
import os

import numpy as np

WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def halved(arrays):
    return {"x": arrays["x"] / 2}


def trained():
    return [("half", halved), ("model", lambda arrays: {"logits": np.tanh(arrays["x"] @ WEIGHTS)})]


def served():
    return [("half", halved), ("model", os.environ["TINY"])]
"""


def _half(arrays: dict[str, Any]) -> dict[str, Any]:
    return {"x": arrays["x"] / 2}


def _model(arrays: dict[str, Any], more: float = 0) -> dict[str, Any]:
    weights = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    return {"logits": np.tanh(arrays["x"] @ weights) + np.float32(more)}


_TRAINED = [("half", _half), ("model", _model)]


def _compare(server: Server, **options: Any) -> pg.Comparison:  # noqa: ANN401 - as the API takes them
    chain = [("half", _half), ("model", f"{server.url}/v1/models/tiny")]
    return pg.compare(_TRAINED, chain, samples={"x": _X}, **{"probes": "none", **options})


@pytest.mark.parametrize(("limits", "asked"), [({"requests": 3}, 2), ({"max_answer_mb": 1e-4}, 1)])
def test_a_limit_on_requests_reaches_a_stage(server: Server, limits: dict[str, float], asked: int) -> None:
    result = _compare(server, endpoint=limits)

    # One more request describes the model. Its description may exceed the size, too.
    assert len(server.asked) <= asked
    assert (result.verdict, result.exit_code) == ("error", 5), str(result)


def test_the_command_passes_limits_to_the_stages_of_your_code(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny_chain.py").write_text(_CODE, encoding="utf-8")
    np.savez(tmp_path / "x.npz", x=_X)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINY", f"{server.url}/v1/models/tiny")

    def code(candidate: str, *words: str) -> int:
        given = ("compare", "tiny_chain:trained", candidate, "--samples", "x.npz", "--probes", "none", *words)
        ran = CliRunner().invoke(cli, given, standalone_mode=False)
        return int(ran.exception.exit_code if isinstance(ran.exception, UsageError) else ran.return_value)

    assert code("tiny_chain:served", "--endpoint", "requests=900") == 0
    assert code("tiny_chain:served", "--endpoint", "requests=3") == 5
    assert code("tiny_chain:served", "--max-answer-mb", "0.0001") == 5
    assert code("tiny_chain:trained", "--endpoint", "requests=900") == 2


def test_limits_that_no_stage_needs_are_refused() -> None:
    with pytest.raises(UsageError, match="endpoint limits"):
        pg.compare(_TRAINED, [*_TRAINED], samples={"x": _X}, probes="none", endpoint={"requests": 9})


@pytest.mark.parametrize("trials", [0, 1])
def test_a_chain_of_servers_gets_trials_only_if_they_are_allowed(server: Server, trials: int) -> None:
    # No stages of the reference show where they part, so that only trials can.
    chain = [("model", f"{server.url}/v1/models/tiny")]
    limits = {"endpoint": {"trials": 1}} if trials else {}

    result = pg.compare(lambda arrays: _model(arrays, 0.5), chain, samples={"x": _X}, probes="none", **limits)

    assert result.verdict == "fail"
    assert ("not_asked" in [cause.outcome for cause in result.causes]) is not bool(trials), str(result.causes)


@pytest.mark.parametrize(
    "rows_and_answer", [(None, {"other": []}), (None, {"logits": [["a"]]}), ("rows", {"rows": []})], ids=str
)
def test_the_hint_of_a_wrong_field_names_the_mapping_in_your_code(server: Server, rows_and_answer: Any) -> None:  # noqa: ANN401 - JSON data
    rows, answer = rows_and_answer
    server.instead = lambda _: (200, json.dumps(answer).encode())
    mapping = {"request": {"inputs": {"x": "x"}}, "response": {"outputs": {"logits": "logits"}, "rows": rows}}
    (stage,) = stages_of([("model", f"{server.url}/models/tiny/predict", mapping)], EndpointLimits()) or []

    with pytest.raises(BackendError) as error:
        stage.run({"x": _X[:2]})

    assert "in your code" in error.value.hint
    assert "--endpoint-json" not in error.value.hint


def test_the_hint_of_a_body_that_is_refused_names_what_a_stage_takes(server: Server) -> None:
    server.instead = lambda _: (422, b"{}")

    assert "(name, address, mapping)" in str(_compare(server).error)
