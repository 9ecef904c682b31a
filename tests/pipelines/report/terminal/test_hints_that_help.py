"""A hint names what works where it is shown: the option that the command has, or the key of the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml

from paritygate.__main__ import _run
from paritygate.pipelines.rules.pairs import numbers, pairs
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk


def _renamed_input(bench: Bench, name: str) -> str:
    import onnx

    model = onnx.load(bench.linear(name))
    model.graph.input[0].name = "features"
    model.graph.node[0].input[0] = "features"
    path = bench.folder / f"{name}.onnx"
    onnx.save(model, str(path))
    return str(path)


@pytest.mark.parametrize(
    ("option", "text", "hint"),
    [
        ("--tolerance", "0.1", "write for example --tolerance max_abs_diff=1e-3"),
        ("--tolerance", "max_abs_diff=x", "write for example --tolerance max_abs_diff=1e-3"),
        ("--map", "logits", "write for example --map output_0=logits"),
        ("--pad", "0", "write for example --pad input_ids=0"),
        ("--pad", "x=zero", "write for example --pad input_ids=0"),
        ("--argmax-of", "label", "write for example --argmax-of label=logits"),
        ("--axis", "1", "write for example --axis logits=1"),
        ("--axis", "logits=one", "write for example --axis logits=1"),
    ],
)
def test_a_pair_that_is_none_is_answered_with_one_of_that_option(
    bench: Bench, option: str, text: str, hint: str
) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), option, text)

    assert outcome.code == 2
    assert outcome.err.endswith(f"\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("candidate", "words", "hint"),
    [
        ("b", ["--decision", "logit:argmax"], "decide on one of the compared outputs: did you mean 'logits'?"),
        ("b", ["--outputs", "logtis"], "name outputs of the reference with --outputs: did you mean 'logits'?"),
        ("b", ["--probes", "mask"], "name some of these probes, such as batches,masks: did you mean 'masks'?"),
        (
            "b",
            ["--tolerance", "logist:max_abs_diff=1e-3"],
            "name one of these: did you mean 'logits'?",
        ),
        (
            "misspelt_net:laod",
            [],
            "name a function or class that the module defines, as module:callable: did you mean 'load'?",
        ),
        (
            "misspelt_ned:load",
            [],
            "then among the installed packages: did you mean 'misspelt_net'?",
        ),
        ("misspelt_net.py:load", [], "a module is named without .py: misspelt_net:load"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_one_meant(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, candidate: str, words: list[str], hint: str
) -> None:
    monkeypatch.chdir(bench.folder)
    (bench.folder / "misspelt_net.py").write_text("def load():\n    pass\n", encoding="utf-8")
    side = bench.linear("b") if candidate == "b" else candidate

    outcome = bench.compare(bench.linear("a"), side, "--samples", bench.samples(), *words)

    assert outcome.code == 2
    assert outcome.err.endswith(f"{hint}\n"), outcome.err
    assert outcome.err.count("\nhint: ") == 1


def test_what_the_hint_about_tolerances_says_is_taken() -> None:
    found = numbers("--tolerance", ["max_abs_diff=1e-3"], example="")

    assert parse_tolerance(Precision.FP32, found).max_abs_diff == 1e-3
    assert pairs("--map", ["output_0=logits"], example="") == {"output_0": "logits"}


@pytest.mark.parametrize(("option", "limit"), [("--atol", "max_abs_diff"), ("--rtol", "max_row_rel_diff")])
def test_options_of_other_tools_are_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str], option: str, limit: str
) -> None:
    for arguments in ([option, "1e-3"], [f"{option}=1e-3"]):
        assert _run(["compare", "a.onnx", "b.onnx", "--samples", "x.npz", *arguments]) == 2
        assert capsys.readouterr().err == (
            f"error: compare has no option {option}\nhint: write for example --tolerance {limit}=1e-3\n"
        )


def test_a_command_without_tolerances_is_answered_with_the_key_of_the_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["run", "klue-sts", "--atol", "1e-3"]) == 2
    assert capsys.readouterr().err == (
        "error: run has no option --atol\nhint: compare takes --tolerance max_abs_diff=1e-3; in a spec write "
        "tolerance: {onnx-fp32: {max_abs_diff: 1e-3}}\n"
    )


def test_another_unknown_option_is_still_an_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["compare", "a.onnx", "b.onnx", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_reference_of_compare_cannot_be_renamed_and_no_hint_says_so(bench: Bench) -> None:
    outcome = bench.compare(_renamed_input(bench, "a"), bench.linear("b"), "--samples", bench.samples())

    assert outcome.code == 2
    assert outcome.result["error"]["hint"] == "name the samples' keys like the model's inputs"


def test_the_candidate_of_compare_is_renamed_as_the_hint_says(bench: Bench) -> None:
    arguments = [bench.linear("a"), _renamed_input(bench, "b"), "--samples", bench.samples()]
    refused = bench.compare(*arguments)

    assert refused.code == 1
    assert "where one is the other under another name, rename it: --map CANDIDATE=REFERENCE\n" in refused.out
    assert bench.compare(*arguments, "--map", "features=x").code == 0


def test_in_a_run_the_hint_is_the_key_of_the_spec(desk: Desk) -> None:
    desk.onnx()
    np.savez(desk.folder / "inputs.npz", features=np.zeros((120, 4), np.float32))

    called = desk.call("run", "--verbose", desk.spec())

    assert called.code == 2, str(called)
    assert (
        "hint: name the samples' keys like the model's inputs, or rename these: model.rename: {x: features} in the spec"
        in called.err
    )
    assert "--map" not in called.err


def test_a_recording_of_a_model_file_renames_nothing(desk: Desk) -> None:
    desk.onnx()
    np.savez(desk.folder / "inputs.npz", features=np.zeros((120, 4), np.float32))

    called = desk.call("record", "model.onnx", "--samples", "inputs.npz", "--out", "reference")

    assert called.code == 2, str(called)
    assert called.err.endswith("hint: name the samples' keys like the model's inputs\n")


def _ragged(desk: Desk) -> None:
    desk.onnx()
    (desk.folder / "rows.jsonl").write_text('{"x": [1, 2, 3, 4.5]}\n{"x": [1.5, 2, 3]}\n', encoding="utf-8")


def test_ragged_rows_of_a_spec_are_padded_by_its_key(desk: Desk) -> None:
    _ragged(desk)

    called = desk.call("run", "--verbose", desk.spec(samples={"source": "rows.jsonl"}))
    padded = desk.call("run", "--verbose", desk.spec(samples={"source": "rows.jsonl", "pad": {"x": 0}}, min_rows=1))

    assert called.code == 2, str(called)
    assert called.err.endswith(": samples.pad: {x: 0} in the spec\n")
    assert padded.code == 0, str(padded)


def test_ragged_rows_of_a_recording_are_padded_by_its_option(desk: Desk) -> None:
    _ragged(desk)
    arguments = ["record", "model.onnx", "--samples", "rows.jsonl", "--out", "reference"]

    refused = desk.call(*arguments)
    padded = desk.call(*arguments, "--pad", "x=0")

    assert refused.err.endswith(": --pad x=0\n")
    assert padded.code == 0, str(padded)
    assert "recorded 2 rows" in padded.out


def test_a_run_takes_no_pad_beside_its_spec(desk: Desk) -> None:
    called = desk.call("record", "--run", "somewhere", "--pad", "x=0")

    assert called.code == 2
    assert called.err.startswith("error: record --run takes no --pad, because the run's spec sets it\n")


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_what_is_not_finite_in_the_samples_is_said_to_be_theirs(bench: Bench, value: float, what: str) -> None:
    x = bench.normal(32, 4)
    x[20, 1] = value

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.npz("nan.npz", {"x": x}))

    assert outcome.code == 5
    assert outcome.message.endswith(
        f"first at row '20'; the samples themselves hold {what} in input 'x', first at row '20'"
    )


def test_of_finite_samples_nothing_is_said(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a", weight=np.full((4, 3), np.nan, np.float32)), bench.linear("b"), "--samples", bench.samples()
    )

    assert outcome.code == 5
    assert "themselves" not in outcome.message


def test_an_output_of_another_name_is_answered_with_map(bench: Bench) -> None:
    arguments = [bench.linear("a"), bench.linear("b", output="scores"), "--samples", bench.samples()]

    assert "rename it: --map CANDIDATE=REFERENCE\n" in bench.compare(*arguments).out
    assert bench.compare(*arguments, "--map", "scores=logits").code == 0
    assert "hint" not in bench.compare(bench.linear("c"), bench.linear("d", error=1.0), *arguments[2:]).out


_NET = """
import numpy as np, torch
from paritygate.batch import Batch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return {"logits": self.linear(x)}

