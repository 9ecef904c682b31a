"""Draw single changes around a spec, and hold what a run then takes over against a run that takes nothing over.

A stale hit is a run whose evidence is not that of `run --no-cache`. A needless re-run is a job that is done again after
a change that nothing reads. Sources are a PyTorch module with weights in two kinds of files, a Keras file, a SavedModel
and an ONNX file; each change is made alone and undone. The same seed draws the same changes.

    python benchmarks/cache_changes.py --changes 200 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from paritygate.__main__ import _run

SOURCES = ("onnx", "torch", "keras", "savedmodel")
# How many of a hundred changes each source takes: what converts with a framework takes long.
_SHARES = {"onnx": 55, "torch": 20, "keras": 12, "savedmodel": 13}
_MODEL_FILES: Mapping[str, Sequence[str]] = {
    "onnx": ("model.onnx",),
    "torch": ("weights.pt", "more.safetensors"),
    "keras": ("model.keras",),
    "savedmodel": ("model/saved_model.pb", "model/variables/variables.data-00000-of-00001"),
}
# Long enough that a file's times tell whether it was changed since.
_SETTLED_S = 2.2
_OF_THE_MOMENT = frozenset({"seconds", "samples_seconds", "reference_seconds", "digest_of_run"})

_SAMPLES = """
    import importlib.metadata
    import json
    import os
    from pathlib import Path

    import numpy as np
    from safetensors import safe_open

    import packed.scale
    from helper import SCALE
    from paritygate.batch import Batch

    HERE = Path(__file__).parent

    def rows():
        parts = sorted((HERE / "parts").glob("*.npy"))
        scale = SCALE + packed.scale.MORE + sum(float(np.load(path).sum()) for path in parts) + len(parts)
        scale += json.loads((HERE / "config.json").read_text())["add"]
        scale += float((HERE / "link.txt").read_text())
        scale += float(os.environ.get("SCALE_OF_TEST", "0"))
        scale += float((HERE / "folder").resolve().joinpath("value.txt").read_text())
        scale += float(os.readlink(HERE / "named"))
        scale += float(max((HERE / "versions").glob("*.txt"), key=lambda path: path.stat().st_mtime).read_text())
        if (HERE / "override.txt").exists():
            scale += float((HERE / "override.txt").read_text())
        scale += (HERE / "sized.bin").stat().st_size
        scale += float(importlib.metadata.version("drawn-extra").split(".")[0])
        with safe_open(str(HERE / "native.safetensors"), framework="np") as native:
            scale += float(native.get_tensor("add").sum())
        values = np.random.default_rng(0).standard_normal((48, 4)).astype(np.float32) * (scale / 50)
        for start in range(0, 48, 16):
            yield Batch(inputs={"x": values[start : start + 16]}, ids=tuple(map(str, range(start, start + 16))))
"""
_TORCH = """
    from pathlib import Path

    import torch
    from safetensors.torch import load_file

    from layers import FACTOR

    HERE = Path(__file__).parent

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x) * FACTOR

    def model():
        made = Linear()
        weights = torch.load(HERE / "weights.pt", weights_only=True)
        more = load_file(str(HERE / "more.safetensors"))
        made.load_state_dict({"linear.weight": weights["weight"], "linear.bias": more["bias"]})
        return made.eval()
"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        kind: Which, in words.
        is_read: Whether anything reads what is changed.
        do: Makes it, in the folder of the source.
    """

    kind: str
    is_read: bool
    do: Callable[[Path], None]


@dataclass(kw_only=True)
class Tally:
    """What came of all changes.

    Attributes:
        kinds: How many of each kind there were.
        stale: Those after which something was taken over wrongly.
        needless: Those after which something was done again that nothing asked for.
        results: All of them.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


