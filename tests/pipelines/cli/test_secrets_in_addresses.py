"""No user, password and query of an address is ever printed or written, whichever command fails by it and however."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import paritygate as pg
from paritygate import addresses
from paritygate.__main__ import _run
from paritygate.addresses import without_secrets
from paritygate.errors import ParitygateError, UsageError

_SECRET = "s3cr3t"  # noqa: S105 - it is looked for
_ADDRESSES = (
    f"http://user:{_SECRET}@127.0.0.1:9/v2/models/m",
    f"https://{_SECRET}@127.0.0.1:9/v2/models/m",
    f"http://user:{_SECRET}/with@slash@127.0.0.1:9/v2/models/m",
    f"http://user:with blank {_SECRET}@127.0.0.1:9/v2/models/m",
    f"http://user:{_SECRET}@127.0.0.1:99999/v2/models/m",
    f"http://user:{_SECRET}@[::1/v2/models/m",
    f"http://user:{_SECRET}@127.0.0.1:port/v2/models/m",
    f"http://127.0.0.1:9/v2/models/m?token={_SECRET}",
    f"http://127.0.0.1:9/predict?a=1&X-Amz-Signature={_SECRET}",
    f"grpc://user:{_SECRET}@127.0.0.1:9/m",
    f"ftp://user:{_SECRET}@127.0.0.1/m",
    f"user:{_SECRET}@127.0.0.1:9/v2/models/m",
)
_COMMANDS = (
    ("compare", "model.onnx", "ADDRESS", "--samples", "x.npz"),
    ("compare", "ADDRESS", "model.onnx", "--samples", "x.npz"),
    ("compare", "model.onnx", "ADDRESS", "--samples", "x.npz", "--endpoint-json", "mapping.yaml"),
    ("compare", "model.onnx", "http://127.0.0.1:9/v2/models/m", "--samples", "ADDRESS"),
    ("tune", "m", "--url", "ADDRESS", "--out", "models", "--samples", "x.npz", "--latency-budget", "1s"),
    ("init", "ADDRESS"),
    ("inspect", "ADDRESS"),
    ("run", "ADDRESS"),
    ("triton", "m", "prod", "--out", "ADDRESS"),
    ("kserve", "m", "prod", "--out", "models", "--storage-uri", "ADDRESS"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with samples and a mapping, in which commands are given."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 3), dtype=np.float32))
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "mapping.yaml").write_text("{request: {inputs: {x: x}}, response: {outputs: {y: y}}}")
    return tmp_path


@pytest.mark.parametrize("address", _ADDRESSES)
@pytest.mark.usefixtures("folder")
def test_no_command_prints_a_secret(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    for command in _COMMANDS:
        words = [address if word == "ADDRESS" else word for word in command]
        for more in ((), ("--debug",)):
            assert _run([*words, *more]) != 0
            printed = "".join(capfd.readouterr())

            assert printed
            assert _SECRET not in printed, words


@pytest.mark.parametrize("address", _ADDRESSES)
def test_no_error_of_the_python_api_holds_a_secret(folder: Path, address: str) -> None:
    with pytest.raises(ParitygateError) as caught:
        pg.compare(folder / "model.onnx", address, samples=folder / "x.npz")

    assert _SECRET not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "address", [f"http://user:a{_SECRET}@host/x", f"http://user:'{_SECRET}\"@host", f"s3://b/x?{_SECRET}"]
)
def test_an_address_that_is_escaped_hides_it_too(address: str) -> None:
    once = json.dumps(address).replace("/", "\\/").replace("'", "\\'")
    for text in (once, json.dumps(once), f"{'x' * 290}: {once}"):
        assert _SECRET not in without_secrets(text)


def test_a_text_of_backslashes_is_read_fast() -> None:
    text = "http://" + "\\" * 20_000

    assert without_secrets(text + " @?") == text + " @?"


@pytest.mark.parametrize("address", ["http://a/", "http://", "http:/x:y-", "s3://b.c,"])
def test_a_text_of_addresses_without_a_blank_is_read_once(address: str) -> None:
    text = address * 20_000

    for pattern in (addresses._WHOLE, addresses._QUERY):
        # One match that begins at each address would read the rest each time.
        assert [found.span() for found in pattern.finditer(text)] == [(0, len(text))]
    assert without_secrets(f"{text} ?") == f"{text} ?"
    assert _SECRET not in without_secrets(f"{text}u:{_SECRET}@h?{_SECRET}")


def test_what_is_no_secret_stays() -> None:
    kept = (
        "klue-sts@prod and http://127.0.0.1:8000/v2/models/m, grpc://h:8001/m, module:callable, model@3/onnx-fp16: "
        "is it there? https://example.org/page#part"
    )

    assert without_secrets(kept) == kept
    assert str(UsageError(kept)) == kept
