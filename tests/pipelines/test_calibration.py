"""Calibration in a run: rows that are never compared, faults of calibration that the gate has to catch, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.errors import UsageError
from paritygate.pipelines.calibration import CalibrationRequest, open_calibration
from paritygate.pipelines.spec_loading import parse_spec
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.source import Source, SourceKind
from paritygate.validate.samples import SampleSource, open_samples

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Called, Desk

_INT8 = {"targets": ["onnx-int8"], "decisions": {}}
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 3)),),
)


def _normal(rows: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def _request(folder: Path, *, source: str = "calibration.npz", rows: int = 128) -> CalibrationRequest:
    return CalibrationRequest(
        source=SampleSource(text=source, folder=folder),
        compared=SampleSource(text="inputs.npz", folder=folder),
        rows=rows,
        tool="onnxruntime",
        method="minmax",
        activations="int8",
    )


def _values(calibration: Calibration) -> NDArray[Any]:
    return np.concatenate([batch["x"] for batch in calibration.read()])


def _is_among(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (rows[:, None] == others[None]).all(axis=-1).any(axis=1)
    return found


def _spec(folder: Path, **parts: object) -> Any:  # noqa: ANN401 - a ResolvedSpec
    data = {"model": {"name": "m", "source": "m.onnx"}, "samples": {"source": "inputs.npz"}, **parts}
    return parse_spec(yaml.safe_dump(data), folder=folder, origin="spec.yaml")


def _variant(called: Called) -> dict[str, Any]:
    found: dict[str, Any] = called.data["runs"][0]["variants"]["onnx-int8"]
    return found


def test_without_a_source_rows_are_held_out_of_the_samples_and_never_compared(desk: Desk) -> None:
    np.savez(desk.folder / "inputs.npz", x=_bounded(300, seed=1))
    desk.spec(**_INT8)

    called = desk.json("run", "spec.yaml")

    assert called.code == 0, str(called)
    result = _variant(called)
    (note,) = (note for note in result["notes"] if "calibrated on" in note)
    rows = int(note.split("calibrated on ")[1].split(" rows")[0])
    # A fifth of the rows, all of them used: what is not compared is what was calibrated on.
    assert 40 < rows < 80
    assert result["rows"] == 300 - rows
    assert "held out of the samples (20% of them are not compared), none of which is compared" in note
    assert result["candidate"]["precision_found"] == "int8"
    facts = desk.run_folder.glob("**/artifact.json")
    assert any('"digest": "sha256:' in path.read_text(encoding="utf-8") for path in facts)


def test_without_an_int8_target_no_row_is_held_out(tmp_path: Path) -> None:
    assert _spec(tmp_path, targets=["onnx-fp32", "onnx-fp16"]).samples().split is None
    assert _spec(tmp_path, targets=["onnx-fp32", "onnx-int8"]).samples().split is not None


def test_rows_of_an_own_source_leave_the_samples_whole(tmp_path: Path) -> None:
    resolved = _spec(tmp_path, targets=["onnx-int8"], calibration={"source": "calibration.npz"})

    assert resolved.samples().split is None
    assert resolved.calibration_samples().text == "calibration.npz"
    assert resolved.calibration_samples().split is None


def test_dynamic_quantization_holds_nothing_out_where_nothing_else_is_calibrated(tmp_path: Path) -> None:
    dynamic = {"method": "dynamic"}

    assert _spec(tmp_path, targets=["onnx-int8"], calibration=dynamic).samples().split is None
    assert _spec(tmp_path, targets=["onnx-int8", "openvino-int8"], calibration=dynamic).samples().split is not None


def test_the_two_sides_of_the_samples_have_no_row_in_common_even_where_rows_stand_twice(tmp_path: Path) -> None:
    rows = _normal(100, seed=1)
    np.savez(tmp_path / "inputs.npz", x=np.concatenate([rows, rows[::-1]]))
    resolved = _spec(tmp_path, targets=["onnx-int8"])

    compared, calibration = (
        np.concatenate([batch.inputs["x"] for batch in open_samples(source)()])
        for source in (resolved.samples(), resolved.calibration_samples())
    )
    assert len(compared) + len(calibration) == 200
    assert not _is_among(calibration, compared).any()
    assert len(np.unique(calibration, axis=0)) == len(calibration) / 2


def test_rows_that_are_compared_are_dropped_from_the_calibration_and_counted(tmp_path: Path) -> None:
    compared, own = _normal(50, seed=1), _normal(40, seed=2)
    np.savez(tmp_path / "inputs.npz", x=compared)
    # In another place, and in other company.
    np.savez(tmp_path / "calibration.npz", x=np.concatenate([own[:30], compared[7:12], own[30:]]))

    calibration = open_calibration(_request(tmp_path), _SIGNATURE)

    values = _values(calibration)
    assert len(values) == 40
    assert _is_among(values, own).all()
    assert calibration.facts["rows"] == 40
    assert calibration.facts["dropped_as_compared"] == 5


def test_rows_differ_only_if_the_model_can_tell(tmp_path: Path) -> None:
    rows = _normal(20, seed=1)
    np.savez(tmp_path / "inputs.npz", x=rows, number=np.arange(20))
    np.savez(tmp_path / "calibration.npz", x=rows, number=np.arange(100, 120))

    with pytest.raises(UsageError, match=r"of the 20 calibration rows in calibration.npz, 20 are among the rows"):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_calibrating_on_the_samples_themselves_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))

    with pytest.raises(
        UsageError, match=r"50 are among the rows that are compared: 0 are left \(needed: 16\)"
    ) as caught:
        open_calibration(_request(tmp_path, source="inputs.npz"), _SIGNATURE)
    assert "leave it out: then rows are held out" in caught.value.hint


@pytest.mark.parametrize("rows", [0, 1, 15])
def test_too_few_rows_are_refused(tmp_path: Path, rows: int) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=_normal(rows, seed=2))

    with pytest.raises(UsageError, match=rf"there are {rows} different rows in calibration.npz .* \(needed: 16\)"):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_the_same_row_again_is_no_more_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=np.repeat(_normal(10, seed=2), 5, axis=0))

    with pytest.raises(UsageError, match="there are 10 different rows"):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_no_more_rows_are_taken_than_asked_for_and_always_the_same(tmp_path: Path) -> None:
    rows = _normal(500, seed=2)
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=rows)
    first = open_calibration(_request(tmp_path, rows=32), _SIGNATURE)
    np.savez(tmp_path / "calibration.npz", x=rows[::-1])
    second = open_calibration(_request(tmp_path, rows=32), _SIGNATURE)

    assert len(_values(first)) == 32
    assert first.facts == second.facts
    assert _is_among(_values(first), _values(second)).all()
    # From anywhere in the file, which may be sorted.
    assert _is_among(_values(first), rows[250:]).sum() > 8
    assert np.array_equal(_values(first), _values(first)), "it can be read again"


@pytest.mark.parametrize("name", ["y", "X"])
def test_rows_with_other_names_are_refused(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", **{name: _normal(50, seed=2)})

    with pytest.raises(UsageError, match=rf"calibration: the samples have no input 'x', .* \(seen: {name}\)"):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_a_model_of_a_fixed_number_of_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(48, seed=1))
    np.savez(tmp_path / "calibration.npz", x=_normal(48, seed=2))
    fixed = dataclasses.replace(_SIGNATURE, inputs=(TensorSpec(name="x", dtype="float32", shape=(8, 4)),))

    with pytest.raises(UsageError, match="the model takes exactly 8 rows of 'x' a call"):
        open_calibration(_request(tmp_path), fixed)


def test_too_small_a_share_ends_the_run_with_what_to_do(desk: Desk) -> None:
    desk.spec(**_INT8, calibration={"share": 0.01})

    called = desk.call("run", "spec.yaml")

    assert called.code == 2
    assert "different rows held out of" in called.err
    assert "raise calibration.share" in called.err


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"path": "rows.json"}, "path, batch_size and pad belong to a calibration.source"),
        ({"source": "rows.npz", "share": 0.5}, "share is the part of samples that is held out"),
        ({"rows": 3}, "greater than or equal to 16"),
        ({"share": 1.5}, "less than 1"),
        ({"tool": "guess"}, "'onnxruntime' or 'nncf'"),
        ({"tool": "nncf", "method": "entropy"}, "are for tool: onnxruntime"),
        ({"tool": "nncf", "method": "dynamic"}, "dynamic quantization is ONNX Runtime's"),
        ({"sorce": "rows.npz"}, "calibration.sorce: unknown key"),
    ],
)
def test_a_contradictory_calibration_is_refused(tmp_path: Path, part: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _spec(tmp_path, targets=["onnx-int8"], calibration=part)


def test_a_missing_calibration_file_is_said_before_anything_starts(desk: Desk) -> None:
    desk.spec(**_INT8, calibration={"source": "absent.npz"})

    called = desk.call("run", "spec.yaml")

    assert called.code == 2
    assert "absent.npz do not exist" in called.err
    assert not desk.runs


def test_dynamic_quantization_in_a_run_compares_every_row(desk: Desk) -> None:
    desk.spec(**_INT8, calibration={"method": "dynamic"})

    called = desk.json("run", "spec.yaml")

    assert called.code == 0, str(called)
    assert _variant(called)["rows"] == 120
    assert not any("calibrated on" in note for note in _variant(called)["notes"])


def _bounded(rows: int, seed: int) -> NDArray[np.float32]:
    """Return values whose whole range a few rows show: what lies outside is cut off, and rightly fails."""
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 4)).astype(np.float32)


def _int8_of(bench: Bench, source: str, values: NDArray[np.float32], activations: str = "int8") -> str:
    folder = bench.folder / "int8"
    convert_and_check(
        ConversionJob(
            source=Source(text=source, folder=bench.folder, kind=SourceKind.ONNX),
            folder=folder,
            precision=Precision.INT8,
            calibration=Calibration(read=lambda: iter([{"x": values}]), tool="onnxruntime", activations=activations),
        ),
        "onnx",
    )
    return str(folder / "model.onnx")


@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_a_calibration_on_rows_like_those_compared_passes(bench: Bench, activations: str) -> None:
    source = bench.linear("source")
    made = _int8_of(bench, source, _bounded(64, seed=5), activations)

    outcome = bench.compare(
        source, made, "--samples", bench.npz("in.npz", {"x": _bounded(64, seed=6)}), "--precision", "int8"
    )

    assert outcome.code == 0
    assert outcome.result["candidate"]["precision_found"] == "int8"


@pytest.mark.parametrize("activations", ["int8", "uint8"])
@pytest.mark.parametrize("factor", [0.0, 0.01], ids=["zeros", "a hundredth of the range"])
def test_a_calibration_on_wrong_rows_fails_the_gate(bench: Bench, factor: float, activations: str) -> None:
    source = bench.linear("source")
    made = _int8_of(bench, source, _bounded(64, seed=5) * np.float32(factor), activations)

    outcome = bench.compare(
        source, made, "--samples", bench.npz("in.npz", {"x": _bounded(64, seed=6)}), "--precision", "int8"
    )

    assert outcome.code == 1
    assert {"max_abs_diff", "mean_abs_diff"} <= outcome.failed
