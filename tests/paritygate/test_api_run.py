"""`paritygate.run` and `paritygate.Repository`: a whole run, and the release that it made, from Python."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import paritygate as pg
from paritygate.__main__ import _run
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError


def spec(**parts: object) -> dict[str, Any]:
    """Return a spec of the model in the current folder."""
    return {
        "model": {"name": "tiny", "source": "model.onnx", "rename": {"output_0": "logits"}},
        "samples": {"source": "inputs.npz"},
        "decisions": {"logits": {"argmax": True}},
        "targets": ["onnx-fp32", "onnx-fp16"],
        "required": ["onnx-fp32"],
        "probes": "none",
        **parts,
    }


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and samples."""
    folder = tmp_path_factory.mktemp("desk")
    random = np.random.default_rng(7)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weight"], ["output_0"])],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("output_0", onnx.TensorProto.FLOAT, ["batch", 3])],
        [onnx.numpy_helper.from_array(random.standard_normal((4, 3)).astype(np.float32), "weight")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(folder / "model.onnx"))
    np.savez(folder / "inputs.npz", x=random.standard_normal((120, 4)).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def outcome(desk: Path) -> Iterator[pg.Outcome]:
    """Return the outcome of a run of one target, made in that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        yield pg.run(pg.Spec.model_validate(spec(targets=["onnx-fp32"])))


@pytest.fixture
def here(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make that folder the current one."""
    monkeypatch.chdir(desk)


def test_a_spec_made_in_python_is_run_and_released(outcome: pg.Outcome, desk: Path) -> None:
    outcome.assert_passed()
    assert (outcome.exit_code, outcome.verdicts, outcome.version) == (0, {"onnx-fp32": "pass"}, 1)
    assert outcome.folder.is_relative_to(desk / "artifacts/runs/tiny")
    assert outcome.results["onnx-fp32"].decisions["logits"].mismatches == 0
    assert isinstance(outcome.results["onnx-fp32"], pg.Comparison)
    assert outcome.to_dict()["release"]["version"] == 1
    assert repr(outcome) == "<Outcome of tiny: exit code 0; onnx-fp32 pass>"
    assert str(outcome).splitlines()[:3] == ["tiny: exit code 0", "onnx-fp32: pass", "released: 1"]


def test_a_release_says_where_its_files_are(outcome: pg.Outcome, desk: Path) -> None:
    assert outcome.version == 1
    repository = pg.Repository(desk / "artifacts/repository")

    release = repository.release("tiny", "prod")

    assert (release.model, release.version, release.aliases, release.variants) == ("tiny", 1, ("prod",), ("onnx-fp32",))
    assert (
        release.path("onnx-fp32") == release.path() == desk / "artifacts/repository/store/tiny/1/onnx-fp32/model.onnx"
    )
    assert release.verify().is_intact
    assert [model.model for model in repository.models()] == ["tiny"]
    # What was released answers like the source.
    inputs = {"x": np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)}
    rename = {"logits": "output_0"}
    pg.compare(desk / "model.onnx", release.path(), samples=inputs, rename=rename, probes=()).assert_passed()


@pytest.mark.usefixtures("here", "outcome")
@pytest.mark.parametrize("written", ["tiny@prod", "tiny@1", "tiny@prod/onnx-fp32"])
def test_a_release_is_compared_by_its_alias_or_version(written: str) -> None:
    result = pg.compare(written, "model.onnx", samples="inputs.npz", rename={"output_0": "logits"}, probes=())

    assert result.verdict == "pass", str(result)
    assert (result.reference.name, result.reference.kind) == ("tiny@1/onnx-fp32", "onnx")


@pytest.mark.usefixtures("here", "outcome")
def test_a_release_may_be_the_candidate_and_in_another_repository(desk: Path) -> None:
    result = pg.compare(
        "model.onnx",
        "tiny@prod",
        samples="inputs.npz",
        rename={"logits": "output_0"},
        probes=(),
        repository=desk / "artifacts/repository",
    )

    assert (result.verdict, result.candidate.name) == ("pass", "tiny@1/onnx-fp32")


