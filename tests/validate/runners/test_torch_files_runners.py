"""What is particular to files of PyTorch's: the names that they say or keep, and the device they were saved on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import parse_source
from paritygate.models.torch.archive import NAMES_FILE, SaidNames, copy_archive
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.runner import Runner

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.torch

_RANDOM = np.random.default_rng(0)
_LEFT = _RANDOM.standard_normal((3, 8)).astype(np.float32)
_RIGHT = _RANDOM.standard_normal((3, 8)).astype(np.float32)
_KINDS = ["model.pt", "model.pt2"]


def _trace(module: Any, example: Any, **options: Any) -> Any:  # noqa: ANN401 - torch has no types for it
    return torch.jit.trace(module, example, **options)  # type: ignore[no-untyped-call]


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"z": self.head(left), "difference": left - right}


def _specs(**dtypes: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype=dtype, shape=("batch", 8)) for name, dtype in dtypes.items())


_SIGNATURE = Signature(
    inputs=_specs(right="float32", left="float32"), outputs=_specs(difference="float32", z="float32")
)


def _write(folder: Path, name: str, module: Any) -> Path:  # noqa: ANN401 - any module of two inputs
    """Write a module as others do: without a word on its names."""
    path = folder / name
    example = (torch.zeros(2, 8), torch.zeros(2, 8))
    if name.endswith(".pt"):
        torch.jit.save(_trace(module, example, strict=False), str(path))
    else:
        size = {0: torch.export.Dim("batch")}
        torch.export.save(torch.export.export(module, example, dynamic_shapes=(size, size)), path)
    return path


@pytest.fixture(scope="module", params=_KINDS)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of each kind in turn, made elsewhere."""
    return _write(tmp_path_factory.mktemp("given"), request.param, _Two().eval())


def _open(path: Path, signature: Signature | None = None, **rename: str) -> Runner:
    source = parse_source(path.name, path.parent)
    return open_runner(LoadedModel(ref=replace(source, signature=signature, rename=rename)))


def _said(path: Path, folder: Path, names: SaidNames) -> Path:
    target = folder / path.name
    copy_archive(path, target, names)
    return target


def _expected() -> dict[str, NDArray[np.float32]]:
    outputs = _Two()(torch.from_numpy(_LEFT), torch.from_numpy(_RIGHT))
    return {name: tensor.detach().numpy() for name, tensor in outputs.items()}


def _assert_near(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def _assert_right(found: dict[str, NDArray[Any]], **names: str) -> None:
    for name, array in _expected().items():
        _assert_near(found[names.get(name, name)], array)


def test_declared_names_find_their_tensors_in_any_order(given: Path) -> None:
    runner = _open(given, _SIGNATURE)
    found = runner.run({"left": _LEFT, "right": _RIGHT})
    assert list(found) == ["difference", "z"]
    _assert_right(found)
    assert (runner.facts.precision_found, runner.facts.notes) == (Precision.FP32, ())


def test_a_file_that_says_its_names_needs_no_declaration(given: Path, tmp_path: Path) -> None:
    served = Signature(
        inputs=_specs(b="float32", left="float32"), outputs=_specs(scores="float32", difference="float32")
    )
    rename = {"right": "b", "z": "scores"}
    path = _said(given, tmp_path, SaidNames(signature=served, is_in_order=False, rename=rename))
    runner = _open(path)
    assert runner.signature == served
    _assert_right(runner.run({"left": _LEFT, "b": _RIGHT}), z="scores")
    _assert_right(_open(path, scores="z").run({"left": _LEFT, "b": _RIGHT}))


def test_declared_names_choose_among_those_that_the_file_says(given: Path, tmp_path: Path) -> None:
    path = _said(given, tmp_path, SaidNames(signature=_SIGNATURE, is_in_order=False))
    declared = Signature(inputs=_specs(a="float32", right="float32"), outputs=_specs(z="float32"))
    runner = _open(path, declared, left="a")
    found = runner.run({"a": _LEFT, "right": _RIGHT})
    _assert_near(found["z"], _expected()["z"])
    assert runner.facts.notes[-1] == "the module also returns difference, which the signature does not have"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Signature(inputs=_SIGNATURE.inputs, outputs=_specs(y="float32")), r"no output 'y' \(it has: difference, z\)"),
        (Signature(inputs=_specs(x="float32"), outputs=_SIGNATURE.outputs), r"no input 'x' \(it has: right, left\)"),
        (Signature(inputs=_specs(left="float32"), outputs=_SIGNATURE.outputs), "needs the input 'right'"),
        (
            Signature(inputs=_specs(left="float32", right="float64"), outputs=_SIGNATURE.outputs),
            "input 'right' is declared as float64, but the model has float32",
        ),
    ],
)
def test_declared_names_that_are_not_those_of_the_file_are_refused(
    given: Path, tmp_path: Path, declared: Signature, message: str
) -> None:
    path = _said(given, tmp_path, SaidNames(signature=_SIGNATURE, is_in_order=False))
    with pytest.raises(UsageError, match=message):
        _open(path, declared)


