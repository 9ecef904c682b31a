"""What the building of engines says where a library is not what it should be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.convert.conftest import Bench, sign

from paritygate.convert.engine.network import signature_of_network
from paritygate.engine.library import open_library
from paritygate.errors import ConversionError
from paritygate.signature import Signature

pytestmark = pytest.mark.rtx

_RELU = """
< ir_version: 8, opset_import: ["" : 17] >
relu (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }
"""
_SIGNATURE = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 8))


def _error(bench: Bench, text: str, signature: Signature) -> ConversionError:
    with pytest.raises(ConversionError) as caught:
        bench.convert("onnx", bench.onnx_file(text), to="tensorrt-rtx", signature=signature)
    return caught.value


def test_a_network_that_is_not_strongly_typed_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    library = open_library("tensorrt-rtx")
    monkeypatch.setattr(library.module.INetworkDefinition, "get_flag", lambda *_: False)

    error = _error(bench, _RELU, _SIGNATURE)

    words = "has no strongly typed networks, so it would choose the precision of each layer itself"
    assert str(error) == f"{library.title} {words}"
    assert error.hint == "install a later version of the library"


def test_a_dtype_that_no_runner_feeds_is_named() -> None:
    tensor = SimpleNamespace(name="x", dtype=SimpleNamespace(name="FP8"), shape=(1, 4))
    network = SimpleNamespace(num_inputs=1, num_outputs=0, get_input=lambda _: tensor)

    with pytest.raises(ConversionError) as caught:
        signature_of_network(network)

    assert "'x' is FP8 in the network (allowed: " in str(caught.value)
    assert caught.value.hint == "give the model inputs and outputs of another dtype"


def test_an_input_of_no_size_is_taken_as_it_is(bench: Bench) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    empty (float[batch, 4] x, float[1, 0] z) => (float[batch, 4] y, float[1, 0] w) { y = Relu (x)  w = Relu (z) }
    """
    signature = sign(
        {"x": "float32[batch, 4]", "z": "float32[1, 0]"},
        {"y": "float32[batch, 4]", "w": "float32[1, 0]"},
        batch=(1, 2, 8),
    )
    converted = bench.convert("onnx", bench.onnx_file(text), to="tensorrt-rtx", signature=signature)
    assert converted.conversion.facts["profile"]["z"] == {"min": [1, 0], "opt": [1, 0], "max": [1, 0]}
