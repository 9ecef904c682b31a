"""Random rows: they show that a model converts and runs, but not how well variants agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from paritygate.batch import Batch
from paritygate.errors import UsageError
from paritygate.signature import Dim, is_integer_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The name of random samples in place of a file.
RANDOM = "random"
# Sizes of a dim that is not declared.
_ANY_SIZE = Dim(min=1, opt=16, max=16)
# At least this share of a row's positions is set in each mask.
_LEAST_SET = 0.5


class RandomInput(Struct, frozen=True, kw_only=True):
    """The random values of one input, from `low` to `high`; `shape` has a size or the name of a dim for each axis.

    Each row of a `mask` is ones up to some place on the last axis, and zeros after it.
    """

    dtype: str
    shape: tuple[int | str, ...]
    low: float = 0.0
    high: float = 1.0
    mask: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            msg = f"random values from {self.low:g} to {self.high:g} do not exist (expected low <= high)"
            raise UsageError(msg, hint="give for example low: 0, high: 1")
        if self.dtype != "bool" and is_integer_dtype(self.dtype):
            import numpy as np

            limits = np.iinfo(self.dtype)
            if not (limits.min <= self.low and self.high <= limits.max):
                msg = (
                    f"random values from {self.low:g} to {self.high:g} do not fit {self.dtype}, which holds "
                    f"{limits.min} to {limits.max}"
                )
                raise UsageError(msg, hint="give low and high within this range")


class RandomRows(Struct, frozen=True, kw_only=True):
    """Random rows, the same ones in each reading: at least `rows`, with the sizes of named dims from `dims`."""

    inputs: Mapping[str, RandomInput]
    rows: int
    dims: Mapping[str, Dim] = field(default_factory=dict)
    seed: int = 0


def read_random_rows(asked: RandomRows, batch_size: int) -> Iterator[Batch]:
    """Yield batches of random rows: the first at the usual sizes of all dims, the others at any.

    A batch has `batch_size` rows unless the first axis of the inputs has a fixed size.
    """
    import numpy as np

    random = np.random.default_rng(asked.seed)
    first_axes = [spec.shape[0] for spec in asked.inputs.values() if spec.shape]
    # Next to inputs with a first axis that varies, one of a fixed size holds no rows. Exporters name the number of rows
    # differently in every input.
    named = [dim for dim in first_axes if isinstance(dim, str)]
    fixed = next((dim for dim in first_axes if isinstance(dim, int)), 1)
    done = 0
    while done < asked.rows:
        rows = min(batch_size, asked.rows - done) if named else fixed
        sizes = {
            name: dim.opt if done == 0 else int(random.integers(dim.min, dim.max, endpoint=True))
            for name, dim in sorted(_dims_of(asked).items())
        }
        sizes.update(dict.fromkeys(named, rows))
        inputs = {
            name: _values(spec, tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape), random)
            for name, spec in asked.inputs.items()
        }
        yield Batch(inputs=inputs, ids=[f"random-{done + row}" for row in range(rows)])
        done += rows


def _dims_of(asked: RandomRows) -> dict[str, Dim]:
    named = (dim for spec in asked.inputs.values() for dim in spec.shape if isinstance(dim, str))
    return {name: asked.dims.get(name, _ANY_SIZE) for name in named}


def _values(spec: RandomInput, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.generic]:
    import numpy as np

    if spec.dtype == "string":
        words = random.integers(int(spec.low), int(spec.high), size=shape, endpoint=True)
        return np.char.add("word ", words.astype(str))
    dtype = _numpy_dtype(spec.dtype)
    if spec.mask and shape:
        length = shape[-1]
        ends = random.integers(max(1, int(length * _LEAST_SET)), max(1, length), size=shape[:-1], endpoint=True)
        mask: NDArray[np.generic] = (np.arange(length) < ends[..., None]).astype(dtype)
        return mask
    if dtype.kind in "iub":
        return random.integers(int(spec.low), int(spec.high), size=shape, endpoint=True).astype(dtype)
    return random.uniform(spec.low, spec.high, size=shape).astype(dtype)


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    dtype: np.dtype[np.generic] = np.dtype(name)
    return dtype
