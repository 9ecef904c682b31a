"""Chooses the pairs that a test judges, and plants faults: `python benchmarks/choose_pairs.py build/limits/pairs`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from limits.pairs import Arrays, Pair, read_pairs, write_bundle
from limits.planted import FAULTS

BUNDLE = Path(__file__).resolve().parent / "limits" / "pairs.npz"
_ROWS, _ROWS_AGAIN = 96, 32
# By model, the right candidates.
_RIGHT = {
    "boxes-last": ("openvino", "fp16"),
    "click-1e-2": ("openvino", "fp16", "int8"),
    "click-1e-4": ("openvino", "shuffled", "fp16", "int8"),
    "click-1e-5": ("openvino", "shuffled"),
    "confident-10": ("shuffled", "bf16", "int8"),
    "expected-loss": ("openvino",),
    "forest": ("export",),
    "heavy-tail-4": ("shuffled",),
    "huge-row": ("openvino", "fp16"),
    "latent": ("bf16",),
    "masked-logits": ("openvino",),
    "mixture": ("shuffled", "int8"),
    "offset-1000": ("openvino", "int8"),
    "rate-and-revenue": ("openvino", "fp16", "int8"),
    "relu-95": ("openvino", "fp16"),
    "similarity": ("openvino", "bf16"),
    "softmax-10": ("openvino", "fp16", "int8"),
    "tasks": ("openvino", "bf16"),
    "tanh": ("shuffled",),
    "torch-recommender": ("export", "fp16"),
    "two-classes": ("openvino", "fp16", "int8"),
    "uplift": ("openvino",),
}
# By model: the candidate that a column of is spoiled, which column, and how.
_WRONG = {
    "click-1e-2": (("fp16", 0, "halved"), ("int8", 0, "zeroed")),
    "click-1e-4": (("openvino", 0, "1-percent"), ("fp16", 0, "10-percent"), ("int8", 0, "negated")),
    "boxes-last": (("openvino", 4, "zeroed"), ("fp16", 5, "halved")),
    "rate-and-revenue": (("openvino", 0, "zeroed"), ("fp16", 0, "zeroed"), ("openvino", 0, "1-percent")),
    "tasks": (("openvino", 0, "negated"), ("openvino", 2, "10-percent"), ("bf16", 3, "shuffled")),
    "torch-recommender": (("export", 0, "zeroed"), ("fp16", 0, "shuffled")),
}
_CANNOT = {"offset-1000": ("fp16",)}


def _cut(arrays: Arrays, rows: int) -> Arrays:
    return {name: array[:rows] for name, array in arrays.items()}


def _small(pair: Pair) -> Pair:
    return replace(
        pair,
        expected=_cut(pair.expected, _ROWS),
        actual=_cut(pair.actual, _ROWS),
        again=_cut(pair.again, _ROWS_AGAIN),
        moved=_cut(pair.moved, _ROWS_AGAIN),
    )


def _spoiled(pair: Pair, column: int, fault: str) -> Pair:
    """Return the pair with a fault in one column of its first output."""
    name = next(iter(pair.actual))
    wrong = np.array(pair.actual[name])
    wrong[..., column] = FAULTS[fault].plant(wrong[..., column].astype(np.float64))
    how = f"{pair.how}-{fault}-{column}"
    return replace(pair, how=how, verdict="fail", actual={**pair.actual, name: wrong})


def chosen(folder: Path) -> Iterator[Pair]:
    """Yield the pairs of a test."""
    for model in dict.fromkeys((*_RIGHT, *_WRONG, *_CANNOT)):
        pairs = {how: next(read_pairs(folder / f"{model}--{how}.npz")) for how in _hows(model)}
        small = {how: _small(pair) for how, pair in pairs.items()}
        yield from (small[how] for how in _RIGHT.get(model, ()))
        yield from (_spoiled(small[how], column, fault) for how, column, fault in _WRONG.get(model, ()))
        yield from (replace(small[how], verdict="inconclusive") for how in _CANNOT.get(model, ()))


def _hows(model: str) -> set[str]:
    return {*_RIGHT.get(model, ()), *(how for how, _, _ in _WRONG.get(model, ())), *_CANNOT.get(model, ())}


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="all pairs")
    pairs = [*chosen(parser.parse_args().folder)]
    write_bundle(pairs, BUNDLE)
    print(f"{len(pairs)} pairs, {BUNDLE.stat().st_size} bytes: {BUNDLE}")


if __name__ == "__main__":
    main()
