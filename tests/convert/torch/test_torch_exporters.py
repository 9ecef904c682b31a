"""PyTorch to ONNX by the first exporter that converts a module: what each said, and what is never tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.convert.conftest import Bench, assert_near, sign

from paritygate.convert.torch import torch_to_onnx
from paritygate.errors import ConversionError, UsageError
from paritygate.signature import Signature

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_NOT_WRITTEN = "no graph is made of this"
_EAGER = 'dynamo with attn_implementation="eager"'
_FOUR_TO_FOUR = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 16))
_LENGTHS = {"x": "float32[batch, time, 3]", "lengths": "int64[batch]"}


class _Packed(torch.nn.Module):
    """A packed LSTM, which torch.export does not trace."""

    def __init__(self, *, is_last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.is_last = torch.nn.LSTM(3, 4, batch_first=True), is_last

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        utils = torch.nn.utils.rnn
        packed = utils.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        answers, (last, _) = self.rnn(packed)
        if self.is_last:
            return last[0]
        answer: torch.Tensor = utils.pad_packed_sequence(answers, batch_first=True, total_length=x.shape[1])[0]
        return answer


@pytest.mark.parametrize("is_last", [True, False], ids=["last state", "all states"])
def test_a_packed_lstm_is_exported_by_torchscript_and_the_reason_is_recorded(bench: Bench, *, is_last: bool) -> None:
    outputs = {"y": "float32[batch, 4]" if is_last else "float32[batch, time, 4]"}
    signature = sign(_LENGTHS, outputs, batch=(1, 4, 6), time=(1, 7, 9))
    module = _Packed(is_last=is_last).eval()
    converted = bench.convert("torch", model=module, signature=signature)
    facts, notes = converted.conversion.facts, converted.conversion.notes
    assert facts["exporter"] == "torchscript"
    assert [attempt["exporter"] for attempt in facts["attempts"]] == ["dynamo", "torchscript"]
    assert facts["attempts"][0]["said"].startswith("torch.export cannot trace the module: TypeError: zeros()")
    assert facts["attempts"][1]["said"] == "converted"
    assert notes[0].startswith("exported by torchscript; dynamo did not convert it: torch.export cannot trace")
    assert "/" not in notes[0], "the folders of this machine are nobody's concern"
    for lengths in ([5, 2, 4], [1]):
        x = np.random.default_rng(0).standard_normal((len(lengths), max(lengths), 3)).astype(np.float32)
        fed = {"x": x, "lengths": np.array(lengths)}
        with torch.inference_mode():
            expected = module(*(torch.from_numpy(array) for array in fed.values()))
        actual = converted.run(fed)
        assert list(actual) == ["y"]
        assert_near(actual["y"], expected)


def test_what_python_computed_in_a_trace_is_noted(bench: Bench) -> None:
    class Rounded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 0 else x

    converted = bench.convert("torch", model=Rounded(), signature=_FOUR_TO_FOUR, exporter="torchscript")
    (note,) = [note for note in converted.conversion.notes if "constants of the trace" in note]
    assert note.startswith("values that Python computes at test_torch_exporters.py:")


class _Config:
    """As configurations of transformers: those within it are set with it."""

    def __init__(self, within: _Config | None = None) -> None:
        self._attn_implementation_internal, self.within = "sdpa", within

    @property
    def _attn_implementation(self) -> str:
        return self._attn_implementation_internal

    @_attn_implementation.setter
    def _attn_implementation(self, value: str) -> None:
        self._attn_implementation_internal = value
        if self.within is not None:
            self.within._attn_implementation = value


class _Attending(torch.nn.Module):
    """Computes what torch.export does not trace unless its attention is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.config = _Config(_Config())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        within = self.config.within
        is_eager = within is not None and within._attn_implementation == "eager"
        if torch.compiler.is_exporting() and not is_eager:
            raise RuntimeError(_NOT_WRITTEN)
        return x.exp()


