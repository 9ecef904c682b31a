"""What all runners do alike: check a batch, feed it by the runtime's names, name the answers, say what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.errors import BackendError, UsageError
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.runner import Runner, RuntimeFacts

_SERVED = Signature(
    inputs=(
        TensorSpec(name="x", dtype="float32", shape=("batch", 2)),
        TensorSpec(name="y", dtype="int64", shape=("batch",)),
    ),
    outputs=(
        TensorSpec(name="sum", dtype="float32", shape=("batch",)),
        TensorSpec(name="same", dtype="int64", shape=("batch",)),
    ),
)
_OWN = Signature(
    inputs=(
        TensorSpec(name="in:0", dtype="float32", shape=("batch", 2)),
        TensorSpec(name="in:1", dtype="int64", shape=("batch",)),
    ),
    outputs=_SERVED.outputs,
)
_BATCH: dict[str, NDArray[Any]] = {"y": np.array([7, 8, 9]), "x": np.ones((3, 2), np.float32)}


class _Adding(Runner):
    """Adds up its first input and returns its second, or raises what it is told to."""

    _what = "the adder failed"
    _hint = "give it less to add"

    def __init__(self, error: Exception | None = None, *, answers: int = 2) -> None:
        super().__init__(_SERVED, RuntimeFacts(runtime="adder", version="1", device="cpu"), _OWN)
        self._error = error
        self._answers = answers
        self.fed: list[str] = []

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        self.fed = list(feed)
        if self._error is not None:
            raise self._error
        return [np.asarray(feed["in:0"]).sum(axis=1), np.array(feed["in:1"])][: self._answers]


def test_a_batch_is_fed_by_the_names_of_the_runtime_in_their_order_and_answered_by_those_served() -> None:
    runner = _Adding()

    found = runner.run(_BATCH)

    assert runner.fed == ["in:0", "in:1"]
    assert {name: array.tolist() for name, array in found.items()} == {"sum": [2, 2, 2], "same": [7, 8, 9]}


def test_a_batch_that_does_not_fit_the_signature_is_never_fed() -> None:
    runner = _Adding()

    with pytest.raises(BackendError, match=r"the model expects x: float32\[batch, 2\] \(got x: float64\[3, 2\]"):
        runner.run({**_BATCH, "x": np.ones((3, 2))})

    assert runner.fed == []


def test_what_the_runtime_raises_becomes_an_error_that_says_what_it_was_given_and_what_to_do() -> None:
    with pytest.raises(BackendError) as caught:
        _Adding(IndexError("no such row\nat add.cpp:12")).run(_BATCH)

    assert str(caught.value) == "the adder failed on y: int64[3]; x: float32[3, 2]: IndexError: no such row"
    assert caught.value.hint == "give it less to add"
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_error_of_ours_is_passed_on_as_it_is() -> None:
    error = UsageError("the model returned no output 'sum'", hint="name it")

    with pytest.raises(UsageError) as caught:
        _Adding(error).run(_BATCH)

    assert caught.value is error


def test_an_answer_too_few_is_never_taken_for_another_output() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _Adding(answers=1).run(_BATCH)


def test_a_runner_that_does_not_choose_its_threads_says_so() -> None:
    assert _Adding().on_one_thread() == "its runner does not choose them"


class _Speaking(Runner):
    """Answers what it is told to, as text."""

    def __init__(self, answer: NDArray[np.generic]) -> None:
        signature = Signature(
            inputs=_SERVED.inputs, outputs=(TensorSpec(name="label", dtype="string", shape=("batch",)),)
        )
        super().__init__(signature, RuntimeFacts(runtime="speaker", version="1", device="cpu"))
        self._answer = answer

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        del feed
        return [self._answer]


def test_text_is_answered_as_an_array_of_numpys() -> None:
    found = _Speaking(np.array(["a", "강아지".encode(), ""], dtype=object)).run(_BATCH)

    assert (found["label"].dtype.kind, found["label"].tolist()) == ("U", ["a", "강아지", ""])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a\0", r"holds 'a\\x00', which is not text, or ends in a null character"),
        (1.5, r"holds 1.5, which is not text"),
        (None, r"holds None, which is not text"),
        (b"\xff", r"holds bytes that are not UTF-8: b'\\xff'"),
    ],
)
def test_what_is_no_text_is_no_answer(value: object, words: str) -> None:
    with pytest.raises(BackendError, match=rf"the output label: string\[batch\] {words}") as caught:
        _Speaking(np.array([value], dtype=object)).run(_BATCH)
    assert caught.value.hint.startswith("leave it out: outputs: {NAME: {ignore: REASON}} in the spec")
