"""The stage at which two pipelines part is named, whatever comes after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.errors import BackendError, UsageError
from paritygate.validate.divergence.result import CANNOT_TELL, CONTRACT, EQUAL, LOCATED
from paritygate.validate.divergence.stages import locate_stage
from paritygate.validate.runners.endpoint.stages import Stage, stages_of

_Array = NDArray[Any]
_RANDOM = np.random.default_rng(11)
_KERNEL, _SECOND = (_RANDOM.normal(size=shape).astype(np.float32) * 0.4 for shape in ((3, 12), (12, 5)))
_TABLE, _HEAD = (_RANDOM.normal(size=shape).astype(np.float32) for shape in ((40, 6), (6, 4)))
_MEAN, _STD = (np.array(values, np.float32) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
_PICTURES = [{"picture": _RANDOM.integers(0, 256, (4, 9, 9, 3)).astype(np.uint8)} for _ in range(2)]
_TEXTS = [{"text": np.array([f"the film {at} was {word} to see again" for at in range(3)])} for word in ("good", "bad")]


def _cropped(inputs: Mapping[str, _Array], size: int = 8, first: int = 0) -> _Array:
    return inputs["picture"][:, first : first + size, first : first + size]


def _normal(picture: _Array, mean: _Array = _MEAN, std: _Array = _STD, by: float = 255) -> _Array:
    return (picture.astype(np.float32) / by - mean) / std


def _logits(picture: _Array, kernel: _Array = _KERNEL, second: _Array = _SECOND) -> _Array:
    hidden = np.maximum(picture @ kernel, 0).mean(axis=(1, 2))
    return hidden @ second


def _softmax(logits: _Array, axis: int = -1) -> _Array:
    raised = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


def _answers(scores: _Array, threshold: float = 0.3, count: int = 2) -> list[dict[str, Any]]:
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    return [
        {"classes": row.tolist(), "scores": each[row], "is_sure": bool(each.max() > threshold)}
        for row, each in zip(best, scores, strict=True)
    ]


def _pictures() -> list[Stage]:
    stages = {"crop": _cropped, "normalize": _normal, "model": _logits, "softmax": _softmax, "answer": _answers}
    return [Stage(name=name, call=call) for name, call in stages.items()]


def _tokens(inputs: Mapping[str, _Array], most: int = 6, *, is_lower: bool = True) -> list[list[int]]:
    texts = [str(text).lower() if is_lower else str(text).title() for text in inputs["text"]]
    return [[sum(map(ord, word)) % 39 + 1 for word in text.split()][:most] for text in texts]


def _padded(tokens: list[list[int]], length: int = 8, fill: int = 0, *, is_left: bool = False) -> dict[str, _Array]:
    empty = [[fill] * (length - len(row)) for row in tokens]
    rows = [pad + row if is_left else row + pad for pad, row in zip(empty, tokens, strict=True)]
    lengths = [
        [0] * len(pad) + [1] * len(row) if is_left else [1] * len(row) + [0] * len(pad)
        for pad, row in zip(empty, tokens, strict=True)
    ]
    return {"input_ids": np.array(rows), "attention_mask": np.array(lengths)}


def _pooled(inputs: Mapping[str, _Array], table: _Array = _TABLE, head: _Array = _HEAD) -> _Array:
    mask = inputs["attention_mask"][..., None]
    places = np.arange(1, mask.shape[1] + 1)[None, :, None]
    pooled = (table[inputs["input_ids"]] * mask / places).sum(axis=1) / mask.sum(axis=1)
    return (pooled @ head).astype(np.float32)


def _label(logits: _Array, names: tuple[str, ...] = ("sad", "glad", "mad", "bad")) -> dict[str, Any]:
    return {"labels": [names[at] for at in logits.argmax(axis=-1)], "scores": logits.max(axis=-1)}


def _texts() -> list[Stage]:
    stages = {"tokenize": _tokens, "pad": _padded, "model": _pooled, "scores": _softmax, "label": _label}
    return [Stage(name=name, call=call) for name, call in stages.items()]


_Call = Callable[[Any], Any]
_PICTURE_FAULTS: dict[str, tuple[str, _Call]] = {
    "crop shifted": ("crop", lambda x: _cropped(x, first=1)),
    "crop smaller": ("crop", lambda x: _cropped(x, size=7)),
    "channels reversed": ("crop", lambda x: _cropped(x)[..., ::-1]),
    "picture mirrored": ("crop", lambda x: _cropped(x)[:, :, ::-1] + 1),
    "height and width exchanged": ("crop", lambda x: _cropped(x).transpose(0, 2, 1, 3) // 2),
    "no division by 255": ("normalize", lambda x: _normal(x, by=1)),
    "division by 256": ("normalize", lambda x: _normal(x, by=256)),
    "mean left out": ("normalize", lambda x: _normal(x, mean=np.zeros(3, np.float32))),
    "spread of one channel": ("normalize", lambda x: _normal(x, std=_STD * np.float32([1, 1, 1.1]))),
    "mean in the other order": ("normalize", lambda x: _normal(x, mean=_MEAN[::-1])),
    "between -1 and 1": ("normalize", lambda x: x.astype(np.float32) / 127.5 - 1),
    "channel zero": ("model", lambda x: _logits(x, kernel=_KERNEL * np.float32([[0], [1], [1]]))),
    "kernel by 1.01": ("model", lambda x: _logits(x, second=_SECOND * np.float32(1.01))),
    "other checkpoint": ("model", lambda x: _logits(x, second=_SECOND[::-1])),
    "logits in FP16": ("model", lambda x: np.round(_logits(x), 1)),
    "softmax over the rows": ("softmax", lambda x: _softmax(x, axis=0)),
    "softmax left out": ("softmax", lambda x: x),
    "temperature": ("softmax", lambda x: _softmax(x / 2)),
    "sigmoid": ("softmax", lambda x: 1 / (1 + np.exp(-x))),
    "threshold": ("answer", lambda x: _answers(x, threshold=0.0)),
    "one class": ("answer", lambda x: _answers(x, count=1)),
    "least first": ("answer", lambda x: _answers(-x)),
}
_TEXT_FAULTS: dict[str, tuple[str, _Call]] = {
    "truncated": ("tokenize", lambda x: _tokens(x, most=4)),
    "case kept": ("tokenize", lambda x: _tokens(x, is_lower=False)),
    "special token": ("tokenize", lambda x: [[1, *row] for row in _tokens(x)]),
    "padded on the left": ("pad", lambda x: _padded(x, is_left=True)),
    "mask of ones": ("pad", lambda x: {**_padded(x), "attention_mask": np.ones((len(x), 8), int)}),
    "mask left out": ("pad", lambda x: {"input_ids": _padded(x)["input_ids"]}),
    "row of the table zero": ("model", lambda x: _pooled(x, table=_TABLE * (np.arange(40) % 7 > 0)[:, None])),
    "labels in another order": ("label", lambda x: _label(x, ("glad", "sad", "bad", "mad"))),
}
_ALL = [
    *((fault, _pictures, _PICTURES, _PICTURE_FAULTS) for fault in _PICTURE_FAULTS),
    *((fault, _texts, _TEXTS, _TEXT_FAULTS) for fault in _TEXT_FAULTS),
]


@pytest.mark.parametrize(("fault", "build", "feeds", "faults"), _ALL, ids=[each[0] for each in _ALL])
def test_the_stage_of_a_fault_is_named(
    fault: str,
    build: Callable[[], list[Stage]],
    feeds: list[dict[str, _Array]],
    faults: Mapping[str, tuple[str, _Call]],
) -> None:
    name, call = faults[fault]
    candidate = [replace(stage, call=call) if stage.name == name else stage for stage in build()]

    found = locate_stage(build(), candidate, feeds)

    assert found.outcome == LOCATED
    assert [place.candidate_nodes for place in found.located] == [(name,)]
    assert found.located[0].proven
    assert found.matched == len(candidate) - 1


def test_there_are_thirty_faults() -> None:
    assert len(_ALL) == 30


@pytest.mark.parametrize(("build", "feeds"), [(_pictures, _PICTURES), (_texts, _TEXTS)])
def test_equal_stages_are_no_difference(build: Callable[[], list[Stage]], feeds: list[dict[str, _Array]]) -> None:
    assert locate_stage(build(), build(), feeds).outcome == EQUAL


def test_each_of_two_faults_is_named() -> None:
    faults = {"normalize": _PICTURE_FAULTS["division by 256"][1], "softmax": _PICTURE_FAULTS["temperature"][1]}
    candidate = [replace(stage, call=faults.get(stage.name, stage.call)) for stage in _pictures()]

    found = locate_stage(_pictures(), candidate, _PICTURES)

    assert {place.candidate_nodes[0] for place in found.located} == set(faults)
    assert all(place.proven for place in found.located)


def test_a_difference_that_changes_no_result_is_not_blamed() -> None:
    stages = [Stage(name="scale", call=lambda x: x["x"]), Stage(name="sign", call=np.sign)]
    candidate = [replace(stages[0], call=lambda x: x["x"] * 2), stages[1]]
    feeds = [{"x": np.array([1.0, -2.0, 3.0, 4.0])}]

    assert locate_stage(stages, candidate, feeds).outcome == EQUAL


def test_what_differs_is_described() -> None:
    fault = _PICTURE_FAULTS["channels reversed"][1]
    candidate = [replace(stage, call=fault) if stage.name == "crop" else stage for stage in _pictures()]

    (place,) = locate_stage(_pictures(), candidate, _PICTURES).located
    (sentence,) = place.words[0].values["difference"]

    assert sentence["key"] if isinstance(sentence, dict) else sentence.key == "stage.reversed"


def test_other_stages_are_the_contract() -> None:
    assert locate_stage(_pictures(), _pictures()[1:], _PICTURES).outcome == CONTRACT


def test_a_stage_that_fails_is_named_and_the_references_own_is_an_error() -> None:
    def fail(_: object) -> object:
        raise RuntimeError

    failing = [replace(stage, call=fail) if stage.name == "model" else stage for stage in _pictures()]

    found = locate_stage(_pictures(), failing, _PICTURES)

    assert [place.candidate_nodes for place in found.located] == [("model",)]
    with pytest.raises(BackendError):
        locate_stage(failing, _pictures(), _PICTURES)


_THREE = [{"x": np.arange(1, 4, dtype=np.float32)}]


def _two(first: _Call, second: _Call) -> list[Stage]:
    return [Stage(name="a", call=first), Stage(name="b", call=second)]


@pytest.mark.parametrize("of", [iter, lambda x: {"parts": [(each for each in x)]}])
def test_a_stage_that_returns_an_iterator_is_refused(of: _Call) -> None:
    once = _two(lambda x: of(x["x"]), str)
    often = _two(lambda x: list(x["x"]), str)

    for sides in ((once, once), (once, often), (often, once)):
        with pytest.raises(UsageError, match="stage a"):
            locate_stage(*sides, _THREE)


class _Box:
    """A value of a class that is not known, which its stage empties."""

    def __init__(self, values: _Array) -> None:
        self.values = list(values)

    def emptied(self) -> _Array:
        return np.array([self.values.pop() for _ in range(len(self.values))])


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_values_of_unknown_classes_prove_nothing(wrong: str) -> None:
    by = {name: 2 if name == wrong else 1 for name in "ab"}
    candidate = _two(lambda x: _Box(x["x"] * by["a"]), lambda box: box.emptied() * by["b"])

    found = locate_stage(_two(lambda x: _Box(x["x"]), lambda box: box.emptied()), candidate, _THREE)

    assert [place.candidate_nodes for place in found.located] == [(wrong,)]
    assert not found.located[0].proven


@pytest.mark.parametrize("nothing", [None, [], {"scores": None}, np.zeros((0, 4))])
def test_stages_without_values_are_not_called_equal(nothing: object) -> None:
    stages = _two(lambda x: x["x"], lambda _: nothing)

    assert locate_stage(stages, stages, _THREE).outcome == CANNOT_TELL


class _Output(dict[str, Any]):
    """A dict whose items are attributes too."""

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def test_a_dict_keeps_its_class() -> None:
    right, wrong = (lambda x, by=by: _Output(logits=x["x"] * by) for by in (2, 3))

    found = locate_stage(_two(right, lambda x: x.logits + 1), _two(wrong, lambda x: x.logits + 1), _THREE)

    assert [place.candidate_nodes for place in found.located] == [("a",)]
    assert found.located[0].proven


def test_only_pairs_of_name_and_callable_are_stages() -> None:
    assert stages_of([("a", str), ("b", int)]) == [Stage(name="a", call=str), Stage(name="b", call=int)]
    assert stages_of([]) is None
    assert stages_of([("a", 3)]) is None
    assert stages_of(lambda: None) is None


@pytest.mark.torch
def test_a_stage_gets_tensors_where_its_own_stage_before_returns_them() -> None:
    import torch

    reference = [Stage(name="pre", call=lambda x: x["x"] * 2), Stage(name="model", call=lambda x: x + 1)]
    candidate = [
        Stage(name="pre", call=lambda x: torch.from_numpy(x["x"]) * 3),
        Stage(name="model", call=lambda x: torch.add(x, 1)),
    ]

    found = locate_stage(reference, candidate, [{"x": np.arange(4, dtype=np.float32)}])

    assert [place.candidate_nodes for place in found.located] == [("pre",)]
    assert found.located[0].proven
