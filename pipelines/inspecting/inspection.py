"""Hold the facts on a model that `inspect` shows, and those that cannot be known."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from paritygate.signature import Dim, TensorSpec


class Tensor(Struct, frozen=True, kw_only=True):
    """An input or output as far as it is known."""

    name: str
    dtype: str | None = None  # NumPy's name
    shape: tuple[int | str | None, ...] | None = None  # by dim a size, a name, or None if it varies without one

    @classmethod
    def of(cls, spec: TensorSpec) -> Tensor:
        """Return an input or output of known dtype and shape."""
        return cls(name=spec.name, dtype=spec.dtype, shape=spec.shape)

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype or '?'} [{dims}]"


class Inspection(Struct, frozen=True, kw_only=True):
    """The known facts on a model; None means unknown."""

    model: str  # as written: a path, or `module:callable`
    kind: str
    files: int = 0  # 0 for an object
    size_bytes: int | None = None  # of its files, or of an object's weights
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None
    dims: Mapping[str, Dim] = field(default_factory=dict)  # ranges of symbolic dims that the model declares
    rows: int | None = None  # of the samples that show the signature; None if declared
    precision: str | None = None  # found in its weights
    counts: Mapping[str, int] = field(default_factory=dict)  # the most frequent first
    counted: str = "operators"  # or layers
    made_with: Mapping[str, str] = field(default_factory=dict)  # versions of its maker or reader
    signatures: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)  # with the reasons
