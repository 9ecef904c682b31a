"""An engine is not built from ONNX whose precision overflows on the run's samples; what cannot be looked at is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.errors import ConversionError, StorageError
from paritygate.pipelines.process import child
from paritygate.pipelines.run import variant_maker
from paritygate.pipelines.run.overflow import OverflowFinding, find_overflow
from paritygate.pipelines.run.workspace import RunFolder, open_run
from paritygate.precision import Precision, Variant

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

    from paritygate.pipelines.process.child import ChildJob, Progress

_LARGE = (17, 44, 103)
_HELD: dict[str, Any] = {"model": {"name": "tiny", "source": "model.onnx"}, "decisions": {}}


def _norms(desk: Desk, *, large: tuple[int, ...] = _LARGE, size: float = 1e3, rows: int = 120) -> None:
    """Write `output_0 = sqrt(sum(x * x))` and rows of which some overflow in FP16: a thousand squared is 1e6."""
    import onnx

    def tensor(name: str, width: int) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])

    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Mul", ["x", "x"], ["squares"]),
            onnx.helper.make_node("ReduceSum", ["squares", "axes"], ["sum"], keepdims=1),
            onnx.helper.make_node("Sqrt", ["sum"], ["output_0"]),
        ],
        "norms",
        [tensor("x", 4)],
        [tensor("output_0", 1)],
        [onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(desk.folder / "model.onnx"))
    values = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    values[list(large)] *= size
    np.savez(desk.folder / "inputs.npz", x=values)


def _quotients(desk: Desk, *, numerator: float, opset: int = 17) -> None:
    """Write `output_0 = numerator * x0 / (1 + sum(x * x) / 1000)`, whose sum overflows in FP16 in three rows.

    Over an infinite denominator these answer 0; in FP32 it is about half the numerator.
    """
    import onnx

    def tensor(name: str, width: int) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])

    weights = {
        "ones": np.ones((4, 1), np.float32),
        "share": np.array([1e-3], np.float32),
        "one": np.array([1], np.float32),
        "first": np.array([[numerator], [0], [0], [0]], np.float32),
        "factors": np.array([1, 2], np.float32),
        "place": np.int64(0),
    }
    node = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            node("Mul", ["x", "x"], ["squares"]),
            node("MatMul", ["squares", "ones"], ["sum"]),
            node("Mul", ["sum", "share"], ["small"]),
            node("Add", ["small", "one"], ["denominator"]),
            node("MatMul", ["x", "first"], ["numerator"]),
            # A scalar that is computed.
            node("Gather", ["factors", "place"], ["factor"]),
            node("Mul", ["numerator", "factor"], ["scaled"]),
            node("Div", ["scaled", "denominator"], ["output_0"]),
        ],
        "quotients",
        [tensor("x", 4)],
        [tensor("output_0", 1)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 9
    onnx.save(model, str(desk.folder / "model.onnx"))
    values = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    values[list(_LARGE)] = 500
    np.savez(desk.folder / "inputs.npz", x=values)


def _find(desk: Desk, name: str = "onnx-fp16", **parts: object) -> OverflowFinding:
    """Export a variant and look for overflow in it."""
    desk.spec(**{**_HELD, "targets": ["onnx-fp32", name], **parts})
    called = desk.call("export", "--verbose", "spec.yaml")
    assert called.code == 0, str(called)
    return _look(open_run(desk.run_folder), name)


def _look(run: RunFolder, name: str = "onnx-fp16") -> OverflowFinding:
    return find_overflow(run, run.artifact(name), run.artifact("onnx-fp32"), time_limit_s=600, progress=lambda *_: None)


def _engine(desk: Desk, name: str, *, batch: str = "batch") -> Called:
    """Export one engine."""
    model = {**_HELD["model"], "dims": {batch: {"min": 1, "opt": 8, "max": 128}}}
    desk.spec(**{**_HELD, "model": model, "targets": [name], "required": [name]})
    return desk.json("export", "--verbose", "spec.yaml")


def test_rows_that_overflow_are_counted_and_the_first_is_named(desk: Desk) -> None:
    _norms(desk)

    found = _find(desk)

    assert (found.rows, found.non_finite, found.first, found.output) == (120, 3, "17", "output_0")
    assert found.not_checked == ""


def test_what_is_within_the_range_is_let_through(desk: Desk) -> None:
    _norms(desk, size=10)

    found = _find(desk)

    assert (found.rows, found.non_finite) == (120, 0)
    assert found.facts == {"overflow_check": {"precision": "fp16", "rows": 120}}
    assert found.notes == ()
    found.stop(Variant.parse("tensorrt-fp16"))


def test_bf16_has_the_range_of_fp32(desk: Desk) -> None:
    _norms(desk)

    assert _find(desk, "onnx-bf16").non_finite == 0


def test_bf16_beyond_its_range_is_found_too(desk: Desk) -> None:
    # The largest bfloat16 is below the largest float32: a value between the two is rounded to infinity.
    _norms(desk, large=(5,), size=1.0)
    values = np.load(desk.folder / "inputs.npz")["x"].copy()
    values[5] = [np.sqrt(3.4e38), 0, 0, 0]
    np.savez(desk.folder / "inputs.npz", x=values)

    found = _find(desk, "onnx-bf16")

    assert (found.non_finite, found.first) == (1, "5")


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_an_overflow_on_the_way_to_a_wrong_answer_is_found(desk: Desk, opset: int) -> None:
    _quotients(desk, numerator=30, opset=opset)

    found = _find(desk)

    assert (found.non_finite, found.hidden, found.first, found.output) == (0, 3, "17", "output_0")
    with pytest.raises(ConversionError, match=r"in fp16 3 of 120 rows become infinite on the way and come out wrong"):
        found.stop(Variant.parse("tensorrt-fp16"))


def test_an_overflow_on_the_way_that_changes_nothing_is_let_through(desk: Desk) -> None:
    # Off by 0.005 at most: within the limit of 0.01 that the answer is held to.
    _quotients(desk, numerator=0.01)

    found = _find(desk)

    assert (found.rows, found.non_finite, found.hidden) == (120, 0, 0)


def test_an_overflow_on_the_way_is_held_to_the_limit_of_the_engine(desk: Desk) -> None:
    _quotients(desk, numerator=0.01)
    limit = {"onnx-fp16": {"max_abs_diff": 1e-3}}

    assert _find(desk, tolerance=limit).hidden == 3


def test_of_many_rows_the_same_256_are_looked_at(desk: Desk) -> None:
    _norms(desk, rows=2000, large=tuple(range(1000, 2000)))

    found = _find(desk)

    assert found.rows == 256
    # Taken from everywhere: as many large ones as small ones, but for chance.
    assert 96 <= found.non_finite <= 160
    assert _look(open_run(desk.run_folder)) == found


def test_where_the_reference_is_not_finite_nothing_is_held_against_the_candidate(desk: Desk) -> None:
    _norms(desk, size=1e30)

    assert _find(desk, non_finite="match").non_finite == 0


@pytest.mark.parametrize(
    ("engine", "hint"),
    [
        ("tensorrt-fp16", "name tensorrt-bf16 in targets, which has the range of fp32, or tensorrt-fp32"),
        ("tensorrt-bf16", "name tensorrt-fp32 in targets instead"),
        (
            "tensorrt-rtx-fp16",
            "name tensorrt-rtx-bf16 in targets, which has the range of fp32, or tensorrt-rtx-fp32",
        ),
        ("tensorrt-rtx-bf16", "name tensorrt-rtx-fp32 in targets instead"),
    ],
)
def test_the_stop_says_how_many_rows_and_what_to_take_instead(engine: str, hint: str) -> None:
    found = OverflowFinding(precision=Precision.FP16, rows=120, non_finite=3, first="17", output="logits")

    with pytest.raises(ConversionError) as caught:
        found.stop(Variant.parse(engine))

    assert str(caught.value) == (
        "in fp16 3 of 120 rows come out NaN or infinite where fp32 is finite "
        f"(first: row '17', output 'logits'): {engine} is not built"
    )
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda desk: (desk.folder / "inputs.npz").unlink(), "inputs.npz do not exist"),
        (lambda desk: np.savez(desk.folder / "inputs.npz", x=np.zeros((0, 4), np.float32)), "hold no rows"),
        (lambda desk: np.savez(desk.folder / "inputs.npz", y=np.zeros((3, 4), np.float32)), "no input 'x'"),
        (
            lambda desk: shutil.rmtree(desk.run_folder / "onnx-fp32"),
            "the fp32 model it was made from is not in the run",
        ),
    ],
)
def test_what_cannot_be_looked_at_stops_nothing_and_is_said(desk: Desk, change: Any, words: str) -> None:  # noqa: ANN401 - a lambda
    _norms(desk)
    _find(desk)
    run = open_run(desk.run_folder)
    reference = run.artifact("onnx-fp32")
    change(desk)

    kept = reference if (run.folder / "onnx-fp32").exists() else None
    found = find_overflow(run, run.artifact("onnx-fp16"), kept, time_limit_s=600, progress=lambda *_: None)

    assert words in found.not_checked
    (note,) = found.notes
    assert note.startswith("not checked for overflow before the build: ")
    assert found.facts == {"overflow_check": {"not_checked": found.not_checked}}
    found.stop(Variant.parse("tensorrt-fp16"))


def test_another_fp32_model_is_no_reference(desk: Desk) -> None:
    _norms(desk)
    _find(desk, targets=["onnx-fp32", "onnx-fp16", "onnx-bf16"])
    run = open_run(desk.run_folder)

    found = find_overflow(
        run, run.artifact("onnx-fp16"), run.artifact("onnx-bf16"), time_limit_s=600, progress=lambda *_: None
    )

    assert found.not_checked == "onnx-bf16 is not the one that onnx-fp16 was made from"


def test_a_full_disk_is_not_taken_for_what_cannot_be_looked_at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    _norms(desk)
    _find(desk)

    def fail(job: ChildJob, progress: object) -> None:
        del job, progress
        msg = "the disk is full"
        raise StorageError(msg)

    monkeypatch.setattr(child, "run_child", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        _look(open_run(desk.run_folder))


def _left_of_a_build(run: Path) -> list[str]:
    return sorted(
        path.name for pattern in ("**/*.plan", "**/engine.json", "jobs/export-tensorrt*") for path in run.glob(pattern)
    )


@pytest.mark.rtx
def test_an_fp16_engine_that_would_overflow_is_stopped_before_it_is_built(desk: Desk) -> None:
    _norms(desk)

    called = _engine(desk, "tensorrt-rtx-fp16")

    assert called.code == 4
    words = (
        "in fp16 3 of 120 rows come out NaN or infinite where fp32 is finite "
        "(first: row '17', output 'output_0'): tensorrt-rtx-fp16 is not built"
    )
    assert f"error: tensorrt-rtx-fp16: {words}" in called.err
    assert "hint: name tensorrt-rtx-bf16 in targets, which has the range of fp32" in called.err
    assert _left_of_a_build(desk.run_folder) == []
    failures = json.loads((desk.run_folder / "export-failures.json").read_text(encoding="utf-8"))
    assert failures["tensorrt-rtx-fp16"]["exit_code"] == 4
    # Nor by `build`, which looks again.
    assert desk.call("build", "--verbose", "--run", str(desk.run_folder)).code == 4
    assert _left_of_a_build(desk.run_folder) == []


@pytest.mark.rtx
def test_an_fp32_engine_of_the_same_model_is_built(desk: Desk) -> None:
    _norms(desk)

    called = _engine(desk, "tensorrt-rtx-fp32")

    assert called.code == 0, str(called)
    assert (desk.run_folder / "tensorrt-rtx-fp32/model.plan").stat().st_size > 0
    assert not (desk.run_folder / "jobs/overflow-onnx-fp16").exists()


@pytest.mark.children
@pytest.mark.rtx
def test_an_fp16_engine_within_the_range_is_built_from_the_chain_and_again(desk: Desk) -> None:
    _norms(desk, size=10)

    called = _engine(desk, "tensorrt-rtx-fp16")

    assert called.code == 0, str(called)
    place = desk.run_folder / "tensorrt-rtx-fp16"
    record = json.loads((place / "artifact.json").read_text(encoding="utf-8"))
    assert record["made_by"]["facts"]["overflow_check"] == {"precision": "fp16", "rows": 120}
    assert record["made_by"]["base"]["variant"] == "onnx-fp16"
    assert {path.name for path in (desk.run_folder / "bases").iterdir()} == {"onnx-fp32", "onnx-fp16"}
    # Where the source is not.
    (desk.folder / "model.onnx").unlink()
    (place / "model.plan").unlink()
    rebuilt = desk.json("build", "--verbose", "--run", str(desk.run_folder))
    assert rebuilt.code == 0, str(rebuilt)
    assert list(rebuilt.data["artifacts"]) == ["tensorrt-rtx-fp16"]
    open_run(desk.run_folder).artifact("tensorrt-rtx-fp16")


@pytest.mark.rtx
def test_the_rare_overflow_of_the_battery_does_not_come_about(desk: Desk, battery: Path) -> None:
    # What overflowed was a normalisation in parts, which stays in FP32.
    pair = battery / "fp16_rare_overflow"
    shutil.copy(pair / "reference.onnx", desk.folder / "model.onnx")
    shutil.copy(pair / "inputs.npz", desk.folder / "inputs.npz")

    called = _engine(desk, "tensorrt-rtx-fp16", batch="B")

    assert called.code == 0, str(called)
    assert "infinite" not in called.err
    (base,) = desk.run_folder.glob("bases/onnx-fp16/model.onnx")
    compared = desk.call("compare", "model.onnx", str(base), "--samples", "inputs.npz", "--precision", "fp16")
    assert compared.code == 0, str(compared)


def test_the_engines_of_one_base_share_the_look_at_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    _norms(desk)
    monkeypatch.setattr(variant_maker, "require_builder", lambda _: None)
    looks: list[str] = []
    do = child.run_child

    def look(job: ChildJob, progress: Progress = lambda *_: None) -> object:
        if job.name == "overflow":
            looks.append(job.folder.name)
        return do(job, progress)

    monkeypatch.setattr(child, "run_child", look)
    model = {**_HELD["model"], "dims": {"batch": {"min": 1, "opt": 8, "max": 128}}}
    engines = ["tensorrt-fp16", "tensorrt-rtx-fp16"]
    desk.spec(**{**_HELD, "model": model, "targets": engines, "required": engines})

    called = desk.json("export", "--verbose", "spec.yaml")

    assert called.code == 4
    assert looks == ["overflow-onnx-fp16"]
    for engine in engines:
        assert f"{engine} is not built" in called.data["failures"][engine]["message"]
