"""Faults planted into answers: columns zeroed, halved, negated and the like, of every size and beside every other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from limits.pairs import Pair
from numpy.typing import NDArray

__all__ = ["FAULTS", "SIZES", "Fault", "faulty_pairs"]

Values = NDArray[np.float64]
_ALL = ("fp32", "fp16", "bf16", "int8")
_ROWS, _PLACES = 200, 4
SIZES = tuple(float(f"1e{power}") for power in range(-9, 8))
# Beside another column, these say as much.
_BESIDE = (1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e7)
_RATIOS = (5, 20, 50, 99, 10_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens to a column, and the precisions at which that is wrong."""

    plant: Callable[[Values], Values]
    precisions: tuple[str, ...] = _ALL


def _shuffled(values: Values) -> Values:
    return values[np.random.default_rng(3).permutation(len(values))]


FAULTS: Mapping[str, Fault] = {
    "zeroed": Fault(plant=np.zeros_like),
    "halved": Fault(plant=lambda values: values / 2),
    "negated": Fault(plant=lambda values: -values),
    "shuffled": Fault(plant=_shuffled),
    "10-percent": Fault(plant=lambda values: values * 1.1, precisions=("fp32", "fp16")),
    "1-percent": Fault(plant=lambda values: values * 1.01, precisions=("fp32",)),
}


def _column(size: float, rank: int, seed: int, kind: str) -> Values:
    """Return a column of that size: on both sides of zero, or above it as rates and amounts are."""
    shape = (_ROWS,) if rank == 2 else (_ROWS, _PLACES)  # noqa: PLR2004 - a rank
    normal = np.random.default_rng(seed).standard_normal(shape)
    return size * (normal + 0.5 if kind == "signed" else 1 / (1 + np.exp(-normal)))


def _pair(name: str, fault: str, precision: str, columns: list[Values]) -> Pair:
    """Return a pair in which the first column is wrong."""
    expected = np.stack(columns, axis=-1).astype(np.float32)
    wrong = FAULTS[fault].plant(columns[0])
    actual = np.stack([wrong, *columns[1:]], axis=-1).astype(np.float32)
    return Pair(
        model=name,
        how=f"{fault}-{precision}",
        precision=precision,
        verdict="fail",
        expected={"y": expected},
        actual={"y": actual},
    )


def faulty_pairs() -> Iterator[Pair]:
    """Yield every fault in every column, at the precisions at which it has to be seen."""
    for fault, what in FAULTS.items():
        for precision in what.precisions:
            for size in SIZES:
                for kind in ("signed", "rate"):
                    for rank in (2, 3):
                        column = _column(size, rank, 1, kind)
                        yield _pair(f"{kind}-{size:.0e}-rank{rank}-alone", fault, precision, [column])
                        for ratio in _RATIOS if size in _BESIDE else ():
                            beside = [column, _column(size * ratio, rank, 2, kind)]
                            yield _pair(f"{kind}-{size:.0e}-rank{rank}-beside-x{ratio}", fault, precision, beside)
                column = _column(size, 2, 1, "signed")
                beside = [column, _column(20.0, 2, 2, "signed") + 100]
                yield _pair(f"signed-{size:.0e}-rank2-beside-100", fault, precision, beside)
