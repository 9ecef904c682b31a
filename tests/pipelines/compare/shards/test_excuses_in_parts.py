"""Rows that the reference's own noise or a jump explains are excused in parts as in one comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.compose
import pytest
from onnx import helper
from tests.pipelines.compare.excused.noisy_model import noisy_model
from tests.pipelines.compare.shards.parts import assert_one_verdict, compared_in_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Called, Desk

_BATCH = 8


def _stepped(bench: Bench, name: str, *, threshold: float) -> None:
    """Write x, and 1 more where its first column is above a threshold."""
    bench.model(
        name,
        [
            helper.make_node("Greater", ["x", "threshold"], ["is_high"]),
            helper.make_node("Cast", ["is_high"], ["high"], to=1),
            helper.make_node("Add", ["x", "high"], ["y"]),
        ],
        inputs={"x": ("float", ["batch", 3])},
        outputs={"y": ("float", ["batch", 3])},
        weights={"threshold": np.array([threshold, 99, 99], np.float32)},
    )


def _compared(
    desk: Desk, x: NDArray[np.float32] | dict[str, NDArray[np.float32]], *more: str, parts: tuple[int, ...] = (1, 3, 6)
) -> dict[int, Called]:
    np.savez(desk.folder / "rows.npz", **(x if isinstance(x, dict) else {"x": x}))
    samples = ("--samples", "rows.npz", "--batch-size", str(_BATCH))
    recorded = desk.call("record", "a.onnx", *samples, "--out", "reference")
    assert recorded.code == 0, recorded
    options = (*samples, "--probes", "none", "--min-rows", "1", *more)
    return compared_in_parts(desk, parts, "b.onnx", *options)


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "code"), [(0.0, 3e-4, 1), (4e-4, 3e-4, 0), (4e-4, 6e-4, 1), (5e-3, 3e-4, 1)]
)
def test_noise_of_the_reference_excuses_rows_in_any_number_of_parts(
    desk: Desk, bench: Bench, *, of_reference: float, of_candidate: float, code: int
) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(48, 3)).astype(np.float32)
    x[[13, 46], 1] = 0.95
    noisy_model(bench, "a", noise=of_reference, is_always=False)
    noisy_model(bench, "b", noise=of_candidate, is_always=True)

    found = _compared(desk, x, "--source", "a.onnx")

    assert_one_verdict(found, code)


def test_more_rows_than_may_be_excused_fail_though_no_shard_has_as_many(desk: Desk, bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(48, 3)).astype(np.float32)
    # Two in each batch, and not among those that run again when the reference is recorded.
    x[5::_BATCH, 1] = x[6::_BATCH, 1] = 0.95
    noisy_model(bench, "a", noise=4e-4, is_always=False)
    noisy_model(bench, "b", noise=3e-4, is_always=True)

    found = _compared(desk, x, "--source", "a.onnx")

    assert_one_verdict(found, 1)


@pytest.mark.parametrize(("rows_of_each", "code"), [(9, 0), (11, 1)])
def test_rows_of_several_outputs_count_together_in_any_number_of_parts(
    desk: Desk, bench: Bench, *, rows_of_each: int, code: int
) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(2, 96, 3)).astype(np.float32)
    # Another row for each output, so no output and no shard has more rows than may be excused.
    x[0, 5::_BATCH, 1][:rows_of_each] = x[1, 6::_BATCH, 1][:rows_of_each] = 0.95
    for name, noise, is_always in (("a", 4e-4, False), ("b", 3e-4, True)):
        model = onnx.load(noisy_model(bench, name, noise=noise, is_always=is_always))
        onnx.save(onnx.compose.merge_models(model, model, io_map=[], prefix2="other_"), desk.folder / f"{name}.onnx")

    found = _compared(desk, {"x": x[0], "other_x": x[1]}, "--source", "a.onnx", parts=(1, 2))

    assert_one_verdict(found, code)


def test_rows_where_both_models_jump_are_excused_in_any_number_of_parts(desk: Desk, bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.2, size=(48, 3)).astype(np.float32)
    threshold = np.float32(0.5)
    x[20, 0] = np.nextafter(threshold, np.float32(1))
    _stepped(bench, "a", threshold=float(threshold))
    _stepped(bench, "b", threshold=float(x[20, 0]))

    found = _compared(desk, x, "--source", "a.onnx")

    assert_one_verdict(found, 0)
    (check,) = [check for check in found[3].data["checks"] if check["name"] == "reference_jumps"]
    assert (check["status"], check["measured"]) == ("warning", 1)


def test_without_the_source_nothing_is_excused(desk: Desk, bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(48, 3)).astype(np.float32)
    x[46, 1] = 0.95
    noisy_model(bench, "a", noise=4e-4, is_always=False)
    noisy_model(bench, "b", noise=3e-4, is_always=True)

    found = _compared(desk, x)

    assert_one_verdict(found, 1)
    (cause,) = found[3].data["causes"]
    assert (cause["kind"], cause["outcome"]) == ("trials", "not_asked")


def _shard(desk: Desk, number: int, *more: str) -> Called:
    place = ("--shard", f"{number}/2", "--out", f"part-{number}.json")
    return desk.call("compare", "reference", "b.onnx", "--samples", "rows.npz", "--probes", "none", *place, *more)


def _recorded(desk: Desk, bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(-0.8, 0.8, size=(48, 3)).astype(np.float32)
    x[:, 1] = 0.95
    np.savez(desk.folder / "rows.npz", x=x)
    noisy_model(bench, "a", noise=0.0, is_always=False)
    noisy_model(bench, "b", noise=3e-4, is_always=True)
    assert desk.call("record", "a.onnx", "--samples", "rows.npz", "--out", "reference").code == 0


def test_parts_with_and_without_the_source_are_not_merged(desk: Desk, bench: Bench) -> None:
    _recorded(desk, bench)
    noisy_model(bench, "b", noise=0.0, is_always=True)
    assert [_shard(desk, 1, "--source", "a.onnx").code, _shard(desk, 2).code] == [0, 0]

    called = desk.call("merge", "part-1.json", "part-2.json")

    assert (called.code, called.err.count("error:")) == (2, 1)
    assert "--source" in called.err


@pytest.mark.parametrize(("source", "code"), [("b.onnx", 5), ("model.onnx", 5), ("rows.npz", 2), ("none.onnx", 2)])
def test_another_source_is_refused_and_leaves_no_part(desk: Desk, bench: Bench, source: str, code: int) -> None:
    _recorded(desk, bench)
    # So few rows fail that the source is opened.
    x = np.load(desk.folder / "rows.npz")["x"]
    x[1:, 1] = 0.5
    np.savez(desk.folder / "rows.npz", x=x)
    assert desk.call("record", "a.onnx", "--samples", "rows.npz", "--out", "other").code == 0
    place = ("--shard", "1/2", "--out", "part.json", "--source", source)
    called = desk.call("compare", "other", "b.onnx", "--samples", "rows.npz", "--probes", "none", *place)

    assert (called.code, called.err.count("error:")) == (code, 1), called
    assert not Path(desk.folder, "part.json").exists()


def test_a_source_is_that_of_a_recording(desk: Desk) -> None:
    called = desk.call("compare", "model.onnx", "model.onnx", "--samples", "inputs.npz", "--source", "model.onnx")

    assert called.code == 2
    assert "--source" in called.err
