"""Makes the pairs: `python benchmarks/make_pairs.py --out build/limits [--seed 0] [MODEL ...]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from limits.candidates import CANDIDATES, Answers, Source, answers_of, one_at_a_time, reference_of
from limits.exports import EXPORTS, export_source
from limits.heads import HEADS, rows_for
from limits.net import Net
from limits.pairs import Pair, write_pair
from limits.trees import TREES, tree_source

from paritygate.errors import ParitygateError
from paritygate.validate.probes.graph.activations import activation_floors

_ROWS = 128


def _head_source(name: str, folder: Path, seed: int) -> Source:
    rows = rows_for(name, _ROWS, 100 + seed)
    paths: list[Path] = []
    net = None
    for order in (None, 7):
        net = Net(rows, seed, order, same=net)
        outputs = dict(HEADS[name](net))
        path = folder / f"model{'' if order is None else '-shuffled'}.onnx"
        onnx.save(net.model(outputs), str(path))
        paths.append(path)
    return Source(
        path=paths[0],
        inputs={"x": rows},
        calibration={"x": rows_for(name, _ROWS, 900 + seed)},
        folder=folder,
        others={"shuffled": paths[1]},
    )


def source_of(name: str, folder: Path, seed: int) -> Source:
    """Return a model by its name, made in a folder."""
    if name in EXPORTS:
        return export_source(name, folder, _ROWS, seed)
    return tree_source(name, folder, _ROWS, seed) if name in TREES else _head_source(name, folder, seed)


def _candidates_of(source: Source, hows: Sequence[str]) -> Iterator[tuple[str, str, Callable[[Source], Answers]]]:
    for other, path in source.others.items():
        yield other, "fp32", lambda source, path=path: answers_of(path, source.inputs)
    for how in source.hows or hows:
        if how in hows and (how != "export" or source.ask is not None):
            yield how, *CANDIDATES[how]


def _by_run(runs: Mapping[str, Answers]) -> Answers:
    return {f"{run}/{output}": array for run, found in runs.items() for output, array in found.items()}


def _again(source: Source, ask: Callable[[Answers], Answers]) -> Answers:
    """Return what the reference answers otherwise to the same rows: one at a time, and not optimised."""
    runs = {"alone": one_at_a_time(ask, source.inputs)}
    if source.ask is None:
        runs["unoptimised"] = answers_of(source.path, source.inputs, is_optimised=False)
    return _by_run(runs)


def _moved(source: Source, ask: Callable[[Answers], Answers]) -> Answers:
    """Return what it answers where every float of a row is the next one, up or down, or one or the other."""
    runs = {}
    for run in ("up", "down", "mixed", "mixed-again"):
        random = np.random.default_rng(len(run))
        inputs = {}
        for name, array in source.inputs.items():
            signs = {"up": 1.0, "down": -1.0}.get(run, random.choice([-1.0, 1.0], size=array.shape))
            is_float = array.dtype.kind == "f"
            inputs[name] = np.nextafter(array, np.asarray(np.inf * signs, dtype=array.dtype)) if is_float else array
        runs[run] = ask(inputs)
    return _by_run(runs)


def pairs_of(name: str, source: Source, hows: Sequence[str]) -> Iterator[Pair]:
    """Yield a pair for each candidate of a model that can be made."""
    ask = source.ask or reference_of(source.path)
    expected = ask(source.inputs)
    again, moved = _again(source, ask), _moved(source, ask)
    for how, precision, answer in _candidates_of(source, hows):
        try:
            found = answer(source)
        except ParitygateError as err:
            print(f"  {name} {how}: {err}", file=sys.stderr)
            continue
        yield Pair(
            model=name,
            how=how,
            precision=precision,
            verdict="pass",
            expected=expected,
            actual={output: found[output] for output in expected},
            again=again,
            moved=moved,
            floors=activation_floors(onnx.load(source.path)),
        )


def main() -> None:
    """Make pairs, model by model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", nargs="*", default=list(CANDIDATES))
    parser.add_argument("models", nargs="*", default=[*HEADS, *EXPORTS, *TREES])
    arguments = parser.parse_args()
    pairs = arguments.out / "pairs"
    pairs.mkdir(parents=True, exist_ok=True)
    for name in arguments.models:
        began = time.monotonic()
        folder = arguments.out / "models" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = source_of(name, folder, arguments.seed)
        count = 0
        for pair in pairs_of(name, source, arguments.how):
            write_pair(pair, pairs)
            count += 1
        print(f"{name}: {count} pairs, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