def test_attention_of_transformers_is_written_out_for_the_export_alone(bench: Bench) -> None:
    module = _Attending().eval()
    converted = bench.convert("torch", model=module, signature=_FOUR_TO_FOUR)
    assert converted.conversion.facts["exporter"] == _EAGER
    assert [attempt["exporter"] for attempt in converted.conversion.facts["attempts"]] == ["dynamo", _EAGER]
    settings = [vars(config) for config in (module.config, module.config.within)]
    assert [setting["_attn_implementation_internal"] for setting in settings] == ["sdpa", "sdpa"]
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert_near(converted.run({"x": x})["y"], module(torch.from_numpy(x)))


@pytest.mark.thorough
def test_a_mixture_of_experts_of_transformers_is_exported(bench: Bench) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.MixtralConfig(vocab_size=50, num_key_value_heads=1, num_local_experts=4, **sizes)
    model = transformers.MixtralModel(config).eval()
    usual = model.config._experts_implementation
    signature = sign(
        {"input_ids": "int64[batch, length]"}, {"last_hidden_state": "float32[batch, length, 16]"},
        batch=(1, 2, 4), length=(1, 6, 12),
    )  # fmt: skip
    converted = bench.convert("torch", model=model, signature=signature)

    assert 'experts_implementation="batched_mm"' in converted.conversion.facts["exporter"]
    assert model.config._experts_implementation == usual != "batched_mm"
    ids = np.random.default_rng(0).integers(0, 50, (3, 7))
    with torch.inference_mode():
        expected = model(input_ids=torch.from_numpy(ids), use_cache=False).last_hidden_state
    assert_near(converted.run({"input_ids": ids})["last_hidden_state"], expected)


def test_where_no_exporter_converts_it_the_message_says_what_each_said(bench: Bench) -> None:
    class Unexported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = _Config()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_exporting() or torch.jit.is_tracing():
                raise RuntimeError(_NOT_WRITTEN)
            return x

    module = Unexported()
    with pytest.raises(ConversionError) as caught:
        bench.convert("torch", model=module, signature=_FOUR_TO_FOUR)
    first, _, others = str(caught.value).partition(f"; {_EAGER}: ")
    eager, _, torchscript = others.partition("; torchscript: ")
    assert first.startswith(f"torch.export cannot trace the module: RuntimeError: {_NOT_WRITTEN}")
    assert eager.startswith(f"torch.export cannot trace the module: RuntimeError: {_NOT_WRITTEN}")
    assert torchscript.startswith(f"torch.jit.trace cannot trace the module: RuntimeError: {_NOT_WRITTEN}")
    assert module.config._attn_implementation == "sdpa"


