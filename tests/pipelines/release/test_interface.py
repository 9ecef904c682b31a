"""Inputs and outputs of two versions: each kind of change is found, and names of symbolic dims are none."""

from __future__ import annotations

import pytest

from paritygate.pipelines.release.interface import interface_changes, signature_changes
from paritygate.signature import Dim, Signature, TensorSpec


def _signature(*, inputs: tuple[TensorSpec, ...] = (), outputs: tuple[TensorSpec, ...] = (), top: int = 8) -> Signature:
    x = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
    y = TensorSpec(name="y", dtype="float32", shape=("batch", 2))
    dims = {"batch": Dim(min=1, opt=1, max=top)}
    return Signature(inputs=inputs or (x,), outputs=outputs or (y,), dims=dims)


def _tensor(name: str, dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("now", "breaking", "others"),
    [
        (_signature(), 0, 0),
        (_signature(inputs=(_tensor("x", "float32", "n", 4),)), 0, 0),
        (_signature(outputs=(_tensor("y", "float32", "batch", 2), _tensor("z", "float32", "batch"))), 0, 1),
        (_signature(outputs=(_tensor("y", "float32", "batch", 3),)), 0, 1),
        (_signature(inputs=(_tensor("x", "float32", 1, 4),)), 0, 1),
        (_signature(top=4), 0, 1),
        (_signature(outputs=(_tensor("y", "float16", "batch", 2),)), 1, 0),
        (_signature(inputs=(_tensor("w", "float32", "batch", 4),)), 2, 0),
    ],
)
def test_every_change_is_found(now: Signature, breaking: int, others: int) -> None:
    assert len(interface_changes(_signature(), now)) == breaking
    assert len(signature_changes(_signature(), now)) == breaking + others
