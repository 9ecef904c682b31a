"""`paritygate.compare`: what the command says, for files, for objects of Python code, and for arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import paritygate as pg
from paritygate.__main__ import _run
from paritygate.errors import InputFileError, UsageError
from paritygate.models.loading import live_object

Arrays = dict[str, NDArray[Any]]

_OPSET = 17
_IR_VERSION = 9
_WEIGHT = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
_X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
_ARGMAX = {"logits": "argmax"}


def write_model(path: Path, *, error: float = 0.0) -> str:
    """Write `logits = x @ weight + error`, and return its path."""
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
            onnx.helper.make_node("Add", ["product", "error"], ["logits"]),
        ],
        path.stem,
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 3])],
        [
            onnx.numpy_helper.from_array(_WEIGHT, "weight"),
            onnx.numpy_helper.from_array(np.full(1, error, dtype=np.float32), "error"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    onnx.save(model, str(path))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, the same in another file, a wrong one, and samples."""
    folder = tmp_path_factory.mktemp("files")
    write_model(folder / "model.onnx")
    write_model(folder / "right.onnx")
    write_model(folder / "wrong.onnx", error=0.5)
    np.savez(folder / "inputs.npz", x=_X)
    return folder


def right(arrays: Arrays) -> Arrays:
    return {"logits": arrays["x"] @ _WEIGHT}


def wrong(arrays: Arrays) -> Arrays:
    return {"logits": arrays["x"] @ _WEIGHT + np.float32(0.5)}


