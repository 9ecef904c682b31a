"""PyTorch modules of random make: parity in every format, and none once one thing in the converted file is changed."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipelines.conftest import Called, Desk

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.torch, pytest.mark.openvino]

_TARGETS = ("onnx-fp32", "openvino-fp32", "torchscript-fp32", "pt2-fp32")
# The kind of the input, the seed of all that is chosen, and how many outputs there are.
_QUICK = (("tokens", 2, 2),)
_MORE = (("ids", 3, 2), ("image", 1, 3), ("dense", 0, 2), ("image", 6, 1))
_FIRST_ID = 2**24
# `sound` is the model. `faulty` is the same one, but for what a bad converter makes of it: a mask that has no effect,
# or ids that went through float32.
_NETS = """
import random

import torch
from torch import nn

SEED, KIND, OUTPUTS = {seed}, {kind!r}, {outputs}
FIRST_ID = 2**24
chance = random.Random()


def activation():
    return chance.choice([nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.ELU])()


def dense():
    layers, before = [], 5
    for _ in range(chance.randint(1, 3)):
        after = chance.choice([4, 7, 12])
        norm = chance.choice([nn.LayerNorm, nn.BatchNorm1d, nn.RMSNorm, lambda _: nn.Identity()])
        layers += [nn.Linear(before, after, bias=chance.random() < 0.5), norm(after), activation()]
        before = after
    return nn.Sequential(*layers, nn.Linear(before, 8))


