"""TorchScript to ONNX by the legacy exporter: names by the signature, never by chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from tests.convert.conftest import Bench, assert_near, sign, trace

from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_TWO = sign(
    {"left": "float32[batch, 4]", "right": "float32[batch, 4]"},
    {"difference": "float32[batch, 4]", "z": "float32[batch, 2]"},
    batch=(1, 4, 16),
)


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"z": self.head(left), "difference": left - right}


def _traced(module: Any, folder: Path, *inputs: torch.Tensor, name: str = "given.pt") -> Path:  # noqa: ANN401 - any module
    path = folder / name
    torch.jit.save(trace(module, inputs, strict=False), str(path))
    return path


def _scripted(module: Any, folder: Path) -> Path:  # noqa: ANN401 - any module
    path = folder / "given.pt"
    torch.jit.save(torch.jit.script(module), str(path))
    return path


def test_a_dict_in_another_order_gets_each_name_its_own_tensor(bench: Bench) -> None:
    module = _Two().eval()
    source = _traced(module, bench.folder, torch.zeros(2, 4), torch.zeros(2, 4))
    converted = bench.convert("torchscript", source, signature=_TWO)
    left, right = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    actual = converted.run({"left": left, "right": right})
    expected = module(torch.from_numpy(left), torch.from_numpy(right))
    assert list(actual) == ["difference", "z"]
    assert_near(actual["difference"], expected["difference"])
    assert_near(actual["z"], expected["z"].detach())
    assert converted.conversion.signature == _TWO
    assert converted.conversion.facts["opset"] == 18


def test_inputs_of_which_only_some_have_their_names_are_refused_rather_than_guessed(bench: Bench) -> None:
    class Functional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 4)

        def forward(self, input: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as many layers do
            difference: torch.Tensor = self.head(input) - y
            return difference

    source = _traced(Functional().eval(), bench.folder, torch.zeros(2, 4), torch.zeros(2, 4))
    inputs, outputs = {"y": "float32[batch, 4]", "x": "float32[batch, 4]"}, {"z": "float32[batch, 4]"}
    with pytest.raises(UsageError, match=r"forward of Functional has no parameter 'x' \(it has: "):
        bench.convert("torchscript", source, signature=sign(inputs, outputs, batch=(1, 2, 4)))
    converted = bench.convert(
        "torchscript", source, signature=sign(inputs, outputs, batch=(1, 2, 4)), rename={"input": "x"}
    )
    x, y = np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32)
    bias = torch.jit.load(str(source)).head.bias.detach().numpy()  # type: ignore[no-untyped-call]
    assert_near(converted.run({"x": x, "y": y})["z"], bias[None] - y)


def test_our_own_file_needs_no_signature(bench: Bench) -> None:
    ours = bench.convert("torch", to="torchscript", model=_Two(), signature=_TWO)
    other = Bench(folder=bench.folder / "other")
    converted = other.convert("torchscript", ours.main)
    names = [spec.name for spec in (*converted.conversion.signature.inputs, *converted.conversion.signature.outputs)]
    assert names == ["left", "right", "difference", "z"]


def test_a_frozen_module_is_exported(bench: Bench) -> None:
    module = _Two().eval()
    path = bench.folder / "given.pt"
    traced = trace(module, (torch.zeros(2, 4), torch.zeros(2, 4)), strict=False)
    torch.jit.save(torch.jit.freeze(traced), str(path))
    actual = bench.convert("torchscript", path, signature=_TWO).run(
        {"left": np.ones((3, 4), np.float32), "right": np.zeros((3, 4), np.float32)}
    )
    assert_near(actual["z"], module(torch.ones(3, 4), torch.zeros(3, 4))["z"].detach())


def test_a_branch_in_script_is_kept(bench: Bench) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 4:
                return x * 2
            return x

    source = _scripted(Branching(), bench.folder)
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 64))
    converted = bench.convert("torchscript", source, signature=signature)
    for rows, factor in ((3, 1), (9, 2)):
        assert_near(converted.run({"x": np.ones((rows, 4), np.float32)})["y"], np.full((rows, 4), factor, np.float32))


def test_a_size_that_the_given_trace_baked_in_is_found(bench: Bench) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(8, 4)

    source = _traced(Fixed(), bench.folder, torch.zeros(8, 4))
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(2, 8, 16))
    with pytest.raises(ConversionError, match=r"fails at batch=2 \(dim 'batch'\), which its signature"):
        bench.convert("torchscript", source, signature=signature)


@pytest.mark.parametrize("opset", [17, 20])
def test_the_opset_asked_for_is_read_back(bench: Bench, opset: int) -> None:
    source = _traced(_Two(), bench.folder, torch.zeros(2, 4), torch.zeros(2, 4))
    converted = bench.convert("torchscript", source, signature=_TWO, opset=opset)
    assert converted.conversion.facts["opset"] == opset == onnx.load(str(converted.main)).opset_import[0].version


def test_an_opset_that_the_exporter_does_not_write_is_refused(bench: Bench) -> None:
    source = _traced(_Two(), bench.folder, torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(UsageError, match=r"opset 99 .* \(allowed: 7 to 20\)"):
        bench.convert("torchscript", source, signature=_TWO, opset=99)


def test_an_operator_that_onnx_lacks_is_named(bench: Bench) -> None:
    class Unsupported(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = torch.linalg.svdvals(x)
            return values

    source = _traced(Unsupported(), bench.folder, torch.ones(2, 4, 4))
    signature = sign({"x": "float32[batch, 4, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 4))
    with pytest.raises(UnsupportedOperatorsError) as caught:
        bench.convert("torchscript", source, signature=signature)
    assert "linalg_svd" in caught.value.rows[0][0]


def test_an_operator_may_have_a_second_name_within_a_traced_module(bench: Bench) -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.concat([torch.multiply(x, x), torch.arctan2(x, x + 3), torch.absolute(x)], dim=1)

    module = torch.nn.Sequential(Inner())
    source = _traced(module, bench.folder, torch.ones(2, 4))
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 12]"}, batch=(1, 2, 8))
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    for converted in (
        bench.convert("torchscript", source, signature=signature),
        Bench(folder=bench.folder / "module").convert(
            "torch", model=module, signature=signature, exporter="torchscript"
        ),
    ):
        assert_near(converted.run({"x": x})["y"], module(torch.from_numpy(x)))


def test_dropout_that_was_traced_in_train_mode_is_noted(bench: Bench) -> None:
    source = _traced(torch.nn.Sequential(torch.nn.Dropout(1.0)).train(), bench.folder, torch.ones(2, 4))
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 2, 4))
    converted = bench.convert("torchscript", source, to="torchscript", signature=signature)
    assert "1 dropout was traced in train mode, so eval mode does not reach it" in converted.conversion.notes


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"w": torch.ones(2)}, r"is weights without a model \(a state dict of torch.save\), not TorchScript"),
        (
            torch.nn.Linear(2, 2),
            r"pickled object of torch.save \(class torch.nn.modules.linear.Linear\), which is never",
        ),
    ],
    ids=["state dict", "module"],
)
def test_what_torch_save_wrote_is_refused_by_what_it_is(bench: Bench, saved: object, message: str) -> None:
    path = bench.folder / "given.pt"
    torch.save(saved, path)
    with pytest.raises(InputFileError, match=message) as caught:
        bench.convert("torchscript", path, signature=_TWO)
    assert "module:callable" in caught.value.hint


def test_a_pickle_is_never_unpickled(bench: Bench) -> None:
    path, trap = bench.folder / "given.pt", bench.folder / "trap"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (trap,))

    torch.save(Trap(), path)
    with pytest.raises(InputFileError, match="never unpickled"):
        bench.convert("torchscript", path, signature=_TWO)
    assert not trap.exists()


def test_a_damaged_byte_is_found(bench: Bench) -> None:
    source = _traced(_Two(), bench.folder, torch.zeros(2, 4), torch.zeros(2, 4))
    weight = torch.jit.load(str(source)).head.weight.detach().numpy().tobytes()  # type: ignore[no-untyped-call]
    content = bytearray(source.read_bytes())
    content[content.index(weight)] ^= 1
    source.write_bytes(content)
    with pytest.raises(InputFileError, match="is corrupt: checksum mismatch of given/data/0"):
        bench.convert("torchscript", source, signature=_TWO)
