"""What PyTorch modules are traced with and tried at: real rows, full masks, lengths that are some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, sign

from paritygate.convert.torch.inputs import input_draws
from paritygate.errors import ConversionError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from paritygate.signature import Signature
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_MASKED = sign(
    {"tokens": "int64[batch, sequence]", "mask": "bool[batch, sequence]"},
    {"y": "float32[batch, 2]"},
    batch=(1, 4, 8),
    sequence=(2, 6, 9),
)
_LENGTHS = sign(
    {"x": "float32[batch, time, 3]", "lengths": "int64[batch]"},
    {"y": "float32[batch, 4]"},
    batch=(1, 4, 6),
    time=(1, 7, 9),
)


def _rows(length: int = 5) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(0)
    mask = np.arange(length)[None] < np.array([[length], [2], [1]])
    return {"tokens": random.integers(1, 50, (3, length)) * mask, "mask": mask}


def _encoder() -> Any:  # noqa: ANN401 - a module
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 8)
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 1)
            self.weight = torch.nn.Parameter(torch.randn(8, 2))

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            first: torch.Tensor = self.encoder(self.table(tokens), src_key_padding_mask=~mask)[:, 0]
            return first @ self.weight

    torch.manual_seed(0)
    return Encoder().eval()


def _packed() -> Any:  # noqa: ANN401 - a module
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            pack = torch.nn.utils.rnn.pack_padded_sequence
            packed = pack(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            last: torch.Tensor = self.rnn(packed)[1][0][0]
            return last

    torch.manual_seed(0)
    return Packed().eval()


@pytest.mark.parametrize("rows", [{}, _rows()], ids=["made up", "real"])
@pytest.mark.parametrize("to", ["torchscript", "pt2"])
def test_a_padding_mask_is_never_of_padding_alone(bench: Bench, to: str, rows: dict[str, Any]) -> None:
    converted = bench.convert("torch", to=to, model=_encoder(), signature=_MASKED, rows=rows)
    assert not [note for note in converted.conversion.notes if "finite" in note or "not tried" in note]


@pytest.mark.parametrize(
    "rows", [{}, {"x": np.ones((2, 5, 3), np.float32), "lengths": np.array([5, 3])}], ids=["made up", "real"]
)
def test_lengths_are_at_least_1(bench: Bench, rows: dict[str, Any]) -> None:
    bench.convert("torch", to="torchscript", model=_packed(), signature=_LENGTHS, rows=rows)


def _only(rows: dict[str, Any], **sizes: int) -> list[torch.Tensor]:
    """Return the first draw of real rows."""
    return next(input_draws(_MASKED if "mask" in rows else _LENGTHS, sizes, rows)[0])


def test_real_rows_of_their_own_sizes_stay_as_they_are() -> None:
    rows = _rows()
    tokens, mask = _only(rows, batch=3, sequence=5)
    assert (tokens.numpy() == rows["tokens"]).all()
    assert (mask.numpy() == rows["mask"]).all()


def test_rows_of_another_size_hold_real_values_in_another_order_under_a_full_mask() -> None:
    rows = _rows()
    tokens, mask = _only(rows, batch=5, sequence=10)
    assert tokens.shape == mask.shape == (5, 10)
    assert (tokens[:3, :5].numpy() == rows["tokens"]).all()
    assert not torch.equal(tokens[:, :5], tokens[:, 5:])
    assert set(tokens.flatten().tolist()) <= set(rows["tokens"].flatten().tolist())
    assert bool(mask.all())


def test_masks_stay_where_only_the_number_of_rows_changes() -> None:
    _, mask = _only(_rows(), batch=2, sequence=5)
    assert (mask.numpy() == _rows()["mask"][:2]).all()


@pytest.mark.parametrize(("time", "lengths"), [(9, [9, 3]), (2, [2, 2]), (5, [5, 3])])
def test_lengths_follow_the_size(time: int, lengths: list[int]) -> None:
    rows = {"x": np.ones((2, 5, 3), np.float32), "lengths": np.array([5, 3])}
    assert _only(rows, batch=2, time=time)[1].tolist() == lengths


def test_rows_that_do_not_fit_are_left_aside() -> None:
    rows = {**_rows(), "mask": np.ones((3, 5), np.float32)}
    assert len(input_draws(_MASKED, {"batch": 4, "sequence": 6}, rows)) == 1
    assert len(input_draws(_MASKED, {"batch": 4, "sequence": 6}, {"tokens": _rows()["tokens"]})) == 1


def test_what_is_made_up_begins_with_full_masks_and_ends_with_zeros() -> None:
    (made_up,) = input_draws(_MASKED, {"batch": 4, "sequence": 6}, {})
    drawn = list(made_up)
    assert bool(drawn[0][1].all())
    assert not any(bool(tensor.any()) for tensor in drawn[-1])


def test_a_program_keeps_nothing_of_real_rows(bench: Bench) -> None:
    rows = {"tokens": np.full((3, 5), 37), "mask": np.ones((3, 5), bool)}
    converted = bench.convert("torch", to="pt2", model=_encoder(), signature=_MASKED, rows=rows)
    program = torch.export.load(str(converted.main))
    arguments = (program.example_inputs or ((), {}))[0]
    assert not any(bool(tensor.any()) for tensor in arguments)


_FLOATS = sign({"x": "float32[batch, width]"}, {"y": "float32[batch]"}, batch=(1, 4, 8), width=(2, 4, 8))


def test_a_mean_of_the_first_places_is_found_with_real_rows_of_half_the_size(bench: Bench) -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # `int` makes it a constant of the trace.
            return x[:, : int(x.shape[1])].sum(1) / int(x.shape[1])

    rows = {"x": np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)}
    with pytest.raises(ConversionError, match="the size of 'width' is baked in"):
        bench.convert("torch", to="torchscript", model=Mean(), signature=_FLOATS, rows=rows)


class _AtWidth:
    """NaN at one width, where a trace of another width says so of it."""

    def __init__(self, width: int) -> None:
        self.width = width

    def module(self) -> Any:  # noqa: ANN401 - a module
        outer = self

        class Module(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = x.sum(1)
                return y if int(x.shape[1]) == outer.width else y / (y - y)

        return Module()


def test_what_is_not_finite_after_conversion_alone_is_refused(bench: Bench) -> None:
    class Shrinking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # Infinite at every other width than that of the trace, where the module itself is finite.
            missing = torch.ones_like(x).sum(1) - int(x.shape[1])
            return x.sum(1) + torch.where(missing == 0, 0.0, torch.inf)

    with pytest.raises(ConversionError, match="the converted model is not finite at batch=4, width=2, where"):
        bench.convert("torch", to="torchscript", model=Shrinking(), signature=_FLOATS)


def test_what_is_finite_nowhere_is_said_and_not_judged(bench: Bench) -> None:
    converted = bench.convert("torch", to="torchscript", model=_AtWidth(99).module(), signature=_FLOATS)
    assert any("its values were not all compared at batch=4, width=2" in note for note in converted.conversion.notes)


def _halves() -> Any:  # noqa: ANN401 - a module
    class Halves(torch.nn.Module):
        """Takes multiples of 4 only, as a U-Net with two levels."""

        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.ConvTranspose2d(1, 1, 2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = torch.nn.functional.max_pool2d(x, 2)
            both = torch.cat([self.up(torch.nn.functional.max_pool2d(half, 2)), half], 1)
            return torch.nn.functional.interpolate(both, size=x.shape[-2:], mode="bilinear", align_corners=False)

    torch.manual_seed(0)
    return Halves().eval()


def _scan(least: int) -> Signature:
    inputs, outputs = {"x": "float32[batch, 1, height, 8]"}, {"y": "float32[batch, 2, height, 8]"}
    return sign(inputs, outputs, batch=(1, 2, 4), height=(least, 16, 64))


@pytest.mark.parametrize("to", ["onnx", "pt2", "torchscript"])
def test_sizes_that_nobody_named_and_the_module_refuses_are_left_out_with_a_note(bench: Bench, to: str) -> None:
    converted = bench.convert("torch", to=to, model=_halves(), signature=_scan(8))
    notes = " ".join(converted.conversion.notes)
    assert to == "torchscript" or "the module itself does not take batch=2, height=" in notes


def test_an_end_that_the_module_refuses_is_refused(bench: Bench) -> None:
    with pytest.raises(ConversionError, match=r"fails at batch=2, height=10 \(dim 'height'\)"):
        bench.convert("torch", to="torchscript", model=_halves(), signature=_scan(10))


_TIED = sign(
    {"x": "float32[batch, 2]", "mask": "float32[batch, total]", "past": "float32[batch, past, 2]"},
    {"y": "float32[batch, total, 2]"},
    batch=(1, 2, 4),
    total=(2, 6, 9),
    past=(1, 5, 8),
)


@pytest.mark.parametrize("to", ["onnx", "pt2", "torchscript"])
def test_dims_that_the_module_takes_only_together_are_tried_together(bench: Bench, to: str) -> None:
    class Step(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            return torch.cat([past, x[:, None]], 1) * mask[:, :, None]

    converted = bench.convert("torch", to=to, model=Step(), signature=_TIED)
    notes = " ".join(converted.conversion.notes)
    assert "does not take batch=2, total=2, past=5: it was tried at batch=1, total=2, past=1 instead" in notes


def test_a_tie_of_the_program_alone_is_refused(bench: Bench) -> None:
    class Either(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            is_tied = mask.shape[1] == past.shape[1] + 1
            return mask[:, :, None] * (x[:, None] if is_tied else x[:, None] + 1)

    with pytest.raises(ConversionError, match=r"'(total|past)' is baked in"):
        bench.convert("torch", to="pt2", model=Either(), signature=_TIED)