class Workshop:
    """A folder with a spec, a source, and samples that are made by code that reads files in all known ways."""

    def __init__(self, folder: Path, source: str) -> None:
        """Make it, and run the spec once."""
        self.folder = folder / "work"
        self.source = source
        self._kept = folder / "as-it-was"
        self.folder.mkdir(parents=True)
        _write_samples(self.folder)
        _write_source(self.folder, source)
        write_spec(self.folder, source)
        shutil.copytree(self.folder, self._kept, symlinks=True)
        self.restore()
        time.sleep(_SETTLED_S)
        # The first run stays, so that one of which nothing has changed is not done again.
        self.first: Path | None = None
        self.base = self.run()
        if self.base["exit_code"] != 0 or not all(self.base["kept"]):
            msg = f"the first run of the {source} source ended with {self.base['exit_code']}, or was not kept whole"
            raise SystemExit(msg)

    def restore(self) -> None:
        """Put everything back as it was, times included."""
        for path in self.folder.iterdir():
            if path.name != "artifacts":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self._kept, self.folder, symlinks=True, dirs_exist_ok=True)

    def run(self, *words: str) -> dict[str, Any]:
        """Run the spec and return the exit code, what was done, and the evidence as far as it is not of the moment."""
        called = _called(self.folder, "run", "--no-promote", *words, "spec.yaml")
        (entry,) = called["runs"] if called.get("runs") else ({"exit_code": called["exit_code"]},)
        jobs = entry.get("jobs", [])
        folder = Path(entry["run"]) if entry.get("run") else None
        evidence = None if folder is None else self.folder / folder / "evidence.json"
        found = {
            "exit_code": entry["exit_code"],
            "done": [job["job"] for job in jobs if not job["taken_from"]],
            "taken": [job["job"] for job in jobs if job["taken_from"]],
            "why": [job["why"] for job in jobs if job["why"]],
            "kept": [not job["not_kept"] for job in jobs],
            "evidence": _evidence(evidence),
        }
        self.first = self.first or folder
        if folder is not None and folder != self.first:
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        return found


def _called(folder: Path, *words: str) -> dict[str, Any]:
    said = folder / "artifacts/said.json"
    said.parent.mkdir(exist_ok=True)
    said.unlink(missing_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
            code = _run([*words, "--json", str(said)])
    finally:
        os.chdir(before)
    data: dict[str, Any] = json.loads(said.read_text()) if said.exists() else {}
    return {"exit_code": code, "error": err.getvalue(), **data}


def _evidence(path: Path | None) -> object:
    if path is None or not path.is_file():
        return None
    data = json.loads(path.read_bytes())
    about = {"samples": data["samples"]["digest"], "reference": data["reference"]["digest"]}
    return {**about, "variants": _bare(data["variants"])}


def _bare(data: object) -> object:
    """Return what evidence says without what is of the run that it was found in."""
    if isinstance(data, dict):
        return {key: _bare(value) for key, value in data.items() if key not in _OF_THE_MOMENT}
    if isinstance(data, list):
        # What was converted or compared when is a note.
        return [_bare(item) for item in data if not (isinstance(item, str) and _is_note_of_moment(item))]
    return data


def _is_note_of_moment(text: str) -> bool:
    return text.startswith(("judged again: ", "compared at ")) or "/artifacts/" in text


def _write_samples(here: Path) -> None:
    from safetensors.numpy import save_file

    (here / "rows.py").write_text(textwrap.dedent(_SAMPLES))
    (here / "helper.py").write_text("SCALE = 1.0\n")
    (here / "packed").mkdir()
    (here / "packed/__init__.py").write_text("")
    (here / "packed/scale.py").write_text("MORE = 2.0\n")
    (here / "config.json").write_text('{"add": 1}')
    (here / "one.txt").write_text("1")
    (here / "two.txt").write_text("2")
    (here / "link.txt").symlink_to("one.txt")
    (here / "sized.bin").write_bytes(bytes(3))
    for name in ("real_1", "real_2"):
        (here / name).mkdir()
        (here / name / "value.txt").write_text(name[-1])
    (here / "folder").symlink_to("real_1")
    (here / "named").symlink_to("3")
    (here / "versions").mkdir()
    (here / "versions/old.txt").write_text("4")
    (here / "versions/new.txt").write_text("6")
    os.utime(here / "versions/old.txt", (1e9, 1e9))
    (here / "parts").mkdir()
    for name in ("a", "b"):
        np.save(here / f"parts/{name}.npy", np.ones(3))
    (here / "unread").mkdir()
    (here / "unread/notes.txt").write_text("1")
    (here / "drawn_extra-1.0.dist-info").mkdir()
    (here / "drawn_extra-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: drawn-extra\nVersion: 1.0\n")
    save_file({"add": np.ones(2, np.float32)}, str(here / "native.safetensors"))


def _write_source(here: Path, source: str) -> None:
    weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
    if source == "onnx":
        import onnx

        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "weight"], ["output_0"])],
            "linear",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
            [onnx.helper.make_tensor_value_info("output_0", onnx.TensorProto.FLOAT, ["batch", 3])],
            [onnx.numpy_helper.from_array(weight, "weight")],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.save(model, str(here / "model.onnx"))
    elif source == "torch":
        import torch
        from safetensors.torch import save_file

        torch.save({"weight": torch.from_numpy(weight.T.copy())}, here / "weights.pt")
        save_file({"bias": torch.zeros(3)}, str(here / "more.safetensors"))
        (here / "network.py").write_text(textwrap.dedent(_TORCH))
        (here / "layers.py").write_text("FACTOR = 1.0\n")
    else:
        import keras

        taken = keras.Input((4,), name="x")
        model = keras.Model(taken, keras.layers.Dense(3, name="logits")(taken))
        model.layers[-1].set_weights([weight, np.zeros(3, np.float32)])
        if source == "keras":
            model.save(here / "model.keras")
        else:
            model.export(here / "model", verbose=False)


