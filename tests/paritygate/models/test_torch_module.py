"""A PyTorch module behind a signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paritygate.models.torch.module import as_named_module, device_of, put_in_eval_mode, unused_outputs
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.torch


def _spec(name: str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=("batch",))


class _Both(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": a + b, "difference": a - b}


def test_tensors_come_and_go_in_the_order_of_the_signature() -> None:
    signature = Signature(inputs=(_spec("right"), _spec("a")), outputs=(_spec("minus"),))
    named = as_named_module(_Both(), signature, {"b": "right", "difference": "minus"})
    (found,) = named(torch.tensor([1.0]), torch.tensor([5.0]))
    assert found.item() == 4.0
    assert unused_outputs(named) == ("sum",)


@pytest.mark.parametrize("mode", [True, False])
def test_the_wrapper_does_not_change_the_mode(mode: bool) -> None:  # noqa: FBT001 - a case of the test
    module = torch.nn.Sequential(torch.nn.Dropout()).train(mode)
    module[0].train(not mode)
    signature = Signature(inputs=(_spec("input"),), outputs=(_spec("output"),))
    assert as_named_module(module, signature, {}).training is mode
    assert module.training is mode
    assert module[0].training is not mode


def test_one_part_in_train_mode_is_put_into_eval_mode_and_named() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout()).eval()
    module[1].train()
    assert put_in_eval_mode(module) == ("the module was in train mode (1 parts, first '1') and was put into eval mode")
    assert put_in_eval_mode(module) is None


def test_a_module_without_tensors_is_on_the_cpu() -> None:
    assert device_of(torch.nn.ReLU()) == torch.device("cpu")
    assert device_of(torch.nn.Linear(1, 1, device="meta")) == torch.device("meta")