def test_a_branch_on_values_is_never_traced_away(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.mean() > -100 else x

    with pytest.raises(ConversionError, match="branches on the values of a tensor") as caught:
        bench.convert("torch", model=Branching(), signature=_FOUR_TO_FOUR)
    assert "torchscript" not in str(caught.value)


class _Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encode = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self.encode(x)
        return encoded


def test_the_torchscript_exporter_does_without_the_fast_path_of_transformers(bench: Bench) -> None:
    signature = sign({"x": "float32[1, 5, 8]"}, {"y": "float32[1, 5, 8]"})
    module = _Encoder()

    converted = bench.convert("torch", model=module, signature=signature, exporter="torchscript")

    rows = np.random.default_rng(0).standard_normal((1, 5, 8)).astype(np.float32)
    with torch.no_grad():
        assert_near(converted.run({"x": rows})["y"], module(torch.from_numpy(rows)).numpy())
    assert torch.backends.mha.get_fastpath_enabled()


def test_what_the_torchscript_exporter_makes_of_a_transformer_is_refused_for_what_it_is(bench: Bench) -> None:
    signature = sign(
        {"x": "float32[batch, time, 8]"}, {"y": "float32[batch, time, 8]"}, batch=(1, 8, 16), time=(2, 5, 9)
    )
    with pytest.raises(ConversionError, match="so the size of 'time' is baked in") as caught:
        bench.convert("torch", model=_Encoder(), signature=signature, exporter="torchscript")
    assert "_transformer_encoder_layer_fwd" not in str(caught.value)


class _Decoder(torch.nn.Module):
    def __init__(self, **said: bool) -> None:
        super().__init__()
        layer = torch.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.decode = torch.nn.TransformerDecoder(layer, 1)
        self.said = said

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        mask = torch.triu(torch.ones(size, size, dtype=torch.bool, device=x.device), 1)
        decoded: torch.Tensor = self.decode(x, x, tgt_mask=mask, **self.said)
        return decoded


_DECODED = sign({"x": "float32[batch, time, 8]"}, {"y": "float32[batch, time, 8]"}, batch=(2, 8, 16), time=(2, 5, 9))


@pytest.mark.parametrize("to", ["onnx", "pt2"])
def test_a_branch_inside_of_torch_is_named_as_such_with_what_does_without_it(bench: Bench, to: str) -> None:
    said = r"torch itself branches on the values of a tensor, in _detect_is_causal_mask, called at .*self\.decode\("
    with pytest.raises(ConversionError, match=said) as caught:
        bench.convert("torch", to=to, model=_Decoder(), signature=_DECODED)
    assert "tgt_is_causal=True" in caught.value.hint


def test_a_decoder_that_is_told_that_its_mask_is_causal_is_exported(bench: Bench) -> None:
    module = _Decoder(tgt_is_causal=True)

    converted = bench.convert("torch", model=module, signature=_DECODED)

    rows = np.random.default_rng(0).standard_normal((3, 6, 8)).astype(np.float32)
    with torch.no_grad():
        assert_near(converted.run({"x": rows})["y"], module(torch.from_numpy(rows)).numpy())


def test_an_exporter_asked_for_is_the_only_one_tried(bench: Bench) -> None:
    signature = sign(_LENGTHS, {"y": "float32[batch, 4]"}, batch=(1, 4, 6), time=(1, 7, 9))
    with pytest.raises(ConversionError, match=r"torch\.export cannot trace the module") as caught:
        bench.convert("torch", model=_Packed(is_last=True), signature=signature, exporter="dynamo")
    assert "torchscript" not in str(caught.value)
    other = Bench(folder=bench.folder / "other")
    facts = other.convert(
        "torch", model=torch.nn.ReLU(), signature=_FOUR_TO_FOUR, exporter="torchscript"
    ).conversion.facts
    assert facts["exporter"] == "torchscript"
    assert "attempts" not in facts


def test_torchscript_from_a_callable_is_exported(bench: Bench) -> None:
    script = torch.jit.script(torch.nn.ReLU())
    converted = bench.convert("torch", model=script, signature=_FOUR_TO_FOUR)
    assert converted.conversion.facts["exporter"] == "torchscript"
    assert_near(converted.run({"x": np.array([[-1, 0, 1, 2]], np.float32)})["y"], np.array([[0, 0, 1, 2]], np.float32))


def test_a_file_that_answers_otherwise_at_some_size_is_not_taken_and_the_next_exporter_is_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(torch.nn.Module):
        """Right at the size that it is traced with."""

        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor]:
            return (arrays[0] * 2 + (arrays[0].shape[0] - 8),)

    class Right(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    export = torch_to_onnx._export
    monkeypatch.setattr(torch_to_onnx, "_export", lambda module: export(replace(module, named=Wrong().eval())))
    converted = bench.convert("torch", model=Right(), signature=_FOUR_TO_FOUR)
    assert converted.conversion.facts["exporter"] == "torchscript"
    assert "output 'y' of the converted model differs" in converted.conversion.facts["attempts"][0]["said"]
    assert list(converted.files) == ["model.onnx"]
    assert_near(converted.run({"x": np.ones((1, 4), np.float32)})["y"], np.full((1, 4), 2, np.float32))


def test_a_file_that_answers_otherwise_at_all_sizes_is_taken_where_no_exporter_does_better(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor]:
            return (arrays[0] * 3,)

    class Right(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    export = torch_to_onnx._export
    monkeypatch.setattr(torch_to_onnx, "_export", lambda module: export(replace(module, named=Wrong().eval())))
    x = np.ones((1, 4), np.float32)

    converted = bench.convert("torch", model=Right(), signature=_FOUR_TO_FOUR)
    facts = converted.conversion.facts
    assert facts["exporter"] == "torchscript"
    assert facts["attempts"][0]["said"] == ("its outputs differ from the module's, on real rows where there are any")
    assert list(converted.files) == ["model.onnx"]
    assert_near(converted.run({"x": x})["y"], 2 * x)

    # What is not near in either file is for the gate to judge, on that of the first exporter.
    trace = torch_to_onnx.traced
    monkeypatch.setattr(torch_to_onnx, "traced", lambda _, *rest: trace(Wrong().eval(), *rest))
    again = replace(bench, folder=bench.folder / "again")
    again.folder.mkdir()
    converted = again.convert("torch", model=Right(), signature=_FOUR_TO_FOUR)
    assert converted.conversion.facts["exporter"] == "dynamo"
    assert [attempt["exporter"] for attempt in converted.conversion.facts["attempts"]] == ["torchscript", "dynamo"]
    assert list(converted.files) == ["model.onnx"]
    assert_near(converted.run({"x": x})["y"], 3 * x)


def test_what_one_exporter_told_of_sizes_the_next_one_is_tried_at(bench: Bench) -> None:
    class OnSize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            doubled = x * 2
            return doubled + 1 if x.shape[0] == 7 else doubled

    with pytest.raises(ConversionError, match=r"torchscript: output 'y' .* differs .* at batch=7"):
        bench.convert("torch", model=OnSize(), signature=_FOUR_TO_FOUR)


def test_an_exporter_is_chosen_for_pytorch_modules_only(bench: Bench) -> None:
    source = bench.onnx_file(
        '<ir_version: 8, opset_import: ["": 18]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'
    )
    with pytest.raises(
        UsageError, match=r"exports PyTorch modules, and .*source\.onnx is a model of kind 'onnx'"
    ) as caught:
        bench.convert("onnx", source, exporter="dynamo")
    assert "remove model.exporter" in caught.value.hint


def _of_transformers(name: str) -> Any:  # noqa: ANN401 - a module
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch.manual_seed(0)
    if name == "t5":
        config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        return transformers.T5EncoderModel(config).eval()
    config = transformers.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=4)
    return transformers.SwinModel(config).eval()


_HIDDEN = {"last_hidden_state": "float32[batch, sequence, 16]"}
_TEXT = sign({"input_ids": "int64[batch, sequence]"}, _HIDDEN, batch=(1, 2, 4), sequence=(1, 6, 12))
_IMAGE = sign(
    {"pixel_values": "float32[batch, 3, 16, 16]"}, {"last_hidden_state": "float32[batch, 64, 8]"}, batch=(1, 2, 4)
)


@pytest.mark.thorough
@pytest.mark.parametrize("exporter", [None, "torchscript"])
@pytest.mark.parametrize(("name", "signature"), [("t5", _TEXT), ("swin", _IMAGE)])
def test_t5_and_swin_of_transformers_are_exported(
    bench: Bench, name: str, signature: Signature, exporter: str | None
) -> None:
    module = _of_transformers(name)
    before = module.config._attn_implementation
    converted = bench.convert("torch", model=module, signature=signature, exporter=exporter)
    assert converted.conversion.facts["exporter"] == (exporter or _EAGER)
    assert module.config._attn_implementation == before
    random = np.random.default_rng(0)
    x: Any = random.integers(0, 50, (3, 7)) if name == "t5" else random.normal(size=(3, 3, 16, 16)).astype(np.float32)
    with torch.inference_mode():
        expected = module(torch.from_numpy(x)).last_hidden_state
    assert_near(converted.run({signature.inputs[0].name: x})["last_hidden_state"], expected)
