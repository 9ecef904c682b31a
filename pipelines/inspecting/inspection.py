"""What a model is, as `inspect` shows it: inputs, outputs, operators, precision, size, and what cannot be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritygate.signature import Dim, TensorSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """An input or output as far as it is known.

    Attributes:
        name: Its name.
        dtype: Its dtype by NumPy's name; None where that is not known.
        shape: A size or a name for each dim, None for a dim that varies and has no name; None where nothing is known.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int | str | None, ...] | None = None

    @classmethod
    def of(cls, spec: TensorSpec) -> Tensor:
        """Return an input or output of which dtype and shape are known."""
        return cls(name=spec.name, dtype=spec.dtype, shape=spec.shape)

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype or '?'} [{dims}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What is known of a model.

    Attributes:
        model: The model as written: a path, or `module:callable`.
        kind: Its kind, such as `onnx`.
        files: How many files it consists of; 0 of an object.
        size_bytes: The size of its files together; of an object that of its weights; None where that is not known.
        inputs: What it takes, in its order; None where that is not known.
        outputs: What it returns; None where that is not known.
        dims: The sizes that symbolic dims may take, where the model says them.
        rows: Of how many rows of samples inputs and outputs are known; None where the model says them itself.
        precision: The precision found in its weights; None where nothing tells.
        counts: How many operators of each kind it has, or layers, the most frequent first.
        counted: What is counted: `operators` or `layers`.
        made_with: Versions of what made it or reads it, such as `opset`, by what they are of.
        signatures: The signatures of a SavedModel.
        unknown: What is not known, and why.
    """

    model: str
    kind: str
    files: int = 0
    size_bytes: int | None = None
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None
    dims: Mapping[str, Dim] = field(default_factory=dict)
    rows: int | None = None
    precision: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    counted: str = "operators"
    made_with: Mapping[str, str] = field(default_factory=dict)
    signatures: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
