"""A server that takes raw text or pictures is held against a model of tensors, its preparation included."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tests.loopback import QuietHandler, serving

import paritygate as pg
from paritygate.errors import UsageError
from paritygate.pipelines.cli.app import cli

_WORDS = ("", "The", "the", "film", "was", "good", "bad", "not", "Very", "very", "long", "US", "us", "a", "plot")
_TABLE = np.random.default_rng(0).normal(size=(len(_WORDS), 2)).astype(np.float32)
_MAPPING = {"request": {"inputs": {"text": "texts"}}, "response": {"outputs": {"logits": "scores"}}}


def tokenised(texts: Sequence[str], most: int = 64) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of the model, padded to the longest text."""
    rows = [[_WORDS.index(word) for word in text.split()][:most] for text in texts]
    length = max(map(len, rows))
    ids = [row + [0] * (length - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
    return {"input_ids": np.asarray(ids, dtype=np.int64), "attention_mask": np.asarray(mask, dtype=np.int64)}


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    mask = inputs["attention_mask"][..., None].astype(np.float32)
    return {"logits": (_TABLE[inputs["input_ids"]] * mask).sum(axis=1)}


def write_onnx(path: Path) -> None:
    """Write the same model as an ONNX file."""
    node, value, kind = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        [
            node("Gather", ["table", "input_ids"], ["vectors"]),
            node("Cast", ["attention_mask"], ["mask"], to=kind.FLOAT),
            node("Unsqueeze", ["mask", "last"], ["column"]),
            node("Mul", ["vectors", "column"], ["kept"]),
            node("ReduceSum", ["kept", "tokens"], ["logits"], keepdims=0),
        ],
        "text",
        [value(name, kind.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")],
        [value("logits", kind.FLOAT, ["batch", 2])],
        [
            onnx.numpy_helper.from_array(_TABLE, "table"),
            onnx.numpy_helper.from_array(np.asarray([2]), "last"),
            onnx.numpy_helper.from_array(np.asarray([1]), "tokens"),
        ],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)


def texts_of(rows: int) -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(_WORDS[1:], size=int(random.integers(2, 9)))) for _ in range(rows)]


_TEXTS = texts_of(60)
_SAMPLES = {"text": np.asarray(_TEXTS), **tokenised(_TEXTS)}


@dataclass
class Server:
    """Answers a body by a function of it, at any path; describes one model by the Open Inference Protocol."""

    url: str = ""
    answer: Callable[[Any], Any] = lambda body: body
    takes: str = "text"
    bodies: list[Any] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(QuietHandler):
        def get(self) -> None:
            described = {
                "inputs": [{"name": told.takes, "datatype": "BYTES", "shape": [-1]}],
                "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
            }
            page = described if self.path == "/v2/models/films" else {"name": "films", "version": "1"}
            self.send(json.dumps(page).encode())

        def post(self) -> None:
            told.bodies.append(json.loads(self.body()))
            self.send(json.dumps(told.answer(told.bodies[-1])).encode())

    with serving(Handler) as told.url:
        yield told


def rightly(body: Any) -> Any:  # noqa: ANN401 - JSON data
    return {"scores": original(tokenised(body["texts"]))["logits"].tolist()}


def in_lower_case(body: Any) -> Any:  # noqa: ANN401 - JSON data
    texts = [" ".join(word.lower() if word.lower() in _WORDS else word for word in t.split()) for t in body["texts"]]
    return {"scores": original(tokenised(texts))["logits"].tolist()}


def cut_at_six(body: Any) -> Any:  # noqa: ANN401 - JSON data
    return {"scores": original(tokenised(body["texts"], most=6))["logits"].tolist()}


def by_protocol(body: Any) -> Any:  # noqa: ANN401 - JSON data
    (asked,) = body["inputs"]
    found = original(tokenised(asked["data"]))["logits"]
    return {
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [*found.shape], "data": found.ravel().tolist()}]
    }


def compare(url: str, reference: object = original, **options: Any) -> pg.Comparison:  # noqa: ANN401 - as it takes them
    given = {"samples": _SAMPLES, "takes": {"candidate": "text"}, "endpoint_json": _MAPPING, **options}
    return pg.compare(reference, url, endpoint={"requests_per_second": 1e5}, **given)


