"""A server of one's own that answers JSON is compared by a mapping, in the forms that such servers have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.loopback import QuietHandler, serving

import paritygate as pg
from paritygate.errors import InputFileError, UsageError
from paritygate.models.json_mapping import json_mapping_of, read_json_mapping
from paritygate.pipelines.cli.app import cli

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
_WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    logits = np.tanh(inputs["x"] @ _WEIGHTS)
    return {"logits": logits, "label": logits.argmax(axis=1)}


@dataclass
class Server:
    """Answers a body by a function of it."""

    url: str = ""
    answer: Callable[[Any], Any] = lambda body: body
    bodies: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(QuietHandler):
        def post(self) -> None:
            told.paths.append(self.path)
            told.bodies.append(json.loads(self.body()))
            self.send(json.dumps(told.answer(told.bodies[-1])).encode())

    with serving(Handler) as url:
        told.url = f"{url}/predict"
        yield told


def both(values: Any) -> tuple[Any, Any]:  # noqa: ANN401 - JSON data
    found = original({"x": np.asarray(values, dtype=np.float32)})
    return found["logits"].tolist(), found["label"].tolist()


def columns(body: Any) -> Any:  # noqa: ANN401 - JSON data
    logits, label = both(body["data"]["features"])
    return {"result": {"scores": logits, "class": label}}


COLUMNS = {
    "request": {"inputs": {"x": "data.features"}, "constants": {"data.version": 2, "user": "gate"}},
    "response": {"outputs": {"logits": "result.scores", "label": "result.class"}, "dtypes": {"label": "int64"}},
}


def rows(body: Any) -> Any:  # noqa: ANN401 - JSON data
    logits, label = both([row["x"] for row in body["instances"]])
    return {"predictions": [{"scores": one, "class": other} for one, other in zip(logits, label, strict=True)]}


ROWS = {
    "request": {"inputs": {"x": "x"}, "rows": "instances"},
    "response": {
        "outputs": {"logits": "scores", "label": "class"},
        "rows": "predictions",
        "dtypes": {"label": "int64"},
    },
}


def compare(server: Server, mapping: Any, **options: Any) -> pg.Comparison:  # noqa: ANN401 - as the API takes them
    return pg.compare(
        original,
        server.url,
        samples={"x": _X},
        endpoint={"requests_per_second": 1e5},
        endpoint_json=mapping,
        **{"probes": ["batches"], **options},
    )


@pytest.mark.parametrize(("mapping", "answer"), [(COLUMNS, columns), (ROWS, rows)], ids=["columns", "rows"])
def test_a_server_that_answers_as_the_original_passes(server: Server, mapping: Any, answer: Any) -> None:  # noqa: ANN401
    server.answer = answer

    result = compare(server, mapping)

    assert result.verdict == "pass", str(result)
    assert set(server.paths) == {"/predict"}
    assert any("HTTP with JSON by a mapping" in note for note in result.candidate.notes)


def test_what_is_sent_is_what_the_mapping_says(server: Server) -> None:
    server.answer = columns

    compare(server, COLUMNS, probes="none")

    first = server.bodies[0]
    assert {**first, "data": {**first["data"], "features": ...}} == {
        "data": {"features": ..., "version": 2},
        "user": "gate",
    }
    np.testing.assert_array_equal(np.asarray(first["data"]["features"], dtype=np.float32), _X[:16])


def test_bare_lists_are_bodies(server: Server) -> None:
    server.answer = lambda body: both(body)[0]
    mapping = {"request": {"inputs": {"x": "."}}, "response": {"outputs": {"logits": "."}}}

    assert compare(server, mapping, outputs=["logits"]).verdict == "pass"


def test_a_wrong_answer_fails(server: Server) -> None:
    def wrong(body: Any) -> Any:  # noqa: ANN401 - JSON data
        found = columns(body)
        found["result"]["scores"][0][0] += 0.01
        return found

    server.answer = wrong

    assert compare(server, COLUMNS).verdict == "fail"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "no field 'result.scores'"),
        ({"result": 3}, "no field 'result.scores'"),
        ({"result": {"scores": [["a", "b"]], "class": [0]}}, "not a value of float32"),
        ({"result": {"scores": [[1.0], [1.0, 2.0]], "class": [0]}}, "not lists of one length"),
        ({"result": {"scores": [[1.0, None]], "class": [0]}}, "not a value of float32"),
        ({"result": {"scores": [[True, False]], "class": [0]}}, "not a value of float32"),
        ({"result": {"scores": [[0.0, 0.0]], "class": [0.5]}}, "not a value of int64"),
    ],
)
def test_an_answer_that_is_not_as_the_mapping_says_is_named(server: Server, answer: Any, said: str) -> None:  # noqa: ANN401
    server.answer = lambda _: answer

    result = compare(server, COLUMNS)

    assert result.verdict in {"fail", "error"}
    assert said in str(result)


def test_another_number_of_rows_is_named(server: Server) -> None:
    server.answer = lambda body: {"predictions": rows(body)["predictions"][1:]}

    result = compare(server, ROWS)

    assert result.verdict in {"fail", "error"}
    assert "answered a list of 15 in 'predictions' to 16 rows" in str(result)


def test_an_input_of_the_mapping_that_nobody_has_is_wrong_usage(server: Server) -> None:
    mapping = {**COLUMNS, "request": {"inputs": {"y": "data"}}}

    with pytest.raises(UsageError, match="the mapping has the input 'y', which the other model does not take"):
        compare(server, mapping)


def test_the_command_reads_the_mapping_from_a_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = columns
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mapping.yaml").write_text(json.dumps(COLUMNS))
    found = original({"x": _X})
    np.savez(tmp_path / "inputs.npz", x=_X)
    np.savez(tmp_path / "outputs.npz", **found)
    words = ["compare", "outputs.npz", server.url, "--samples", "inputs.npz", "--probes", "none"]

    ran = CliRunner().invoke(cli, [*words, "--endpoint-json", "mapping.yaml"], standalone_mode=False)

    assert ran.exception is None
    assert ran.return_value == 0, ran.output
    with pytest.raises(UsageError, match="any other http:// with --endpoint-json"):
        CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    words[2] = "outputs.npz"
    with pytest.raises(UsageError, match="no model is the address of a server without a known protocol"):
        CliRunner().invoke(
            cli, [*words, "--endpoint-json", "mapping.yaml"], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "the mapping is missing"),
        ([], "not a mapping"),
        ({"request": {"inputs": {"x": "x"}}}, "response of the mapping is missing"),
        ({**COLUMNS, "requests": {}}, "has the key 'requests'"),
        ({**COLUMNS, "request": {"inputs": {}}}, "names nothing"),
        ({**COLUMNS, "request": {"inputs": {"x": "a..b"}}}, "not a field"),
        ({**COLUMNS, "request": {"inputs": {"x": 3}}}, "not a field"),
        ({**COLUMNS, "request": {"inputs": {"x": "a"}, "constants": {"a": 1}}}, "into one place"),
        ({**COLUMNS, "request": {"inputs": {"x": "a.b", "z": "a"}}}, "into one place"),
        ({**COLUMNS, "request": {"inputs": {"x": ".", "z": "a"}}}, "into one place"),
        ({**ROWS, "request": {"inputs": {"x": "x"}, "rows": "a", "constants": {"a": 1}}}, "into one place"),
        ({**COLUMNS, "response": {"outputs": {"y": "y"}, "dtypes": {"y": "float33"}}}, "says y: float33"),
        ({**COLUMNS, "response": {"outputs": {"y": "y"}, "dtypes": {"z": "int64"}}}, "says z: int64"),
    ],
)
def test_a_mapping_that_is_none_is_refused(data: Any, said: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(UsageError, match=said):
        json_mapping_of(data)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for content in (None, "a: [", "\0"):
        path = tmp_path / "mapping.yaml"
        if content is not None:
            path.write_text(content)
        with pytest.raises(InputFileError, match=r"mapping\.yaml cannot be read"):
            read_json_mapping(path)


def test_a_mapping_that_is_not_there_says_what_such_a_file_holds(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        read_json_mapping(tmp_path / "mapping.yaml")

    assert str(caught.value) == f"the mapping {tmp_path}/mapping.yaml cannot be read: No such file or directory"
    assert "{request: {inputs: {x: features}}, response: {outputs: {logits: scores}}}" in caught.value.hint
    assert caught.value.hint.endswith("(docs/endpoints.md)")
