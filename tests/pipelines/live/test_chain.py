"""A chain of servers is compared with the source and its own tokenizer, from raw text to the label."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.loopback import QuietHandler, serving

import paritygate as pg
from paritygate.errors import UsageError

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytest.importorskip("tokenizers")
# The source with its own tokenizer, and the chain by the addresses of its servers.
_CODE = """
import os

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = ["[PAD]", "[UNK]", "a", "film", "cafe", "good", "bad", "long", "plot", "not"]
WEIGHTS = np.random.default_rng(0).normal(size=(len(WORDS), 2)).astype(np.float32)
WEIGHTS[0] = 0
TOKENS = {
    "request": {"inputs": {"text": "texts"}},
    "response": {"outputs": {"input_ids": "ids"}, "dtypes": {"input_ids": "int64"}},
}


def tokens(texts, lower=True, accents=True, most=256):
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    steps = [normalizers.NFD(), normalizers.StripAccents()] if accents else []
    tokenizer.normalizer = normalizers.Sequence([*steps, *([normalizers.Lowercase()] if lower else [])])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(most)
    tokenizer.enable_padding()
    return np.asarray([found.ids for found in tokenizer.encode_batch([str(text) for text in texts])])


def model(arrays):
    return {"logits": WEIGHTS[arrays["input_ids"]].sum(axis=1)}


def label(arrays):
    return {"label": np.where(arrays["logits"][:, 0] > arrays["logits"][:, 1], "good", "bad"), **arrays}


def trained():
    return [("tokenize", lambda arrays: {"input_ids": tokens(arrays["text"])}), ("model", model), ("label", label)]


def served():
    url = os.environ["FILMS"]
    return [("tokenize", f"{url}/tokenize", TOKENS), ("model", f"{url}/v1/models/films"), ("label", label)]