def test_raw_text_goes_to_the_server_and_tensors_to_the_model(server: Server) -> None:
    server.answer = rightly

    result = compare(f"{server.url}/predict")

    assert result.verdict == "pass", str(result)
    assert result.rows == len(_TEXTS)
    assert [body for body in server.bodies if set(body) != {"texts"}] == []
    assert server.bodies[0] == {"texts": _TEXTS[:16]}
    assert "the samples also hold" not in str(result)


@pytest.mark.parametrize("fault", [in_lower_case, cut_at_six])
def test_a_fault_of_the_preparation_fails(server: Server, fault: Callable[[Any], Any]) -> None:
    server.answer = fault

    result = compare(f"{server.url}/predict")

    assert (result.verdict, result.exit_code) == ("fail", 1)


def test_what_is_not_asked_is_said(server: Server) -> None:
    server.answer = rightly

    result = compare(f"{server.url}/predict")

    (check,) = (check for check in result.checks if check.name == "probes")
    assert (check.status, check.kind) == ("warning", "not_asked")
    for name in ("attention_mask", "input_ids", "text"):
        assert name in check.detail
    assert result.probes.asked == {}
    assert len(server.bodies) == 1 + len(range(0, len(_TEXTS), 16))


def test_a_server_that_describes_text_is_asked_for_it(server: Server) -> None:
    server.answer = by_protocol

    result = compare(f"{server.url}/v2/models/films", endpoint_json=None)

    assert result.verdict == "pass", str(result)
    assert server.bodies[0]["inputs"][0]["datatype"] == "BYTES"


def test_a_server_may_call_it_otherwise(server: Server) -> None:
    server.answer, server.takes = by_protocol, "TEXT"

    result = compare(f"{server.url}/v2/models/films", endpoint_json=None, rename={"TEXT": "text"})

    assert result.verdict == "pass", str(result)


def test_without_a_word_other_inputs_are_a_failure(server: Server) -> None:
    server.answer = by_protocol

    result = compare(f"{server.url}/v2/models/films", endpoint_json=None, takes=None)

    assert result.verdict == "fail"
    assert "'attention_mask'" in str(result)


def test_without_a_word_a_mapping_says_how_to_say_it(server: Server, tmp_path: Path) -> None:
    write_onnx(tmp_path / "model.onnx")

    with pytest.raises(UsageError, match="the mapping has the input 'text', which the other model does not") as found:
        compare(f"{server.url}/predict", tmp_path / "model.onnx", takes=None)

    assert "--takes SIDE=text" in str(found.value.hint)


def test_the_server_may_be_what_is_right(server: Server) -> None:
    server.answer = rightly
    options: dict[str, Any] = {"takes": {"reference": "text"}, "endpoint_json": _MAPPING, "samples": _SAMPLES}

    def truncating(inputs: dict[str, Any]) -> dict[str, Any]:
        return original({name: array[:, :6] for name, array in inputs.items()})

    assert pg.compare(f"{server.url}/predict", original, **options).verdict == "pass"
    assert pg.compare(f"{server.url}/predict", truncating, **options).verdict == "fail"


def test_a_column_that_nobody_takes_is_named(server: Server, tmp_path: Path) -> None:
    server.answer = rightly
    write_onnx(tmp_path / "model.onnx")
    samples = {**_SAMPLES, "language": np.asarray(["en"] * len(_TEXTS))}

    result = compare(f"{server.url}/predict", tmp_path / "model.onnx", samples=samples)

    assert result.verdict == "pass"
    assert any("the samples also hold 'language', which is not an input" in note for note in result.notes)