@pytest.mark.usefixtures("here", "outcome")
@pytest.mark.parametrize(
    ("written", "words", "hint"),
    [
        ("tiny", "tiny does not exist", "tiny has releases in artifacts/repository: write tiny@prod"),
        ("huge", "huge does not exist", "give the path of a model, or module:callable"),
        ("huge@prod", "has no release of model 'huge' (models: tiny)", "convert-and-validate list"),
        ("tiny@canary", "has no release 'canary' (versions: 1; aliases: prod)", "name one of the versions or aliases"),
        ("tiny@1/onnx-fp16", "has no variant 'onnx-fp16' (released: onnx-fp32)", "tiny@1/onnx-fp32, or none"),
    ],
)
def test_what_is_no_release_is_said_with_what_there_is(written: str, words: str, hint: str) -> None:
    with pytest.raises((UsageError, InputFileError), match=re.escape(words)) as caught:
        pg.compare(written, "model.onnx", samples="inputs.npz")

    assert hint in caught.value.hint


@pytest.mark.usefixtures("here", "outcome")
def test_a_release_that_was_changed_is_not_compared(desk: Path, tmp_path: Path) -> None:
    changed = tmp_path / "repository"
    shutil.copytree(desk / "artifacts/repository", changed)
    model = changed / "store/tiny/1/onnx-fp32/model.onnx"
    model.chmod(0o644)
    model.write_bytes(model.read_bytes() + b"x")

    with pytest.raises(ArtifactIntegrityError, match="version 1 of 'tiny' is corrupt"):
        pg.compare("tiny@prod", "model.onnx", samples="inputs.npz", repository=changed)


