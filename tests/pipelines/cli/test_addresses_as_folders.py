"""What is written is written on this machine: an address is not a folder of the name `s3:`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from paritygate.pipelines.cli.app import cli

_COMMANDS = (
    ("tfserving", "m", "--out", "URL"),
    ("kserve", "m", "--out", "URL", "--storage-uri", "s3://bucket/models"),
    ("tune", "m", "--out", "URL", "--url", "http://h:1", "--samples", "x.npz", "--latency-budget", "1s"),
    ("run", "spec.yaml", "--root", "URL"),
    ("record", "model.onnx", "--samples", "x.npz", "--out", "URL"),
    ("init", "model.onnx", "--out", "URL"),
)


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda words: f"{words[0]} {words[words.index('URL') - 1]}")
@pytest.mark.parametrize("address", ["s3://bucket/models", "gs://bucket", "HTTPS://host/models"])
def test_an_address_is_refused_and_no_folder_is_made(
    command: tuple[str, ...], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [address if word == "URL" else word for word in command]

    with pytest.raises(click.BadParameter, match="is an address"):
        CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("https://host/models", "unknown scheme"),
        ("S3://bucket/models", "unknown scheme"),
        ("s3:/bucket/models", "unknown scheme"),
        ("s3://", "names no bucket"),
        ("s3://key:hidden-secret@bucket/models", "credentials"),
        ("s3://bucket/models?secret=hidden-secret", "a query"),
        ("s3://bucket/models/../others", r"\.\."),
        ("s3://bucket/./models", r"\. or"),
        ("s3://bucket/models//prod", "//"),
        ("s3://bucket//models", "//"),
        ("s3://bucket/%2e%2e/models", "a character"),
        ("s3://bucket/mod els", "a character"),
        ("s3://bucket/mod\\els", "a character"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("list", "--repository"),
        ("run", "spec.yaml", "--repository"),
        ("promote", "--run", ".", "--repository"),
        ("gate", "--run", ".", "--repository"),
        ("triton", "m", "--out"),
    ],
)
def test_an_address_that_is_no_plain_prefix_is_refused(
    command: tuple[str, ...], address: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(click.BadParameter, match=reason) as caught:
        CliRunner().invoke(cli, [*command, address], standalone_mode=False, catch_exceptions=False)

    assert "hidden-secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
