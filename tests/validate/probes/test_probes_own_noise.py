"""Where the reference answers a row otherwise alone than in a batch, a candidate is held to that, and to no less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.validate.probes.skip_reasons import DropKind

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.validate.probes.conftest import Answered, ProbeDesk

_RANDOM = np.random.default_rng(11)
# Adds a little to every row where the batch is odd, which is what noise looks like.
_NOISY = """(float[B, 3] x) => (float[B, 3] out) {
  plain = Tanh(x)
  shape = Shape<start=0, end=1>(x)
  rest = Mod(shape, two)
  some = Cast<to=1>(rest)
  more = Mul(some, noise)
  out = Add(plain, more)
}"""
# Adds 1 where the batch is odd, and next to nothing but for zeros, to which there is no answer of their own then.
_OF_ZEROS = """(float[B, 3] x) => (float[B, 3] out) {
  plain = Tanh(x)
  shape = Shape<start=0, end=1>(x)
  rest = Mod(shape, two)
  some = Cast<to=1>(rest)
  size = Abs(x)
  far = Mul(size, steep)
  near = Exp(far)
  more = Mul(some, near)
  out = Add(plain, more)
}"""
_ALWAYS = """(float[B, 3] x) => (float[B, 3] out) { plain = Tanh(x) out = Add(plain, noise) }"""


def _samples() -> list[dict[str, NDArray[Any]]]:
    return [{"x": _RANDOM.uniform(-1, 1, size=(4, 3)).astype(np.float32)} for _ in range(8)]


def _answered(desk: ProbeDesk, *, of_reference: float, of_candidate: float) -> Answered:
    reference = desk.model(_NOISY, {"two": np.array([2]), "noise": np.float32(of_reference)})
    asked = desk.ask(reference, _samples(), names=["values"])
    return desk.answer(asked, desk.model(_ALWAYS, {"noise": np.float32(of_candidate)}), edge="warn")


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "is_failed", "is_warned"),
    [
        (0.0, 3e-4, True, False),
        (4e-4, 3e-4, False, False),
        (4e-4, 5e-4, True, False),
        # More than ten limits: the reference is the one to look at.
        (4e-3, 3e-3, True, True),
    ],
)
def test_a_probe_is_held_to_the_noise_of_the_reference(
    desk: ProbeDesk, *, of_reference: float, of_candidate: float, is_failed: bool, is_warned: bool
) -> None:
    answered = _answered(desk, of_reference=of_reference, of_candidate=of_candidate)

    (outcome,) = answered.outcomes
    assert bool(answered.failed) is is_failed, outcome.detail
    assert bool(outcome.warnings) is is_warned
    if is_warned:
        (words,) = outcome.warnings[0].words
        assert (words.key, words.values["output"]) == ("noise.in_batch", "out")
        assert words.values["difference"] == pytest.approx(0.004)


def test_made_up_rows_to_which_the_reference_has_no_steady_answer_are_asked_of_nobody(desk: ProbeDesk) -> None:
    reference = desk.model(_OF_ZEROS, {"two": np.array([2]), "steep": np.float32(-1e6)})
    asked = desk.ask(reference, _samples(), names=["values"])

    (probe,) = asked.probes.probes
    reasons = {item.about: item.reason for item in probe.dropped if item.kind is DropKind.UNSTEADY}
    # Zeros that a model answers otherwise alone than in a batch cannot be moved by a rounding of themselves.
    assert "the reference itself differs by 1 in 'out' between a row alone and in a batch" in reasons["x: zeros"]
    # A conversion that answers zeros always in the same way is right, and one that is wrong elsewhere is found.
    right = desk.answer(asked, desk.model(_ALWAYS, {"noise": np.float32(0)}))
    wrong = desk.answer(asked, desk.model(_ALWAYS, {"noise": np.float32(3e-4)}))
    assert not right.failed
    assert not right.outcomes[0].warnings
    assert list(wrong.failed) == ["values"]


# Adds noise, by column, to what is all zero, where it stands alone.
_OF_ZERO_ROWS = """(float[B, 3] x) => (float[B, 2] out) {
  plain = MatMul(x, weights)
  size = Abs(x)
  largest = ReduceMax<axes=[1], keepdims=1>(size)
  is_zero = Less(largest, tiny)
  shape = Shape<start=0, end=1>(x)
  is_alone = Equal(shape, one)
  of_alone = Where(is_alone, noise, nothing)
  all = Add(of_alone, fault)
  more = Where(is_zero, all, nothing)
  out = Add(plain, more)
}"""


def test_noise_of_one_column_excuses_nothing_in_another(desk: ProbeDesk) -> None:
    weights = {
        "weights": np.array([[1, 1e4]] * 3, np.float32), "tiny": np.float32(1e-6), "one": np.array([1]),
        "nothing": np.zeros(2, np.float32),
    }  # fmt: skip
    right = weights | {"noise": np.array([1.5e-4, 0.5], np.float32), "fault": np.zeros(2, np.float32)}
    asked = desk.ask(desk.model(_OF_ZERO_ROWS, right), _samples(), names=["values"])
    answered = desk.answer(asked, desk.model(_OF_ZERO_ROWS, right | {"fault": np.array([5, 0], np.float32)}))

    # Far below the limit of the second column, and many limits of the first.
    assert not [item for item in asked.probes.probes[0].dropped if item.kind is DropKind.UNSTEADY]
    assert "values" in answered.failed


def test_what_nobody_saw_of_other_batches_excuses_no_made_up_row(desk: ProbeDesk) -> None:
    samples = [{"x": sample["x"][:1]} for sample in _samples()]
    reference = desk.model(_OF_ZEROS, {"two": np.array([2]), "steep": np.float32(-1e6)})
    asked = desk.ask(reference, samples, names=["values"])

    assert asked.recording.hangs_on_batch
    assert not [item for item in asked.probes.probes[0].dropped if "otherwise" in item.reason or "alone" in item.reason]


# Adds to a row of which the last value is far off where the batch is odd; a fault in those of which the first one is.
_OF_SINGLE_ROWS = """(float[B, 3] x) => (float[B, 3] out) {
  plain = Tanh(x)
  last = Gather<axis=1>(x, two)
  is_far = Greater(last, far)
  shape = Shape<start=0, end=1>(x)
  rest = Mod(shape, two)
  is_odd = Cast<to=9>(rest)
  is_unsteady = And(is_far, is_odd)
  first = Gather<axis=1>(x, nought)
  is_wrong = Greater(first, far)
  noise = Where(is_unsteady, one, nothing)
  wrong = Where(is_wrong, fault, nothing)
  more = Add(noise, wrong)
  out = Add(plain, more)
}"""


def test_a_row_without_a_steady_answer_takes_no_other_row_with_it(desk: ProbeDesk) -> None:
    weights = {
        "two": np.array([2]), "nought": np.array([0]), "far": np.float32(1.5), "one": np.float32(1),
        "nothing": np.float32(0),
    }  # fmt: skip
    reference = desk.model(_OF_SINGLE_ROWS, weights | {"fault": np.float32(0)})
    asked = desk.ask(reference, _samples(), names=["values"], has_graph=False)
    right = desk.answer(asked, desk.model(_ALWAYS, {"noise": np.float32(0)}), edge="fail")
    wrong = desk.answer(asked, desk.model(_OF_SINGLE_ROWS, weights | {"fault": np.float32(5)}), edge="fail")

    assert any(
        "not compared: the reference's outputs for a row differ alone" in note for note in asked.probes.probes[0].notes
    )
    assert not right.failed
    assert "values" in wrong.failed
