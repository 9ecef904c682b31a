"""Calibration in a run: rows that are never compared, faults of calibration that the gate has to catch, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec.structs
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from paritygate.artifact import Artifact
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.calibration.calibration import CalibrationRequest, open_calibration
from paritygate.pipelines.calibration.rows import CALIBRATED_ROWS_FILE, CalibratedRows, calibrated_rows_file
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.precision import Precision, Variant
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.samples.samples import SampleSource, open_samples

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


def _in_16_bits(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights of which no pair sums up to more than 16 bits, where a processor without VNNI cuts sums off."""
    return weight * np.array([[1], [0], [1], [0]], dtype=np.float32)


def _keep_in_16_bits(desk: Desk) -> None:
    import onnx

    path = desk.folder / "model.onnx"
    model = onnx.load(path)
    (weight,) = model.graph.initializer
    weight.CopyFrom(onnx.numpy_helper.from_array(_in_16_bits(onnx.numpy_helper.to_array(weight)), weight.name))
    onnx.save(model, path)


def _variant(called: Called) -> dict[str, Any]:
    found: dict[str, Any] = called.data["runs"][0]["variants"]["onnx-int8"]
    return found


def test_int8_is_not_judged_by_the_rows_it_was_calibrated_on_and_other_variants_keep_them(desk: Desk) -> None:
    _keep_in_16_bits(desk)
    np.savez(desk.folder / "inputs.npz", x=_bounded(300, seed=1))
    desk.spec(targets=["onnx-fp32", "onnx-int8"], decisions={})

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    result = _variant(called)
    (note,) = (note for note in result["notes"] if "calibrated on" in note)
    rows = int(note.split("calibrated on ")[1].split(" rows")[0])
    # A fifth of the rows, all of them used: what it is not judged by is what it was calibrated on.
    assert 40 < rows < 80
    assert called.data["runs"][0]["variants"]["onnx-fp32"]["rows"] == 300
    assert result["rows"] == 300 - rows
    assert note.endswith("of the samples, by which it is not judged")
    # What the export cannot know, the comparison says.
    (check,) = (check for check in result["checks"] if check["name"] == "calibration")
    assert (check["status"], check["rows"]) == ("pass", 300 - rows)
    (counted,) = (check for check in result["checks"] if check["name"] == "rows")
    assert f"{rows} of 300 " in counted["detail"]
    assert result["candidate"]["precision_found"] == "int8"
    facts = desk.run_folder.glob("**/artifact.json")
    assert any('"digest": "sha256:' in path.read_text(encoding="utf-8") for path in facts)


def test_rows_of_an_own_source_are_taken_as_they_are(tmp_path: Path) -> None:
    resolved = _spec(tmp_path, targets=["onnx-int8"], calibration={"source": "calibration.npz"})

    assert resolved.calibration_samples().text == "calibration.npz"
    assert resolved.calibration_samples().split is None


@pytest.mark.parametrize("targets", [["onnx-fp32"], ["onnx-fp32", "onnx-int8"]])
def test_the_reference_answers_all_samples_whatever_is_calibrated_on_some(tmp_path: Path, targets: list[str]) -> None:
    assert _spec(tmp_path, targets=targets).samples().split is None


def test_a_row_that_stands_twice_is_left_out_twice(tmp_path: Path) -> None:
    rows = _normal(100, seed=1)
    np.savez(tmp_path / "inputs.npz", x=np.concatenate([rows, rows[::-1]]))
    resolved = _spec(tmp_path, targets=["onnx-int8"])
    request = msgspec.structs.replace(
        _request(tmp_path), source=resolved.calibration_samples(), compared=resolved.samples()
    )
    opened = open_calibration(request, _SIGNATURE)
    assert opened.rows is not None

    left_out = [is_in for batch in open_samples(resolved.samples())() for is_in in opened.rows.are_in(batch)]
    assert sum(left_out) == 2 * len(opened.rows.digests) == 2 * opened.calibration.facts["rows"]
    assert left_out == left_out[::-1]


