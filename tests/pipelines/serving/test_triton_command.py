"""The command `triton`: which release it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from paritygate.errors import ArtifactIntegrityError, ExitCode, UsageError
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.spec.loading import parse_spec


@pytest.fixture
def call(call: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that writes a view of the release."""
    return lambda *words: call("triton", "adds", *words, "--out", "models")


def test_the_release_at_prod_is_written_and_said(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 4), dtype=np.float32))

    printed = call("--samples", "inputs.npz").output

    assert (tmp_path / "models/adds/1/model.onnx").is_file()
    assert printed.splitlines()[0] == "adds version 1 (prod): onnx-fp32 for Triton's backend onnxruntime: written:"
    for words in ("inputs: x FP32[4]", "up to 16 rows a call, a request waits 100 us", "warm-up: 2 requests"):
        assert words in printed
    assert "start: tritonserver --model-repository=models --model-control-mode=poll\n" in printed
    assert "grpc://127.0.0.1:8001/adds" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_quiet_call_prints_one_line(call: Callable[..., Result], make_release: Callable[..., StoredRelease]) -> None:
    make_release()

    assert call("-q").output == "adds version 1 (prod): onnx-fp32: written: models/adds\n"
    assert call("-q").output == ("adds version 1 (prod): onnx-fp32: there already: models/adds\n")


def test_what_the_spec_says_is_in_the_configuration(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(serve={"max_batch_size": 4, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]})

    call("--json", "view.json", "--quiet")

    config = json.loads((tmp_path / "view.json").read_text())["config"]
    assert (config["max_batch_size"], config["instance_group"][0]["count"]) == (4, 2)
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": 100}


def test_a_configuration_that_breaks_a_rule_is_refused_before_anything_is_written(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(serve={"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [8]}})

    with pytest.raises(UsageError, match="dynamic_batching: preferred_batch_size 8 is not allowed"):
        call()
    assert not (tmp_path / "models").exists()


def test_a_release_that_was_changed_is_not_served(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    path = make_release().folder / "onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"other")

    with pytest.raises(ArtifactIntegrityError, match="is corrupt"):
        call()


def test_the_first_variant_that_triton_serves_is_taken(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("pt2-fp32", "onnx-fp32", "onnx-fp16")

    assert "adds version 1 (prod): onnx-fp32 for" in call().output
    assert "adds version 1 (prod): onnx-fp16 for" in call("--variant", "onnx-fp16", "--name", "half").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--variant", "onnx-int8"), r"no variant 'onnx-int8' \(released: pt2-fp32\)"),
        (("--variant", "pt2-fp32"), "Triton does not serve pt2"),
        ((), "holds nothing that Triton serves: pt2-fp32"),
        (("canary",), "has no release 'canary'"),
        (("--name", "../up"), "is not allowed"),
    ],
)
def test_what_cannot_be_served_is_refused(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease], words: tuple[str, ...], message: str
) -> None:
    make_release("pt2-fp32" if "--name" not in words else "onnx-fp32")

    with pytest.raises(UsageError, match=message):
        call(*words)


@pytest.mark.parametrize("server", ["24.04", "25.02", "27.01"])
def test_a_server_that_reads_the_file_is_served(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease], server: str
) -> None:
    make_release()

    assert "written: models/adds" in call("--server", server, "-q").output


@pytest.mark.parametrize("server", ["24.01", "2.51", "25.13", "latest"])
def test_a_server_that_is_not_known_is_refused(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease], server: str
) -> None:
    make_release()

    with pytest.raises(UsageError, match="is not a known release of Triton"):
        call("--server", server)


def test_an_onnx_file_that_is_too_new_for_the_server_is_refused(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release(ir_version=13)

    with pytest.raises(
        UsageError, match=r"onnx version: the model is of IR 13 and opset 17, and Triton 25\.10"
    ) as caught:
        call("--server", "25.10")
    assert "opset in the spec" in caught.value.hint
    assert not (tmp_path / "models").exists()


def test_samples_that_the_model_does_not_take_are_refused(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 5), dtype=np.float32))

    with pytest.raises(UsageError, match=r"the shape \[3, 5\]"):
        call("--samples", "inputs.npz")


def test_a_spec_is_told_at_once_what_triton_does_not_know(tmp_path: Path) -> None:
    text = (
        "model: {name: adds, source: model.onnx}\nsamples: {source: inputs.npz}\ntargets: [onnx-fp32]\n"
        "serve: {triton: {max_batchsize: 4}}\n"
    )

    with pytest.raises(UsageError, match="'max_batchsize' is not a known field of a model configuration"):
        parse_spec(text, folder=tmp_path, origin="spec.yaml")


@pytest.mark.parametrize("words", [["triton"], ["kserve", "--storage-uri", "s3://team/models", "--server", "25.10"]])
def test_the_hint_after_a_change_names_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_release: Callable[..., StoredRelease], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make_release().folder / "onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"other")
    arguments = [words[0], "adds", *words[1:], "--out", "models", "--repository", "repository"]

    error = CliRunner().invoke(cli, arguments, standalone_mode=False).exception

    assert isinstance(error, ArtifactIntegrityError)
    assert error.hint == "see: convert-and-validate verify adds 1 --repository repository"
    # As it is printed, it finds what was changed.
    verify = CliRunner().invoke(cli, error.hint.split()[2:], standalone_mode=False)
    assert (verify.return_value, "onnx-fp32/model.onnx" in verify.output) == (ExitCode.NOT_MEASURED, True)


def test_the_usual_repository_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert command_on(tmp_path / "artifacts/repository", "show", "adds") == "convert-and-validate show adds"
    assert command_on(Path("other place"), "list") == "convert-and-validate list --repository 'other place'"