def image():
    channels = chance.choice([4, 6])
    norm = chance.choice([nn.BatchNorm2d, lambda count: nn.GroupNorm(2, count)])
    pool = chance.choice([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Identity()])
    first = nn.Conv2d(3, channels, (3, 1), stride=chance.choice([1, 2]), padding=1)
    second = nn.Conv2d(channels, 8, 3, padding=1, groups=chance.choice([1, 2]))
    return nn.Sequential(first, norm(channels), activation(), pool, second, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Tokens(nn.Module):
    def __init__(self, is_faulty):
        super().__init__()
        self.is_faulty = is_faulty
        self.table = nn.Embedding(20, 8)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.activation = chance.choice([nn.LayerNorm, nn.RMSNorm])(8), activation()

    def forward(self, ids, mask):
        if self.is_faulty:
            mask = torch.ones_like(mask)
        hidden = self.table(ids)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        hidden = self.norm(hidden + self.activation(scores.softmax(-1) @ self.value(hidden)))
        return hidden[:, 0]


class Ids(nn.Module):
    def __init__(self, is_faulty):
        super().__init__()
        self.table, self.is_faulty = nn.Embedding(20, 4), is_faulty

    def forward(self, ids):
        if self.is_faulty:
            ids = ids.to(torch.float32).to(ids.dtype)
        # An exporter feeds zeros.
        return self.table((ids - FIRST_ID).clamp(min=0)).flatten(1)


class Net(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.heads = nn.ModuleList(nn.Linear(8, 6) for _ in range(OUTPUTS))
        self.returns_dict = chance.random() < 0.5
        for module in self.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                nn.init.uniform_(module.running_mean, -0.5, 0.5)
                nn.init.uniform_(module.running_var, 0.5, 2)

    def heads_of(self, hidden):
        found = [head(hidden) for head in self.heads]
        if len(found) == 1:
            return found[0]
        return {{f"out{{index}}": value for index, value in enumerate(found)}} if self.returns_dict else tuple(found)


class OfValues(Net):
    def forward(self, x):
        return self.heads_of(self.body(x))


class OfIds(Net):
    def forward(self, ids):
        return self.heads_of(self.body(ids))


class OfTokens(Net):
    def forward(self, ids, mask):
        return self.heads_of(self.body(ids, mask))


def sound(is_faulty=False):
    chance.seed(SEED)
    torch.manual_seed(SEED)
    if KIND == "tokens":
        return OfTokens(Tokens(is_faulty))
    if KIND == "ids":
        return OfIds(Ids(is_faulty))
    return OfValues(dense() if KIND == "dense" else image())


def faulty():
    return sound(is_faulty=True)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """A module of random make, and its run."""

    module: str
    desk: Desk
    called: Called

    @property
    def reference(self) -> str:
        """The folder of the recorded outputs."""
        return str(self.desk.runs[0] / "reference")

    def compare(self, candidate: Path) -> Called:
        """Compare a file with what was recorded of the module."""
        options = ("--samples", "inputs.npz", "--precision", "fp32", "--quiet")
        return self.desk.json("compare", self.reference, str(candidate), *options)

    def main(self, target: str, *, run: int = 0) -> Path:
        """Return the file that the target's runtime opens."""
        folder = self.desk.runs[run] / target
        return folder / str(json.loads((folder / "artifact.json").read_text(encoding="utf-8"))["main"])

    def changed(self, target: str, change: Callable[[str, bytes], bytes]) -> Path:
        """Return a copy of the target's file with `change(name, content)` in place of the files that it is made of."""
        main = self.main(target)
        folder = self.desk.folder / f"changed-{target}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(main.parent, folder)
        path = folder / main.name
        is_changed = _change_archive(path, change) if zipfile.is_zipfile(path) else _change_files(path, change)
        assert is_changed, f"nothing was changed in {main}"
        return path


def _change_archive(path: Path, change: Callable[[str, bytes], bytes]) -> bool:
    with zipfile.ZipFile(path) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    written = [(info, change(info.filename, content)) for info, content in entries]
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in written:
            archive.writestr(info, content)
    return written != entries


def _change_files(path: Path, change: Callable[[str, bytes], bytes]) -> bool:
    files = [file for file in (path, path.with_suffix(".bin")) if file.is_file()]
    before = [file.read_bytes() for file in files]
    for file, content in zip(files, before, strict=True):
        file.write_bytes(change(file.name, content))
    return [file.read_bytes() for file in files] != before


def _samples(folder: Path, kind: str, seed: int) -> dict[str, Any]:
    """Write 120 rows, and return the inputs as a spec declares them."""
    random = np.random.default_rng(seed)
    if kind == "tokens":
        arrays: dict[str, Any] = {}
        for case in range(12):
            shape = (10, 3 + case)
            # Filled up on the right; something is seen of every row.
            kept = np.arange(shape[1]) < random.integers(1, shape[1] + 1, (shape[0], 1))
            arrays[f"c{case}/ids"] = random.integers(0, 20, shape)
            arrays[f"c{case}/mask"] = kept.astype(np.int64)
        np.savez(folder / "inputs.npz", **arrays)
        return {name: {"dtype": "int64", "shape": ["batch", "sequence"]} for name in ("ids", "mask")}
    if kind == "ids":
        np.savez(folder / "inputs.npz", ids=_FIRST_ID + random.integers(0, 20, (120, 2)))
        return {"ids": {"dtype": "int64", "shape": ["batch", 2]}}
    sizes = (5,) if kind == "dense" else (3, 9, 7)
    np.savez(folder / "inputs.npz", x=random.standard_normal((120, *sizes)).astype(np.float32))
    return {"x": {"dtype": "float32", "shape": ["batch", *sizes]}}


def _make(folder: Path, kind: str, seed: int, outputs: int) -> _Case:
    desk = Desk(folder=folder)
    module = f"{kind}{seed}"
    desk.module(module, _NETS.format(seed=seed, kind=kind, outputs=outputs))
    dims: dict[str, Any] = {"batch": {"min": 1, "opt": 16, "max": 32}}
    model: dict[str, Any] = {"name": "tiny", "source": f"{module}:sound", "inputs": _samples(folder, kind, seed)}
    if kind == "tokens":
        dims["sequence"] = {"min": 2, "opt": 6, "max": 16}
    names = [f"out{index}" for index in range(outputs)]
    model |= {"outputs": {name: {"dtype": "float32", "shape": ["batch", 6]} for name in names}, "dims": dims}
    desk.spec(model=model, decisions={}, targets=list(_TARGETS))
    desk.spec("faulty.yaml", model={**model, "source": f"{module}:faulty"}, decisions={}, targets=list(_TARGETS))
    return _Case(module=module, desk=desk, called=desk.json("run", "spec.yaml", "--verbose"))


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Case:
    """Return a module of random make, and its run."""
    return _make(tmp_path_factory.mktemp("random"), *request.param)


def _cases(*chosen: tuple[str, int, int]) -> pytest.MarkDecorator:
    """Return the mark that runs a test on each of the modules, on some of them where all tests are run."""
    params = [
        pytest.param(item, marks=[pytest.mark.thorough] if item in _MORE else [], id=f"{item[0]}{item[1]}")
        for item in chosen
    ]
    return pytest.mark.parametrize("case", params, indirect=True)


@_cases(*_QUICK, *_MORE)
def test_a_module_of_random_make_passes_in_every_format(case: _Case) -> None:
    variants = case.called.data["runs"][0]["variants"]

    assert {name: result and result["verdict"] for name, result in variants.items()} == dict.fromkeys(_TARGETS, "pass")
    assert case.called.code == 0, str(case.called)
    assert sorted(case.called.data["runs"][0]["release"]["variants"]) == sorted(_TARGETS)


@pytest.mark.parametrize("target", _TARGETS)
@_cases(*_QUICK, *_MORE)
def test_one_row_of_weights_that_is_zero_fails(case: _Case, target: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(case.desk.folder)
        weight = importlib.import_module(case.module).sound().heads[0].weight.detach()
        del sys.modules[case.module]
    # However the format has them: by output, or by input.
    rows = [row.numpy().tobytes() for matrix in (weight, weight.T.contiguous()) for row in matrix]

    def zero(_: str, content: bytes) -> bytes:
        row = next((row for row in rows if row in content), None)
        return content if row is None else content.replace(row, bytes(len(row)), 1)

    _check_fails(case, case.changed(target, zero))


@pytest.mark.parametrize("target", _TARGETS)
@_cases(*(item for item in (*_QUICK, *_MORE) if item[2] > 1))
def test_two_outputs_in_place_of_each_other_fail(case: _Case, target: str) -> None:
    def swap(name: str, content: bytes) -> bytes:
        if name == "model.onnx":
            return _swap_in_onnx(content)
        if name.endswith(("paritygate.json", ".xml")):
            return content.replace(b'"out0"', b'"out?"').replace(b'"out1"', b'"out0"').replace(b'"out?"', b'"out1"')
        return content

    _check_fails(case, case.changed(target, swap))


@pytest.mark.thorough
@_cases(*(item for item in (*_QUICK, *_MORE) if item[0] in {"tokens", "ids"}))
def test_a_mask_without_effect_and_ids_through_float32_fail_in_every_format(case: _Case) -> None:
    called = case.desk.json("export", "faulty.yaml", "--verbose")
    assert called.code == 0, str(called)

    for target in _TARGETS:
        _check_fails(case, case.main(target, run=1))


def _check_fails(case: _Case, candidate: Path) -> None:
    """Check that the candidate was measured, and failed for what it answers."""
    called = case.compare(candidate)
    assert called.code == 1, str(called)
    failed = {check["name"] for check in called.data["checks"] if check["status"] == "fail"}
    assert "max_abs_diff" in failed, str(called)


def _swap_in_onnx(content: bytes) -> bytes:
    import onnx

    model = onnx.load_from_string(content)
    other = {"out0": "out1", "out1": "out0"}
    for node in model.graph.node:
        names = [other.get(name, name) for name in node.output]
        del node.output[:]
        node.output.extend(names)
    return bytes(model.SerializeToString())