def test_rows_that_are_compared_are_dropped_from_the_calibration_and_counted(tmp_path: Path) -> None:
    compared, own = _normal(50, seed=1), _normal(40, seed=2)
    np.savez(tmp_path / "inputs.npz", x=compared)
    # In another place, and among other rows.
    np.savez(tmp_path / "calibration.npz", x=np.concatenate([own[:30], compared[7:12], own[30:]]))

    calibration = open_calibration(_request(tmp_path), _SIGNATURE).calibration

    values = _values(calibration)
    assert len(values) == 40
    assert _is_among(values, own).all()
    assert calibration.facts["rows"] == 40
    assert calibration.facts["dropped_as_compared"] == 5


def test_rows_that_are_not_compared_are_found_among_ever_so_many_that_are(tmp_path: Path) -> None:
    compared, own = _normal(900, seed=1), _normal(20, seed=2)
    np.savez(tmp_path / "inputs.npz", x=compared)
    np.savez(tmp_path / "calibration.npz", x=np.concatenate([compared, own]))

    calibration = open_calibration(_request(tmp_path, rows=32), _SIGNATURE).calibration

    assert len(_values(calibration)) == 20
    assert _is_among(_values(calibration), own).all()
    assert calibration.facts["dropped_as_compared"] == 900


def _ragged(folder: Path, name: str, rows: list[list[int]]) -> None:
    (folder / name).write_text("\n".join(json.dumps({"x": row}) for row in rows), encoding="utf-8")


@pytest.mark.parametrize("pads", [(1, 1), (1, 7), (7, 0), (0, 0)])
def test_rows_are_found_again_whatever_each_source_pads_them_with(tmp_path: Path, pads: tuple[int, int]) -> None:
    drawn = np.random.default_rng(0)
    rows = [drawn.integers(8, 50, drawn.integers(2, 9)).tolist() for _ in range(80)]
    _ragged(tmp_path, "inputs.jsonl", rows[:40])
    _ragged(tmp_path, "calibration.jsonl", rows[::-1][20:])
    signature = Signature(inputs=(TensorSpec(name="x", dtype="int64", shape=("batch", "seq")),), outputs=())
    source, compared = (
        SampleSource(text=f"{name}.jsonl", folder=tmp_path, batch_size=4, pad={"x": pad})
        for name, pad in zip(("calibration", "inputs"), pads, strict=True)
    )
    request = msgspec.structs.replace(_request(tmp_path), source=source, compared=compared)

    calibration = open_calibration(request, signature).calibration

    assert calibration.facts["dropped_as_compared"] == 40
    assert calibration.facts["rows"] == 20


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            _normal(48, seed=2)[:, :3],
            r"calibration: from row '0' on, 'x' has the shape \[16, 3\], .* float32\[batch, 4\]",
        ),
        (_normal(48, seed=2)[..., None], r"calibration: from row '0' on, 'x' has the shape \[16, 4, 1\]"),
        (np.where(np.arange(48)[:, None] == 37, np.nan, _normal(48, seed=2)), "calibration: row '37' .* in 'x'"),
        (np.where(np.arange(48)[:, None] == 20, np.inf, _normal(48, seed=2)), "calibration: row '20' .* in 'x'"),
    ],
    ids=["width", "rank", "NaN", "infinity"],
)
def test_rows_that_no_range_comes_of_are_named(tmp_path: Path, rows: NDArray[np.float32], message: str) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=rows.astype(np.float32))

    with pytest.raises(UsageError, match=message):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_rows_differ_only_if_the_model_can_tell(tmp_path: Path) -> None:
    rows = _normal(20, seed=1)
    np.savez(tmp_path / "inputs.npz", x=rows, number=np.arange(20))
    np.savez(tmp_path / "calibration.npz", x=rows, number=np.arange(100, 120))

    with pytest.raises(
        UsageError, match=r"of the 20 calibration rows in calibration.npz, 20 are among the compared rows"
    ):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_calibrating_on_the_samples_themselves_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))

    with pytest.raises(
        UsageError, match=r"50 are among the compared rows: 0 are left \(expected at least 16\)"
    ) as caught:
        open_calibration(_request(tmp_path, source="inputs.npz"), _SIGNATURE)
    assert "leave it out to hold out rows" in caught.value.hint


