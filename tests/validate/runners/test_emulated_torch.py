"""Emulated float16 and bfloat16 against PyTorch's own on the CPU: how far each is from float32."""

from __future__ import annotations

import copy
import itertools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.weights import DTYPES
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision
from paritygate.validate.runners.emulated import open_emulated

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

_ROWS = 64
# How much more or less than PyTorch's the emulated difference may be, at most and on average.
_FACTOR = 2.0
_TORCH_NAMES = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}
# The fewest opsets that have all operators of the models in the precision.
_OPSETS = {Precision.FP32: 20, Precision.FP16: 20, Precision.BF16: 22}

_Arrays = list[NDArray[Any]]


def _encoder() -> tuple[torch.nn.Module, _Arrays]:
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = torch.nn.Embedding(100, 32)
            self.block = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", dropout=0.0)
            self.head = torch.nn.Linear(32, 1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.head(self.block(self.tokens(ids)).mean(dim=1))
            return scores

    return Encoder(), [np.random.default_rng(0).integers(0, 100, (_ROWS, 12))]


def _conv_net() -> tuple[torch.nn.Module, _Arrays]:
    from torch import nn

    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(*layers, nn.Softmax(-1)), [_normal(_ROWS, 3, 16, 16)]


def _mlp() -> tuple[torch.nn.Module, _Arrays]:
    from torch import nn

    layers = [nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)]
    return nn.Sequential(*layers), [_normal(_ROWS, 32)]


def _overflowing() -> tuple[torch.nn.Module, _Arrays]:
    import torch

    class Overflowing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.widen = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            squares: torch.Tensor = (self.widen(x) * 3000.0) ** 2
            return squares / (squares.sum(dim=-1, keepdim=True) + 1.0)

    return Overflowing(), [_normal(_ROWS, 8)]


def _sts() -> tuple[torch.nn.Module, _Arrays]:
    from paritygate.fixtures.sts import evaluation_pairs, torch_model
    from paritygate.fixtures.sts.architecture import WEIGHTS_PATH

    if not WEIGHTS_PATH.exists():
        pytest.skip(f"the sentence-pair model has no weights yet: {WEIGHTS_PATH} does not exist")
    batch = max(itertools.islice(evaluation_pairs(), 4), key=lambda each: each.inputs["input_ids"].shape[1])
    return torch_model(), [batch.inputs["input_ids"], batch.inputs["attention_mask"]]


_MODELS = {"encoder": _encoder, "conv": _conv_net, "mlp": _mlp, "overflowing": _overflowing, "sts": _sts}


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Exported:
    module: torch.nn.Module
    inputs: _Arrays
    path: Path
    expected: NDArray[np.float32]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.thorough] if name == "sts" else []) for name in _MODELS],
)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Exported:
    import torch

    torch.manual_seed(0)
    module, inputs = _MODELS[request.param]()
    module.eval()
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    _export(module, inputs, path, Precision.FP32)
    return _Exported(module=module, inputs=inputs, path=path, expected=_run_torch(module, inputs, Precision.FP32))


def _tensors(inputs: _Arrays, precision: Precision) -> tuple[torch.Tensor, ...]:
    import torch

    low = getattr(torch, _TORCH_NAMES.get(precision, "float32"))
    tensors = [torch.from_numpy(array) for array in inputs]
    return tuple(tensor.to(low) if tensor.is_floating_point() else tensor for tensor in tensors)


def _lowered(module: torch.nn.Module, precision: Precision) -> torch.nn.Module:
    import torch

    return copy.deepcopy(module).to(getattr(torch, _TORCH_NAMES.get(precision, "float32")))


def _run_torch(module: torch.nn.Module, inputs: _Arrays, precision: Precision) -> NDArray[np.float32]:
    import torch

    with torch.inference_mode():
        found: NDArray[np.float32] = _lowered(module, precision)(*_tensors(inputs, precision)).float().numpy()
    return found


def _export(module: torch.nn.Module, inputs: _Arrays, path: Path, precision: Precision) -> None:
    import torch

    # The exporter warns of much that is of no concern here.
    logging.getLogger("torch.onnx").setLevel(logging.CRITICAL)
    torch.onnx.export(
        _lowered(module, precision),
        _tensors(inputs, precision),
        str(path),
        dynamo=True,
        external_data=False,
        opset_version=_OPSETS[precision],
        verbose=False,
    )


def _run_emulated(path: Path, inputs: _Arrays, precision: Precision) -> NDArray[np.float32]:
    source = ModelRef(text=path.name, folder=path.parent, kind=SourceKind.ONNX)
    runner = open_emulated(LoadedModel(ref=source), precision)
    fed = {
        spec.name: array.astype(DTYPES[precision]) if spec.dtype in _TORCH_NAMES.values() else array
        for spec, array in zip(runner.signature.inputs, inputs, strict=True)
    }
    (found,) = runner.run(fed).values()
    return found.astype(np.float32)


def _assert_as_far_off_as_torch(exported: _Exported, actual: NDArray[np.float32], precision: Precision) -> None:
    of_torch = _run_torch(exported.module, exported.inputs, precision)
    if precision is Precision.FP16 and not np.isfinite(of_torch).all():
        np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(of_torch))
        return
    assert np.isfinite(of_torch).all()
    differences = np.abs(actual - exported.expected)
    wanted = np.abs(of_torch - exported.expected)
    for name, summary in (("max", np.max), ("mean", np.mean)):
        ratio = float(summary(differences) / summary(wanted))
        assert 1 / _FACTOR <= ratio <= _FACTOR, f"{name} of the difference is {ratio:.3f} of PyTorch's in {precision}"


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_a_float32_original_is_as_far_off_as_torch_is(exported: _Exported, precision: Precision) -> None:
    actual = _run_emulated(exported.path, exported.inputs, precision)
    _assert_as_far_off_as_torch(exported, actual, precision)


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_an_artifact_that_torch_wrote_is_as_far_off_as_torch_is(
    exported: _Exported, precision: Precision, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    _export(exported.module, exported.inputs, path, precision)
    actual = _run_emulated(path, exported.inputs, precision)
    _assert_as_far_off_as_torch(exported, actual, precision)


def test_the_overflowing_model_overflows_in_torch_too(exported: _Exported) -> None:
    if exported.path.parent.name.startswith("overflowing"):
        assert not np.isfinite(_run_torch(exported.module, exported.inputs, Precision.FP16)).all()
        assert np.isfinite(_run_torch(exported.module, exported.inputs, Precision.BF16)).all()
    else:
        assert np.isfinite(_run_torch(exported.module, exported.inputs, Precision.FP16)).all()