def write_spec(here: Path, source: str, **parts: object) -> None:
    """Write the spec of a source, with `parts` in place of its own."""
    output = {"onnx": "output_0", "torch": "logits", "keras": "logits", "savedmodel": "output_0"}[source]
    model: dict[str, object] = {
        "name": "drawn",
        "source": {"onnx": "model.onnx", "torch": "network:model", "keras": "model.keras", "savedmodel": "model"}[
            source
        ],
    }
    if source == "torch":
        model |= {
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
            "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
        }
    elif output != "logits":
        model["rename"] = {output: "logits"}
    data = {
        "model": model,
        "samples": {"source": "rows:rows"},
        "decisions": {"logits": {"argmax": True}},
        "targets": ["onnx-fp32"],
        "probes": "none",
        "min_rows": 40,
        "reason": "drawn",
        **parts,
    }
    (here / "spec.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


def _write(name: str, content: str | bytes, *, keeps_times: bool = False) -> Callable[[Path], None]:
    def do(here: Path) -> None:
        path = here / name
        found = path.stat() if path.exists() else None
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if keeps_times and found is not None:
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    return do


def _flip(name: str, draw: random.Random, *, keeps_times: bool) -> Callable[[Path], None]:
    where, bit = draw.random(), 1 << draw.randrange(8)

    def do(here: Path) -> None:
        content = bytearray((here / name).read_bytes())
        content[int(where * len(content))] ^= bit
        _write(name, bytes(content), keeps_times=keeps_times)(here)

    return do


def _link(name: str, target: str) -> Callable[[Path], None]:
    def do(here: Path) -> None:
        (here / name).unlink()
        (here / name).symlink_to(target)

    return do


def _replaced(name: str, content: str | None) -> Callable[[Path], None]:
    """Put another file in the place of one, as a rename does; None for the same content."""

    def do(here: Path) -> None:
        new = (here / name).read_bytes() if content is None else content.encode()
        (here / "new.tmp").write_bytes(new)
        (here / "new.tmp").replace(here / name)

    return do


def _variable(name: str, value: str) -> Callable[[Path], None]:
    return lambda _: os.environ.__setitem__(name, value)


def _version(version: str) -> Callable[[Path], None]:
    def do(here: Path) -> None:
        place = here / f"drawn_extra-{version}.dist-info"
        (here / "drawn_extra-1.0.dist-info").rename(place)
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: drawn-extra\nVersion: {version}\n")

    return do


def _spec_text(change: Callable[[str], str]) -> Callable[[Path], None]:
    def do(here: Path) -> None:
        text = (here / "spec.yaml").read_text()
        (here / "spec.yaml").write_text(change(text))

    return do


def _spec(source: str, **parts: object) -> Callable[[Path], None]:
    return lambda here: write_spec(here, source, **parts)


def kinds(source: str, draw: random.Random) -> Iterator[Change]:
    """Yield one change of each kind, its particulars drawn."""
    n = draw.randrange(3, 9)
    read = ("config.json", "helper.py", "rows.py", "parts/a.npy", "native.safetensors", "one.txt")
    model = draw.choice(_MODEL_FILES[source])
    for kind, do in {
        "the time of a file": lambda here: os.utime(here / draw.choice(read)),
        "the time of the model": lambda here: os.utime(here / model),
        "a file that nobody reads": _write(f"notes-{n}.md", "1"),
        "the content of what nobody reads": _write("unread/notes.txt", str(n)),
        "an empty folder": lambda here: (here / f"empty_{n}").mkdir(),
        "a folder of results": _write(f"results-{n}.d/log.txt", "1"),
        "a variable of a CI job": _variable("GITHUB_RUN_ID", str(n)),
        "a variable of the shell": _variable("COLUMNS", str(70 + n)),
        "the same content, written again": lambda here: (here / "config.json").write_text('{"add": 1}') and None,
        "the same content in another file": _replaced(draw.choice(read[:3]), None),
        "the same model in another file": _replaced(model, None),
        "where a release goes": _spec(source, promote={"alias": f"staging-{n}"}),
        "a comment in the spec": _spec_text(lambda text: f"# {n}\n{text}"),
        "the order in the spec": _spec_text(
            lambda text: yaml.safe_dump(dict(reversed(yaml.safe_load(text).items())), sort_keys=False)
        ),
    }.items():
        yield Change(kind=kind, is_read=False, do=do)
    for kind, do in {
        "the code of the samples": lambda here: (
            (here / "rows.py").write_text((here / "rows.py").read_text().replace("scale / 50", f"scale / 4{n}"))
            and None
        ),
        "an imported module": _write("helper.py", f"SCALE = {n}.25\n"),
        "an imported module, as long, its time kept": _write("helper.py", f"SCALE = {n}.0\n", keeps_times=True),
        "a module of a package": _write("packed/scale.py", f"MORE = {n}.5\n"),
        "a package that stands in for a module": _write("helper/__init__.py", f"SCALE = {n}.0\n"),
        "a text": _write("config.json", f'{{"add": 1{n}}}'),
        "a text, size and time kept": _write("config.json", f'{{"add": {n}}}', keeps_times=True),
        "a file renamed to another": _replaced("config.json", f'{{"add": {n}.5}}'),
        "where a link leads": _link("link.txt", "two.txt"),
        "what a link leads to": _write("one.txt", str(n)),
        "a link that is read": _link("named", str(n + 4)),
        "a link to a folder": _link("folder", "real_2"),
        "which file is newer": lambda here: os.utime(here / "versions/new.txt", (5e8, 5e8)),
        "a file that was not there": _write("override.txt", str(n)),
        "a file more in a folder": lambda here: np.save(here / f"parts/c{n}.npy", np.ones(n)),
        "a file less in a folder": lambda here: (here / "parts/b.npy").unlink(),
        "another name in a folder": lambda here: (here / "parts/b.npy").rename(here / f"parts/0{n}.npy") and None,
        "a file that is gone": lambda here: (here / draw.choice(("one.txt", "config.json", "helper.py"))).unlink(),
        "a size": _write("sized.bin", bytes(3 + n)),
        "a variable that is read": _variable("SCALE_OF_TEST", str(n)),
        "a variable of a library": _variable(draw.choice(("OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS")), "1"),
        "a variable of nobody known": _variable(f"DRAWN_{n}", "1"),
        "a version": _version(f"{n}.0"),
        "a byte that a native library reads": _flip("native.safetensors", draw, keeps_times=False),
        "a byte of an array": _flip("parts/a.npy", draw, keeps_times=True),
        "a byte of the model": _flip(model, draw, keeps_times=False),
        "a byte of the model, its time kept": _flip(model, draw, keeps_times=True),
        "a limit": _spec(source, tolerance={"onnx-fp32": {"max_abs_diff": 10.0 ** -draw.randrange(1, 4)}}),
        "a decision": _spec(source, decisions={"logits": {"threshold": 0.5}}),
        "the seed": _spec(source, seed=n),
        "the opset": _spec(source, opset=draw.choice((17, 19))),
        "how few rows are enough": _spec(source, min_rows=30 + n),
        "how often it is repeated": _spec(source, repeat=3),
    }.items():
        yield Change(kind=kind, is_read=True, do=do)
    if source == "torch":
        yield Change(kind="the code of the model", is_read=True, do=_write("layers.py", f"FACTOR = {n}.0\n"))


def drawn(source: str, count: int, draw: random.Random) -> Iterator[Change]:
    """Yield so many changes: every kind once in a drawn order, and again with other particulars as often as need be."""
    while count > 0:
        of_all = list(kinds(source, draw))
        draw.shuffle(of_all)
        yield from of_all[:count]
        count -= len(of_all)


def try_change(workshop: Workshop, change: Change, tally: Tally) -> None:
    """Make a change, hold what is taken over against a run without a cache, and undo it."""
    variables = dict(os.environ)
    try:
        change.do(workshop.folder)
        found = workshop.run()
        # Where nothing was taken over, nothing of it can be stale.
        expected = workshop.run("--no-cache") if found["taken"] or found["exit_code"] != 0 else found
    finally:
        os.environ.clear()
        os.environ.update(variables)
        workshop.restore()
    name = f"{workshop.source}: {change.kind}"
    tally.kinds[change.kind] += 1
    is_stale = (found["exit_code"], found["evidence"]) != (expected["exit_code"], expected["evidence"])
    is_needless = not change.is_read and bool(found["done"])
    tally.stale += [name] if is_stale else []
    tally.needless += [f"{name} ({'; '.join(found['why'])})"] if is_needless else []
    result = {"change": name, "stale": is_stale, "needless": is_needless, "exit_code": found["exit_code"]}
    tally.results.append({**result, "done": len(found["done"]), "taken": len(found["taken"])})


def try_changes(folder: Path, counts: Mapping[str, int], seed: int, say: Callable[[str], None]) -> Tally:
    """Draw changes for each source, and return what came of them.

    Args:
        folder: An empty folder.
        counts: How many for each source.
        seed: Draws them.
        say: Told of each.
    """
    tally = Tally()
    for source, count in counts.items():
        if not count:
            continue
        draw = random.Random(f"{seed} {source}")  # noqa: S311 - no secret
        workshop = Workshop(folder / source, source)
        for change in drawn(source, count, draw):
            started = time.monotonic()
            try_change(workshop, change, tally)
            last = tally.results[-1]
            words = "STALE" if last["stale"] else "needless" if last["needless"] else "right"
            say(f"{words:8} {last['change']}: {last['done']} done, {last['taken']} taken over, "
                f"exit code {last['exit_code']}, {time.monotonic() - started:.1f} s")  # fmt: skip
    return tally


def main(words: Sequence[str] | None = None) -> int:
    """Draw, try and print; return 1 for a stale hit, or where more than one in twenty was done needlessly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--source", choices=SOURCES, action="append", help="of these sources alone")
    asked = parser.parse_args(words)
    sources = asked.source or SOURCES
    whole = sum(_SHARES[source] for source in sources)
    counts = {source: round(asked.changes * _SHARES[source] / whole) for source in sources}
    os.environ.pop("PARITYGATE_CACHE", None)
    with tempfile.TemporaryDirectory(prefix="paritygate-changes-") as folder:
        tally = try_changes(Path(folder), counts, asked.seed, lambda line: print(line, flush=True))
    count = len(tally.results)
    print(f"{count} changes of {len(tally.kinds)} kinds: {len(tally.stale)} stale, {len(tally.needless)} needless")
    for line in (*tally.stale, *tally.needless):
        print(f"  {line}")
    return int(bool(tally.stale) or len(tally.needless) * 20 > count)


if __name__ == "__main__":
    sys.exit(main())