def test_no_rows_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=_normal(0, seed=2))

    with pytest.raises(InputFileError, match=r"calibration\.npz"):
        open_calibration(_request(tmp_path), _SIGNATURE)


@pytest.mark.parametrize("rows", [1, 15])
def test_too_few_rows_are_refused(tmp_path: Path, rows: int) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=_normal(rows, seed=2))

    with pytest.raises(
        UsageError, match=rf"calibration has {rows} different rows in calibration.npz .*\(expected at least 16\)"
    ):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_the_same_row_again_is_no_more_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=np.repeat(_normal(10, seed=2), 5, axis=0))

    with pytest.raises(UsageError, match="calibration has 10 different rows"):
        open_calibration(_request(tmp_path), _SIGNATURE)


def test_no_more_rows_are_taken_than_asked_for_and_always_the_same(tmp_path: Path) -> None:
    rows = _normal(500, seed=2)
    np.savez(tmp_path / "inputs.npz", x=_normal(50, seed=1))
    np.savez(tmp_path / "calibration.npz", x=rows)
    first = open_calibration(_request(tmp_path, rows=32), _SIGNATURE).calibration
    np.savez(tmp_path / "calibration.npz", x=rows[::-1])
    second = open_calibration(_request(tmp_path, rows=32), _SIGNATURE).calibration

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
    fixed = msgspec.structs.replace(_SIGNATURE, inputs=(TensorSpec(name="x", dtype="float32", shape=(8, 4)),))

    with pytest.raises(UsageError, match="the model takes exactly 8 rows of 'x' a call"):
        open_calibration(_request(tmp_path), fixed)


