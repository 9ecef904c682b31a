"""Modules of PyTorch and models of Keras as objects, and as `module:callable`, in `paritygate.compare`."""

from __future__ import annotations

import os
import re
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import paritygate as pg
from paritygate.__main__ import _run
from paritygate.errors import BackendError, UsageError

if TYPE_CHECKING:
    import torch

_X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
_IDS = np.random.default_rng(1).integers(0, 9, (32, 5))
_SAMPLES = {"x": _X}

_NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.linear = torch.nn.Linear(4, 3)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.dropout(self.linear(x)) * scale


def net():
    return Net().eval()


def other():
    return Net(1).eval()


def same():
    return Net().eval()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the current folder, with samples and a module that makes networks."""
    (tmp_path / "api_net.py").write_text(_NET, encoding="utf-8")
    np.savez(tmp_path / "inputs.npz", x=_X)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    monkeypatch.undo()


def net() -> torch.nn.Module:
    """Return a small network with dropout, in train mode as it comes from training."""
    scope: dict[str, Any] = {}
    exec(_NET, scope)  # noqa: S102 - the text above
    module: torch.nn.Module = scope["Net"]()
    return module


def as_onnx(path: Path, module: torch.nn.Module, *, error: float = 0.0) -> str:
    """Write what the network computes in evaluation mode, plus an error, as `logits` of an ONNX model."""
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gemm", ["x", "weight", "bias"], ["logits"], transB=1)],
        path.stem,
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 3])],
        [
            onnx.numpy_helper.from_array(state["linear.weight"], "weight"),
            onnx.numpy_helper.from_array(state["linear.bias"] + np.float32(error), "bias"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return str(path)


def of_forward(forward: Any) -> torch.nn.Module:  # noqa: ANN401 - any function of tensors
    """Return a module with a parameter and this `forward`."""
    import torch

    class Made(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.forward = forward

    return Made().eval()


@pytest.mark.torch
def test_a_module_in_train_mode_is_judged_in_eval_mode_and_set_back(tmp_path: Path) -> None:
    import torch

    module = net()
    module.dropout.eval()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        result = pg.compare(module, as_onnx(tmp_path / "net.onnx", module), samples=_SAMPLES)
        after = torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)

    result.assert_passed()
    assert result.ran_in == "this process"
    assert (result.reference.name, result.reference.kind, result.reference.executes_code) == ("Net", "torch", False)
    assert "reference: the module was in train mode (2 parts, first 'the module itself')" in str(result)
    assert (module.training, module.linear.training, module.dropout.training) == (True, True, False)
    assert after == "high"
    assert "logits" in result.outputs


@pytest.mark.torch
def test_a_wrong_conversion_of_a_module_fails_in_the_words_of_the_terminal(tmp_path: Path) -> None:
    module = net()
    result = pg.compare(
        module,
        as_onnx(tmp_path / "wrong.onnx", module, error=0.5),
        samples=_SAMPLES,
        decisions={"logits": "argmax"},
        probes=(),
    )

    with pytest.raises(pg.ParityError, match=re.escape("fail: max_abs_diff[logits]: 0.5")) as caught:
        result.assert_passed()
    assert "verdict: fail" in str(caught.value)


@pytest.mark.torch
def test_dropout_that_is_active_in_eval_mode_is_no_reference() -> None:
    import torch

    module = of_forward(lambda x: {"y": torch.nn.functional.dropout(x, 0.5, training=True)})
    result = pg.compare(module, lambda arrays: {"y": arrays["x"]}, samples=_SAMPLES, probes=())

    assert result.verdict == "error"
    assert "between two runs on the same input" in str(result)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda y: y, ["output_0"]),
        (lambda y: (y, y + 1), ["output_0", "output_1"]),
        (lambda y: {"a": y, "b": y, "cache": [y]}, ["a", "b"]),
        (lambda y: namedtuple("Answer", ["first", "second"])(y, y), ["first", "second"]),  # noqa: PYI024 - as made by hand
    ],
)
def test_outputs_of_a_module_have_the_names_that_it_gives_them(answer: Any, names: list[str]) -> None:  # noqa: ANN401
    module = of_forward(lambda x: answer(x * 2))
    candidate = of_forward(lambda x: answer(x * 2.0))

    result = pg.compare(module, candidate, samples=_SAMPLES, probes=())

    assert list(result.outputs) == names
    assert [check.status for check in result.checks if check.name == "distinct"] == ["warning"]
    assert result.verdict == "pass"
    assert result.outputs_left_out == (["cache"] if "a" in names else [])


@pytest.mark.torch
def test_an_output_of_the_reference_that_nothing_compares_is_shown() -> None:
    module = of_forward(lambda x: {"a": x * 2, "cache": [x]})

    result = pg.compare(module, lambda arrays: {"a": arrays["x"] * 2}, samples=_SAMPLES, probes=())

    assert (result.verdict, result.outputs_left_out) == ("pass", ["cache"])


@pytest.mark.torch
def test_outputs_of_transformers_are_taken_by_name() -> None:
    from transformers.modeling_outputs import SequenceClassifierOutput

    module = of_forward(lambda x: SequenceClassifierOutput(logits=x * 2))

    result = pg.compare(module, lambda arrays: {"logits": arrays["x"] * 2}, samples=_SAMPLES, probes=())

    result.assert_passed()


@pytest.mark.torch
def test_inputs_go_to_the_parameters_of_their_names_and_others_are_left_out() -> None:
    def forward(mask: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": (ids * mask).float()}

    samples = {"ids": _IDS, "mask": (_IDS > 3).astype(np.int64), "labels": _IDS[:, 0]}
    result = pg.compare(
        of_forward(forward),
        lambda arrays: {"y": (arrays["ids"] * arrays["mask"]).astype(np.float32)},
        samples=samples,
        probes=["batches"],
    )

    result.assert_passed()
    assert "the samples also hold 'labels', which is not an input of the model: it was not used" in str(result)


@pytest.mark.torch
def test_a_module_whose_parameters_have_other_names_takes_the_inputs_in_order() -> None:
    import torch

    result = pg.compare(
        torch.nn.Identity(), lambda arrays: {"output_0": arrays["x"]}, samples={"x": _X}, probes=["batches"]
    )

    result.assert_passed()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (
            lambda x, mask: x * mask,
            "the samples have no input 'mask', which forward of Made expects (seen: x)",
        ),
        (lambda a, b: a * b, "forward of Made does not accept 1 input in order (its parameters: "),
        (str, "the model returned no tensor (it returned: output_0: str)"),
    ],
)
def test_a_module_that_does_not_fit_the_samples_is_wrong_usage(
    forward: Any,  # noqa: ANN401
    words: str,
) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        pg.compare(of_forward(forward), lambda arrays: arrays, samples=_SAMPLES, probes=())


@pytest.mark.torch
def test_a_module_that_fails_on_the_samples_is_an_error() -> None:
    result = pg.compare(of_forward(lambda x: x @ x), lambda arrays: arrays, samples=_SAMPLES, probes=())

    assert (result.verdict, result.exit_code) == ("error", 5)
    assert result.error is not None
    assert result.error.kind == BackendError.__name__
    assert "the PyTorch module failed on x: float32[16, 4]: RuntimeError: mat1 and mat2" in str(result)


@pytest.mark.torch
def test_samples_in_float64_are_said_to_be_what_a_float32_module_does_not_take() -> None:
    import torch

    wide = {"x": _X.astype(np.float64)}
    words = (
        "the samples hold 'x' as float64, and the parameters of the module are float32: the PyTorch module failed on "
        "x: float64[16, 4]: RuntimeError: mat1 and mat2"
    )
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        pg.compare(torch.nn.Linear(4, 2), lambda arrays: arrays, samples=wide, probes=())

    assert caught.value.exit_code == 2


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["embedding", "index"])
def test_ids_in_floats_are_said_to_be_integers_that_the_module_takes(dtype: str, how: str) -> None:
    import torch

    table = torch.nn.Embedding(8, 4)
    forward = {"embedding": table.forward, "index": lambda ids: table.weight[ids]}[how]
    words = "the samples hold 'ids' as floats, and the module takes it as int64 or int32: the PyTorch module failed"
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        pg.compare(of_forward(forward), lambda arrays: arrays, samples={"ids": np.ones((16, 3), dtype)}, probes=())

    assert caught.value.hint == "give the samples in the dtype and shape that the model expects"


@pytest.mark.torch
def test_a_module_is_not_moved_to_another_device() -> None:
    import torch

    module = torch.nn.Linear(4, 3, device="meta")

    words = "the module Linear is on device 'meta', but the comparison runs on 'cpu'"
    with pytest.raises(UsageError, match=words) as caught:
        pg.compare(module, lambda arrays: arrays, samples=_SAMPLES)

    assert caught.value.hint == "move it first: module.to('cpu'); or give device='meta'"


@pytest.mark.torch
def test_batches_of_other_sizes_reach_a_module() -> None:
    batches = [{"x": _X}, {"x": np.tile(_X, (1, 2))}]

    result = pg.compare(
        of_forward(lambda x: {"y": x * 2}), lambda arrays: {"y": arrays["x"] * 2}, samples=batches, probes=["shapes"]
    )

    result.assert_passed()
    assert result.probes.asked["shapes"].rows > 0


@pytest.mark.children
@pytest.mark.torch
@pytest.mark.usefixtures("folder")
def test_a_module_callable_is_compared_in_a_child_process_by_the_command_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = pg.compare("api_net:net", "api_net:other", samples="inputs.npz", probes=())
    code = _run(["compare", "api_net:net", "api_net:other", "--samples", "inputs.npz", "--probes", "none", "--verbose"])

    assert (result.verdict, result.exit_code, result.ran_in) == ("fail", code, "a child process")
    assert str(result) == capsys.readouterr().out.rstrip("\n")
    assert "note: loading api_net:net executes code of its author" in str(result)


@pytest.mark.torch
@pytest.mark.thorough
def test_a_module_callable_is_asked_afresh_and_is_not_compared_with_itself(folder: Path) -> None:
    result = pg.compare(
        as_onnx(folder / "net.onnx", net()), "api_net:net", samples="inputs.npz", probes=["batches", "fresh"]
    )

    result.assert_passed()
    assert result.probes.asked["fresh"].rows > 0

    with pytest.raises(UsageError, match="both api_net:net, and a model always equals itself"):
        pg.compare("api_net:net", "api_net:net", samples="inputs.npz", probes=())


@pytest.fixture
def quiet_keras(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - the module
    """Return Keras, imported as paritygate does."""
    from paritygate.models.tensorflow.importing import import_keras

    del monkeypatch
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return import_keras()


@pytest.mark.tensorflow
def test_a_keras_model_is_compared_as_an_object(quiet_keras: Any) -> None:  # noqa: ANN401
    keras = quiet_keras
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(3, name="logits")(keras.layers.Dropout(0.5)(inputs)))
    weight, bias = (variable.numpy() for variable in model.weights)

    right = pg.compare(model, lambda arrays: {"logits": arrays["x"] @ weight + bias}, samples=_SAMPLES, probes=())
    wrong = pg.compare(model, lambda arrays: {"logits": arrays["x"] @ weight + bias + 1}, samples=_SAMPLES, probes=())

    right.assert_passed()
    assert (right.ran_in, right.reference.kind) == ("this process", "keras")
    assert wrong.verdict == "fail"


@pytest.mark.tensorflow
def test_a_subclassed_keras_model_is_asked_what_it_takes(quiet_keras: Any) -> None:  # noqa: ANN401
    keras = quiet_keras

    class Subclassed(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x: Any, training: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as Keras calls it
            del training
            return {"logits": self.dense(x)}

    model = Subclassed()
    model(_X)
    weight, bias = (variable.numpy() for variable in model.weights)

    pg.compare(
        model, lambda arrays: {"logits": arrays["x"] @ weight + bias}, samples=_SAMPLES, probes=["batches"]
    ).assert_passed()
