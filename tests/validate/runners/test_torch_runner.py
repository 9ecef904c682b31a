"""What is particular to PyTorch: modes, switches of the process, tensors that share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.errors import BackendError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.torch import TorchRunner, open_model

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.torch
_X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def _signature(**outputs: str) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 8)),),
        outputs=tuple(TensorSpec(name=name, dtype=dtype, shape=None) for name, dtype in outputs.items()),
    )


def _open(module: torch.nn.Module, signature: Signature | None = None, *, device: str = "cpu") -> TorchRunner:
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.TORCH)
    signature = signature or _signature(y="float32")
    return open_model(LoadedModel(ref=replace(source, signature=signature), model=module, device=device))


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401 - whatever the function returns
        return self.function(x)


def test_a_module_in_train_mode_is_put_into_eval_mode_and_the_facts_say_so() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).train()
    runner = _open(module)
    assert not any(part.training for part in module.modules())
    assert any("was in train mode" in note for note in runner.facts.notes)
    np.testing.assert_array_equal(runner.run({"x": _X})["y"], runner.run({"x": _X})["y"])


def test_a_layer_of_a_few_float32_weights_is_fp32() -> None:
    facts = _open(torch.nn.Linear(4, 3).eval()).facts
    assert (facts.precision_found, facts.notes) == (Precision.FP32, ())


def test_a_module_without_weights_is_said_to_have_none() -> None:
    facts = _open(_Function(lambda x: x).eval()).facts
    assert facts.precision_found is None
    assert facts.notes == ("the precision of the weights could not be read: they are packed, or none is a float",)


def test_a_module_in_eval_mode_needs_no_note() -> None:
    assert _open(torch.nn.Linear(8, 2).eval()).facts.notes == ()


@pytest.mark.parametrize(
    "said",
    [
        "Expected all tensors to be on the same device, but got index is on cpu, different from others on cuda:0",
        "indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
        "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ],
)
def test_a_tensor_on_another_device_is_said_with_what_to_do(said: str) -> None:
    def elsewhere(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(said)

    with pytest.raises(BackendError) as caught:
        _open(_Function(elsewhere).eval()).run({"x": _X})
    assert "make it where an input is (device=x.device)" in caught.value.hint


def test_what_failed_in_torchscript_is_said_and_not_only_where(tmp_path: Path) -> None:
    script = torch.jit.trace(_Function(lambda x: x.reshape(2, 4, 4)).eval(), torch.zeros(4, 8))  # type: ignore[no-untyped-call]
    script.save(str(tmp_path / "m.pt"))
    source = ModelRef(text="m.pt", folder=tmp_path, kind=SourceKind.TORCHSCRIPT)
    runner = open_model(LoadedModel(ref=replace(source, signature=_signature(y="float32")), device="cpu"))

    with pytest.raises(BackendError, match=r"RuntimeError: shape '.2, 4, 4.' is invalid for input of size 16"):
        runner.run({"x": _X[:2]})


def test_of_what_failed_in_torchscript_the_reason_is_said_and_not_what_stands_below_it() -> None:
    lines = [
        "The following operation failed in the TorchScript interpreter.",
        "Traceback of TorchScript, serialized code (most recent call last):",
        "    return torch.linear(x, Error: w)",
        "           ~~~~~~~~~~~~ <--- HERE",
        "RuntimeError: CUDA error: device-side assert triggered",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ]

    def fails(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("\n".join(lines))

    with pytest.raises(BackendError, match=r"RuntimeError: CUDA error: device-side assert triggered$"):
        _open(_Function(fails).eval()).run({"x": _X})


def test_dropout_that_is_always_active_stays_active() -> None:
    runner = _open(_Function(lambda x: torch.nn.functional.dropout(x, 0.5, training=True)))
    x = np.ones((64, 8), dtype=np.float32)
    assert not np.array_equal(runner.run({"x": x})["y"], runner.run({"x": x})["y"])


def test_a_signature_is_needed() -> None:
    source = ModelRef(text="somewhere:model", folder=Path(), kind=SourceKind.TORCH)
    with pytest.raises(UsageError, match="the names and dtypes of somewhere:model are unknown"):
        open_model(LoadedModel(ref=source, model=torch.nn.Linear(8, 2)))


def test_a_module_that_changes_its_input_does_not_change_the_caller_s() -> None:
    x = _X.copy()
    found = _open(_Function(lambda x: x.add_(1))).run({"x": x})["y"]
    np.testing.assert_array_equal(found, _X + 1)
    np.testing.assert_array_equal(x, _X)


def test_an_output_that_is_a_weight_or_shares_memory_with_another_is_a_copy() -> None:
    class Shares(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            both = x + 1
            return {"weight": self.weight, "both": both, "part": both[:, :2], "wide": x[:, :1].expand(-1, 5)}

    runner = _open(Shares(), _signature(weight="float32", both="float32", part="float32", wide="float32"))
    first = runner.run({"x": _X})
    for array in first.values():
        array[...] = 7
    second = runner.run({"x": _X})
    np.testing.assert_array_equal(second["weight"], np.ones(3))
    np.testing.assert_array_equal(second["part"], _X[:, :2] + 1)
    np.testing.assert_array_equal(second["wide"], np.repeat(_X[:, :1], 5, axis=1))


@pytest.fixture
def _switches() -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    allowed = torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = allowed


@pytest.mark.usefixtures("_switches")
def test_tf32_and_lower_matmul_precision_are_off_while_the_module_runs() -> None:
    seen = {}

    def look(x: torch.Tensor) -> torch.Tensor:
        seen["matmul"] = torch.get_float32_matmul_precision()
        seen["cuda"] = torch.backends.cuda.matmul.allow_tf32
        seen["cudnn"] = torch.backends.cudnn.allow_tf32
        return x

    runner = _open(_Function(look))
    # What importing somebody's module may do between two batches.
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    runner.run({"x": _X})
    assert seen == {"matmul": "highest", "cuda": False, "cudnn": False}


def test_autocast_around_the_runner_does_not_reach_the_module() -> None:
    module = torch.nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = _open(module).run({"x": _X})["y"]
    weight, bias = module.weight.detach().numpy().astype(np.float64), module.bias.detach().numpy()
    np.testing.assert_allclose(found, _X @ weight.T + bias, rtol=1e-5, atol=1e-6)


def test_no_gradients_are_kept() -> None:
    seen = []
    _open(_Function(lambda x: seen.append(torch.is_inference_mode_enabled()) or x)).run({"x": _X})
    assert seen == [True]


def test_bfloat16_comes_out_as_such() -> None:
    runner = _open(_Function(lambda x: x.to(torch.bfloat16)), _signature(y="bfloat16"))
    found = runner.run({"x": _X})["y"]
    assert found.dtype.name == "bfloat16"
    np.testing.assert_array_equal(found, _X.astype(ml_dtypes.bfloat16))


def _bf16(module: torch.nn.Module) -> torch.nn.Module:
    return module.bfloat16().float()


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (torch.nn.Linear(64, 64), Precision.FP32),
        (torch.nn.Linear(64, 64).half(), Precision.FP16),
        (torch.nn.Linear(64, 64).bfloat16(), Precision.BF16),
        (_bf16(torch.nn.Linear(64, 64)), Precision.BF16),
        (torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64).half()), Precision.MIXED),
        (torch.nn.ReLU(), None),
    ],
    ids=["fp32", "half", "bfloat16", "rounded to bfloat16", "half and float", "no weights"],
)
def test_precision_is_that_of_the_weights(module: torch.nn.Module, expected: Precision | None) -> None:
    assert _open(module).facts.precision_found is expected


def test_dynamically_quantized_modules_are_int8() -> None:
    quantize = pytest.importorskip("torch.ao.quantization", reason="this PyTorch has no eager quantization")
    module = torch.nn.Sequential(torch.nn.Linear(8, 8))
    quantized = quantize.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)
    assert _open(quantized).facts.precision_found is Precision.INT8


def test_outputs_that_the_signature_leaves_out_are_in_the_facts() -> None:
    runner = _open(_Function(lambda x: {"loss": x.sum(), "y": x}))
    runner.run({"x": _X})
    assert runner.facts.notes[-1] == "the module also returns loss, which the signature does not have"


def test_an_output_that_is_not_returned_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="the model returned no output 'y'"):
        _open(_Function(lambda x: {"z": x})).run({"x": _X})


def test_an_exception_of_the_module_is_named_with_the_shapes() -> None:
    def fail(_: torch.Tensor) -> torch.Tensor:
        weights: dict[str, torch.Tensor] = {}
        return weights["bias"]

    with pytest.raises(BackendError, match=r"module failed on x: float32\[4, 8\]: KeyError: 'bias'"):
        _open(_Function(fail)).run({"x": _X})


@pytest.mark.gpu
def test_on_the_gpu_the_facts_name_it_and_tf32_is_off() -> None:
    runner = _open(torch.nn.Linear(8, 8), device="cuda")
    runner.run({"x": _X})
    assert runner.facts.device.startswith("cuda:sm")
    assert runner.facts.tf32 is False
