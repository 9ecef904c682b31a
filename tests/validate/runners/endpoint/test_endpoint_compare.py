"""A model on a server is held against its original: right, wrong, slow, erroring, lying and vanishing servers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

import paritygate as pg
from paritygate.models.endpoint import EndpointLimits
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import parse_model
from paritygate.pipelines.compare.reproduction import command_of_probe
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.runners.endpoint.connection import Connections, HttpAnswer, HttpRequest
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from tests.validate.runners.endpoint.conftest import Server

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
_WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
_OF_FASTAPI = b'{"detail": [{"type": "missing", "loc": ["body", "features"], "msg": "Field required", "input": {}}]}'
_TOO_FEW = b'{"outputs": [{"name": "logits", "datatype": "FP32", "shape": [16, 2], "data": [1]}]}'


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"logits": np.tanh(inputs["x"] @ _WEIGHTS)}


def compare(url: str, **options: Any) -> pg.Comparison:  # noqa: ANN401 - as the API takes them
    given = {"requests_per_second": 1e5, **options.pop("endpoint", {})}
    return pg.compare(original, url, samples={"x": _X}, endpoint=given, **{"probes": ["batches"], **options})


@pytest.mark.parametrize("extensions", [[], ["binary_tensor_data"]], ids=["JSON", "bytes"])
def test_a_server_that_answers_as_the_original_passes(server: Server, extensions: list[str]) -> None:
    server.extensions = extensions

    result = compare(server.model, decisions={"logits": "argmax"})

    assert result.verdict == "pass", str(result)
    assert (result.candidate.runtime, result.candidate.version, result.candidate.kind) == (
        "tiny-server",
        "1.2",
        "endpoint",
    )
    sent_as = "bytes" if extensions else "JSON"
    assert any(f"a server answered over HTTP with {sent_as}" in note for note in result.candidate.notes)
    assert len(server.asked) > 48 / 16


def test_more_rows_than_a_server_takes_at_once_are_not_asked_by_probes(server: Server) -> None:
    server.extensions, server.largest_batch = ["model_configuration"], 16

    result = compare(server.model)

    assert result.verdict == "pass", str(result)
    assert result.probes.asked["batches"].rows
    assert "rows, and the server takes 16 at once" in result.probes.asked["batches"].unfit_first[0]


def test_samples_in_larger_batches_than_a_server_takes_are_said_with_what_helps(server: Server) -> None:
    server.extensions, server.largest_batch = ["model_configuration"], 8

    result = compare(server.model, batch_size=16, probes=[])

    assert result.verdict == "fail"
    assert "the server accepts 8 rows per request (got 16): lower --batch-size" in str(result)
    assert compare(server.model, batch_size=8, probes=[]).verdict == "pass"


@pytest.mark.parametrize(
    ("name", "version", "sent_as"),
    [
        ("kserve", "0.21.0", "bytes"),
        ("kserve", "1.0.0rc0", "bytes"),
        ("kserve", "0.13.1", "JSON"),
        ("kserve", "", "JSON"),
        ("mlserver", "1.7.1", "JSON"),
    ],
)
def test_kserve_is_sent_bytes_although_it_does_not_list_them(
    server: Server, name: str, version: str, sent_as: str
) -> None:
    server.name, server.version = name, version

    result = compare(server.model)

    assert result.verdict == "pass", str(result)
    assert any(f"a server answered over HTTP with {sent_as}" in note for note in result.candidate.notes)


def test_tensorflow_serving_is_asked_by_its_own_paths(server: Server) -> None:
    result = compare(f"{server.url}/v1/models/tiny")

    assert result.verdict == "pass", str(result)
    assert set(server.asked) == {"/v1/models/tiny:predict"}


def test_a_model_that_the_server_does_not_describe_is_seen_by_one_answer(server: Server) -> None:
    server.is_described = False

    result = compare(server.model)

    assert result.verdict == "pass", str(result)
    assert any("the server does not describe the model" in note for note in result.candidate.notes)


def _swapped(array: Any) -> Any:  # noqa: ANN401 - an array
    return array[:, ::-1].copy()


def _few_rows(array: Any) -> Any:  # noqa: ANN401 - an array
    array[-1] += 0.01
    return array


@pytest.mark.parametrize("change", [_swapped, _few_rows])
def test_a_server_that_answers_otherwise_fails(server: Server, change: Callable[[Any], Any]) -> None:
    server.instead = lambda _: change

    result = compare(server.model)

    assert (result.verdict, result.exit_code) == ("fail", 1)


def test_names_of_the_server_are_renamed(server: Server) -> None:
    result = pg.compare(
        lambda inputs: {"scores": original(inputs)["logits"]},
        server.model,
        samples={"x": _X},
        rename={"logits": "scores"},
        probes=(),
    )

    assert result.verdict == "pass", str(result)


@pytest.mark.parametrize(
    ("at", "instead", "verdict", "words"),
    [
        (0, "vanish", "error", "went away after 2 answers"),
        (2, "vanish", "error", "went away after 4 answers: it closed the connection without an answer"),
        (1, "hang", "error", "stopped answering after 3 answers: no answer within 3 s"),
        (1, (503, b"overloaded"), "error", "stopped answering after 3 answers: HTTP 503: overloaded"),
        (1, (400, b'{"error": "unexpected shape"}'), "fail", "the server answered HTTP 400: unexpected shape"),
        (1, (200, b"<html>hello</html>"), "fail", "the server returned invalid JSON: <html>hello</html>"),
        (1, (200, b'{"outputs": []}'), "fail", "the server did not answer logits (it answered: nothing)"),
        (1, (200, _TOO_FEW), "fail", "the answer of the server cannot be read"),
        (1, (302, b""), "fail", "HTTP 302"),
        (1, (422, _OF_FASTAPI), "fail", "is not as the server declares it: body.features: Field required"),
        (1, (500, b"first\nsecond\n third"), "fail", "HTTP 500: first second third\n  | first\n  | second\n  |  third"),
    ],
    ids=str,
)  # fmt: skip
def test_a_server_that_gives_no_right_answer_is_said_in_its_own_words(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at: int,
    instead: Any,  # noqa: ANN401 - what the server is told
    verdict: str,
    words: str,
) -> None:
    server.instead = lambda count: instead if count >= at else None
    exchange = Connections.exchange

    def patient(self: Connections, request: HttpRequest, *, seconds: float, most: int) -> HttpAnswer:
        # Only of the answer that never comes the time is over, however slow the machine is.
        is_right = request.method == "GET" or len(server.asked) < at
        return exchange(self, request, seconds=600 if is_right or instead != "hang" else seconds / 10, most=most)

    monkeypatch.setattr(Connections, "exchange", patient)

    result = compare(server.model, endpoint={"timeout_s": 3})

    assert (result.verdict, result.exit_code) == (verdict, {"error": 5, "fail": 1}[verdict]), str(result)
    assert words in str(result)


@pytest.mark.parametrize(("sends", "says"), [("FP64", "FP32"), ("FP32", "FP16")])
def test_a_server_that_answers_otherwise_than_it_says_of_itself_fails(server: Server, sends: str, says: str) -> None:
    server.dtype, server.datatype_said = sends, says

    result = compare(server.model)

    assert result.verdict == "fail"
    assert "describes it as logits: " in str(result)


def test_no_more_requests_are_sent_than_are_allowed(server: Server) -> None:
    result = compare(server.model, endpoint={"requests": 4})

    # Two of the four ask what the server and the model are.
    assert len(server.asked) == 2
    assert (result.verdict, result.exit_code) == ("error", 5)
    assert "4 requests were sent to http://127.0.0.1:" in str(result)


def test_nothing_listens() -> None:
    address = "http://127.0.0.1:9/v2/models/tiny"

    result = compare(address)

    assert "the server at http://127.0.0.1:9 does not answer: nothing takes connections there" in str(result)


def test_a_model_that_the_server_does_not_have(server: Server) -> None:
    result = compare(f"{server.url}/v2/models/other")

    assert f"the server at {server.url} has no model at /v2/models/other" in str(result)


def test_limits_without_a_server_are_refused() -> None:
    with pytest.raises(pg.ParitygateError, match="no model is the address of a server"):
        compare(functools.partial(original))  # type: ignore[arg-type]  # an object is not an address


def test_the_command_to_see_it_again_asks_within_the_same_limits(server: Server, tmp_path: Path) -> None:
    limits = EndpointLimits(requests=900, requests_per_second=50, timeout_s=2)
    candidate = replace(parse_model(server.model, tmp_path), endpoint_limits=limits)
    job = ComparisonJob(
        reference=replace(candidate, endpoint_limits=None),
        candidate=candidate,
        samples=SampleSource(text="x.npz", folder=tmp_path),
        rules=GateRules(tolerance=parse_tolerance(Precision.FP32, {})),
    )

    command = command_of_probe(job, "batches")

    assert command.startswith(f"convert-and-validate compare {server.model} {server.model} ")
    assert "--samples x.npz" in command
    assert "--endpoint requests=900 --endpoint requests_per_second=50 --endpoint timeout_s=2" in command