"""
_MAPPING = {
    "request": {"inputs": {"text": "texts"}},
    "response": {"outputs": {"label": "label", "logits": "scores"}, "dtypes": {"label": "string"}},
}
_DIMS = [{"size": "-1"}, {"size": "-1"}]


@dataclass
class Films:
    """A tokenizer server, a stand-in for TensorFlow Serving, and a server of the whole chain, at one address."""

    code: ModuleType
    url: str = ""
    # Of the tokenizer, unlike the source's, and what is added to each logit.
    settings: dict[str, Any] = field(default_factory=dict)
    bias: float = 0.0

    def tokens(self, texts: list[str]) -> np.ndarray:
        found: np.ndarray = self.code.tokens(texts, **self.settings)
        return found

    def logits(self, ids: object) -> np.ndarray:
        found: np.ndarray = self.code.model({"input_ids": np.asarray(ids)})["logits"] + np.float32(self.bias)
        return found

    def answer(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        if path == "/tokenize":
            return {"ids": self.tokens(asked["texts"]).tolist()}
        if path == "/v1/models/films:predict":
            return {"outputs": self.logits(asked["inputs"]["input_ids"]).tolist()}
        found = self.code.label({"logits": self.logits(self.tokens(asked["texts"]))})
        return {"label": found["label"].tolist(), "scores": found["logits"].tolist()}


def _handler(films: Films) -> type[QuietHandler]:
    signature = {
        "inputs": {"input_ids": {"dtype": "DT_INT64", "tensor_shape": {"dim": _DIMS}}},
        "outputs": {"logits": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": _DIMS}}},
    }
    metadata = {"metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}}

    class Handler(QuietHandler):
        def get(self) -> None:
            self.send_page({"/v1/models/films/metadata": metadata})

        def post(self) -> None:
            self.send(json.dumps(films.answer(self.path, json.loads(self.body()))).encode())

    return Handler


@pytest.fixture
def films(finished: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Films]:
    """Yield the servers; the code is in the folder of a released model."""
    (finished.folder / "films.py").write_text(_CODE, encoding="utf-8")
    (finished.folder / "films.json").write_text(json.dumps(_MAPPING), encoding="utf-8")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in _texts())
    (finished.folder / "films.jsonl").write_text(rows, encoding="utf-8")
    monkeypatch.syspath_prepend(finished.folder)
    found = Films(code=importlib.import_module("films"))
    with serving(_handler(found)) as found.url:
        monkeypatch.setenv("FILMS", found.url)
        yield found


def _texts() -> list[str]:
    random = np.random.default_rng(1)
    words = ["A", "film", "café", "cafe", "Good", "bad", "long", "plot", "not", "other"]
    # Some are longer than 128 tokens, and none is longer than 256.
    lengths = [*random.integers(1, 20, size=40), *random.integers(140, 250, size=8)]
    return [" ".join(random.choice(words, size=length)) for length in lengths]


_RIGHT: dict[str, Any] = {}
# What is planted, and the stage that it belongs to.
_FAULTS = [
    pytest.param({"lower": False}, 0.0, "tokenize", id="a wrong setting of the tokenizer"),
    pytest.param({"most": 128}, 0.0, "tokenize", id="a truncation at 128 instead of 256"),
    pytest.param({"accents": False}, 0.0, "tokenize", id="another normalisation"),
    pytest.param(_RIGHT, 0.01, "model", id="another model"),
]


def _compare(films: Films, candidate: object, **options: Any) -> pg.Comparison:  # noqa: ANN401 - as compare takes them
    return pg.compare(films.code.trained(), candidate, samples={"text": np.asarray(_texts())}, probes="none", **options)


def test_a_right_chain_passes_by_its_stages_and_as_a_whole(films: Films) -> None:
    by_stages = _compare(films, films.code.served())
    whole = _compare(films, f"{films.url}/predict", endpoint_json=_MAPPING)

    assert (by_stages.verdict, by_stages.rows, by_stages.outputs["label"].mismatches) == ("pass", len(_texts()), 0)
    assert (whole.verdict, whole.rows) == ("pass", len(_texts())), str(whole)


@pytest.mark.parametrize(("settings", "bias", "stage"), _FAULTS)
def test_a_fault_fails_and_its_stage_is_named(films: Films, settings: dict[str, Any], bias: float, stage: str) -> None:
    films.settings, films.bias = settings, bias

    by_stages = _compare(films, films.code.served())
    whole = _compare(films, f"{films.url}/predict", endpoint_json=_MAPPING)

    assert (by_stages.verdict, whole.verdict) == ("fail", "fail")
    (cause,) = by_stages.causes
    assert (cause.kind, cause.outcome) == ("stages", "named")
    assert [words.values["name"] for words in cause.words if words.key == "stage.differs"] == [stage]
    # The reference's value of that stage corrects the result, and nothing else does.
    assert [words.key for words in cause.words][-1] == "cause.proven"


def test_diagnose_reads_the_same_stages(finished: Desk, films: Films) -> None:
    words = ("films:trained", "films:served", "--samples", "films.jsonl")
    right = finished.json("diagnose", *words)
    films.settings = {"most": 128}
    cut = finished.json("diagnose", *words)

    assert (right.code, right.data["outcome"]) == (0, "equal"), str(right)
    (place,) = cut.data["located"]
    assert (cut.code, place["candidate_nodes"], place["proven"]) == (1, ["tokenize"], True), str(cut)


@pytest.mark.parametrize("settings", [_RIGHT, {"most": 128}])
def test_load_judges_a_chain_by_the_answers_of_the_source(
    finished: Desk, films: Films, settings: dict[str, Any]
) -> None:
    films.settings = settings

    called = finished.json(
        *("load", f"{films.url}/predict", "--against", "tiny@prod", "--reference", "films:trained"),
        *("--samples", "films.jsonl", "--endpoint-json", "films.json"),
        *("--users", "2", "--seconds", "600", "--endpoint", "requests=96"),
    )

    data = called.data
    assert (called.code, data["served"]["reference"]) == (bool(settings), "films:trained"), str(called)
    # Eight texts are longer than 128 tokens, and each text is sent once before the load.
    assert (data["wrong"], data["answers"]) == ((8, 48) if settings else (0, 96))


def test_the_size_of_an_answer_is_limited_for_the_stages_of_the_reference(finished: Desk, films: Films) -> None:
    called = finished.json(
        *("load", f"{films.url}/predict", "--against", "tiny@prod", "--reference", "films:served"),
        *("--samples", "films.jsonl", "--endpoint-json", "films.json", "--max-answer-mb", "0.0001"),
    )

    assert called.code == 5, str(called)
    assert called.data["error"]["message"].startswith("stage ")


@pytest.mark.parametrize("mean", [0.5, 0.45])
def test_another_normalisation_of_pictures_is_named_although_its_values_are_many(mean: float) -> None:
    random = np.random.default_rng(2)
    pictures = random.integers(0, 256, size=(48, 48, 48, 3), dtype=np.uint8)
    weights = random.normal(size=(48 * 48 * 3, 2)).astype(np.float32) / 100

    def prepared(array: np.ndarray, mean: float) -> np.ndarray:
        return (array.astype(np.float32) / 255 - np.float32(mean)) / np.float32(0.5)

    def scores(arrays: dict[str, Any]) -> dict[str, Any]:
        return {"scores": arrays["pixels"].reshape(len(arrays["pixels"]), -1) @ weights}

    class Handler(QuietHandler):
        def post(self) -> None:
            asked = np.asarray(json.loads(self.body())["pictures"], dtype=np.uint8)
            # Far more bytes than the scores have.
            self.send(json.dumps({"pixels": prepared(asked, mean).tolist()}).encode())

    mapping = {"request": {"inputs": {"picture": "pictures"}}, "response": {"outputs": {"pixels": "pixels"}}}
    trained = [("normalise", lambda arrays: {"pixels": prepared(arrays["picture"], 0.5)}), ("model", scores)]
    with serving(Handler) as url:
        served = [("normalise", f"{url}/normalise", mapping), ("model", scores)]
        result = pg.compare(trained, served, samples={"picture": pictures}, probes="none")

    assert result.verdict == ("pass" if mean == 0.5 else "fail"), str(result)
    named = [words.values for cause in result.causes for words in cause.words if words.key == "stage.differs"]
    assert [values["name"] for values in named] == ([] if mean == 0.5 else ["normalise"])


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (("tokenize", "http://127.0.0.1:1/tokenize"), "stage tokenize has no address of a known protocol"),
        (("tokenize", "http://127.0.0.1:1/tokenize", {"request": {}}), "is missing"),
        (("tokenize", "tokenizer.json"), "entry 1 of the list is no stage"),
        (
            ("tokenize", lambda arrays: {"tokens": np.zeros(len(arrays["text"]))}),
            "stage model at http.*no input_ids among its inputs",
        ),
    ],
)
def test_a_stage_that_is_none_is_wrong_usage(films: Films, stage: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _compare(films, [stage, *films.code.served()[1:]])


def test_a_server_that_is_gone_is_no_fault_of_a_stage(films: Films) -> None:
    chain = films.code.served()
    # Nobody listens at this port.
    chain[1] = ("model", "http://127.0.0.1:1/v1/models/films")

    result = _compare(films, chain)

    assert (result.verdict, result.exit_code, result.rows) == ("error", 5, 0), str(result)
    assert "stage model at http://127.0.0.1:1/v1/models/films: " in str(result)


def test_a_stage_that_raises_is_named_with_its_own_inputs(films: Films) -> None:
    def label(arrays: dict[str, Any]) -> dict[str, Any]:
        return {"label": arrays["scores"]}

    result = _compare(films, [*films.code.trained()[:2], ("label", label)])

    assert (result.verdict, result.exit_code) == ("error", 5), str(result)
    assert "stage label failed on logits: float32[" in str(result)


def test_no_stage_is_named_if_the_chains_name_their_arrays_or_stages_otherwise(films: Films) -> None:
    films.bias = 0.01
    steps = films.code.trained()
    tokenize, model = steps[0][1], films.code.served()[1]
    renamed = [
        ("tokenize", lambda arrays: {"ids": tokenize(arrays)["input_ids"]}),
        ("model", lambda arrays: {"logits": films.logits(arrays["ids"])}),
        steps[2],
    ]

    by_arrays = _compare(films, renamed)
    by_stages = _compare(films, [("prepare", tokenize), model, steps[2]])

    keys = [[(cause.outcome, cause.words[0].key) for cause in each.causes] for each in (by_arrays, by_stages)]
    assert keys == [[("not_confirmed", "stage.own_names")], [("not_confirmed", "stage.other_stages")]]