@pytest.mark.parametrize(
    ("takes", "said"),
    [
        ({"candidate": "txt"}, "the samples have no 'txt', which --takes names"),
        ({"candidate": "input_ids"}, "the mapping has the input 'text', which --takes does not name"),
        ({"candidate": "text", "reference": "text"}, "lists text for the reference, but its inputs are attention_mask"),
        ({"candidate": "text,input_ids"}, "lists text, input_ids for the candidate, but its inputs are text"),
        ({"server": "text"}, "--takes names 'server', which is not a side of the comparison"),
        ({"candidate": "text,"}, "names an input without a name"),
        ({"candidate": 7}, "takes holds 'candidate': 7"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    server: Server, tmp_path: Path, takes: dict[str, Any], said: str
) -> None:
    server.answer = rightly
    write_onnx(tmp_path / "model.onnx")

    with pytest.raises(UsageError) as found:
        compare(f"{server.url}/predict", tmp_path / "model.onnx", takes=takes)

    assert said in str(found.value)


@pytest.mark.parametrize("takes", ["input_ids,attention_mask", "input_ids"])
def test_a_side_that_takes_nothing_of_its_own_is_judged_by_what_it_takes(takes: str) -> None:
    def converted(inputs: dict[str, Any]) -> dict[str, Any]:
        return original({"attention_mask": (inputs["input_ids"] != 0).astype(np.int64), **inputs})

    sides = {"reference": "input_ids,attention_mask", "candidate": takes}
    with pytest.raises(
        UsageError, match="for sides that each take inputs that the other lacks, but the reference takes"
    ):
        pg.compare(original, converted, samples=tokenised(_TEXTS), takes=sides)


def test_recorded_outputs_take_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "outputs.npz", **original(_SAMPLES))

    with pytest.raises(UsageError, match="is recorded outputs, which have no inputs"):
        pg.compare(tmp_path / "outputs.npz", original, samples=_SAMPLES, takes={"reference": "text"})


_CLIENT = """
import json
import urllib.request

import numpy as np


def ask(arrays):
    body = json.dumps({"texts": arrays["text"].tolist()}).encode()
    with urllib.request.urlopen(urllib.request.Request("URL", body)) as answer:
        return {"logits": np.asarray(json.load(answer)["scores"], dtype=np.float32)}
"""


@pytest.mark.children
@pytest.mark.parametrize(("answer", "code"), [(rightly, 0), (cut_at_six, 1)])
def test_the_command_asks_a_client_of_the_users(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Any], code: int
) -> None:
    server.answer = answer
    monkeypatch.chdir(tmp_path)
    write_onnx(tmp_path / "model.onnx")
    (tmp_path / "client.py").write_text(_CLIENT.replace("URL", f"{server.url}/predict"))
    rows = [{"text": text, **{name: array[0].tolist() for name, array in tokenised([text]).items()}} for text in _TEXTS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["compare", "model.onnx", "client:ask", "--samples", "rows.jsonl", "--takes", "candidate=text"]

    pads = [word for name in ("input_ids", "attention_mask") for word in ("--pad", f"{name}=0")]
    ran = CliRunner().invoke(cli, [*words, *pads], standalone_mode=False)

    assert ran.exception is None
    assert ran.return_value == code, ran.output
    assert all(set(body) == {"texts"} for body in server.bodies)


def test_encoded_pictures_go_to_the_server_and_pixels_to_the_model(server: Server) -> None:
    Image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")  # noqa: N806 - a module
    random = np.random.default_rng(2)
    weights = random.normal(size=(3 * 4 * 4, 2)).astype(np.float32) / 10
    coded = []
    for _ in range(40):
        stream = io.BytesIO()
        Image.fromarray(random.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)).save(stream, "PNG")
        coded.append(base64.b64encode(stream.getvalue()).decode())

    def pixels(pictures: Sequence[str], order: int = 1) -> np.ndarray[Any, Any]:
        opened = [Image.open(io.BytesIO(base64.b64decode(picture))).resize((4, 4)) for picture in pictures]
        found = np.stack([np.asarray(picture) for picture in opened]).astype(np.float32) / 255
        return found[..., ::order].transpose(0, 3, 1, 2)

    def model(inputs: dict[str, Any]) -> dict[str, Any]:
        values = inputs["pixel_values"]
        return {"logits": values.reshape(len(values), -1) @ weights}

    def answering(order: int) -> Callable[[Any], Any]:
        def answer(body: Any) -> Any:  # noqa: ANN401 - JSON data
            read = pixels([item["image"]["b64"] for item in body["instances"]], order)
            return {"predictions": [{"scores": row} for row in model({"pixel_values": read})["logits"].tolist()]}

        return answer

    mapping = {
        "request": {"rows": "instances", "inputs": {"picture": "image.b64"}},
        "response": {"rows": "predictions", "outputs": {"logits": "scores"}},
    }
    verdicts = []
    for order in (1, -1):
        server.answer = answering(order)
        samples = {"picture": np.asarray(coded), "pixel_values": pixels(coded)}
        options: dict[str, Any] = {"samples": samples, "takes": {"candidate": "picture"}, "endpoint_json": mapping}
        verdicts.append(pg.compare(model, f"{server.url}/predict", **options).verdict)

    # With red and blue exchanged it fails.
    assert verdicts == ["pass", "fail"]