def model():
    return Net()

def samples(path):
    chance = np.random.default_rng(0)
    for batch in range(10):
        inputs = {"extra": np.zeros((12, 2), "f4"), "x": chance.standard_normal((12, 4)).astype("f4")}
        yield Batch(inputs=inputs, ids=[f"{batch}-{row}" for row in range(12)])
"""


@pytest.mark.torch
def test_a_spec_without_outputs_is_answered_with_what_to_paste(desk: Desk) -> None:
    desk.module("net", _NET)
    parts = {"samples": {"source": "net:samples"}}

    refused = desk.call("run", "--verbose", desk.spec(model={"name": "tiny", "source": "net:model"}, **parts))
    hint, *lines = refused.err.partition("\nhint: ")[2].splitlines()
    pasted = yaml.safe_load("\n".join(line.strip() for line in lines))
    again = desk.call("run", "--verbose", desk.spec(model={"name": "tiny", "source": "net:model", **pasted}, **parts))

    assert refused.code == 2, str(refused)
    assert "error: tiny: the inputs and outputs of net:model, a PyTorch module, are unknown\n" in refused.err
    assert hint.startswith("add this below model: in the spec")
    assert lines == [
        "  inputs: {x: {dtype: float32, shape: [batch, 4]}}  # in all 120 rows: axis 1 of x is 4",
        "  outputs: {logits: {dtype: float32, shape: [batch, 3]}}",
    ]
    assert again.code == 0, str(again)


def test_a_spec_with_inputs_alone_is_told_how_to_get_both(desk: Desk) -> None:
    model = {"name": "tiny", "source": "net:model", "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}}}

    called = desk.call("run", "--verbose", desk.spec(model=model))

    assert called.code == 2
    assert called.err.endswith(
        "hint: add for example outputs: {logits: {dtype: float32, shape: [batch, 3]}}, or leave both out to read them "
        "from the source; for a PyTorch module, the message then shows both to paste\n"
    )


def test_outputs_of_numpy_in_another_dtype_are_answered_with_a_conversion(bench: Bench) -> None:
    y = bench.normal(40, 3)

    assert "astype('float32')" in bench.given({"y": y.astype(np.float64)}, {"y": y}).out
    assert "astype" not in bench.given({"y": y}, {"y": y + np.float32(1)}).out