def test_too_small_a_share_ends_the_run_with_what_to_do(desk: Desk) -> None:
    desk.spec(**_INT8, calibration={"share": 0.01})

    called = desk.call("run", "--verbose", "spec.yaml")

    assert called.code == 2
    assert "different rows held out of" in called.err
    assert "raise calibration.share" in called.err


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"path": "rows.json"}, "path, batch_size and pad need a calibration.source"),
        ({"source": "rows.npz", "share": 0.5}, "share is the part of samples that is held out"),
        ({"rows": 3}, "a number of at least 16 is needed"),
        ({"share": 1.5}, "a number below 1 is needed"),
        ({"tool": "guess"}, "'onnxruntime' or 'nncf'"),
        ({"tool": "nncf", "method": "entropy"}, "are for tool: onnxruntime"),
        ({"tool": "nncf", "method": "dynamic"}, "dynamic quantization needs ONNX Runtime"),
        ({"sorce": "rows.npz"}, "calibration.sorce: unknown key"),
    ],
)
def test_a_contradictory_calibration_is_refused(tmp_path: Path, part: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _spec(tmp_path, targets=["onnx-int8"], calibration=part)


def test_a_missing_calibration_file_is_said_before_anything_starts(desk: Desk) -> None:
    desk.spec(**_INT8, calibration={"source": "absent.npz"})

    called = desk.call("run", "--verbose", "spec.yaml")

    assert called.code == 2
    assert "absent.npz do not exist" in called.err
    assert not desk.runs


def test_dynamic_quantization_in_a_run_compares_every_row(desk: Desk) -> None:
    _keep_in_16_bits(desk)
    desk.spec(**_INT8, calibration={"method": "dynamic"})

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    assert _variant(called)["rows"] == 120
    assert not any("calibrated on" in note for note in _variant(called)["notes"])


def test_a_calibration_source_that_dynamic_quantization_leaves_unused_is_named(desk: Desk) -> None:
    desk.samples(40, name="calibration.npz", seed=5)
    desk.spec(**_INT8, calibration={"method": "dynamic", "source": "calibration.npz"})

    called = desk.json("export", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    record = json.loads((desk.run_folder / "onnx-int8/artifact.json").read_text(encoding="utf-8"))
    assert (
        "calibration.source (calibration.npz) was not used: with method dynamic no rows are needed"
        in (record["made_by"]["notes"])
    )


def _validated(desk: Desk) -> Called:
    """Record and validate the run that was exported."""
    run = str(desk.run_folder)
    recorded = desk.call("record", "--run", run)
    assert recorded.code == 0, str(recorded)
    return desk.call("validate", "--verbose", "--run", run)


def test_rows_that_become_samples_after_the_export_are_left_out_too(desk: Desk) -> None:
    np.savez(desk.folder / "calibration.npz", x=_bounded(60, seed=2))
    fixed = {"name": "onnx-int8", "static": {"batch": 8}}
    desk.spec(targets=["onnx-fp32", "onnx-int8", fixed], calibration={"source": "calibration.npz"})
    exported = desk.call("export", "--verbose", "spec.yaml")
    assert exported.code == 0, str(exported)
    np.savez(desk.folder / "inputs.npz", x=np.concatenate([_bounded(90, seed=3), _bounded(60, seed=2)]))

    called = _validated(desk)

    # Without VNNI, a processor computes INT8 otherwise, and that may fail: the rows are the same.
    assert called.code in {1, 3}, str(called)
    full, int8, static = desk.evidence()["variants"]
    assert (full["verdict"], full["result"]["rows"]) == ("pass", 150)
    for entry in (int8, static):
        assert entry["result"]["rows"] == 90
        (counted,) = (check for check in entry["result"]["checks"] if check["name"] == "rows")
        assert counted["status"] == "inconclusive"
        assert "60 of 150 " in counted["detail"]


def test_where_it_was_calibrated_on_all_rows_nothing_is_measured(desk: Desk) -> None:
    np.savez(desk.folder / "calibration.npz", x=_bounded(60, seed=2))
    desk.spec(targets=["onnx-int8"], calibration={"source": "calibration.npz"}, min_rows=1)
    exported = desk.call("export", "--verbose", "spec.yaml")
    assert exported.code == 0, str(exported)
    np.savez(desk.folder / "inputs.npz", x=_bounded(60, seed=2))

    called = _validated(desk)

    assert called.code == 5, str(called)
    (entry,) = desk.evidence()["variants"]
    assert entry["verdict"] == "error"
    (counted,) = (check for check in entry["result"]["checks"] if check["name"] == "rows")
    assert (counted["measured"], counted["words"][-1]["values"]) == (0, {"left_out": 60})


def test_what_an_artifact_was_calibrated_on_must_be_known(tmp_path: Path) -> None:
    rows = CalibratedRows(inputs=("x",), fill={"x": (1.0,)}, digests=frozenset({b"0" * 16}))
    rows.save(tmp_path)
    assert CalibratedRows.load(tmp_path / CALIBRATED_ROWS_FILE) == rows

    with pytest.raises(ArtifactIntegrityError, match="is missing"):
        CalibratedRows.load(tmp_path / "absent.json")
    for damaged in ("[]", "{", '{"inputs": ["x"], "fill": {}, "rows": ["z"]}'):
        (tmp_path / CALIBRATED_ROWS_FILE).write_text(damaged, encoding="utf-8")
        with pytest.raises(ArtifactIntegrityError, match="is corrupt"):
            CalibratedRows.load(tmp_path / CALIBRATED_ROWS_FILE)


def test_an_int8_artifact_that_does_not_say_otherwise_was_calibrated_on_rows(tmp_path: Path) -> None:
    def artifact(name: str, facts: dict[str, Any], base: dict[str, Any]) -> Artifact:
        return Artifact(
            variant=Variant.parse(name),
            folder=tmp_path,
            main="model.onnx",
            signature=_SIGNATURE,
            files={},
            made_by={"facts": facts, "base": {"facts": base}},
        )

    none, some = {"calibration": {"rows": 0}}, {"calibration": {"rows": 16}}
    assert calibrated_rows_file(artifact("onnx-fp16", {}, {})) is None
    assert calibrated_rows_file(artifact("onnx-int8", none, {})) is None
    assert calibrated_rows_file(artifact("onnx-int8", {}, none)) is None
    for facts in (some, {}):
        assert calibrated_rows_file(artifact("onnx-int8", facts, {})) == tmp_path / CALIBRATED_ROWS_FILE


def test_rows_and_strata_that_calibration_takes_away_are_said_of_int8_alone(desk: Desk) -> None:
    desk.module(
        "rows",
        """
        import numpy as np
        from paritygate.batch import Batch

        def read():
            values = np.random.default_rng(0).uniform(-1, 1, (110, 4)).astype(np.float32)
            for start in range(0, 110, 11):
                ids = [str(row) for row in range(start, start + 11)]
                # No stratum has more than 100 values.
                rows = [str(min(row, 99)) for row in range(start, start + 11)]
                yield Batch(inputs={"x": values[start : start + 11]}, ids=ids, strata={"row": rows, "all": ["a"] * 11})
        """,
    )
    desk.spec(targets=["onnx-fp32", "onnx-int8"], samples={"source": "rows:read", "strata": ["row", "all"]})
    exported = desk.call("export", "--verbose", "spec.yaml")
    assert exported.code == 0, str(exported)

    called = _validated(desk)

    # Without VNNI, a processor computes INT8 otherwise, and that may fail: the rows are the same.
    assert called.code in {1, 3}, str(called)
    full, entry = desk.evidence()["variants"]
    assert (full["verdict"], full["result"]["rows"]) == ("pass", 110)
    assert not any(
        "calibrated" in text
        for text in (*full["result"]["notes"], *(check["detail"] for check in full["result"]["checks"]))
    )
    (counted,) = (check for check in entry["result"]["checks"] if check["name"] == "rows")
    assert counted["status"] == "inconclusive"
    left_out = 110 - entry["result"]["rows"]
    assert left_out > 10
    assert counted["limit"] == 100
    assert re.search(rf"\b{left_out} of 110 .*INT8.* calibration\.source", counted["detail"])
    (lost,) = (
        check
        for check in entry["result"]["checks"]
        if (check["name"], check["kind"]) == ("strata_coverage", "not_measured")
    )
    assert lost["status"] == "warning"
    assert lost["detail"].count("(rows: 1)") == 5
    report = (desk.run_folder / "report.md").read_text(encoding="utf-8")
    assert f"{left_out} of 110 " in report


def _bounded(rows: int, seed: int) -> NDArray[np.float32]:
    """Return values whose whole range a few rows show: what lies outside is cut off, and rightly fails."""
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 4)).astype(np.float32)


def _int8_of(bench: Bench, source: str, values: NDArray[np.float32], activations: str = "int8") -> str:
    folder = bench.folder / "int8"
    convert_and_check(
        ConversionJob(
            source=ModelRef(text=source, folder=bench.folder, kind=SourceKind.ONNX),
            folder=folder,
            precision=Precision.INT8,
            calibration=Calibration(read=lambda: iter([{"x": values}]), tool="onnxruntime", activations=activations),
        ),
        "onnx",
    )
    return str(folder / "model.onnx")


@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_a_calibration_on_rows_like_those_compared_passes(bench: Bench, activations: str) -> None:
    source = bench.linear("source", weight=_in_16_bits(bench.normal(4, 3, seed=7)))
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
