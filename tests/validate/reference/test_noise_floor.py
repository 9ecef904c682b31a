"""The noise floor: how much the reference differs from itself, and what is said of limits below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import BackendError
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.gate.candidate import RecordedCandidate
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Check, Status, Verdict, verdict_of
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.reference.noise_floor import NoiseFloor, largest_difference
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.reference.recorded import expected_from_recording, open_recording_reader
from paritygate.validate.reference.recording import Recording
from paritygate.validate.reference.rerun import OtherBatches
from paritygate.validate.runners.runner import Runner, RuntimeFacts

Array = NDArray[Any]
_NO_THREADS = "; not over threads because its runner does not choose them"


class _Model(Runner):
    """A model in NumPy that counts its calls: it answers `y` by what it is made of."""

    def __init__(self, answer: Callable[[Array, int], Array], *, batch: int | str = "batch") -> None:
        self._answer = answer
        self.calls = 0
        self.rows_alone = 0
        signature = Signature(
            inputs=(TensorSpec(name="x", dtype="float32", shape=(batch, 3)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=None),),
        )
        super().__init__(signature, RuntimeFacts(runtime="numpy", version="1", device="cpu"))

    def _call(self, feed: Mapping[str, Array]) -> list[Array]:
        self.calls += 1
        self.rows_alone += len(feed["x"]) == 1
        return [self._answer(feed["x"], self.calls).astype(np.float32)]


class _Threaded(_Model):
    """A model that answers otherwise on one thread; rows that it was asked there are counted."""

    def __init__(self, answer: Callable[[Array, int], Array], alone: Callable[[Array], Array], **options: int) -> None:
        super().__init__(answer, **options)
        self._alone = alone
        self.rows: list[int] = []

    @contextmanager
    def _opened(self) -> Iterator[_Model]:
        def answer(x: Array, _: int) -> Array:
            self.rows.append(len(x))
            return self._alone(x)

        yield _Model(answer)

    def on_one_thread(self) -> AbstractContextManager[_Model]:
        return self._opened()


def _read(sizes: tuple[int, ...]) -> Callable[[], Iterator[Batch]]:
    def batches() -> Iterator[Batch]:
        rng = np.random.default_rng(0)
        for number, size in enumerate(sizes):
            values = rng.standard_normal((size, 3)).astype(np.float32)
            yield Batch(inputs={"x": values}, ids=[f"{number}/{row}" for row in range(size)])

    return batches


def _record(folder: Path, model: _Model, sizes: tuple[int, ...] = (16, 16, 16, 5)) -> Recording:
    folder.mkdir(parents=True, exist_ok=True)
    plan = RecordPlan(folder=folder, model={"name": "m", "digest": None}, axes={})
    record_reference(model, _read(sizes), plan)
    return Recording.load(folder)


def _gate(
    recording: Recording, workspace: Path, *, sizes: tuple[int, ...] = (16, 16, 16, 5), **declared: float
) -> GateResult:
    workspace.mkdir(parents=True, exist_ok=True)
    return run_gate(
        RecordedCandidate(output_names=["y"], open_reader=lambda: open_recording_reader(recording)),
        expected_from_recording(recording),
        _read(sizes),
        GateRules(tolerance=parse_tolerance(Precision.FP32, declared)),
        workspace=workspace,
    )


def _checks(result: GateResult, name: str) -> list[Check]:
    return [check for check in result.checks if check.name == name]


def _health(recording: Recording) -> dict[str, str]:
    return dict(recording.health)


def test_a_model_that_is_equal_to_itself_has_no_noise(tmp_path: Path) -> None:
    recording = _record(tmp_path, _Model(lambda x, _: 2 * x))

    assert _health(recording)["reference_noise"] == f"noise floor 0 over repeats and batch sizes{_NO_THREADS}"
    noise = dict(recording.settings["noise"])
    # What a rounding of the inputs does to twice the input.
    assert max(noise.pop("roundings")["y"]) < 1e-6
    assert noise == {
        "repeats": {"y": [0.0] * 3},
        "batches": {"y": [0.0] * 3},
        "why_no_batches": "",
        "threads": {},
        "why_no_threads": "its runner does not choose them",
        "optimisations": {},
    }


def test_the_floor_of_repeats_is_measured(tmp_path: Path) -> None:
    # Exact in float32, so that the floor is what was planted.
    recording = _record(tmp_path, _Model(lambda x, call: np.round(x * 8) / 8 + (call % 2) * 2.0**-18))

    assert recording.settings["noise"]["repeats"] == {"y": [2.0**-18] * 3}
    assert _health(recording)["reference_noise"] == (
        f"noise floor 3.81e-06 over repeats and batch sizes, in output 'y'{_NO_THREADS}"
    )


def test_the_floor_over_batch_sizes_is_measured(tmp_path: Path) -> None:
    recording = _record(tmp_path, _Model(lambda x, _: np.round(x * 8) / 8 + (len(x) == 1) * 2.0**-18))

    assert recording.settings["noise"]["repeats"] == {"y": [0.0] * 3}
    assert recording.settings["noise"]["batches"] == {"y": [2.0**-18] * 3}
    assert "reference_batch" not in _health(recording)


def test_the_rows_that_were_repeated_already_count_as_another_batch(tmp_path: Path) -> None:
    # Wrong in batches of 16 alone: the first batch is cut for its repeats, and answered otherwise.
    recording = _record(tmp_path, _Model(lambda x, _: np.round(x * 8) / 8 + (len(x) == 20) * 2.0**-18), (20, 20, 16, 5))

    assert recording.settings["noise"]["batches"] == {"y": [2.0**-18] * 3}


@pytest.mark.parametrize("floor", [1e-6, 1.0])
def test_rows_that_depend_on_their_batch_are_said_and_are_no_fault_of_the_candidate(
    tmp_path: Path, floor: float
) -> None:
    recording = _record(tmp_path / "reference", _Model(lambda x, _: x + floor * x.mean(axis=0)))
    result = _gate(recording, tmp_path / "passes")

    (check,) = _checks(result, "reference_noise")
    assert check.status is Status.PASS
    found = _checks(result, "reference_batch")
    assert [item.status for item in found] == ([Status.WARNING] if floor == 1.0 else [])
    assert verdict_of(result.checks) is Verdict.PASS
    # What depends on the batch is no noise that a limit should make room for.
    assert _checks(result, "noise_floor") == []
    if found:
        assert [(words.key, words.values["output"]) for words in found[0].words] == [("reference_batch", "y")]


def test_an_output_of_another_shape_for_one_row_depends_on_its_batch(tmp_path: Path) -> None:
    recording = _record(tmp_path, _Model(lambda x, _: x @ x.T if len(x) > 1 else x @ x.T + np.zeros((1, 2))))

    assert recording.settings["noise"]["batches"] == {"y": [None]}
    assert "output 'y' depends on the batch: a row differs in shape" in _health(recording)["reference_batch"]


def _whole(x: Array, _: int = 0) -> Array:
    return np.round(x * 8) / 8


def test_the_floor_over_threads_is_measured(tmp_path: Path) -> None:
    recording = _record(tmp_path / "reference", _Threaded(_whole, lambda x: _whole(x) + 2.0**-18))
    result = _gate(recording, tmp_path / "passes", max_abs_diff=1e-6)

    assert recording.settings["noise"]["threads"] == {"y": [2.0**-18] * 3}
    assert _health(recording)["reference_noise"] == (
        "noise floor 3.81e-06 over repeats, batch sizes and threads, in output 'y'"
    )
    assert "reference_threads" not in _health(recording)
    (check,) = _checks(result, "noise_floor")
    assert "by 3.81e-06 over repeats, batch sizes and threads" in check.detail


def test_few_rows_are_asked_on_one_thread(tmp_path: Path) -> None:
    model = _Threaded(_whole, _whole)
    _record(tmp_path / "open", model, (16,) * 40)
    fixed = _Threaded(_whole, _whole, batch=60)
    _record(tmp_path / "fixed", fixed, (60,) * 4)

    # Those that were run twice: 16, then a quarter of what is left of 64.
    assert (model.rows, fixed.rows) == ([16, 12], [60])


@pytest.mark.parametrize(
    ("alone", "differs"),
    [
        (lambda x: x + 1.0, "differs by 1 "),
        (lambda x: np.full_like(x, np.nan), "differs in shape or finiteness "),
        (lambda x: x[:, :2], "differs in shape or finiteness "),
    ],
)
def test_a_reference_that_depends_on_threads_is_a_warning_and_no_fault_of_the_candidate(
    tmp_path: Path, alone: Callable[[Array], Array], differs: str
) -> None:
    recording = _record(tmp_path / "reference", _Threaded(lambda x, _: x, alone))
    result = _gate(recording, tmp_path / "passes")

    (found,) = _checks(result, "reference_threads")
    assert found.status is Status.WARNING
    assert found.detail.startswith(f"output 'y' {differs}")
    assert verdict_of(result.checks) is Verdict.PASS
    # What depends on the threads is no noise that a limit should make room for.
    assert _checks(result, "noise_floor") == []


def test_a_warning_says_what_its_floor_leaves_out(tmp_path: Path) -> None:
    model = _Threaded(lambda x, call: _whole(x) + (call % 2) * 2.0**-18 + (len(x) == 1), lambda x: _whole(x) + 1.0)
    recording = _record(tmp_path / "reference", model)

    (check,) = _checks(_gate(recording, tmp_path / "passes", max_abs_diff=1e-6), "noise_floor")

    assert "by 3.81e-06 over repeats (not over batch sizes " in check.detail
    assert str(check.words).count("health.depends_on") == 2


def _fail(_: Array) -> Array:
    msg = "no memory left"
    raise BackendError(msg)


def test_what_fails_on_one_thread_is_not_measured_and_says_so(tmp_path: Path) -> None:
    recording = _record(tmp_path, _Threaded(_whole, _fail))

    assert recording.settings["noise"]["threads"] == {}
    assert _health(recording)["reference_noise"] == (
        "noise floor 0 over repeats and batch sizes; "
        "not over threads because it does not answer on one thread (no memory left)"
    )


def _fail_below(least: int, answer: Callable[[Array], Array] = _whole) -> Callable[[Array, int], Array]:
    def answered(x: Array, _: int) -> Array:
        if len(x) < least:
            msg = f"more than {len(x)} rows wanted"
            raise BackendError(msg)
        return answer(x)

    return answered


@pytest.mark.parametrize(("least", "size"), [(2, 16), (2, 3), (3, 16), (8, 16), (8, 17)])
def test_a_reference_that_answers_no_row_alone_is_asked_for_fewer_rows(tmp_path: Path, least: int, size: int) -> None:
    """As one that normalises over the batch does: its rows depend on it, and one row has no statistic."""
    recording = _record(tmp_path, _Model(_fail_below(least, lambda x: x - x.mean(axis=0))), (size, size, size))

    health = _health(recording)
    assert health["reference_batch"].startswith("output 'y' depends on the batch: a row differs by ")
    assert health["reference_noise"].endswith(f"over repeats and batch sizes, in output 'y'{_NO_THREADS}")


def test_a_row_that_is_the_same_in_smaller_batches_does_not_depend_on_them(tmp_path: Path) -> None:
    recording = _record(tmp_path, _Model(_fail_below(2)))

    assert _health(recording)["reference_noise"] == f"noise floor 0 over repeats and batch sizes{_NO_THREADS}"
    assert "reference_batch" not in _health(recording)


@pytest.mark.parametrize(("size", "refused"), [(16, 16), (2, 2), (3, 3)])
def test_a_reference_that_answers_no_smaller_batch_is_a_warning(tmp_path: Path, size: int, refused: int) -> None:
    recording = _record(tmp_path / "reference", _Model(_fail_below(refused)), (size,) * 3)

    (check,) = _checks(_gate(recording, tmp_path / "passes", sizes=(size,) * 3), "reference_batch")
    assert check.status is Status.WARNING
    assert check.words[0].key == "reference_batch.not_measured"
    assert "more than 1 rows wanted" in check.detail


@pytest.mark.parametrize(
    ("model", "sizes", "why"),
    [
        (
            _Model(_fail_below(16)),
            (16, 16),
            "it does not answer fewer rows than a batch holds (1 row: more than 1 rows wanted)",
        ),
        (_Model(lambda x, _: x, batch=16), (16, 16), "its batch size is fixed"),
        (_Model(lambda x, _: x), (1, 1, 1), "no batch held several rows"),
    ],
)
def test_why_batch_sizes_were_not_measured_is_said(
    tmp_path: Path, model: _Model, sizes: tuple[int, ...], why: str
) -> None:
    recording = _record(tmp_path, model, sizes)

    assert (
        _health(recording)["reference_noise"]
        == f"noise floor 0 over repeats; not over batch sizes because {why}{_NO_THREADS}"
    )


def test_few_rows_are_asked_alone() -> None:
    model = _Model(lambda x, _: x)
    others = OtherBatches(model, ("y",), is_batch_fixed=False)

    found = [others.answers(batch, batch.inputs, {"y": batch.inputs["x"]}, None) for batch in _read((16,) * 100)()]

    assert (model.calls, model.rows_alone) == (16, 16)
    assert [len(answers["alone/y"]) for answers in found if answers] == [4, 4, 4, 4]


@pytest.mark.parametrize(
    "names", [("max_abs_diff",), ("repeat_max_abs_diff",), ("max_abs_diff", "repeat_max_abs_diff")]
)
def test_a_limit_below_the_floor_is_a_warning_that_says_what_to_declare(tmp_path: Path, names: tuple[str, ...]) -> None:
    model = _Model(lambda x, call: np.round(x * 8) / 8 + (call % 2) * 2.0**-18)
    recording = _record(tmp_path / "reference", model)

    result = _gate(recording, tmp_path / "passes", **dict.fromkeys(names, 1e-6))

    found = _checks(result, "noise_floor")
    assert [check.status for check in found] == [Status.WARNING] * len(names)
    assert [check.words[0].values["name"] for check in found] == list(names)
    assert found[0].detail.endswith(f" {names[0]} of at least 7.6e-06")
    assert (found[0].measured, found[0].limit, found[0].output) == (2.0**-18, 1e-6, "y")
    # It is said, and changes nothing: the candidate holds the reference's own answers.
    assert verdict_of(result.checks) is Verdict.PASS


def test_limits_above_the_floor_are_not_spoken_of(tmp_path: Path) -> None:
    recording = _record(tmp_path / "reference", _Model(lambda x, call: x + (call % 2) * 1e-6))

    assert _checks(_gate(recording, tmp_path / "passes"), "noise_floor") == []


def test_a_recording_of_before_has_no_floor_and_is_judged_as_before(tmp_path: Path) -> None:
    recording = _record(tmp_path / "reference", _Model(lambda x, _: x))
    del recording.settings["noise"]  # type: ignore[attr-defined]  # a mapping that is a dict

    assert expected_from_recording(recording).noise is None
    assert verdict_of(_gate(recording, tmp_path / "passes", max_abs_diff=0).checks) is Verdict.PASS


def test_a_recording_of_before_threads_were_measured_still_loads_and_says_that_they_were_not(tmp_path: Path) -> None:
    recording = _record(tmp_path / "reference", _Model(lambda x, call: x + (call % 2) * 1e-6))
    for name in ("threads", "why_no_threads"):
        del recording.settings["noise"][name]

    (check,) = _checks(_gate(recording, tmp_path / "passes", max_abs_diff=1e-9), "noise_floor")

    assert "not over threads because that was not measured when it was recorded" in check.detail


def test_the_floor_is_the_same_after_it_was_written() -> None:
    floor = NoiseFloor(
        repeats={"y": np.array([0.0, 1e-7])},
        batches={"y": np.array([np.inf, 2e-7])},
        threads={"y": np.array([1e-8, 3e-7])},
    )

    again = from_data(NoiseFloor, to_data(floor))

    assert to_data(again) == to_data(floor)
    assert again.of("y").tolist() == [np.inf, 3e-7]


@pytest.mark.parametrize(
    ("again", "largest"), [(-np.inf, 0.0), (1.0, np.inf), (np.inf, np.inf), (np.nan, np.inf)], ids=str
)
def test_the_same_infinity_again_is_no_noise_and_another_value_is_infinitely_much(again: float, largest: float) -> None:
    first, other = np.array([[0.5], [-np.inf]], np.float32), np.array([[0.5], [again]], np.float32)
    profile = profile_outputs("y", [(np.ones((4, 1), np.float32), 4)], axis=None, dtype="float32")

    assert largest_difference(other, first, profile).tolist() == [largest]
