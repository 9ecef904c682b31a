"""The first steps of an ONNX graph: constants by which it scales and shifts an input, such as a normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.graph import readers_of, stored_tensors

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Number = float | NDArray[np.float64]

# FLOAT, FLOAT16 and DOUBLE of `onnx.TensorProto`.
_TYPES = frozenset({1, 10, 11})
_MOST_VALUES = 4096
# Constants of two files are the same within this part, or this much.
_ROUNDING = 1e-5


class Affine(Struct, frozen=True, kw_only=True):
    """A change of an input: `scale * x + shift`; both broadcast."""

    scale: Number = 1.0
    shift: Number = 0.0

    @classmethod
    def normalising(cls, mean: Number, std: Number) -> Affine:
        """Return the change that subtracts a mean and divides by a standard deviation."""
        return cls(scale=1 / std, shift=-mean / std)

    @property
    def is_identity(self) -> bool:
        """Return whether nothing changes."""
        return self.is_like(Affine())

    def is_like(self, other: Affine) -> bool:
        """Return whether both changes are equal, except for rounding."""
        pairs = ((self.scale, other.scale), (self.shift, other.shift))
        return all(np.allclose(one, another, rtol=_ROUNDING, atol=_ROUNDING) for one, another in pairs)

    def inverse(self) -> Affine:
        """Return the change back."""
        return Affine(scale=1 / self.scale, shift=-self.shift / self.scale)

    def after(self, first: Affine) -> Affine:
        """Return the other change followed by this one."""
        return Affine(scale=self.scale * first.scale, shift=self.scale * first.shift + self.shift)

    def of(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the changed array, of the same dtype."""
        changed: NDArray[np.generic] = (array.astype(np.float64) * self.scale + self.shift).astype(array.dtype)
        return changed

    def named(self, *, is_missing: bool) -> tuple[str, dict[str, Any]]:
        """Return the kind of cause and its numbers: the candidate lacks this step (`is_missing`) or does it twice."""
        factor = float(np.ravel(self.scale)[0])
        if self.is_like(Affine(scale=factor)):
            return "scaled", {"factor": factor}
        norm = self.inverse() if is_missing else self
        return "not_normalised" if is_missing else "normalised_again", norm.constants()

    def constants(self) -> dict[str, list[float]]:
        """Return the shift as `mean` and the scale as `std`, each one number or one a channel."""
        # Zero has no sign.
        return {"mean": (np.ravel(self.shift) + 0.0).tolist(), "std": np.ravel(self.scale).tolist()}


def first_steps(path: Path) -> Mapping[str, Affine]:
    """Return by input the product of all Add, Sub, Mul and Div with constants that it goes through first."""
    import onnx

    graph = read_onnx(path).graph
    constants = {
        name: np.asarray(onnx.numpy_helper.to_array(tensor), dtype=np.float64)
        for name, tensor in stored_tensors(graph).items()
        if tensor.data_type in _TYPES and not tensor.external_data and np.prod(tensor.dims) <= _MOST_VALUES
    }
    for node in graph.node:
        # Exporters write equal constants once, and refer to them.
        if node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    users = readers_of(graph)
    return {value.name: _followed(value.name, users, constants) for value in graph.input}


def _followed(
    name: str, users: Mapping[str, list[onnx.NodeProto]], constants: Mapping[str, NDArray[np.float64]]
) -> Affine:
    total = Affine()
    while len(users.get(name, ())) == 1:
        step = _step(users[name][0], name, constants)
        if step is None:
            break
        total, name = step.after(total), users[name][0].output[0]
    return total


def _step(node: onnx.NodeProto, name: str, constants: Mapping[str, NDArray[np.float64]]) -> Affine | None:
    """Return the scale and shift that a node applies to this input; None if it does anything else."""
    if node.op_type == "Identity":
        return Affine()
    value = next((constants[other] for other in node.input if other in constants), None)
    if value is None:
        return None
    is_first = node.input[0] == name
    steps: dict[str, Affine] = {"Add": Affine(shift=value)}
    steps["Sub"] = Affine(shift=-value) if is_first else Affine(scale=-1.0, shift=value)
    if value.all():
        steps["Mul"] = Affine(scale=value)
    if value.all() and is_first:
        steps["Div"] = Affine(scale=1 / value)
    return steps.get(node.op_type)
