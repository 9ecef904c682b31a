"""The reference is asked by the recording alone, however many variants are judged by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from paritygate.validate.runners import onnxruntime as onnxruntime_runner

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


@pytest.fixture
def rows_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the rows of every call of the source so far."""
    rows: list[int] = []
    own, source = onnxruntime_runner.open_model, desk.folder / "model.onnx"

    def open_model(model: Any) -> Any:  # noqa: ANN401 - what the table of runners calls it with
        runner = own(model)
        if model.ref.path == source:
            answer = runner.run

            def run(inputs: Any) -> Any:  # noqa: ANN401 - named arrays
                rows.append(len(inputs["x"]))
                return answer(inputs)

            runner.run = run  # type: ignore[method-assign]  # what is counted is every call of it
        return runner

    monkeypatch.setattr(onnxruntime_runner, "open_model", open_model)
    return rows


def test_variants_share_what_the_reference_answered_to_the_probes(desk: Desk, rows_asked: list[int]) -> None:
    probes = "batches,shapes,values,sensitivity,repeats"
    spec = desk.spec(targets=["onnx-fp32", "onnx-fp16", "openvino-fp32"], probes=probes.split(","))
    assert desk.call("export", spec).code == 0
    run = str(desk.run_folder)
    rows_asked.clear()
    assert desk.call("record", "--run", run).code == 0
    assert sum(rows_asked) > 1000

    rows_asked.clear()
    called = desk.json("validate", "--run", run)

    assert called.code == 0, str(called)
    assert rows_asked == []
