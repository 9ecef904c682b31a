"""The provider of ONNX Runtime that is asked for: by `compare --provider`, and by a spec."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.codec import from_data, to_data
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, parse_source
from paritygate.pipelines.compare import opening
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.jobs import compare as compare_job
from paritygate.pipelines.report.tables.variants import sides_table
from paritygate.pipelines.run.benchmark import subjects_of
from paritygate.pipelines.run.comparisons import comparison_job
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.spec.loading import load_spec
from paritygate.precision import Variant
from paritygate.validate.runners.opening import open_model
from paritygate.validate.runners.runner import RuntimeFacts

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

_CPU = "CPUExecutionProvider"


def test_the_provider_that_ran_is_in_the_result_and_in_the_report(bench: Bench) -> None:
    reference, candidate = bench.linear("reference"), bench.linear("candidate", error=1e-6)
    outcome = bench.compare(reference, candidate, "--samples", bench.samples(), "--provider", "cpu")
    assert outcome.code == 0
    assert outcome.result["candidate"]["provider"] == outcome.result["reference"]["provider"] == _CPU
    table = str(sides_table(from_data(ComparisonResult, outcome.result)))
    assert "execution provider" in table
    assert _CPU in table


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_of_the_gpu_needs_the_gpu(bench: Bench, provider: str) -> None:
    reference, candidate = bench.linear("reference"), bench.linear("candidate", error=1e-6)
    outcome = bench.compare(reference, candidate, "--samples", bench.samples(), "--provider", provider)
    assert outcome.code == 2
    assert f"provider '{provider}' runs on device cuda, but the requested device is 'cpu'" in outcome.err
    assert "use --device cuda, or leave --provider out" in outcome.err


def test_a_provider_that_is_not_known_is_refused(bench: Bench) -> None:
    model = bench.linear("reference")
    outcome = bench.compare(model, model, "--samples", bench.samples(), "--provider", "dml")
    assert outcome.code == 2
    assert "'dml' is not one of 'cpu', 'cuda', 'tensorrt'" in outcome.err


def test_recorded_outputs_have_no_provider(bench: Bench) -> None:
    recorded = bench.npz("actual.npz", {"logits": bench.normal(32, 3)})
    outcome = bench.compare(bench.linear("model"), recorded, "--samples", bench.samples(), "--provider", "cpu")
    assert outcome.code == 2
    assert "provider 'cpu' belongs to ONNX Runtime, which does not run" in outcome.err
    assert "(recorded outputs)" in outcome.err
    assert "leave --provider out, or give an ONNX model" in outcome.err


def test_another_runtime_has_no_provider(bench: Bench) -> None:
    (bench.folder / "m.tflite").write_bytes(b"")
    candidate = str(bench.folder / "m.tflite")
    outcome = bench.compare(bench.linear("model"), candidate, "--samples", bench.samples(), "--provider", "cpu")
    assert outcome.code == 2
    assert "(a tflite model)" in outcome.err


def test_what_is_emulated_has_no_provider(bench: Bench) -> None:
    reference, candidate = bench.linear("reference"), bench.linear("candidate", error=1e-6)
    options = ("--samples", bench.samples(), "--precision", "fp16", "--emulate", "--provider", "cpu")
    outcome = bench.compare(reference, candidate, *options)
    assert outcome.code == 2
    assert "provider 'cpu' cannot run emulated models" in outcome.err
    assert "leave --provider or --emulate out" in outcome.err


def _told(bench: Bench, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Let the candidate's runner tell these facts, compare a file with a copy of it, and return the checks."""
    reference = bench.linear("reference")
    copy = bench.folder / "copy.onnx"
    copy.write_bytes(Path(reference).read_bytes())
    real = open_model

    def tell(ref: ModelRef, device: str, **options: Any) -> Any:  # noqa: ANN401 - as of open_model
        runner = real(ref, device, **options)
        if ref.name == str(copy):
            runner._facts = replace(runner.facts, **facts)
        return runner

    monkeypatch.setattr(opening, "open_model", tell)
    outcome = bench.compare(reference, str(copy), "--samples", bench.samples())
    return {check["name"]: check for check in outcome.result["checks"]}


