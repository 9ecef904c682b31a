"""Dims that are sums of others, such as of a decoder with a cache, wherever a conversion makes up sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, assert_near, sign

from paritygate.convert.torch.sizes import example_sizes, fitting_sizes
from paritygate.errors import ConversionError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_TIES = {"total": "past + new"}
_RANGES = {"past": (1, 16, 16), "new": (1, 2, 4), "total": (2, 16, 16)}
_PROMISED = sign({"x": "float32[new, past, total]"}, {"y": "float32[1]"}, **_RANGES)


def test_sizes_of_a_trace_fit_each_other_within_what_is_declared() -> None:
    assert example_sizes(_PROMISED, {}) == {"new": 2, "past": 16, "total": 16}
    assert example_sizes(_PROMISED, _TIES) == {"new": 2, "past": 14, "total": 16}
    undeclared = sign({"x": "float32[new, past, total]"}, {"y": "float32[1]"})
    assert example_sizes(undeclared, _TIES) == {"new": 8, "past": 8, "total": 16}
    assert example_sizes(undeclared, {"total": "past + 1"}) == {"new": 8, "past": 8, "total": 9}


@pytest.mark.parametrize(
    ("wanted", "kept", "found"),
    [
        ({"new": 4, "past": 3, "total": 9}, "new", {"new": 4, "past": 3, "total": 7}),
        ({"new": 4, "past": 3, "total": 9}, "total", {"new": 4, "past": 5, "total": 9}),
        ({"new": 4, "past": 3, "total": 2}, "total", {"new": 1, "past": 1, "total": 2}),
        ({"new": 1, "past": 16, "total": 2}, "past", None),
    ],
)
def test_the_dim_that_is_tried_keeps_its_size(wanted: dict[str, int], kept: str, found: dict[str, int] | None) -> None:
    assert fitting_sizes(wanted, _PROMISED, _TIES, kept=kept) == found


def test_a_dim_that_two_sums_share_fits_both_or_there_are_no_sizes() -> None:
    promised = sign({"x": "float32[a, b, c, d]"}, {"y": "float32[1]"}, c=(4, 4, 4), d=(7, 7, 7))
    sizes = {"a": 1, "b": 1, "c": 4, "d": 7}
    assert fitting_sizes(sizes, promised, {"c": "a + b", "d": "a + 3"}) is None
    assert fitting_sizes(sizes, promised, {"d": "a + 3", "c": "b + 0"}) == {"a": 4, "b": 4, "c": 4, "d": 7}


class _Decoder(torch.nn.Module):
    """Attends from what is new to what is cached and new, under a mask over both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = torch.nn.Embedding(20, 4), torch.nn.Linear(4, 3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, cache: torch.Tensor) -> dict[str, torch.Tensor]:
        new = self.table(ids)
        present = torch.cat([cache, new], 1)
        scores = new @ present.transpose(1, 2) + (1.0 - mask[:, None]) * -1e9
        return {"logits": self.head(scores.softmax(-1) @ present), "present": present}


_CACHE = {"ids": "int64[batch, new]", "mask": "float32[batch, total]", "cache": "float32[batch, past, 4]"}
_ANSWERS = {"logits": "float32[batch, new, 3]", "present": "float32[batch, total, 4]"}
_DECODER = sign(_CACHE, _ANSWERS, batch=(1, 2, 4), **_RANGES)


@pytest.mark.parametrize(("exporter", "rows"), [("dynamo", True), ("torchscript", True), ("torchscript", False)])
def test_a_decoder_with_a_cache_is_converted_at_sizes_that_fit(bench: Bench, exporter: str, *, rows: bool) -> None:
    module = _Decoder().eval()
    fields: dict[str, Any] = {"model": module, "signature": _DECODER, "exporter": exporter, "ties": _TIES}
    converted = bench.convert("torch", **fields, rows=_fed(2, 1, 5) if rows else {})
    assert converted.conversion.signature.outputs == _DECODER.outputs
    assert not [note for note in converted.conversion.notes if "does not take" in note]
    for sizes in ((1, 1, 1), (3, 4, 12)):
        fed = _fed(*sizes)
        expected = module(*(torch.from_numpy(array) for array in fed.values()))
        for name, array in converted.run(fed).items():
            assert_near(array, expected[name].detach())


def test_a_program_of_a_decoder_stands_for_the_sizes_that_fit(bench: Bench) -> None:
    # From 2 on, because torch.export guards the program against sizes of 1 where dims are added.
    signature = sign(_CACHE, _ANSWERS, batch=(1, 2, 4), past=(2, 16, 16), new=(2, 2, 4), total=(4, 16, 16))
    converted = bench.convert("torch", to="pt2", model=_Decoder(), signature=signature, ties=_TIES)
    assert converted.conversion.signature == signature


def _fed(batch: int, new: int, past: int) -> dict[str, Any]:
    random = np.random.default_rng(new)
    mask = np.ones((batch, new + past), np.float32)
    mask[0, 0] = 0
    cache = random.standard_normal((batch, past, 4)).astype(np.float32)
    return {"ids": random.integers(0, 20, (batch, new)), "mask": mask, "cache": cache}


def test_without_ties_the_sizes_made_up_are_refused_by_the_module(bench: Bench) -> None:
    with pytest.raises(ConversionError):
        bench.convert("torch", to="torchscript", model=_Decoder(), signature=_DECODER)
    other = Bench(folder=bench.folder / "other")
    other.convert("torch", to="torchscript", model=_Decoder(), signature=_DECODER, ties=_TIES)


def test_a_size_baked_into_a_decoder_is_found_all_the_same(bench: Bench) -> None:
    class Baked(_Decoder):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor, cache: torch.Tensor) -> dict[str, torch.Tensor]:
            answer = super().forward(ids, mask, cache)
            return {**answer, "logits": answer["logits"] * int(cache.shape[1])}

    with pytest.raises(ConversionError, match=r"differs by .* at .*past=.* is baked in"):
        bench.convert("torch", to="torchscript", model=Baked(), signature=_DECODER, ties=_TIES)


def test_sizes_that_nothing_declared_adds_up_to_are_left_out_and_that_is_said(bench: Bench) -> None:
    ranges = {**_RANGES, "total": (2, 16, 64), "batch": (1, 2, 4)}
    signature = sign(_CACHE, _ANSWERS, **ranges)
    converted = bench.convert("torch", to="torchscript", model=_Decoder(), signature=signature, ties=_TIES)
    (note,) = converted.conversion.notes[1:]
    assert note == "it was tried with total from 2 to 20 only, because total is past + new in all samples"
