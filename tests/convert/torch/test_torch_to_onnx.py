"""PyTorch to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, Converted, assert_near, sign

from paritygate.convert.torch import shape_check, torch_to_onnx
from paritygate.errors import ConversionError, UnsupportedOperatorsError, UsageError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_FOUR_TO_FOUR = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})


class _Encoder(torch.nn.Module):
    """Returns a dict whose keys come in another order than any signature here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.embedding(input_ids) * attention_mask[..., None]
        pooled = hidden.sum(dim=1) / attention_mask.sum(dim=1, keepdim=True).clamp(min=1)
        return {"zlogits": self.head(pooled), "aux": hidden.mean(dim=(1, 2)), "extra": pooled}


def _pairs(batch: int, sequence: int) -> dict[str, NDArray[np.int64]]:
    random = np.random.default_rng(batch * 100 + sequence)
    ids = random.integers(0, 50, (batch, sequence))
    return {"input_ids": ids, "attention_mask": (random.random((batch, sequence)) < 0.7).astype(np.int64)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Convert the encoder once, with its inputs in another order than forward has them."""
    signature = sign(
        {"mask": "int64[batch, sequence]", "input_ids": "int64[batch, sequence]"},
        {"aux": "float32[batch]", "score": "float32[batch, 1]"},
        batch=(1, 4, 16),
        sequence=(2, 8, 32),
    )
    bench = Bench(folder=tmp_path_factory.mktemp("encoder"))
    rename = {"zlogits": "score", "attention_mask": "mask"}
    return bench.convert("torch", model=_Encoder(), signature=signature, rename=rename)


@pytest.mark.parametrize(("batch", "sequence"), [(1, 2), (3, 7), (16, 32)])
def test_each_name_has_its_own_tensor_at_every_size(encoder: Converted, batch: int, sequence: int) -> None:
    inputs = _pairs(batch, sequence)
    with torch.inference_mode():
        expected = encoder.job.model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    actual = encoder.run({"mask": inputs["attention_mask"], "input_ids": inputs["input_ids"]})
    assert list(actual) == ["aux", "score"]
    assert_near(actual["aux"], expected["aux"])
    assert_near(actual["score"], expected["zlogits"])


def test_the_file_has_the_names_order_and_symbolic_dims_of_the_signature(encoder: Converted) -> None:
    assert encoder.conversion.signature == encoder.job.signature


def test_a_module_in_train_mode_is_put_into_eval_mode_with_a_note(encoder: Converted) -> None:
    assert not encoder.job.model.training
    assert any("was in train mode" in note for note in encoder.conversion.notes)


def test_outputs_that_are_not_in_the_signature_are_noted(encoder: Converted) -> None:
    assert "outputs not in the signature were left out: extra" in encoder.conversion.notes


def test_opset_and_ir_version_are_read_back(encoder: Converted) -> None:
    model = onnx.load(str(encoder.main))
    assert encoder.conversion.facts["opset"] == model.opset_import[0].version == 18
    assert encoder.conversion.facts["ir_version"] == model.ir_version <= 10


def test_small_weights_are_in_the_one_file_that_is_written(encoder: Converted) -> None:
    assert list(encoder.files) == ["model.onnx"]


def test_the_file_holds_no_path_of_this_machine(encoder: Converted) -> None:
    assert b"test_torch_to_onnx.py" not in encoder.main.read_bytes()


def test_dropout_in_one_part_in_train_mode_is_gone(bench: Bench) -> None:
    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401 - what a module returns has no type
            return self.dropout(x)

    model = Noisy().eval()
    model.dropout.train()
    converted = bench.convert("torch", model=model, signature=_FOUR_TO_FOUR)
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(converted.run({"x": x})["y"], x)
    assert "first 'dropout'" in converted.conversion.notes[0]


def test_inputs_go_by_order_where_forward_has_none_of_their_names(bench: Bench) -> None:
    class Difference(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    signature = sign({"left": "float32[batch, 2]", "right": "float32[batch, 2]"}, {"out": "float32[batch, 2]"})
    converted = bench.convert("torch", model=Difference(), signature=signature)
    left, right = np.full((2, 2), 5, np.float32), np.ones((2, 2), np.float32)
    assert_near(converted.run({"left": left, "right": right})["out"], left - right)


def test_integers_and_bools_keep_their_dtypes_and_a_tuple_its_order(bench: Bench) -> None:
    class Several(torch.nn.Module):
        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return ids.argmax(dim=1), keep & (ids > 3), ids.to(torch.float64) / 3

    signature = sign(
        {"ids": "int32[batch, 5]", "keep": "bool[batch, 5]"},
        {"best": "int64[batch]", "kept": "bool[batch, 5]", "third": "float64[batch, 5]"},
    )
    converted = bench.convert("torch", model=Several(), signature=signature)
    ids = np.arange(10, dtype=np.int32).reshape(2, 5)
    actual = converted.run({"ids": ids, "keep": ids % 2 == 0})
    assert_near(actual["best"], ids.argmax(axis=1))
    assert_near(actual["kept"], (ids % 2 == 0) & (ids > 3))
    assert_near(actual["third"], ids / 3)


def test_a_dim_of_one_size_may_be_fixed(bench: Bench) -> None:
    inputs, outputs = {"x": "float32[batch, sequence]"}, {"y": "float32[batch, sequence]"}
    signature = sign(inputs, outputs, batch=(1, 2, 8), sequence=(16, 16, 16))
    converted = bench.convert("torch", model=torch.nn.ReLU(), signature=signature)
    assert converted.conversion.signature.inputs[0].shape == ("batch", 16)


def test_a_symbol_that_is_no_python_name_is_kept(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, seq-len]"}, {"y": "float32[batch, seq-len]"})
    assert bench.convert("torch", model=torch.nn.ReLU(), signature=signature).conversion.signature == signature


def test_another_opset_is_written_where_it_can_be(bench: Bench) -> None:
    converted = bench.convert("torch", model=torch.nn.ReLU(), signature=_FOUR_TO_FOUR, opset=20)
    assert converted.conversion.facts["opset"] == 20


def test_an_opset_that_the_exporter_could_not_write_is_an_error(bench: Bench) -> None:
    class Reshaped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(x.shape[0] * 2, -1)

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[rows, 2]"})
    with pytest.raises(ConversionError, match=r"opset 13 was requested, .* from opset 18"):
        bench.convert("torch", model=Reshaped(), signature=signature, opset=13, exporter="dynamo")
    other = Bench(folder=bench.folder / "other")
    converted = other.convert("torch", model=Reshaped(), signature=signature, opset=13)
    assert (converted.conversion.facts["opset"], converted.conversion.facts["exporter"]) == (13, "torchscript")


def test_unsupported_operators_come_as_one_table(bench: Bench) -> None:
    class Unsupported(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.add(torch.linalg.eigvalsh(x), torch.linalg.svdvals(x))

    signature = sign({"x": "float32[batch, 4, 4]"}, {"y": "float32[batch, 4]"})
    with pytest.raises(UnsupportedOperatorsError, match="ONNX does not have these operators") as caught:
        bench.convert("torch", model=Unsupported(), signature=signature)
    assert {row[0] for row in caught.value.rows} == {"aten._linalg_eigh.default", "aten._linalg_svd.default"}
    assert all(all(row) for row in caught.value.rows)
    assert "Traceback" not in str(caught.value)


def test_a_branch_on_a_value_is_named_with_its_line(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.mean() > 0:
                return x * 2
            return x

    with pytest.raises(ConversionError, match=r"branches on the values of a tensor at .*: if x.mean\(\) > 0") as caught:
        bench.convert("torch", model=Branching(), signature=_FOUR_TO_FOUR)
    assert "torch.where" in caught.value.hint


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"batch": (1, 8, 64)}, "'batch' only from 5 to 64, but the signature allows from 1 to 64"),
        ({}, "'batch' only from 5 on, but the signature allows of any size"),
    ],
)
def test_a_branch_on_a_shape_is_refused_and_not_baked_in(
    bench: Bench, ranges: dict[str, tuple[int, int, int]], message: str
) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 4 else x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, **ranges)
    with pytest.raises(ConversionError, match=message):
        bench.convert("torch", model=Branching(), signature=signature)


def test_a_module_that_fixes_a_promised_dim_is_refused(bench: Bench) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(8, 4)

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(2, 8, 16))
    with pytest.raises(ConversionError, match="dim 0 of input 'x' is fixed at 8, expected batch"):
        bench.convert("torch", model=Fixed(), signature=signature, exporter="dynamo")
    other = Bench(folder=bench.folder / "other")
    with pytest.raises(ConversionError, match=r"the module itself fails at batch=2 \(dim 'batch'\)"):
        other.convert("torch", model=Fixed(), signature=signature)


def test_an_output_whose_dim_is_an_expression_is_not_taken_for_the_batch(bench: Bench) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x])

    with pytest.raises(ConversionError, match=r"dim 0 of output 'y' is 2\*batch, expected batch"):
        bench.convert("torch", model=Doubled(), signature=_FOUR_TO_FOUR)


def test_a_missing_output_is_named_with_those_there(bench: Bench) -> None:
    inputs = {"input_ids": "int64[batch, sequence]", "attention_mask": "int64[batch, sequence]"}
    with pytest.raises(UsageError, match=r"no output 'logits' \(it returned: 'zlogits', 'aux', 'extra'\)"):
        bench.convert("torch", model=_Encoder(), signature=sign(inputs, {"logits": "float32[batch, 1]"}))


def test_an_error_of_the_module_is_one_line_with_its_place(bench: Bench) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(5, 5)

    with pytest.raises(
        ConversionError, match=r"RuntimeError: a and b must have same reduction dim.*torch.ones\(5, 5\)"
    ):
        bench.convert("torch", model=Broken(), signature=_FOUR_TO_FOUR)


def test_a_module_without_a_signature_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="are unknown"):
        bench.convert("torch", model=torch.nn.ReLU())


def test_torchscript_is_refused_by_dynamo_with_what_to_give_instead(bench: Bench) -> None:
    traced = torch.jit.trace(torch.nn.ReLU(), torch.ones(2, 4))  # type: ignore[no-untyped-call]  # torch has no type for it
    with pytest.raises(ConversionError, match="is TorchScript") as caught:
        bench.convert("torch", model=traced, signature=_FOUR_TO_FOUR, exporter="dynamo")
    assert "return the module itself" in caught.value.hint


def test_an_input_without_a_full_shape_is_refused(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, ?]"}, {"y": "float32[batch, ?]"})
    with pytest.raises(UsageError, match=r"the shape of input x: float32\[batch, \?\] is incomplete"):
        bench.convert("torch", model=torch.nn.ReLU(), signature=signature)


def test_text_inputs_are_refused(bench: Bench) -> None:
    signature = sign({"x": "string[batch]"}, {"y": "float32[batch]"})
    with pytest.raises(UsageError, match="PyTorch has no dtype 'string'"):
        bench.convert("torch", model=torch.nn.ReLU(), signature=signature)


def test_large_weights_lie_beside_the_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_to_onnx, "EXTERNAL_DATA_BYTES", 1000)
    model = torch.nn.Linear(64, 32)
    signature = sign({"input": "float32[batch, 64]"}, {"y": "float32[batch, 32]"})
    converted = bench.convert("torch", model=model, signature=signature)
    assert sorted(converted.files) == ["model.onnx", "model.onnx.data"]
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    assert_near(converted.run({"input": x})["y"], model(torch.from_numpy(x)).detach())


class _OnSize(torch.nn.Module):
    """Adds 1 where the batch is of a certain size, which no operator of the graph says."""

    def __init__(self, is_other: Callable[[int], bool]) -> None:
        super().__init__()
        self.is_other = is_other

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 if self.is_other(x.shape[0]) else y


@pytest.mark.parametrize("ranges", [{"batch": (1, 8, 64)}, {}])
@pytest.mark.parametrize(
    ("is_other", "size"),
    [(lambda n: n > 1, 1), (lambda n: n == 3, 3), (lambda n: n % 5 == 0, 5), (lambda n: n == 1, 1)],
    ids=["above 1", "3", "a multiple of 5", "1"],
)
def test_another_answer_at_one_size_is_refused_with_that_size(
    bench: Bench, is_other: Callable[[int], bool], size: int, ranges: dict[str, tuple[int, int, int]]
) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, **ranges)
    with pytest.raises(
        ConversionError, match=rf"output 'y' .* differs .* at batch={size}, .*'batch' is baked in"
    ) as caught:
        bench.convert("torch", model=_OnSize(is_other), signature=signature)
    assert "declare model.dims.batch" in caught.value.hint


def test_sizes_of_one_branch_alone_may_be_promised(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(2, 8, 64))
    converted = bench.convert("torch", model=_OnSize(lambda n: n > 1), signature=signature)
    x = np.ones((2, 4), np.float32)
    assert_near(converted.run({"x": x})["y"], x * 2 + 1)


def test_inputs_that_would_be_very_large_are_tried_smaller_and_that_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_check, "_MOST_VALUES_ELSEWHERE", 400)
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 1000))
    converted = bench.convert("torch", model=torch.nn.ReLU(), signature=signature)
    assert "it was tried at batch=100 and not at 1000, where its inputs are 4000 values" in converted.conversion.notes


def test_what_is_too_large_at_any_other_size_is_not_tried_and_that_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_check, "_MOST_VALUES_ELSEWHERE", 32)
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 1000))
    converted = bench.convert("torch", model=torch.nn.ReLU(), signature=signature)
    assert "it was not tried at batch=1000, where its inputs are 4000 values" in converted.conversion.notes


def test_a_random_module_is_left_to_the_gate_with_a_note(bench: Bench) -> None:
    class Random(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    converted = bench.convert("torch", model=Random(), signature=_FOUR_TO_FOUR)
    assert any("its values were not compared: on random inputs" in note for note in converted.conversion.notes)


class _NamedLikeOperators(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(9, 4)

    def forward(self, mean: torch.Tensor, relu: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.table(mean)
        return {"embedding": hidden.mean(dim=1), "linear": torch.relu(hidden) + relu[:, None], "x": hidden.sum(2)}


_LIKE_OPERATORS = sign(
    {"mean": "int64[batch, time]", "relu": "float32[batch, 4]"},
    {"embedding": "float32[batch, 4]", "linear": "float32[batch, time, 4]", "table.weight": "float32[batch, time]"},
    batch=(1, 2, 4),
    time=(1, 3, 6),
)


@pytest.mark.parametrize("through", ["torch", "pt2", "torchscript"])
def test_tensors_may_be_named_like_operators_and_parameters(bench: Bench, through: str) -> None:
    model = _NamedLikeOperators().eval()
    fields: dict[str, Any] = {"model": model, "signature": _LIKE_OPERATORS, "rename": {"x": "table.weight"}}
    if through == "torch":
        converted = bench.convert("torch", **fields)
    else:
        file = bench.convert("torch", to=through, **fields).main
        converted = Bench(folder=bench.folder / "again").convert(through, file)
    assert converted.conversion.signature.outputs == _LIKE_OPERATORS.outputs
    ids, shift = np.array([[1, 2, 3, 4, 5]]), np.ones((1, 4), np.float32)
    actual = converted.run({"mean": ids, "relu": shift})
    expected = model(torch.from_numpy(ids), torch.from_numpy(shift))
    for served, name in (("embedding", "embedding"), ("linear", "linear"), ("table.weight", "x")):
        assert_near(actual[served], expected[name].detach())


def test_one_name_for_an_input_and_an_output_is_refused_with_how_to_tell_them_apart(bench: Bench) -> None:
    class Next(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": x + 1}

    inputs = {"x": "float32[batch, 4]"}
    with pytest.raises(
        UsageError, match="'x' is the name of an input and of an output, but ONNX needs different names"
    ) as caught:
        bench.convert("torch", model=Next(), signature=sign(inputs, inputs))
    assert "model.rename: {x: x_out}" in caught.value.hint
    renamed = sign(inputs, {"x_out": "float32[batch, 4]"})
    converted = bench.convert("torch", model=Next(), signature=renamed, rename={"x": "x_out"})
    assert_near(converted.run({"x": np.ones((2, 4), np.float32)})["x_out"], np.full((2, 4), 2, np.float32))
