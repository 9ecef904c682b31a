"""PyTorch to TorchScript: what a trace bakes in is caught, what it keeps is under the names of the signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, Converted, assert_near, sign, trace

from paritygate.errors import ConversionError, UsageError
from paritygate.models.torch.archive import names_in_archive
from paritygate.models.torch.torchscript_file import count_tf32_convolutions
from paritygate.signature import Dim

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_FOUR_TO_FOUR = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 64))


class _Two(torch.nn.Module):
    """Returns a dict whose keys come in another order than the signature's, and drops out in train mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(4, 4)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"z": self.dropout(self.head(left)), "difference": left - right, "extra": left * 3}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Trace a module once whose inputs and outputs come in another order than the signature's."""
    signature = sign(
        {"b": "float32[batch, 4]", "left": "float32[batch, 4]"},
        {"difference": "float32[batch, 4]", "scores": "float32[batch, 4]"},
        batch=(1, 4, 16),
    )
    bench = Bench(folder=tmp_path_factory.mktemp("two"))
    rename = {"right": "b", "z": "scores"}
    return bench.convert("torch", to="torchscript", model=_Two().train(), signature=signature, rename=rename)


@pytest.mark.parametrize("batch", [1, 5, 16])
def test_inputs_and_outputs_are_in_the_order_of_the_signature(two: Converted, batch: int) -> None:
    left, right = torch.randn(batch, 4), torch.randn(batch, 4)
    loaded = torch.jit.load(str(two.main))  # type: ignore[no-untyped-call]  # torch has no type for it
    difference, scores = loaded(right, left)
    expected = two.job.model(left, right)
    assert_near(difference.numpy(), expected["difference"].detach())
    assert_near(scores.detach().numpy(), expected["z"].detach())


def test_the_file_says_the_signature_by_itself(two: Converted) -> None:
    said = names_in_archive(two.main)
    assert said is not None
    assert said.signature == two.job.signature
    assert said.is_in_order
    assert said.signature.dims == {"batch": Dim(min=1, opt=4, max=16)}


def test_train_mode_and_outputs_left_out_are_noted(two: Converted) -> None:
    assert "was in train mode" in two.conversion.notes[0]
    assert "outputs not in the signature were left out: extra" in two.conversion.notes


def test_the_file_holds_no_path_of_this_machine(two: Converted) -> None:
    assert list(two.files) == ["model.pt"]
    assert b"debug_pkl" not in two.main.read_bytes()


@pytest.mark.parametrize("threshold", [4, 32])
def test_a_branch_on_a_shape_is_caught_and_names_the_dim(bench: Bench, threshold: int) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > threshold else x

    with pytest.raises(ConversionError, match="so the size of 'batch' is baked in") as caught:
        bench.convert("torch", to="torchscript", model=Branching(), signature=_FOUR_TO_FOUR)
    assert "model.dims.batch" in caught.value.hint


class _Square(torch.autograd.Function):
    """Squares, with a context as functions have long been written."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # noqa: ANN401 - as torch calls it
        ctx.save_for_backward(x)
        return x * x if not any(ctx.needs_input_grad) else x


