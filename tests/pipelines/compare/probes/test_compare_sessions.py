"""Probes of the session: the same rows again, at once, unoptimised, in a fresh process, each finding its own fault."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.sessions import concurrency, fresh, repeats
from paritygate.validate.runners import onnxruntime as onnxruntime_runner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

    Arrays = Mapping[str, NDArray[np.generic]]

pytestmark = pytest.mark.usefixtures("asks_probes")

SESSIONS = ("repeats", "concurrent", "optimisation", "fresh")


def _compare(bench: Bench, candidate: str, probes: str, *options: str) -> Outcome:
    samples = bench.samples(64)
    return bench.compare(bench.linear("a"), candidate, "--samples", samples, "--probes", probes, *options)


def test_each_is_asked_of_an_innocent_candidate_and_passes(bench: Bench) -> None:
    outcome = _compare(bench, bench.linear("b", error=1e-6), ",".join(SESSIONS))

    asked = outcome.result["probes"]["asked"]
    assert outcome.code == 0, outcome.out
    assert {name: asked[name]["status"] for name in SESSIONS} == dict.fromkeys(SESSIONS, "pass")
    assert asked["repeats"]["rows"] >= 400
    assert all(asked[name]["seconds"] > 0 and asked[name]["rows"] > 0 for name in SESSIONS)
    assert outcome.result["probes"]["switched_off"] == list(PROBES)


def _noisy(bench: Bench, name: str, step: float) -> str:
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("RandomUniformLike", ["product"], ["noise"], high=step, low=0.0),
        helper.make_node("Add", ["product", "noise"], ["logits"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 3])},
        weights={"weight": bench.normal(4, 3, seed=7)},
    )


def test_answers_that_change_from_call_to_call_are_found_within_the_limits_of_one(bench: Bench) -> None:
    options = ("--tolerance", "repeat_max_abs_diff=1e-7")

    unasked = _compare(bench, _noisy(bench, "b", 2e-5), "none", *options)
    asked = _compare(bench, _noisy(bench, "b", 2e-5), "repeats", *options)

    assert unasked.code == 0
    assert (asked.code, asked.failed) == (1, {"probe_repeats"})
    detail = asked.check("probe_repeats")["detail"]
    assert "repeat_max_abs_diff: 'logits' differs by" in detail
    assert "from the candidate's own first answer in row" in detail


def _change(monkeypatch: pytest.MonkeyPatch, name: str, change: object) -> None:
    """Have every runner of a file whose name begins with `name` answer by `change(runner, inputs, answer)`."""
    own = onnxruntime_runner.open_model

    def open_model(model: object) -> object:
        runner = own(model)  # type: ignore[arg-type]  # what the table of runners calls it with
        if model.ref.path.stem == name:  # type: ignore[attr-defined]  # a LoadedModel
            answer = runner.run
            runner.run = lambda inputs: change(runner, inputs, answer)  # type: ignore[method-assign,operator]
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)


def test_answers_that_are_wrong_from_the_second_time_on_are_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    began: list[int] = []

    def wrong_again(_: object, inputs: Arrays, answer: object) -> Arrays:
        found = answer(inputs)  # type: ignore[operator]
        asked.append(inputs["x"].tobytes())
        # The samples are four batches, and then the first one of the probe is asked a second time.
        if len(asked) > 5 and asked[-1] == asked[4]:
            began.append(len(asked))
        return {name: array + np.float32(1) for name, array in found.items()} if began else found

    _change(monkeypatch, "b", wrong_again)

    outcome = _compare(bench, bench.linear("b", error=1e-6), "batches,repeats,concurrent")

    assert (outcome.code, outcome.failed) == (1, {"probe_repeats", "probe_concurrent"})


def test_calls_at_once_that_share_a_buffer_are_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_threads = itertools.count()
    both = threading.Barrier(2, timeout=600)

    def shared(_: object, inputs: Arrays, answer: object) -> Arrays:
        # The first two calls of threads are at once, however slow the machine is.
        is_by_thread = threading.current_thread() is not threading.main_thread()
        is_shared = is_by_thread and next(made_by_threads) < both.parties
        if is_shared:
            both.wait()
        found = answer(inputs)  # type: ignore[operator]
        return {name: array + np.float32(1) for name, array in found.items()} if is_shared else found

    _change(monkeypatch, "b", shared)

    outcome = _compare(bench, bench.linear("b", error=1e-6), "repeats,concurrent")

    assert (outcome.code, outcome.failed) == (1, {"probe_concurrent"})


def test_a_runner_that_is_called_once_at_a_time_is_not_called_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = onnxruntime_runner._facts

    def facts(*args: object, **kwargs: object) -> object:
        from msgspec.structs import replace

        return replace(own(*args, **kwargs), may_be_called_at_once=False)  # type: ignore[arg-type]

    monkeypatch.setattr(onnxruntime_runner, "_facts", facts)

    outcome = _compare(bench, bench.linear("b", error=1e-6), "concurrent")

    assert outcome.code == 0
    assert outcome.result["probes"]["asked"]["concurrent"]["status"] == "not asked"
    assert "probe concurrent: not run: its runner is called once at a time" in outcome.out
    assert "probe_concurrent" not in {check["name"] for check in outcome.result["checks"]}


def test_optimisations_that_change_the_answers_are_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fused_wrong(runner: object, inputs: Arrays, answer: object) -> Arrays:
        # Within the limits as it is deployed: what is not, is the graph that was converted.
        error = np.float32(5e-3) if runner.facts.optimisation == "disable_all" else np.float32(0)  # type: ignore[attr-defined]
        return {name: array + error for name, array in answer(inputs).items()}  # type: ignore[operator]

    _change(monkeypatch, "b", fused_wrong)

    outcome = _compare(bench, bench.linear("b", error=1e-6), "repeats,optimisation")

    assert (outcome.code, outcome.failed) == (1, {"probe_optimisation"})


def test_answers_that_hang_on_earlier_calls_are_found_in_a_fresh_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    count: dict[int, int] = {}

    def first_is_wrong(runner: object, inputs: Arrays, answer: object) -> Arrays:
        # Each session answers its first calls otherwise, all of them within the limits of the samples.
        count[id(runner)] = count.get(id(runner), 0) + 1
        error = np.float32(7e-5) if count[id(runner)] <= 2 else np.float32(0)
        return {name: array + error for name, array in answer(inputs).items()}  # type: ignore[operator]

    _change(monkeypatch, "b", first_is_wrong)
    tolerance = [f"--tolerance={name}=1e-4" for name in ("max_abs_diff", "mean_abs_diff")]
    tolerance += ["--tolerance=repeat_max_abs_diff=1e-5"]

    outcome = _compare(bench, bench.linear("b"), "repeats,fresh", *tolerance)

    assert (outcome.code, outcome.failed) == (1, {"probe_fresh"})
    detail = outcome.check("probe_fresh")["detail"]
    assert "from the candidate's own first answer" in detail
    assert "in the first call in a new process" in detail


def test_a_fresh_process_that_cannot_load_the_candidate_fails_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from paritygate.errors import BackendError
    from paritygate.pipelines.compare import session_probes

    def crash(*_: object) -> None:
        msg = "b.onnx in a fresh process was killed by SIGSEGV"
        raise BackendError(msg)

    monkeypatch.setattr(session_probes, "run_child", crash)

    outcome = _compare(bench, bench.linear("b", error=1e-6), "fresh")

    assert (outcome.code, outcome.failed) == (1, {"probe_fresh"})
    assert "at all batches: refused: b.onnx in a fresh process was killed" in outcome.check("probe_fresh")["detail"]


def test_the_fresh_process_is_a_process(isolated_bench: Bench) -> None:
    outcome = _compare(isolated_bench, isolated_bench.linear("b", error=1e-6), "fresh")

    assert outcome.code == 0, outcome.err
    assert outcome.result["probes"]["asked"]["fresh"]["rows"] > 0


def test_an_emulation_is_not_asked_what_its_process_says(bench: Bench) -> None:
    outcome = _compare(bench, bench.linear("b", error=1e-6), ",".join(SESSIONS), "--precision", "fp16", "--emulate")

    asked = outcome.result["probes"]["asked"]
    assert outcome.code == 0, outcome.out
    assert {name for name in SESSIONS if asked[name]["status"] == "not asked"} == {
        "concurrent",
        "optimisation",
        "fresh",
    }
    assert asked["optimisation"]["detail"] == "not run: it is emulated with its operators unfused"


def test_a_candidate_that_is_no_onnx_file_is_not_asked_without_optimisations(bench: Bench) -> None:
    pytest.importorskip("openvino")
    import openvino

    path = bench.folder / "b.xml"
    openvino.save_model(openvino.convert_model(bench.linear("c")), str(path), compress_to_fp16=False)

    outcome = _compare(bench, str(path), "optimisation,concurrent")

    asked = outcome.result["probes"]["asked"]
    assert outcome.code == 0, outcome.out + outcome.err
    assert asked["optimisation"]["detail"] == (
        "not run: graph optimisations are turned off in ONNX Runtime on the CPU alone"
    )
    assert asked["concurrent"]["detail"] == "not run: its runner is called once at a time"


def test_probes_that_are_named_are_known(bench: Bench) -> None:
    outcome = _compare(bench, bench.linear("b"), "repeat")

    assert outcome.code == 2
    assert "'repeat' is not a probe (allowed: none, repeats," in outcome.err
    assert {module.__name__.rpartition(".")[2] for module in (repeats, concurrency, fresh)} == {
        "repeats",
        "concurrency",
        "fresh",
    }
