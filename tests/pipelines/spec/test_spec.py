"""The spec: what is refused, with which words, and what is taken from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.pipelines.release.repository_of_run import repository_of
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.pipelines.spec.loading import load_spec, load_spec_to_run, packaged_specs, parse_spec
from paritygate.pipelines.spec.schema import ResolvedSpec, schema_of_spec
from paritygate.precision import Variant
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_MODULE = """
model:
  name: tiny
  source: net:model
  inputs:
    x: {dtype: float32, shape: [batch, 4]}
  outputs: {logits: {dtype: float32, shape: [batch, 3]}}
  dims: {batch: {min: 1, opt: 8, max: 64}}
samples: {source: net:samples}
decisions: {logits: {argmax: true}}
targets: [onnx-fp32]
"""


def _with(old: str, new: str) -> str:
    assert old in _MODULE
    return _MODULE.replace(old, new)


def _int8(calibration: str, targets: str = "tensorrt-rtx-int8") -> str:
    return _with("[onnx-fp32]", f"[{targets}]") + f"calibration: {calibration}\n"


def _parse(text: str, folder: Path = Path("/spec")) -> ResolvedSpec:
    return parse_spec(text, folder=folder, origin="spec.yaml")


def _refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        _parse(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint, "a refusal says what to do next"
    return caught.value


@pytest.mark.parametrize(
    ("short", "rule"),
    [
        ("argmax", {"argmax": True}),
        ("'argmax,axis=1'", {"argmax": True, "axis": 1}),
        ("threshold=3", {"threshold": 3}),
        ("threshold=>=3", {"threshold": "'>=3'"}),
        ("top_k=2", {"top_k": 2}),
    ],
)
def test_a_decision_may_be_written_as_on_the_command_line(short: str, rule: dict[str, object]) -> None:
    written = ", ".join(f"{key}: {str(value).lower()}" for key, value in rule.items())
    (found,) = _parse(_with("{argmax: true}", short)).decisions

    assert (found,) == _parse(_with("{argmax: true}", f"{{{written}}}")).decisions
    # So it is on the command line.
    assert found == parse_decision(f"logits:{short.strip(chr(39))}")


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ("argmix", "decisions.logits: unknown key (allowed: threshold, argmax, top_k, multilabel"),
        ("threshold", "decision threshold of 'logits' needs a finite number (seen: '')"),
        ("argmax,top_k=2", "exactly one of threshold, argmax: true, top_k, multilabel is needed"),
    ],
)
def test_a_short_decision_that_is_none_is_refused(short: str, words: str) -> None:
    assert words in str(_refusal(_with("{argmax: true}", f"'{short}'")))


@pytest.mark.parametrize("name", packaged_specs())
def test_a_packaged_spec_loads_and_its_schema_holds(name: str) -> None:
    resolved = load_spec_to_run(name)

    written = yaml.safe_load((Path(__file__).parents[3] / f"pipelines/specs/{name}.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema_of_spec()).validate(written)
    assert resolved.name == name
    assert resolved.signature is not None


def test_the_packaged_specs_are_those_of_the_folder(project_root: Path) -> None:
    assert set(packaged_specs()) == {path.stem for path in project_root.glob("pipelines/specs/*.yaml")}
    assert {"klue-sts", "klue-sts-tf", "face-resnet50", "linear-model"} <= set(packaged_specs())


@pytest.mark.parametrize("path", ["", "model", "samples", "promote", "model.inputs.x", "decisions.logits"])
def test_the_schema_rejects_a_wrong_key_everywhere(path: str) -> None:
    data = yaml.safe_load(_MODULE + "promote: {alias: prod}\n")
    schema = jsonschema.Draft202012Validator(schema_of_spec())
    schema.validate(data)
    place: dict[str, Any] = data
    for part in path.split(".") if path else ():
        place = place[part]

    place["bogus"] = 1

    with pytest.raises(jsonschema.ValidationError):
        schema.validate(data)


@pytest.mark.parametrize(
    ("wrong", "where", "meant"),
    [
        (_MODULE + "tolerence: {}\n", "tolerence: unknown key", "'tolerance' instead of 'tolerence'"),
        (_with("name: tiny", "name: tiny\n  soruce: x"), "model.soruce: unknown key", "'source' instead of 'soruce'"),
        (_with("dtype: float32, shape: [batch, 4]", "dtpe: float32, shape: [4]"), "model.inputs.x.dtpe", "'dtype'"),
        (_with("opt: 8", "opts: 8"), "model.dims.batch.opts: unknown key", "'opt' instead of 'opts'"),
        (_with("argmax: true", "argmaxx: true"), "decisions.logits.argmaxx: unknown key", "'argmax'"),
        (_MODULE + "promote: {fro: [cpu]}\n", "promote.fro: unknown key", "'for' instead of 'fro'"),
        (_with("source: net:samples", "source: net:samples, batchsize: 3"), "samples.batchsize", "'batch_size'"),
    ],
)
def test_a_wrong_key_is_named_with_its_place_and_with_what_was_meant(wrong: str, where: str, meant: str) -> None:
    error = _refusal(wrong)

    assert str(error).startswith("spec spec.yaml is wrong: ")
    assert where in str(error)
    assert "did you mean" in error.hint
    assert meant in error.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: [", "line 1 is not valid YAML"),
        (_MODULE + "seed: 1\nrepeat: 2\nseed: 2\n", "line 14: the key seed occurs twice (first in line 12)"),
        (_with("argmax: true", "argmax: true, argmax: true"), "the key decisions.logits.argmax occurs twice"),
        ("? [a]\n: b\n", "line 1: the key there of the spec is a list, and keys are text"),
        ("1: x\n", "line 1: the key 1 of the spec is a number, and keys are text"),
        (_with("shape: [batch, 4]", "shape: [batch, -4]"), "model.inputs.x.shape.1"),
        (_with("inputs:\n    x: {dtype: float32, shape: [batch, 4]}", "inputs: {}"), "model.inputs: "),
        ("- a\n- b\n", "is not a mapping"),
        ("", "is not a mapping"),
        (_with("targets: [onnx-fp32]", ""), "targets: is missing"),
        (_with("[onnx-fp32]", "[]"), "targets: "),
        (_with("[onnx-fp32]", "[onnx]"), "target 'onnx' is not available (available: onnx-"),
        (_with("[onnx-fp32]", "[onnx-fp64]"), "target 'onnx-fp64' is not available (available: onnx-fp"),
        (_with("[onnx-fp32]", "[openvino-fp33]"), "is not available (available: openvino-fp32, "),
        (_with("[onnx-fp32]", "[tflite-bf16]"), "target 'tflite-bf16' is not available"),
        (_with("[onnx-fp32]", "[onnx-fp32, onnx-fp32]"), "a target occurs twice"),
        (_int8("{method: dynamic}"), "tensorrt-rtx-int8 cannot be built with calibration.method dynamic: engines need"),
        (_int8("{activations: uint8}"), "tensorrt-rtx-int8 cannot be built with calibration.activations uint8: "),
        (_int8("{tool: nncf}"), "tensorrt-rtx-int8 cannot be built with calibration.tool nncf: "),
        (
            _int8("{method: dynamic, activations: uint8}"),
            "cannot be built with calibration.method dynamic and calibration.activations uint8",
        ),
        (
            _int8("{method: dynamic}", "onnx-int8, tensorrt-int8"),
            "and zero points of 0; they are made from onnx-int8, and one calibration cannot make it both ways",
        ),
        (_MODULE + "required: [savedmodel-fp32]\n", "required names 'savedmodel-fp32', which is not a target"),
        (_MODULE + "tolerance: {savedmodel-fp32: {}}\n", "tolerance names 'savedmodel-fp32', which is not a target"),
        (_MODULE + "tolerance: {onnx-fp32: {max: 1}}\n", "spec spec.yaml: onnx-fp32: tolerance 'max' is not known"),
        (_MODULE + "tolerance: {onnx-fp32: {max_abs_dif: 1}}\n", "): did you mean 'max_abs_diff'?"),
        (_MODULE + "tolerance: {onnx-fp32: {max_abs_diff: -1}}\n", "is not a finite number of at least 0"),
        (_MODULE + "tolerance: {onnx-fp32: {max_abs_diff: .nan}}\n", "is not a finite number of at least 0"),
        (_MODULE + "tolerance: {onnx-fp32: {decision_mismatches: 0.5}}\n", "is not a whole number"),
        (
            _MODULE + "promote: {prefer: quickest}\n",
            "promote.prefer: 'quickest' is not a preference (allowed: fastest, s",
        ),
        (
            _MODULE + "promote: {limits: {latency_p90_ms: 1}}\n",
            "limit 'latency_p90_ms' is not known (allowed: latency_p50",
        ),
        (_MODULE + "promote: {limits: {cost_per_million: 1}}\n", "benchmark.price_per_hour is missing"),
        (_MODULE + "promote: {for: [CPU]}\n", "promote.for: 'CPU' is not a device (allowed: cpu, cuda:smNN"),
        (_MODULE + "promote: {for: [cuda]}\n", "promote.for: 'cuda' is not a device (allowed: cpu, cuda:smNN"),
        (_MODULE + "benchmark: {batch_sizes: [65]}\n", "batch size 65 of the benchmark is outside of model.dims.batch"),
        (_MODULE + "promote: {limits: {size_mb: 0}}\n", "limit size_mb is 0, not a finite number above 0"),
        (_MODULE + "promote: {prefer: [savedmodel-fp32]}\n", "promote.prefer names 'savedmodel-fp32'"),
        (_MODULE + "promote: {accept: {savedmodel-fp32: emulated}}\n", "promote.accept names 'savedmodel-fp32'"),
        (_MODULE + "promote: {accept: {onnx-fp32: built}}\n", "promote.accept.onnx-fp32: "),
        (_MODULE + "promote: {fallback: sorce}\n", "promote.fallback: "),
        (_MODULE + "promote: {alias: '7'}\n", "alias name '7' is a number"),
        (_MODULE + "promote: {alias: ../prod}\n", "alias name '../prod' is not allowed"),
        (_MODULE + "min_rows: 0\n", "min_rows: "),
        (_MODULE + "repeat: 0\n", "repeat: "),
        (_with("name: tiny", "name: ../tiny"), "model.name: "),
        (_with("name: tiny", "name: a..b"), "model name 'a..b' is not allowed"),
        (_with("logits: {argmax: true}", "scores: {argmax: true}"), "decisions names 'scores', which is not an output"),
        (_with("argmax: true", "argmax: true, top_k: 2"), "exactly one of threshold, argmax: true, top_k, multilabel"),
        (_with("argmax: true", "axis: 1"), "exactly one of threshold, argmax: true, top_k, multilabel"),
        (_with("argmax: true", "threshold: high"), "high"),
        (_with("dims: {batch", "dims: {rows"), "model.dims names 'rows', which no input or output has"),
        (_with("min: 1, opt: 8", "min: 0, opt: 8"), "0 < min <= opt <= max is needed (seen: min=0, opt=8, max="),
        (
            _with("dtype: float32, shape: [batch, 4]", "dtype: float, shape: [4]"),
            "model.inputs.x.dtype: a dtype needs its ",
        ),
        (
            _with("  outputs: {logits: {dtype: float32, shape: [batch, 3]}}\n", ""),
            "must be given together or not at all",
        ),
    ],
)
def test_a_wrong_spec_is_refused_in_words(text: str, words: str) -> None:
    assert words in str(_refusal(text))


@pytest.mark.parametrize(
    ("targets", "more"),
    [("tensorrt-rtx-int8", ""), ("onnx-int8, tensorrt-int8", ", or give onnx-int8 a separate spec")],
)
def test_what_engines_are_built_from_is_said(targets: str, more: str) -> None:
    with pytest.raises(UsageError) as caught:
        _parse(_int8("{method: dynamic}", targets))

    assert caught.value.hint == (f"write calibration: {{tool: onnxruntime, method: minmax, activations: int8}}{more}")


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("onnx-f16", "did you mean onnx-fp16?"),
        ("onnx-f32", "did you mean onnx-fp32?"),
        ("ONNX-FP16", "did you mean onnx-fp16?"),
        ("onnx-fp61", "did you mean onnx-fp16?"),
        ("openvno-int8", "did you mean openvino-int8?"),
        ("onnx-f16@batch=1", "did you mean onnx-fp16?"),
        # As near in letters, and another precision all the same.
        ("onnx-fp64", "name one of these, the nearest of which come first"),
        ("onnx-fp8", "name one of these, the nearest of which come first"),
        ("onnx-tf32@batch=1", "did you mean onnx-fp32?"),
        ("onnx-fp32@batch", "write for example onnx-fp32@batch=1,sequence=128"),
    ],
)
def test_a_target_that_is_misspelt_is_answered_with_the_one_meant(target: str, hint: str) -> None:
    assert _refusal(_with("[onnx-fp32]", f"['{target}']")).hint == hint


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ("{source: random}", "source: random and random: {inputs: ...} belong together, and one of them is missing"),
        (
            "{source: a.npz, random: {inputs: {x: {dtype: float32, shape: [batch, 4]}}}}",
            "source: random and random: {inputs: ...} belong together",
        ),
        (
            "{source: random, random: {inputs: {x: {dtype: int8, shape: [batch], high: 300}}}}",
            "random values from 0 to 300 do not fit int8, which holds -128 to 127",
        ),
    ],
)
def test_random_samples_are_said_twice_and_can_be_made(samples: str, words: str) -> None:
    text = f"model: {{name: m, source: m.onnx}}\nsamples: {samples}\ntargets: [onnx-fp32]\n"

    assert words in str(_refusal(text))


@pytest.mark.parametrize("targets", ["onnx-int8", "tensorrt-rtx-fp16"])
def test_without_an_int8_engine_ranges_may_be_dynamic(targets: str) -> None:
    assert _parse(_int8("{method: dynamic}", targets)).target_names == tuple(targets.split(", "))


def test_a_path_is_taken_for_a_path_if_it_has_a_suffix_or_exists(tmp_path: Path) -> None:
    named_like_a_packaged_one = tmp_path / "klue-sts"
    named_like_a_packaged_one.write_text(_MODULE, encoding="utf-8")

    assert load_spec(str(named_like_a_packaged_one)).name == "tiny"
    assert load_spec("klue-sts").name == "klue-sts"
    with pytest.raises(InputFileError, match=r"spec klue-sts\.yaml does not exist"):
        load_spec("klue-sts.yaml")


def test_an_unknown_packaged_spec_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputFileError, match="no file or packaged spec is named 'klue-st'") as caught:
        load_spec("klue-st")

    assert caught.value.exit_code == 2
    assert caught.value.hint == "did you mean 'klue-sts'?"


@pytest.mark.parametrize("text", ["net.py", "net"])
def test_python_code_in_place_of_a_spec_leads_to_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "net.py").write_text("def load():\n    return None\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=r"net\.py is Python code") as caught:
        load_spec(text)

    assert caught.value.hint is not None
    assert "init net:FUNCTION" in caught.value.hint


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="holds no spec"):
        load_spec(str(tmp_path))


def test_a_spec_that_is_no_text_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"model: \xff\xfe\x00")

    with pytest.raises(InputFileError, match="cannot be read"):
        load_spec(str(path))


def test_paths_are_relative_to_the_folder_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    spec = tmp_path / "specs/spec.yaml"
    spec.write_text(_with("net:samples", "rows/inputs.npz"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    resolved = load_spec("specs/spec.yaml")

    assert resolved.samples().folder / resolved.samples().text == tmp_path / "specs/rows/inputs.npz"
    # What the command line names is relative to where the user stands.
    assert resolved.samples("other.npz").text == str(tmp_path / "other.npz")


def test_samples_given_on_the_command_line_go_to_a_callable_as_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    samples = _parse(_MODULE).samples("dev.json")

    assert (samples.text, samples.path) == ("net:samples", str(tmp_path / "dev.json"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (_MODULE, 8),
        (_with("opt: 8, ", ""), 16),
        (_with("source: net:samples", "source: net:samples, batch_size: 5"), 5),
        (_with("  dims: {batch: {min: 1, opt: 8, max: 64}}\n", ""), 16),
    ],
)
def test_the_batch_size_is_declared_or_the_optimum_or_sixteen(text: str, rows: int) -> None:
    assert _parse(text).samples().batch_size == rows


def test_declared_limits_stand_in_place_of_the_default_ones() -> None:
    # A number without a dot before its exponent is text to YAML.
    resolved = _parse(_MODULE + "tolerance: {onnx-fp32: {max_abs_diff: 1e-2, decision_mismatches: 0}}\n")

    tolerance = resolved.rules(Variant.parse("onnx-fp32")).tolerance

    assert (tolerance.max_abs_diff, tolerance.mean_abs_diff, tolerance.decision_mismatches) == (1e-2, 2e-5, 0)
    assert tolerance.declared == {"max_abs_diff", "decision_mismatches"}


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("artifacts/repository", "/place/repository"),
        ("artifacts", "/place"),
        ("releases", "/spec/releases"),
        ("/elsewhere/models", "/elsewhere/models"),
    ],
)
def test_a_repository_below_artifacts_moves_with_the_root(to: str, place: str) -> None:
    run = RunFolder(folder=Path("/run"), resolved=_parse(_MODULE + f"promote: {{to: {to}}}\n"), samples_path=None)

    assert repository_of(run, Path("/place")) == Path(place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_with("net:model", "model.onnx"), r"model .*model\.onnx does not exist"),
        (_with("net:samples", "inputs.npz"), r"samples .*inputs\.npz do not exist"),
        (_with("net:samples", "here.xlsx"), r"samples .*here\.xlsx are of an unknown kind '\.xlsx'"),
        (_with("source: net:samples", "source: net:samples, path: dev.json"), r"samples\.path .*dev\.json does not"),
        (_with("name: tiny", "name: tiny\n  files: [weights.bin]"), r"model\.files names 'weights\.bin'"),
    ],
)
def test_files_that_a_spec_names_are_looked_for_before_any_work(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "here.xlsx").touch()

    with pytest.raises(InputFileError, match=message) as caught:
        load_spec_to_run(str(tmp_path / "spec.yaml"))

    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_declared_files_must_lie_below_the_spec(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/spec.yaml").write_text(_with("name: tiny", "name: tiny\n  files: [../weights.bin]"))

    with pytest.raises(UsageError, match="which is outside of"):
        load_spec_to_run(str(tmp_path / "specs/spec.yaml"))


def _images(text: str) -> str:
    return _with("{source: net:samples}", f"{{source: pictures, images: {{input: x, {text}}}}}")


def test_pictures_are_prepared_as_the_spec_says_and_those_to_calibrate_on_alike(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    text = _images("size: [8, 6], resize: exact, mean: [0.5]").replace("[onnx-fp32]", "[onnx-int8]")

    resolved = _parse(f"{text}calibration: {{source: others}}\n", tmp_path)
    samples = resolved.samples()

    assert samples.images == PictureRules(input="x", size=(8, 6), resize="exact", mean=(0.5,))
    assert resolved.calibration_samples().images == samples.images
    # A child is handed them as JSON data.
    assert from_data(SampleSource, to_data(samples)) == samples


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size: [8, 6], crop: none", "crop: none leaves pictures of different sizes (allowed with it: resize: exact)"),
        ("size: [8]", "samples.images.size"),
        ("size: [8, 6], layout: CHW", "samples.images.layout"),
        ("size: [8, 6], sizes: 3", "samples.images.sizes"),
    ],
)
def test_pictures_that_cannot_be_prepared_so_are_refused(text: str, words: str) -> None:
    assert words in str(_refusal(_images(text)))


@pytest.mark.parametrize("text", ["model.onnx", "rows.npz", "rows.csv", "net:load", "saved"])
def test_a_model_or_samples_in_place_of_a_spec_lead_to_init(desk: Desk, text: str) -> None:
    (desk.folder / "saved").mkdir()
    (desk.folder / "saved/saved_model.pb").touch()

    called = desk.call("run", text)

    assert called.code == 2
    assert "convert-and-validate init " in called.err
    assert text in called.err.partition("hint: ")[2]