class _Half(torch.autograd.Function):
    """Halves, with its context set up apart."""

    @staticmethod
    def forward(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:  # type: ignore[override]
        return x / by

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ANN401 - as torch calls it
        del ctx, inputs, output


def test_autograd_functions_of_the_modules_own_are_computed_by_their_forward(bench: Bench) -> None:
    class Squares(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"y": _Half.apply(_Square.apply(x))}  # type: ignore[no-untyped-call]

    before = vars(torch.autograd.Function)["apply"]
    converted = bench.convert("torch", to="torchscript", model=Squares(), signature=_FOUR_TO_FOUR)
    assert vars(torch.autograd.Function)["apply"] is before
    assert torch.jit.load(str(converted.main))(torch.full((2, 4), 3.0))[0].tolist() == [[4.5] * 4] * 2  # type: ignore[no-untyped-call]


class _Makes(torch.nn.Module):
    """Makes tensors of its own where its input is, in itself and in its parts, and convolves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv1d(4, 4, 3, padding=1)
        # Makes the state that it begins with, at each of two calls.
        self.recurrent = torch.nn.LSTM(4, 4, batch_first=True)
        self.never_called = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1], device=x.device)
        once = self.recurrent(self.convolution(x.transpose(1, 2)).transpose(1, 2) + steps[None, :, None])[0]
        return self.recurrent(once)[0]


_STEPS = sign({"x": "float32[batch, time, 4]"}, {"y": "float32[batch, time, 4]"}, batch=(1, 2, 4), time=(1, 5, 9))


def test_what_a_module_makes_is_made_where_its_inputs_are_and_not_where_it_was_traced(bench: Bench) -> None:
    converted = bench.convert("torch", to="torchscript", model=_Makes(), signature=_STEPS)

    # Tensors on the device `meta` have no values: one of the CPU among them fails, as it does on a GPU.
    loaded = torch.jit.load(str(converted.main), map_location="meta")  # type: ignore[no-untyped-call]
    assert loaded(torch.empty(3, 7, 4, device="meta"))[0].device.type == "meta"
    assert not any("wherever its inputs are" in note for note in converted.conversion.notes)


def test_a_part_that_is_given_no_tensor_makes_its_own_where_it_was_traced_and_the_note_says_so(bench: Bench) -> None:
    class Table(torch.nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.arange(4)

    class WithTable(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = Table()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table()

    converted = bench.convert("torch", to="torchscript", model=WithTable(), signature=_FOUR_TO_FOUR)

    assert "the trace makes tensors on the cpu at 1 place, wherever its inputs are" in converted.conversion.notes


def test_lengths_that_an_operator_takes_on_the_cpu_are_brought_there(bench: Bench) -> None:
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.recurrent = torch.nn.GRU(4, 4, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            pack = torch.nn.utils.rnn.pack_padded_sequence
            packed = pack(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            return self.recurrent(packed)[1][0]

    inputs = {"x": "float32[batch, time, 4]", "lengths": "int64[batch]"}
    signature = sign(inputs, {"y": "float32[batch, 4]"}, batch=(1, 2, 4), time=(1, 5, 9))
    converted = bench.convert("torch", to="torchscript", model=Packed(), signature=signature)

    # Kept by its name, or its nodes die with it.
    graph = torch.jit.load(str(converted.main)).inlined_graph  # type: ignore[no-untyped-call]
    (pack,) = graph.findAllNodes("aten::_pack_padded_sequence", True)  # noqa: FBT003 - as torch has it
    assert pack.inputsAt(1).node().kind() == "aten::cpu"


def test_a_trace_says_that_its_convolutions_compute_in_float32(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's default, which a trace would hold.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)

    converted = bench.convert("torch", to="torchscript", model=_Makes(), signature=_STEPS)

    assert count_tf32_convolutions(torch.jit.load(str(converted.main))) == 0  # type: ignore[no-untyped-call]
    assert torch.backends.cudnn.allow_tf32
    by_default = torch.jit.trace(_Makes().eval(), torch.zeros(1, 5, 4))  # type: ignore[no-untyped-call]
    assert count_tf32_convolutions(by_default) == 1


def test_a_convolution_as_older_versions_traced_it_is_counted_as_none_in_tf32() -> None:
    # torch has no type for it, and takes a comment there for one.
    @torch.jit.script
    def old(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        one, zero, no = [1], [0], False
        return torch._convolution(x, weight, None, one, zero, one, no, zero, 1, no, no, no)

    class Old(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return old(x, torch.ones(1, 1, 1))  # type: ignore[no-any-return]

    assert count_tf32_convolutions(torch.jit.script(Old())) == 0


def test_a_size_that_is_baked_in_is_caught_and_names_the_dim(bench: Bench) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.zeros([int(size) for size in x.shape])

    signature = sign({"x": "float32[batch, width]"}, {"y": "float32[batch, width]"}, batch=(8, 8, 8), width=(2, 4, 9))
    with pytest.raises(ConversionError, match=r"fails at batch=8, width=2, so the size of 'width' is baked in"):
        bench.convert("torch", to="torchscript", model=Fixed(), signature=signature)


def test_a_dim_of_undeclared_range_is_tried_as_well(bench: Bench) -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / float(x.shape[0])

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    with pytest.raises(ConversionError, match=r"differs by .* at batch=1, so the size of 'batch' is baked in"):
        bench.convert("torch", to="torchscript", model=Mean(), signature=signature)


def test_a_branch_on_values_is_caught_or_told(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if bool(x.sum() > 1e9) else x

    converted = bench.convert("torch", to="torchscript", model=Branching(), signature=_FOUR_TO_FOUR)
    # Random inputs do not reach the other branch: that there is one is told, with the place.
    assert any("test_torch_to_torchscript.py:" in note and "boolean" in note for note in converted.conversion.notes)


def test_a_module_that_is_random_at_inference_is_refused(bench: Bench) -> None:
    class Random(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    with pytest.raises(ConversionError):
        bench.convert("torch", to="torchscript", model=Random(), signature=_FOUR_TO_FOUR)


def test_sizes_that_the_module_itself_does_not_take_are_its_own_fault(bench: Bench) -> None:
    class Small(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.zeros(16, 4)[: x.shape[0]]

    with pytest.raises(ConversionError, match=r"the module itself fails at batch=64 \(dim 'batch'\)"):
        bench.convert("torch", to="torchscript", model=Small(), signature=_FOUR_TO_FOUR)


def test_a_dtype_other_than_promised_is_refused(bench: Bench) -> None:
    signature = sign({"input": "float32[batch, 4]"}, {"y": "float64[batch, 4]"}, batch=(1, 2, 4))
    with pytest.raises(ConversionError, match=r"output 'y' of the model is float32\[2, 4\] at batch=2, expected y:"):
        bench.convert("torch", to="torchscript", model=torch.nn.ReLU(), signature=signature)


def test_ids_for_which_only_zero_is_valid_are_checked_with_zeros_and_the_note_says_so(bench: Bench) -> None:
    signature = sign({"input": "int64[batch]"}, {"y": "float32[batch, 2]"}, batch=(1, 2, 4))
    converted = bench.convert("torch", to="torchscript", model=torch.nn.Embedding(1, 2), signature=signature)
    assert any("with zeros only" in note for note in converted.conversion.notes)


def test_integers_above_float_precision_pass_through_exactly(bench: Bench) -> None:
    class Next(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids + 1

    signature = sign({"ids": "int64[batch]"}, {"y": "int64[batch]"}, batch=(1, 2, 4))
    converted = bench.convert("torch", to="torchscript", model=Next(), signature=signature)
    loaded = torch.jit.load(str(converted.main))  # type: ignore[no-untyped-call]  # torch has no type for it
    assert loaded(torch.tensor([2**24, 2**53]))[0].tolist() == [2**24 + 1, 2**53 + 1]


def test_a_file_from_elsewhere_is_copied_with_its_names_written_into_it(bench: Bench) -> None:
    source = bench.folder / "given.pt"
    module = _Two().eval()
    example = (torch.zeros(2, 4), torch.zeros(2, 4))
    torch.jit.save(trace(module, example, strict=False), str(source))
    signature = sign(
        {"right": "float32[batch, 4]", "left": "float32[batch, 4]"}, {"scores": "float32[batch, 4]"}, batch=(1, 2, 4)
    )
    rename = {"z": "scores"}
    converted = bench.convert("torchscript", source, to="torchscript", signature=signature, rename=rename)
    said = names_in_archive(converted.main)
    assert said is not None
    assert (said.signature, said.is_in_order, said.rename) == (signature, False, rename)
    assert converted.conversion.signature == signature


def test_a_copy_of_our_own_file_is_the_same_bytes(two: Converted, bench: Bench) -> None:
    copied = bench.convert("torchscript", two.main, to="torchscript")
    assert copied.main.read_bytes() == two.main.read_bytes()
    assert copied.conversion.signature == two.job.signature


def test_a_file_from_elsewhere_without_a_signature_is_refused_with_what_to_declare(bench: Bench) -> None:
    source = bench.folder / "given.pt"
    torch.jit.save(trace(torch.nn.ReLU(), torch.zeros(2, 4)), str(source))
    with pytest.raises(UsageError, match="has no names of inputs and outputs") as caught:
        bench.convert("torchscript", source, to="torchscript")
    assert "declare model.inputs and model.outputs" in caught.value.hint


def test_a_scripted_module_can_be_traced(bench: Bench) -> None:
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    signature = sign({"input": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 4))
    converted = bench.convert("torch", to="torchscript", model=scripted, signature=signature)
    x = torch.from_numpy(np.ones((3, 4), np.float32))
    loaded = torch.jit.load(str(converted.main))  # type: ignore[no-untyped-call]  # torch has no type for it
    assert_near(loaded(x)[0].detach().numpy(), scripted(x).detach())


def test_an_output_whose_size_hangs_on_values_is_named_and_no_dim_is_blamed(bench: Bench) -> None:
    class Cut(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # As pad_packed_sequence cuts to the longest row: of one row there is none that is full.
            return x[:, : x.shape[1] - int(x.shape[0] == 1)]

    signature = sign({"x": "float32[batch, time]"}, {"y": "float32[batch, time]"}, batch=(1, 4, 6), time=(2, 7, 9))
    with pytest.raises(ConversionError, match=r"float32.*, not on 'time'") as caught:
        bench.convert("torch", to="torchscript", model=Cut(), signature=signature)
    assert "baked in" not in str(caught.value)
    assert "total_length" in (caught.value.hint or "")