def without_times(data: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON data without what is measured anew every time."""
    if isinstance(data, Mapping):
        return {key: without_times(value) for key, value in data.items() if "seconds" not in key and key != "machine"}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def test_files_give_what_the_command_gives_and_the_error_has_its_words(
    files: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = [str(files / name) for name in ("model.onnx", "wrong.onnx", "inputs.npz")]
    target = tmp_path / "result.json"
    options = ["--decision", "logits:argmax", "--probes", "none", "--verbose", "--json", str(target)]
    code = _run(["compare", *paths[:2], "--samples", paths[2], *options])
    printed = capsys.readouterr().out

    result = pg.compare(*paths[:2], samples=Path(paths[2]), decisions=_ARGMAX, probes=())

    assert (result.verdict, result.exit_code, result.ran_in) == ("fail", code, "a child process")
    assert result.outputs["logits"].max_abs_diff == pytest.approx(0.5, rel=1e-3)
    assert result.decisions["logits"].mismatches == 0
    assert without_times(result.to_dict()) == without_times(json.loads(target.read_text(encoding="utf-8")))
    with pytest.raises(AssertionError) as caught:
        result.assert_passed()
    assert isinstance(caught.value, pg.ParityError)
    assert caught.value.result is result
    first, _, rest = str(caught.value).partition("\n")
    assert first.startswith("fail: 32 of 32 rows differ")
    assert rest == str(result) == printed.rstrip("\n")
    assert "verdict: fail" in str(result)
    assert repr(result) == f"<Comparison of {paths[1]} with {paths[0]}: fail, 32 rows>"
    assert capsys.readouterr().out == ""


def test_a_hint_that_the_command_prints_is_in_the_words_of_the_result(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = pg.compare(
        str(files / "model.onnx"), lambda arrays: {"scores": right(arrays)["logits"]}, samples={"x": _X}
    )

    assert "hint: where one is the other under another name, rename it: --map CANDIDATE=REFERENCE" in str(result)
    assert "contract.outputs" in str(result)
    assert capsys.readouterr() == ("", "")


def test_a_function_is_run_in_this_process_and_the_result_says_so(files: Path) -> None:
    calls: list[str] = []
    result = pg.compare(
        str(files / "model.onnx"),
        right,
        samples={"x": _X},
        decisions=_ARGMAX,
        progress=lambda stage, *_: calls.append(stage),
    )

    result.assert_passed()
    assert result.ran_in == result.to_dict()["ran_in"] == "this process"
    assert "note: a model is an object of this process, and ran in it: without a limit of time or memory" in str(result)
    assert "a function answered: its runtime, device and precision are unknown" in str(result)
    for name in ("fresh", "concurrent"):
        assert result.probes.asked[name].rows == 0
    assert (result.candidate.name, result.candidate.kind, result.candidate.digest) == ("right", "function", None)
    assert result.probes.asked["batches"].status == "pass"
    assert "running the reference" in calls


def test_a_file_is_asked_afresh_though_the_reference_is_an_object(files: Path) -> None:
    result = pg.compare(right, str(files / "model.onnx"), samples={"x": _X}, probes=["batches", "fresh"])

    result.assert_passed()
    assert result.probes.asked["fresh"].batches > 0


def test_a_function_that_changes_its_inputs_or_its_answers_later_changes_nothing_here(files: Path) -> None:
    answer = np.zeros((16, 3), dtype=np.float32)

    def reused(arrays: Arrays) -> Arrays:
        answer[: len(arrays["x"])] = arrays["x"] @ _WEIGHT
        arrays["x"][:] = 0
        return {"logits": answer[: len(arrays["x"])]}

    samples = {"x": _X.copy()}
    pg.compare(reused, str(files / "model.onnx"), samples=samples, probes=()).assert_passed()

    assert (samples["x"] == _X).all()


def test_what_fails_only_on_a_probe_names_the_call_that_asks_it_alone(files: Path) -> None:
    def of_16(arrays: Arrays) -> Arrays:
        found = right(arrays)["logits"]
        return {"logits": found if len(found) == 16 else found + 1}

    result = pg.compare(str(files / "model.onnx"), of_16, samples={"x": _X}, probes=["batches"])

    assert result.verdict == "fail"
    assert "probe batches: to see this alone: paritygate.compare(..., probes=['batches'])" in str(result)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: np.zeros(3), "the reference <lambda> returned a ndarray, not a mapping of arrays by name"),
        (lambda _: {}, "the model returned no tensor (it returned: nothing)"),
    ],
)
def test_a_function_that_returns_something_else_is_wrong_usage(answer: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=re.escape(words)):
        pg.compare(answer, right, samples={"x": _X}, probes=())


def test_a_reference_that_raises_is_an_error_and_no_pass() -> None:
    def broken(arrays: Arrays) -> Arrays:
        msg = f"no server for {len(arrays)}"
        raise OSError(msg)

    result = pg.compare(broken, right, samples={"x": _X}, probes=())

    assert (result.verdict, result.exit_code, result.ran_in) == ("error", 5, "this process")
    with pytest.raises(pg.ParityError, match=r"the reference .*broken failed on x: .*: OSError: no server"):
        result.assert_passed()
    assert result.error is not None
    assert "test_api_compare.py:" in result.error.message
    assert "dict" not in result.error.hint


def test_a_function_that_does_not_take_a_dict_is_told_so() -> None:
    result = pg.compare(right, lambda x, mask: {"logits": x + mask}, samples={"x": _X}, probes=())

    assert result.error is not None
    assert "dict" in result.error.hint


def test_a_candidate_that_raises_later_fails() -> None:
    calls: list[int] = []

    def tired(arrays: Arrays) -> Arrays:
        calls.append(1)
        if len(calls) > 2:
            msg = "tired"
            raise RuntimeError(msg)
        return right(arrays)

    result = pg.compare(right, tired, samples={"x": _X}, probes=())

    assert result.verdict == "fail"
    assert "RuntimeError: tired" in str(result)


def test_too_few_rows_are_inconclusive_and_no_pass(files: Path) -> None:
    few = {"x": _X[:29]}
    result = pg.compare(str(files / "model.onnx"), right, samples=few, probes="none")

    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    (rows,) = [check for check in result.checks if check.name == "rows"]
    assert (rows.measured, rows.limit) == (29, 30)
    assert pg.compare(str(files / "model.onnx"), right, samples=few, min_rows=29, probes="none").verdict == "pass"
    with pytest.raises(pg.ParityError, match="verdict: inconclusive"):
        result.assert_passed()


def test_an_object_is_not_compared_with_itself() -> None:
    with pytest.raises(UsageError, match="both right, and a model always equals itself"):
        pg.compare(right, right, samples={"x": _X}, probes=())


def test_names_of_the_candidate_are_those_of_the_reference_by_rename(files: Path) -> None:
    def renamed(arrays: Arrays) -> Arrays:
        return {"scores": arrays["features"] @ _WEIGHT}

    result = pg.compare(
        str(files / "model.onnx"), renamed, samples={"x": _X}, rename={"scores": "logits", "features": "x"}, probes=()
    )

    result.assert_passed()


def test_after_an_object_was_compared_nobody_finds_it_and_the_path_is_as_before(files: Path) -> None:
    import sys

    path = list(sys.path)
    pg.compare(str(files / "model.onnx"), right, samples={"x": _X}, probes=())

    assert sys.path == path
    with pytest.raises(pg.ParitygateError, match="'object 0' is an object of another process"):
        live_object("object 0")


def batches_of_mappings() -> Iterator[Arrays]:
    yield {"x": _X[:20]}
    yield {"x": _X[20:]}


def batches_with_ids() -> Iterator[pg.Batch]:
    gold = _X @ _WEIGHT[:, 0]
    for start in (0, 16):
        rows = slice(start, start + 16)
        ids = [f"row-{row}" for row in range(start, start + 16)]
        yield pg.Batch(inputs={"x": _X[rows]}, ids=ids, gold=gold[rows], strata={"half": [str(start)] * 16})


@pytest.mark.parametrize("batches", [batches_of_mappings, batches_with_ids])
def test_an_iterable_of_batches_is_read_by_a_child_process(batches: Any, files: Path) -> None:  # noqa: ANN401
    result = pg.compare(str(files / "model.onnx"), str(files / "wrong.onnx"), samples=batches(), probes=())

    assert (result.verdict, result.rows, result.batches) == ("fail", 32, 2)
    assert (result.samples, result.ran_in) == ("given in Python", "a child process")
    worst = result.outputs["logits"].worst_rows[0].row_id
    assert worst.startswith("row-") == (batches is batches_with_ids)


def test_gold_of_batches_is_kept() -> None:
    def first(arrays: Arrays) -> Arrays:
        return {"score": arrays["x"] @ _WEIGHT[:, 0]}

    def again(arrays: Arrays) -> Arrays:
        return {"score": arrays["x"] @ _WEIGHT[:, 0]}

    result = pg.compare(first, again, samples=batches_with_ids(), gold="pearson:score", probes=())

    assert result.gold["pearson:score"].candidate == pytest.approx(1.0)


def test_tensors_are_arrays_as_well_and_any_name_is_one_of_an_input() -> None:
    class Tensor:
        def __array__(self, dtype: object = None, copy: object = None) -> NDArray[Any]:
            return _X

    def one(arrays: Arrays) -> Arrays:
        return {"y": arrays["file"] @ _WEIGHT}

    def other(arrays: Arrays) -> Arrays:
        return {"y": arrays["file"] @ _WEIGHT}

    pg.compare(one, other, samples={"file": Tensor()}, probes=()).assert_passed()  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ({"x": _X, "y": _X[:3]}, "samples given in Python: the inputs have different numbers of rows (x: 32, y: 3)"),
        ({"x": [1.0]}, "samples 'given in Python' yielded 'x' as a list, not a NumPy array"),
        ({"x": np.array([None])}, "samples 'given in Python' yielded 'x' as an array of Python objects"),
        ({"x": np.zeros(3, dtype="V2")}, "samples given in Python: 'x' is an array of |V2, which NumPy's files cannot"),
        ({1: _X}, "samples 'given in Python' yielded an input called 1, an int and not a str"),
        ({"x": np.float32(1)}, "samples given in Python: 'x' is a scalar, which has no rows"),
        ([_X], "samples 'given in Python' yielded a ndarray, not a Batch"),
        (3, "samples are given as an int, which is neither arrays nor batches"),
        ({"y": _X}, "the samples have no input 'x', which the model expects (seen: y)"),
        ({"x": _X[:, :3]}, "'x' has the shape [16, 3], but the model expects x: float32[batch, 4]"),
        ({"x": _X.astype(np.float64)}, "the samples hold 'x' as float64, but the model expects float32"),
        (
            [pg.Batch(inputs={"x": _X}, ids=["a"] * 32)],
            "samples given in Python: the id 'a' occurs twice",
        ),
    ],
)
def test_samples_that_are_wrong_are_wrong_usage(samples: Any, words: str, files: Path) -> None:  # noqa: ANN401
    with pytest.raises(pg.ParitygateError, match=re.escape(words)) as caught:
        pg.compare(str(files / "model.onnx"), right, samples=samples, probes=())

    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_what_an_iterable_of_the_caller_raises_is_the_callers(files: Path) -> None:
    def broken() -> Iterator[Arrays]:
        yield {"x": _X}
        raise FileNotFoundError(2, "No such file", "part-2.npz")

    with pytest.raises(FileNotFoundError, match=r"part-2\.npz"):
        pg.compare(str(files / "model.onnx"), right, samples=broken(), probes=())


@pytest.mark.parametrize("samples", [[], {"x": _X[:0]}])
@pytest.mark.parametrize("is_object", [True, False])
def test_no_rows_are_no_pass(samples: Any, is_object: bool, files: Path) -> None:  # noqa: ANN401, FBT001
    reference = wrong if is_object else str(files / "model.onnx")
    with pytest.raises(InputFileError) as caught:
        pg.compare(reference, right, samples=samples, probes=())

    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"precision": "fp8"}, "precision 'fp8' is not known (allowed: "),
        ({"device": "tpu"}, "device 'tpu' is not known (allowed: cpu, cuda)"),
        ({"non_finite": "drop"}, "non_finite 'drop' is not known (allowed: refuse, match)"),
        ({"repeat": 0}, "repeat 0 is not allowed (allowed: 1 and more)"),
        ({"min_rows": 0}, "min_rows 0 is not allowed (allowed: 1 and more)"),
        ({"seed": -1}, "seed -1 is not allowed (allowed: 0 and more)"),
        ({"batch_size": 0}, "batch size 0 is not allowed"),
        ({"probes": ["batches", "luck"]}, "'luck' is not a probe (allowed: none, "),
        ({"probes": "batches, luck"}, "'luck' is not a probe (allowed: none, "),
        ({"decisions": {"logits": "maximum"}}, "decision rule 'maximum' of 'logits' is not known"),
        ({"tolerance": {"atol": 1e-3}}, "tolerance 'atol' is not known (allowed: max_abs_diff"),
        ({"tolerance": "max_abs_diff=1e-3"}, "tolerance is 'max_abs_diff=1e-3', a str: allowed is a mapping by name"),
        (
            {"tolerance": {"max_abs_diff": "1e-3"}},
            "tolerance holds 'max_abs_diff': '1e-3': allowed is a number by name",
        ),
        ({"decisions": ["logits:argmax"]}, "decisions is ['logits:argmax'], a list: allowed is a mapping by name"),
        ({"decisions": "logits:argmax"}, "decisions is 'logits:argmax', a str: allowed is a mapping by name"),
        ({"decisions": {"logits": 3}}, "decisions holds 'logits': 3: allowed is a text by name"),
        ({"constant_decisions": ["logits"]}, "constant_decisions is ['logits'], a list: allowed is a mapping by name"),
        ({"ignore": ["logits"]}, "ignore is ['logits'], a list: allowed is a mapping by name"),
        ({"axes": {"logits": 1.5}}, "axes holds 'logits': 1.5: allowed is a whole number by name"),
        ({"pad": [0]}, "pad is [0], a list: allowed is a mapping by name"),
        ({"rename": "a=b"}, "rename is 'a=b', a str: allowed is a mapping by name"),
        ({"atol": 1e-3}, "compare has no argument 'atol' (allowed: "),
        ({"sample": 1}, "compare has no argument 'sample' (allowed: samples, "),
        ({"decision": {}}, "compare has no argument 'decision' (allowed: decisions, "),
        ({"outputs": "scores"}, "scores"),
        ({"provider": "cpu"}, "provider 'cpu' belongs to ONNX Runtime, which does not run right (a live model)"),
    ],
)
def test_an_argument_that_is_wrong_is_wrong_usage(arguments: Any, words: str, files: Path) -> None:  # noqa: ANN401
    with pytest.raises(pg.ParitygateError, match=re.escape(words)) as caught:
        pg.compare(str(files / "model.onnx"), right, samples={"x": _X}, **{"probes": (), **arguments})

    assert caught.value.exit_code == 2


def test_a_hint_of_a_wrong_argument_shows_it_as_python_takes_it(files: Path) -> None:
    hints = {
        "tolerance": "write for example tolerance={'max_abs_diff': 0.001}",
        "ignore": "write for example ignore={'logits': 'REASON'}",
        "rtol": "limits are given as tolerance={'max_abs_diff': 1e-3}",
        "sample": "give one of these: did you mean 'samples'?",
    }
    for argument, hint in hints.items():
        wrong: Any = {argument: ["logits"]}
        with pytest.raises(pg.ParitygateError) as caught:
            pg.compare(str(files / "model.onnx"), right, samples={"x": _X}, **wrong)
        assert caught.value.hint == hint


def test_numbers_of_numpy_are_numbers(files: Path) -> None:
    limits: Any = {"max_abs_diff": np.float32(1e-3)}
    result = pg.compare(str(files / "model.onnx"), right, samples={"x": _X}, probes=(), tolerance=limits)

    assert result.verdict == "pass"


def test_what_is_no_model_is_wrong_usage(files: Path) -> None:
    model = str(files / "model.onnx")
    with pytest.raises(InputFileError, match=r"model .*absent\.onnx does not exist"):
        pg.compare(model, files / "absent.onnx", samples={"x": _X})
    with pytest.raises(UsageError, match=r"a builtins\.int is not a model") as caught:
        pg.compare(model, 3, samples={"x": _X})
    assert "a torch.nn.Module, a keras.Model, a list of stages" in caught.value.hint
    with pytest.raises(UsageError, match=r"a builtins\.type is not a model"):
        pg.compare(model, dict, samples={"x": _X})


def test_text_that_no_probe_changes_is_a_warning() -> None:
    def lengths(arrays: Arrays) -> Arrays:
        return {"length": np.array([len(text) for text in arrays["text"]], np.int64)}

    samples = {"text": np.array(["word " * row for row in range(1, 41)])}
    result = pg.compare(lengths, lambda arrays: lengths(arrays), samples=samples)  # noqa: PLW0108 - another function

    assert result.verdict == "pass"
    (check,) = (check for check in result.checks if check.name == "probes_of_text")
    assert (check.status, "'text'" in check.detail) == ("warning", True)
