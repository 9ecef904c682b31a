"""A program of torch.export to ONNX: each name has the tensor that it has when the program runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, assert_near, sign, trace

from paritygate.errors import ConversionError, InputFileError, UsageError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_INPUTS = {"left": "float32[batch, 4]", "right": "float32[batch, 4]"}


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"z": self.head(left), "difference": left - right, "extra": right * 3}


def _saved(folder: Path, module: Any, *, keywords: bool = False, **fixed: int) -> Path:  # noqa: ANN401 - any module
    """Export a module of `left` and `right` as others do, with dims of no name and no range."""
    size = None if fixed else torch.export.Dim.DYNAMIC
    left, right = torch.zeros(fixed.get("batch", 3), 4), torch.zeros(fixed.get("batch", 3), 4)
    program = torch.export.export(
        module,
        (left,) if keywords else (left, right),
        kwargs={"right": right} if keywords else None,
        dynamic_shapes={"left": {0: size}, "right": {0: size}},
    )
    path = folder / "given.pt2"
    torch.export.save(program, path)
    return path


def _arrays() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    left, right = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    return left, right


@pytest.mark.parametrize("keywords", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_dict_is_named_by_its_keys_and_cut_and_ordered_by_the_signature(bench: Bench, *, keywords: bool) -> None:
    module = _Two().eval()
    source = _saved(bench.folder, module, keywords=keywords)
    signature = sign(
        {"b": "float32[batch, 4]", "left": "float32[batch, 4]"},
        {"difference": "float32[batch, 4]", "scores": "float32[batch, 2]"},
        batch=(1, 4, 16),
    )
    converted = bench.convert("pt2", source, signature=signature, rename={"right": "b", "z": "scores"})
    left, right = _arrays()
    actual = converted.run({"left": left, "b": right})
    expected = module(torch.from_numpy(left), torch.from_numpy(right))
    assert list(actual) == ["difference", "scores"]
    assert_near(actual["difference"], expected["difference"])
    assert_near(actual["scores"], expected["z"].detach())
    assert converted.conversion.signature == signature
    assert any("left out: left_out_2" in note for note in converted.conversion.notes)
    assert b"test_pt2_to_onnx.py" not in converted.main.read_bytes()


def test_without_a_signature_the_names_are_those_that_the_program_keeps(bench: Bench) -> None:
    converted = bench.convert("pt2", _saved(bench.folder, _Two().eval()))
    signature = converted.conversion.signature
    assert [str(spec) for spec in signature.inputs] == ["left: float32[batch, 4]", "right: float32[batch, 4]"]
    assert [spec.name for spec in signature.outputs] == ["z", "difference", "extra"]


def test_our_own_file_needs_no_signature(bench: Bench) -> None:
    signature = sign(_INPUTS, {"difference": "float32[batch, 4]", "z": "float32[batch, 2]"}, batch=(1, 4, 16))
    ours = bench.convert("torch", to="pt2", model=_Two(), signature=signature)
    converted = Bench(folder=bench.folder / "other").convert("pt2", ours.main)
    left, right = _arrays()
    actual = converted.run({"left": left, "right": right})
    assert list(actual) == ["difference", "z"]
    assert_near(actual["difference"], left - right)


def test_a_program_of_one_size_is_not_taken_for_any(bench: Bench) -> None:
    source = _saved(bench.folder, _Two().eval(), batch=3)
    signature = sign(_INPUTS, {"z": "float32[batch, 2]"}, batch=(1, 3, 16))
    with pytest.raises(ConversionError, match="batch"):
        bench.convert("pt2", source, signature=signature)


def test_a_program_of_fewer_sizes_is_refused_with_both_ranges(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"z": left + right if left.shape[0] > 2 else left}

    source = _saved(bench.folder, Branching())
    signature = sign(_INPUTS, {"z": "float32[batch, 4]"}, batch=(1, 3, 16))
    with pytest.raises(ConversionError, match="'batch' only from 3 on, but the signature allows from 1 to 16"):
        bench.convert("pt2", source, signature=signature)


def test_an_output_that_is_not_there_is_named_with_those_that_are(bench: Bench) -> None:
    source = _saved(bench.folder, _Two().eval())
    with pytest.raises(UsageError, match=r"no output 'logits' \(it returned: 'z', 'difference', 'extra'\)"):
        bench.convert("pt2", source, signature=sign(_INPUTS, {"logits": "float32[batch, 2]"}))


def test_tensors_inside_of_a_list_are_refused(bench: Bench) -> None:
    class Listed(torch.nn.Module):
        def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
            return parts[0] + parts[1]

    path = bench.folder / "given.pt2"
    torch.export.save(torch.export.export(Listed(), ([torch.zeros(2, 4), torch.zeros(2, 4)],)), path)
    with pytest.raises(UsageError, match="tensors inside a dict or list"):
        bench.convert("pt2", path)


def test_an_opset_is_read_back(bench: Bench) -> None:
    converted = bench.convert("pt2", _saved(bench.folder, _Two().eval()), opset=20)
    assert converted.conversion.facts["opset"] == 20


@pytest.mark.parametrize("fault", ["flipped", "cut off", "torchscript"])
def test_a_damaged_or_other_archive_is_refused_by_what_it_is(bench: Bench, fault: str) -> None:
    path = _saved(bench.folder, _Two().eval())
    content = bytearray(path.read_bytes())
    messages = {
        "flipped": "checksum mismatch of .*weight",
        "cut off": "given.pt2 is corrupt",
        "torchscript": "is TorchScript, not",
    }
    if fault == "flipped":
        weight = torch.export.load(path).state_dict["head.weight"].detach().numpy().tobytes()
        content[content.index(weight)] ^= 1
    elif fault == "cut off":
        del content[-2000:]
    path.write_bytes(content)
    if fault == "torchscript":
        torch.jit.save(trace(torch.nn.ReLU(), torch.zeros(2, 4)), str(path))
    with pytest.raises(InputFileError, match=messages[fault]):
        bench.convert("pt2", path)