def test_what_a_provider_leaves_open_is_a_warning_in_the_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    check = _told(bench, monkeypatch, provider_warnings=("3 of 9 nodes run elsewhere",))["provider"]
    assert (check["status"], check["detail"]) == ("warning", "candidate: 3 of 9 nodes run elsewhere")


def test_the_same_file_under_another_provider_is_something_to_compare(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told(bench, monkeypatch, provider="TensorrtExecutionProvider")["distinct"]["status"] == "pass"


def test_the_same_file_under_a_provider_that_was_not_recorded_is_the_same_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told(bench, monkeypatch, provider=None)["distinct"]["status"] == "error"


def test_a_process_is_prepared_for_the_provider_before_anything_is_loaded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    real = open_model

    def watched(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as of open_model
        seen.append("opened")
        return real(*args, **options)

    monkeypatch.setattr(compare_job, "prepare_process", seen.append)
    monkeypatch.setattr(opening, "open_model", watched)
    models = bench.linear("reference"), bench.linear("candidate", error=1e-6)
    bench.compare(*models, "--samples", bench.samples(), "--provider", "cpu")
    assert seen == ["cpu", "opened", "opened"]


def test_a_model_takes_its_provider_along_to_the_runner(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[LoadedModel] = []
    runner = SimpleNamespace(facts=RuntimeFacts(runtime="onnxruntime", version="1", device="cpu"))

    def opened(model: LoadedModel) -> SimpleNamespace:
        given.append(model)
        return runner

    monkeypatch.setattr("paritygate.validate.runners.opening.open_runner", opened)
    ref = replace(parse_source(bench.linear("m"), bench.folder), provider="tensorrt")
    open_model(from_data(ModelRef, to_data(ref)), "cuda")
    assert [model.ref.provider for model in given] == ["tensorrt"]


# A spec


def test_a_spec_names_the_provider_of_its_onnx_targets_on_the_gpu(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    onnx, openvino = Variant.parse("onnx-fp32"), Variant.parse("openvino-fp32")
    for part, expected in (({}, "cuda"), ({"onnxruntime": {"provider": "tensorrt"}}, "tensorrt")):
        resolved = load_spec(str(desk.folder / desk.spec(**part)))
        assert resolved.provider(onnx, "cuda") == expected
        assert resolved.provider(onnx, "cpu") is None
        assert resolved.provider(openvino, "cuda") is None


def test_a_spec_with_a_provider_that_is_not_known_is_refused(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    called = desk.call("export", "--verbose", desk.spec(onnxruntime={"provider": "dml"}))
    assert called.code == 2
    assert "onnxruntime.provider" in called.err
    assert "'cuda' or 'tensorrt'" in called.err


def test_the_provider_of_the_spec_runs_validation_and_benchmark_on_the_gpu(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    called = desk.call("export", "--verbose", desk.spec(onnxruntime={"provider": "tensorrt"}))
    assert called.code == 0, called
    run = open_run(desk.run_folder)
    artifact = Artifact.read_record(run.variant_folder("onnx-fp32"))
    side = artifact_model(artifact, provider="tensorrt")
    # With the sizes of its dims, which the file does not say and an engine is built for.
    assert (side.provider, side.signature) == ("tensorrt", artifact.signature)
    assert comparison_job(run, artifact, "cuda").candidate == side
    assert comparison_job(run, artifact, "cpu").candidate == artifact_model(artifact)
    for device, expected in (("cuda", "tensorrt"), ("cpu", None)):
        source, variant = subjects_of(run, device)
        assert (source.model.provider, variant.model.provider) == (None, expected)


def test_the_provider_that_ran_a_variant_is_in_its_evidence_of_a_run(desk: Desk) -> None:
    desk.onnx()
    desk.samples()
    called = desk.call("run", "--verbose", desk.spec())
    assert called.code == 0, called
    evidence = open_run(desk.run_folder).evidence()
    entry = evidence.entry("onnx-fp32") if evidence is not None else None
    assert entry is not None
    result = entry.result
    assert result is not None
    assert (result.candidate.provider, result.reference.provider) == (_CPU, _CPU)
