"""PyTorch to a program of torch.export, through the checks that every conversion ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.convert.conftest import Bench, Converted, assert_near, sign, trace

from paritygate.errors import ConversionError
from paritygate.models.torch.archive import names_in_archive

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_FOUR_TO_FOUR = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 64))


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(4, 2)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"z": self.dropout(self.head(left)), "difference": left - right}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Export a module once whose inputs and outputs come in another order than the signature's."""
    signature = sign(
        {"b": "float32[batch, 4]", "left": "float32[batch, 4]"},
        {"difference": "float32[batch, 4]", "scores": "float32[batch, 2]"},
        batch=(1, 4, 16),
    )
    bench = Bench(folder=tmp_path_factory.mktemp("two"))
    rename = {"right": "b", "z": "scores"}
    return bench.convert("torch", to="pt2", model=_Two().train(), signature=signature, rename=rename)


@pytest.mark.parametrize("batch", [1, 16])
def test_inputs_and_outputs_are_in_the_order_of_the_signature(two: Converted, batch: int) -> None:
    left, right = torch.randn(batch, 4), torch.randn(batch, 4)
    difference, scores = torch.export.load(str(two.main)).module()(right, left)
    expected = two.job.model(left, right)
    assert_near(difference.numpy(), expected["difference"].detach())
    assert_near(scores.detach().numpy(), expected["z"].detach())


def test_a_batch_beyond_the_range_is_refused_by_the_file(two: Converted) -> None:
    with pytest.raises(Exception, match="16"):
        torch.export.load(str(two.main)).module()(torch.zeros(17, 4), torch.zeros(17, 4))


def test_the_file_says_the_signature_and_no_path_of_this_machine(two: Converted) -> None:
    said = names_in_archive(two.main)
    assert said is not None
    assert said.signature == two.conversion.signature == two.job.signature
    assert b"test_torch_to_pt2.py" not in two.main.read_bytes()
    assert "was in train mode" in two.conversion.notes[0]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"batch": (1, 8, 64)}, "'batch' only from 5 to 64, but the signature allows from 1 to 64"),
        ({}, "'batch' only from 5 on, but the signature allows of any size"),
    ],
)
def test_a_branch_on_a_shape_is_refused(bench: Bench, ranges: dict[str, tuple[int, int, int]], message: str) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 4 else x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, **ranges)
    with pytest.raises(ConversionError, match=message):
        bench.convert("torch", to="pt2", model=Branching(), signature=signature)


def test_a_module_that_fixes_a_promised_dim_is_refused(bench: Bench) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(8, 4)

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(2, 8, 16))
    with pytest.raises(ConversionError, match="dim 0 of input 'x' is fixed at 8, expected batch"):
        bench.convert("torch", to="pt2", model=Fixed(), signature=signature)


def test_an_output_whose_dim_is_an_expression_is_not_taken_for_the_batch(bench: Bench) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x])

    with pytest.raises(ConversionError, match=r"dim 0 of output 'y' is 2\*batch, expected batch"):
        bench.convert("torch", to="pt2", model=Doubled(), signature=_FOUR_TO_FOUR)


def test_a_branch_on_a_value_is_named_with_its_line(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.mean() > 0:
                return x * 2
            return x

    with pytest.raises(ConversionError, match=r"branches on the values of a tensor at .*: if x.mean\(\) > 0"):
        bench.convert("torch", to="pt2", model=Branching(), signature=_FOUR_TO_FOUR)


def test_torchscript_is_refused_with_what_to_give_instead(bench: Bench) -> None:
    traced = trace(torch.nn.ReLU(), torch.ones(2, 4))
    with pytest.raises(ConversionError, match=r"is TorchScript, which torch\.export does not accept"):
        bench.convert("torch", to="pt2", model=traced, signature=_FOUR_TO_FOUR)


@pytest.mark.parametrize("to", ["torchscript", "pt2"])
def test_default_names_in_another_order_keep_their_tensors(bench: Bench, to: str) -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x * 2

    outputs = {"output_1": "float32[batch, 4]", "output_0": "float32[batch, 4]"}
    signature = sign({"x": "float32[batch, 4]"}, outputs, batch=(1, 2, 4))
    made = bench.convert("torch", to=to, model=Pair(), signature=signature)
    converted = Bench(folder=bench.folder / "other").convert(to, made.main)
    x = np.ones((3, 4), np.float32)
    actual = converted.run({"x": x})
    assert_near(actual["output_1"], x * 2)
    assert_near(actual["output_0"], x)


def test_a_dim_of_one_size_may_be_fixed(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, width]"}, {"y": "float32[batch, width]"}, batch=(1, 2, 4), width=(3, 3, 3))
    converted = bench.convert("torch", to="pt2", model=torch.nn.ReLU(), signature=signature)
    assert converted.conversion.signature.inputs[0].shape == ("batch", 3)


def test_integers_above_float_precision_pass_through_exactly(bench: Bench) -> None:
    class Next(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids + 1

    signature = sign({"ids": "int64[batch]"}, {"y": "int64[batch]"}, batch=(1, 2, 4))
    converted = bench.convert("torch", to="pt2", model=Next(), signature=signature)
    module = torch.export.load(str(converted.main)).module()
    assert module(torch.tensor([2**24, 2**53]))[0].tolist() == [2**24 + 1, 2**53 + 1]


def test_a_copy_of_our_own_file_is_the_same_bytes(two: Converted, bench: Bench) -> None:
    copied = bench.convert("pt2", two.main, to="pt2")
    assert copied.main.read_bytes() == two.main.read_bytes()
    assert copied.conversion.signature == two.job.signature


def test_a_file_from_elsewhere_is_copied_with_the_names_that_it_keeps(bench: Bench) -> None:
    source = bench.folder / "given.pt2"
    size = torch.export.Dim.DYNAMIC(min=1, max=9)
    program = torch.export.export(
        _Two().eval(),
        (torch.zeros(2, 4), torch.zeros(2, 4)),
        dynamic_shapes={"left": {0: size}, "right": {0: size}},
    )
    torch.export.save(program, source)
    converted = bench.convert("pt2", source, to="pt2", rename={"z": "scores"})
    signature = converted.conversion.signature
    assert [str(spec) for spec in signature.inputs] == ["left: float32[batch, 4]", "right: float32[batch, 4]"]
    assert [str(spec) for spec in signature.outputs] == ["scores: float32[batch, 2]", "difference: float32[batch, 4]"]
    said = names_in_archive(converted.main)
    assert said is not None
    assert (said.is_in_order, said.rename) == (False, {"z": "scores"})
    assert np.array_equal(
        torch.export.load(converted.main).state_dict["head.weight"].detach(), program.state_dict["head.weight"].detach()
    )