def test_a_path_that_looks_like_a_release_is_a_path(desk: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny@prod"
    path.mkdir()
    (path / "model.onnx").write_bytes((desk / "model.onnx").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)

        other = str(desk / "model.onnx")
        result = pg.compare("tiny@prod/model.onnx", other, samples=str(desk / "inputs.npz"), probes=())

    assert result.reference.name == "tiny@prod/model.onnx"


def test_what_a_repository_lacks_is_wrong_usage_that_names_what_it_has(outcome: pg.Outcome, desk: Path) -> None:
    assert outcome.version == 1
    repository = pg.Repository(desk / "artifacts/repository")

    with pytest.raises(UsageError, match=re.escape("has no release of model 'huge' (models: tiny)")):
        repository.release("huge")
    with pytest.raises(UsageError, match=re.escape("has no release 'staging' (versions: 1; aliases: prod)")):
        repository.release("tiny", "staging")
    with pytest.raises(UsageError, match=re.escape("has no release '7' (versions: 1; aliases: prod)")):
        repository.release("tiny", 7)
    words = "tiny version 1 has no variant 'onnx-fp16' (variants: onnx-fp32)"
    with pytest.raises(UsageError, match=re.escape(words)):
        repository.release("tiny", 1).path("onnx-fp16")
    with pytest.raises(InputFileError, match="no repository exists at"):
        pg.Repository(desk / "nowhere").models()


def test_a_release_that_was_changed_does_not_verify(outcome: pg.Outcome, desk: Path) -> None:
    assert outcome.version == 1
    release = pg.Repository(desk / "artifacts/repository").release("tiny", "prod")
    extra = release.path().with_name("extra.bin")
    extra.write_bytes(b"")
    try:
        with pytest.raises(ArtifactIntegrityError, match=r"tiny version 1 is corrupt: .*extra\.bin"):
            release.verify()
    finally:
        extra.unlink()


def test_a_run_that_fails_says_so_in_the_words_of_its_comparisons(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    path = tmp_path / "spec.json"
    strict = spec(
        model={**spec()["model"], "source": str(desk / "model.onnx")},
        samples={"source": str(desk / "inputs.npz")},
        targets=["onnx-fp16"],
        required=["onnx-fp16"],
        tolerance={"onnx-fp16": {"max_abs_diff": 0.0}},
    )
    # JSON is YAML as well.
    path.with_suffix(".yaml").write_text(json.dumps(strict), encoding="utf-8")

    outcome = pg.run(path.with_suffix(".yaml"), promote=False, root=tmp_path / "artifacts")

    assert (outcome.exit_code, outcome.verdicts, outcome.version) == (1, {"onnx-fp16": "fail"}, None)
    assert outcome.folder.is_relative_to(tmp_path / "artifacts/runs/tiny")
    with pytest.raises(pg.ParityError) as caught:
        outcome.assert_passed()
    assert caught.value.result is outcome
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("onnx-fp16: fail: ")
    assert lines[1:3] == ["tiny: exit code 1", "onnx-fp16: fail"]
    assert str(outcome.results["onnx-fp16"]) in str(caught.value)
    assert lines[-2:] == ["not released: not asked for", f"run: {outcome.folder}"]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (spec(tragets=[]), {}, "spec given in Python is wrong: tragets"),
        (
            spec(),
            {"targets": "onnx-int9"},
            "'onnx-int9' is not a target of spec given in Python (targets: onnx-fp32, onnx-fp16)",
        ),
        (spec(), {"probes": ["luck"]}, "'luck' is not a probe"),
        (spec(), {"constraints": {"speed": 1}}, "'speed' is not known"),
        (spec(), {"alias": "7"}, "alias name '7' is a number"),
        (spec(), {"device": "tpu"}, "device 'tpu' is not known (allowed: cpu, cuda)"),
        (spec(), {"samples": "absent.npz"}, "samples absent.npz do not exist"),
        (spec(samples={"source": "absent.npz"}), {}, "absent.npz do not exist"),
        ("kleu-sts", {}, "no file or packaged spec is named 'kleu-sts'"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_wrong_in_a_run_is_raised_before_it_begins(
    given: Any,  # noqa: ANN401
    options: Any,  # noqa: ANN401
    words: str,
    tmp_path: Path,
) -> None:

    with pytest.raises(pg.ParitygateError, match=re.escape(words)) as caught:
        pg.run(given, root=tmp_path, **options)

    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_release_by_speed_needs_the_benchmark_in_python_and_on_the_command_line(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    fastest = spec(promote={"prefer": "fastest"})
    (desk / "fastest.yaml").write_text(json.dumps(fastest), encoding="utf-8")

    with pytest.raises(UsageError, match="its release is chosen by speed, which --no-benchmark does not measure"):
        pg.run(fastest, benchmark=False)

    assert _run(["run", "fastest.yaml", "--no-benchmark"]) == 2
    assert "its release is chosen by speed, which --no-benchmark does not measure" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_released_variant_is_loaded_and_answers_like_the_source(outcome: pg.Outcome, desk: Path) -> None:
    assert outcome.version == 1
    release = pg.Repository(desk / "artifacts/repository").release("tiny", "prod")

    model = release.load()

    assert (repr(model), model.version) == ("<tiny version 1, onnx-fp32>", 1)
    assert [str(spec) for spec in (*model.inputs, *model.outputs)] == [
        "x: float32[batch, 4]",
        "logits: float32[batch, 3]",
    ]
    inputs = {"x": np.random.default_rng(2).standard_normal((40, 4)).astype(np.float32)}
    pg.compare(desk / "model.onnx", model, samples=inputs, rename={"logits": "output_0"}).assert_passed()
    request = {"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}]}
    answer = model.infer(json.loads(json.dumps(request)))
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("tiny", "1", "7")
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("logits", "FP32", [1, 3])
    expected = model({"x": np.array([[1, 0, 0, 0]], np.float32)})["logits"]
    assert json.loads(json.dumps(output["data"])) == expected.ravel().tolist()
    assert model.describe()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_a_release_that_was_changed_is_not_loaded(outcome: pg.Outcome, desk: Path) -> None:
    assert outcome.version == 1
    release = pg.Repository(desk / "artifacts/repository").release("tiny", "prod")
    before = release.path().read_bytes()
    release.path().chmod(0o644)
    release.path().write_bytes(before[:-1] + b"\1")
    try:
        with pytest.raises(ArtifactIntegrityError, match=r"tiny version 1 is corrupt: .*model\.onnx"):
            release.load()
    finally:
        release.path().write_bytes(before)
        release.path().chmod(0o444)
    with pytest.raises(UsageError, match="has no variant 'onnx-fp16'"):
        release.load("onnx-fp16")