def test_names_that_were_swapped_in_the_file_are_swapped_in_the_answers(given: Path, tmp_path: Path) -> None:
    # A planted fault: what the file says is what it is compared by, so the gate sees it.
    swapped = {"z": "difference", "difference": "z"}
    path = _said(given, tmp_path, SaidNames(signature=_SIGNATURE, is_in_order=False, rename=swapped))
    found = _open(path).run({"left": _LEFT, "right": _RIGHT})
    _assert_near(found["difference"], _expected()["z"])


def test_torchscript_from_elsewhere_needs_a_declaration_and_says_which(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no names of inputs and outputs") as caught:
        _open(_write(tmp_path, "model.pt", _Two().eval()))
    assert "declare model.inputs and model.outputs in a spec" in caught.value.hint


def test_a_program_from_elsewhere_keeps_its_names(tmp_path: Path) -> None:
    runner = _open(_write(tmp_path, "model.pt2", _Two().eval()))
    assert [str(spec) for spec in runner.signature.inputs] == ["left: float32[batch, 8]", "right: float32[batch, 8]"]
    assert [str(spec) for spec in runner.signature.outputs] == ["z: float32[batch, 8]", "difference: float32[batch, 8]"]
    _assert_right(runner.run({"right": _RIGHT, "left": _LEFT}))


def test_names_that_are_damaged_are_the_file_s_fault(given: Path, tmp_path: Path) -> None:
    path = tmp_path / given.name
    with zipfile.ZipFile(given) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            new.writestr(info, old.read(info))
        new.writestr(f"{old.namelist()[0].partition('/')[0]}/extra/{NAMES_FILE}", json.dumps({"signature": []}))
    with pytest.raises(InputFileError, match=r"has a corrupt list of names"):
        _open(path)


def test_integers_above_float_precision_are_exact(tmp_path: Path) -> None:
    class Next(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left + right

    signature = Signature(inputs=_specs(left="int64", right="int64"), outputs=_specs(y="int64"))
    path = tmp_path / "model.pt"
    example = (torch.zeros(2, 8, dtype=torch.int64),) * 2
    torch.jit.save(_trace(Next(), example), str(path))
    large = np.full((1, 8), 2**53, np.int64)
    found = _open(path, signature).run({"left": large, "right": np.ones_like(large)})
    np.testing.assert_array_equal(found["y"], 2**53 + 1)


@pytest.mark.parametrize("name", _KINDS)
def test_dropout_that_was_made_in_train_mode_is_told(tmp_path: Path, name: str) -> None:
    class Dropping(_Two):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
            return super().forward(torch.nn.functional.dropout(left, 0.5, training=True), right)

    notes = _open(_write(tmp_path, name, Dropping().eval()), _SIGNATURE).facts.notes
    assert any("dropout" in note and "in train mode, so eval mode does not reach it" in note for note in notes)


@pytest.mark.parametrize("name", _KINDS)
def test_weights_of_half_precision_are_found_also_where_they_are_constants(tmp_path: Path, name: str) -> None:
    class Half(_Two):
        def __init__(self) -> None:
            super().__init__()
            self.head.half().float()

    path = _write(tmp_path, name, Half().eval())
    assert _open(path, _SIGNATURE).facts.precision_found is Precision.FP16


def test_a_frozen_module_s_weights_are_found_in_its_graph(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    traced = _trace(_Two().eval(), (torch.zeros(2, 8), torch.zeros(2, 8)), strict=False)
    torch.jit.save(torch.jit.freeze(traced), str(path))
    assert _open(path, _SIGNATURE).facts.precision_found is Precision.FP32


def test_inputs_that_the_model_does_not_take_are_a_backend_error(given: Path) -> None:
    runner = _open(given, _SIGNATURE)
    with pytest.raises(BackendError, match=r"\(got "):
        runner.run({"left": _LEFT.astype(np.float64), "right": _RIGHT})
    with pytest.raises(BackendError):
        runner.run({"left": _LEFT[:2], "right": _RIGHT})
    _assert_right(runner.run({"left": _LEFT, "right": _RIGHT}))


@pytest.mark.gpu
@pytest.mark.parametrize("name", _KINDS)
def test_what_was_saved_on_a_gpu_runs_on_the_cpu_and_the_other_way_round(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    module, example = _Two().eval().cuda(), (torch.zeros(2, 8).cuda(), torch.zeros(2, 8).cuda())
    if name.endswith(".pt"):
        torch.jit.save(_trace(module, example, strict=False), str(path))
    else:
        torch.export.save(torch.export.export(module, example), path)
    source = parse_source(path.name, path.parent)
    inputs = {"left": _LEFT[:2], "right": _RIGHT[:2]}
    for device in ("cpu", "cuda"):
        runner = open_runner(LoadedModel(ref=replace(source, signature=_SIGNATURE), device=device))
        assert runner.facts.device.startswith(device)
        _assert_near(runner.run(inputs)["z"], _expected()["z"][:2])
