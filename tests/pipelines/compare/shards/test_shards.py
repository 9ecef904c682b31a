"""`compare --shard` and `merge`: any number of parts gives one verdict, and nothing else is taken for a part."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipelines.compare.shards.parts import without_times

from paritygate.batch import Batch
from paritygate.codec import sealed
from paritygate.pipelines.compare.shards.part import FORMAT_VERSION, labels_digest
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gold.rule import GoldRule

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_BATCHES = 9
_SAMPLES = """
    import numpy as np
    from paritygate.batch import Batch

    def batches():
        random = np.random.default_rng(5)
        for number in range(9):
            rows = 1 + number % 5
            x = random.standard_normal((rows, 4)).astype(np.float32)
            gold = x[:, 0] > 0
            yield Batch(inputs={"x": x}, ids=[f"{number}-{row}" for row in range(rows)], gold=gold,
                        strata={"sign": ["+" if value else "-" for value in gold]})
"""
_OPTIONS = ("--samples", "shard_samples:batches", "--decision", "output_0:argmax", "--gold", "accuracy:output_0")


def _model(desk: Desk, name: str, error: float) -> None:
    import onnx

    desk.onnx(name)
    model = onnx.load(str(desk.folder / name))
    weight = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
    weight[1, 2] += np.float32(error)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(model, str(desk.folder / name))


@pytest.fixture
def cut(desk: Desk) -> Desk:
    """Return a desk with a recorded reference, a candidate that is right, and one that is wrong."""
    desk.module("shard_samples", _SAMPLES)
    _model(desk, "model.onnx", 0.0)
    _model(desk, "right.onnx", 1e-7)
    _model(desk, "wrong.onnx", 1e-2)
    called = desk.call("record", "model.onnx", "--samples", "shard_samples:batches", "--out", "reference")
    assert called.code == 0, called
    return desk


def _shard(
    desk: Desk, number: int, of: int, *, model: str = "wrong.onnx", out: str = "", more: tuple[str, ...] = ()
) -> Called:
    place = ("--shard", f"{number}/{of}", "--out", out or f"part-{number}.json")
    return desk.call("compare", "reference", model, *_OPTIONS, *place, *more)


def _merged(desk: Desk, of: int, *, model: str = "wrong.onnx", more: tuple[str, ...] = ()) -> Called:
    for number in range(1, of + 1):
        (desk.folder / f"part-{number}.json").unlink(missing_ok=True)
        called = _shard(desk, number, of, model=model, more=more)
        assert called.code == 0, called
    # In another order than that of the rows.
    parts = [f"part-{number}.json" for number in (*range(of, 0, -2), *range(of - 1, 0, -2))]
    return desk.json("merge", *parts)


@pytest.mark.parametrize(("model", "code", "more"), [("wrong.onnx", 1, ("--repeat", "2")), ("right.onnx", 3, ())])
def test_any_number_of_parts_gives_one_verdict(cut: Desk, model: str, code: int, more: tuple[str, ...]) -> None:
    texts = []
    # One more than there are batches leaves an empty part.
    for of in (1, 7, _BATCHES, _BATCHES + 1):
        called = _merged(cut, of, model=model, more=more)
        assert called.code == code, called
        texts.append(json.dumps(without_times(called.data)))
    assert len(set(texts)) == 1
    plain = cut.json("compare", "reference", model, *_OPTIONS, *more)

    def facts(called: Called) -> list[tuple[str, str, str]]:
        return [(check["name"], check["output"], check["status"]) for check in called.data["checks"]]

    assert plain.code == code
    assert facts(called) == facts(plain)
    for name in ("rows", "batches", "passes", "mismatches", "samples_digest", "decisions", "gold", "verdict", "notes"):
        assert called.data[name] == plain.data[name], name


def test_a_merged_result_names_the_command_to_diagnose_it_as_the_whole_one_does(cut: Desk) -> None:
    source = ("--source", "model.onnx")

    whole = cut.call("compare", "reference", "wrong.onnx", *_OPTIONS, *source)
    merged = _merged(cut, 2, more=source)
    without = _merged(cut, 2)

    def call(called: Called) -> list[str]:
        return called.err.partition("next:")[2].replace("\\\n", " ").split()

    assert call(whole)[1:] == ["diagnose", "model.onnx", "wrong.onnx", "--samples", "shard_samples:batches"]
    assert call(merged) == call(whole)
    assert call(without) == []


@pytest.mark.torch
def test_outputs_that_no_signature_has_are_shown_by_a_merged_result_too(cut: Desk) -> None:
    cut.module(
        "two_outputs",
        """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(4, 3))

            def forward(self, x):
                return {"output_0": x @ self.weight, "cache": [x]}
        """,
    )
    whole = cut.json("compare", "reference", "two_outputs:Net", *_OPTIONS)
    merged = _merged(cut, _BATCHES + 1, model="two_outputs:Net")

    assert whole.data["outputs_left_out"] == merged.data["outputs_left_out"] == ["cache"]


def test_a_pass_without_probes_is_called_so(cut: Desk) -> None:
    assert _shard(cut, 1, 1, model="right.onnx", more=("--edge", "off", "--min-rows", "1")).code == 0
    called = cut.json("merge", "part-1.json", "--quiet")
    assert called.data["probes"]["not_recorded"]
    assert (called.code, called.out) == (0, "verdict: pass (without probes)\n")


def test_a_part_that_is_there_is_not_made_again(cut: Desk) -> None:
    assert _shard(cut, 1, 2).code == 0
    before = (cut.folder / "part-1.json").stat()
    called = _shard(cut, 1, 2, more=("--json", "said.json"))
    assert called.data["is_unchanged"]
    assert (cut.folder / "part-1.json").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(("number", "of", "model"), [(1, 2, "right.onnx"), (2, 2, "wrong.onnx"), (1, 3, "wrong.onnx")])
def test_no_other_part_is_overwritten(cut: Desk, number: int, of: int, model: str) -> None:
    assert _shard(cut, 1, 2).code == 0
    before = (cut.folder / "part-1.json").read_bytes()
    assert _shard(cut, number, of, model=model, out="part-1.json").code == 2
    assert (cut.folder / "part-1.json").read_bytes() == before


def test_a_truncated_part_is_refused_and_made_again(cut: Desk) -> None:
    assert _merged(cut, 2).code == 1
    part = cut.folder / "part-2.json"
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    assert cut.call("merge", "part-1.json", "part-2.json").code == 2
    assert not _shard(cut, 2, 2, more=("--json", "said.json")).data["is_unchanged"]
    assert cut.call("merge", "part-1.json", "part-2.json").code == 1


def test_no_other_file_is_overwritten(cut: Desk) -> None:
    called = _shard(cut, 1, 2, out="wrong.onnx")
    assert called.code == 2
    assert called.err.count("error:") == 1


def _missing(desk: Desk) -> Called:
    return desk.call("merge", "part-1.json", "part-3.json")


def _twice(desk: Desk) -> Called:
    (desk.folder / "copy.json").write_bytes((desk.folder / "part-2.json").read_bytes())
    return desk.call("merge", "part-1.json", "part-2.json", "copy.json", "part-3.json")


def _given_twice(desk: Desk) -> Called:
    return desk.call("merge", "part-1.json", "./part-1.json", "part-2.json", "part-3.json")


def _other_candidate(desk: Desk) -> Called:
    (desk.folder / "part-2.json").unlink()
    assert _shard(desk, 2, 3, model="right.onnx").code == 0
    return _all(desk)


def _other_rules(desk: Desk) -> Called:
    (desk.folder / "part-2.json").unlink()
    assert _shard(desk, 2, 3, more=("--precision", "fp16")).code == 0
    return _all(desk)


def _other_number(desk: Desk) -> Called:
    (desk.folder / "part-2.json").unlink()
    assert _shard(desk, 2, 4).code == 0
    return _all(desk)


def _other_gold(desk: Desk) -> Called:
    (desk.folder / "part-2.json").unlink()
    desk.module("shard_samples", _SAMPLES.replace("gold=gold", "gold=~gold"))
    assert _shard(desk, 2, 3).code == 0
    return _all(desk)


def _all(desk: Desk) -> Called:
    return desk.call("merge", "part-1.json", "part-2.json", "part-3.json")


@pytest.mark.parametrize(
    ("merge", "words"),
    [
        (_missing, "--shard 2/3"),
        (_given_twice, "part-1.json"),
        (_twice, "are both shard 2"),
        (_other_candidate, "candidate"),
        (_other_rules, "rules"),
        (_other_number, "number of shards"),
        (_other_gold, "gold or strata"),
    ],
)
def test_parts_of_several_comparisons_are_refused(cut: Desk, merge: Callable[[Desk], Called], words: str) -> None:
    assert _merged(cut, 3).code == 1
    called = merge(cut)
    assert called.code == 2
    assert called.err.count("error:") == 1
    assert words in called.err


def test_a_file_that_is_no_part_is_named(cut: Desk) -> None:
    assert _merged(cut, 2).code == 1
    (cut.folder / "list.json").write_text("[1]", encoding="utf-8")
    # The result of a comparison, a list, and a model.
    for name in ("said.json", "list.json", "wrong.onnx"):
        called = cut.call("merge", "part-1.json", name)
        assert (called.code, f"{name} is not a part" in called.err) == (2, True)


def test_parts_are_bound_to_the_gold_and_strata_that_rules_read() -> None:
    def digest(*, gold: float = 1, sign: str = "+", other: str = "a") -> str:
        batch = Batch(inputs={}, ids=["0"], gold=np.array([gold]), strata={"sign": [sign], "other": [other]})
        return labels_digest([batch], rules)

    rules = GateRules(
        tolerance=parse_tolerance(Precision.FP32, {}), strata=("sign",), gold=(GoldRule(metric="accuracy", output="y"),)
    )
    digests = digest(), digest(other="b"), digest(gold=0), digest(sign="-")
    assert len(set(digests)) == 3
    assert digests[0] == digests[1]


def _forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_bytes())
    del data["digest"], data["format"]
    change(data)
    path.write_text(json.dumps(sealed(data, version=FORMAT_VERSION)), encoding="utf-8")


_FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda part: part["binding"].update(paritygate="0.0"),
    "rows": lambda part: part["measures"]["outputs"].update(rows=7),
    "batches": lambda part: part.update(last=part["last"] + 1),
    "channels": lambda part: part["measures"]["outputs"]["differences"]["output_0"].update(count=[1.0]),
    "text": lambda part: part["measures"]["outputs"]["differences"]["output_0"].update(max_abs="0"),
    "total": lambda part: part["measures"]["outputs"]["differences"]["output_0"].update(total="nan"),
    "negative": lambda part: part["measures"]["outputs"]["decisions"]["output_0"].update(flipped=-5),
    "wide": lambda part: part["measures"]["outputs"]["sketches"]["output_0"].update(by_row=[2**900, [0.0]]),
    "bins": lambda part: part["measures"]["outputs"]["differences"]["output_0"].update(histogram=[[10**9, 1]]),
    "sums": lambda part: part["measures"]["outputs"]["sums"]["output_0"].update(sums=["f" * 10_000]),
    "output": lambda part: part["measures"]["outputs"]["patterns"].update(other={}),
    "list": lambda part: part.update(measures=[]),
    "none": lambda part: part["measures"].update(outputs=None),
    "shards": lambda part: part["binding"].update(shards=10**15),
    "huge": lambda part: part["measures"]["outputs"].update(rows=10**40),
    "passes": lambda part: part["measures"]["outputs"].update(by_pass={"output_0": [{"rows": "1"}]}),
    "excuse": lambda part: part.update(excuses={"noise": {"beyond": "1"}}),
    "gold": lambda part: part["measures"]["gold accuracy:output_0"]["columns"].update(gold="AAAA"),
}


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_a_forged_part_is_refused_in_one_line(cut: Desk, forgery: str) -> None:
    assert _merged(cut, 2).code == 1
    _forge(cut.folder / "part-2.json", _FORGERIES[forgery])
    called = cut.call("merge", "part-1.json", "part-2.json")
    assert called.code == 2, called
    assert called.err.count("error:") == 1
    assert "unexpected" not in called.err


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"kind":"paritygate part","rows":' + "9" * 100_000 + "}", "\ud800", "{}"]
)
def test_a_part_of_odd_json_is_refused_in_one_line(cut: Desk, text: str) -> None:
    assert _merged(cut, 2).code == 1
    (cut.folder / "part-2.json").write_bytes(b'{"kind":"paritygate part","odd":' + text.encode(errors="surrogatepass"))
    called = cut.call("merge", "part-1.json", "part-2.json")
    assert (called.code, called.err.count("error:")) == (2, 1), called
    assert "unexpected" not in called.err


@pytest.mark.thorough
def test_two_merges_at_once_write_one_result(cut: Desk, tool: list[str]) -> None:
    assert _merged(cut, 3).code == 1
    wanted = json.dumps(without_times(json.loads((cut.folder / "said.json").read_bytes())))
    command = [*tool, "merge", "part-1.json", "part-2.json", "part-3.json", "--quiet", "--json", "both.json"]
    processes = [subprocess.Popen(command, cwd=cut.folder, stdout=subprocess.DEVNULL) for _ in range(2)]

    assert [process.wait(600) for process in processes] == [1, 1]
    assert json.dumps(without_times(json.loads((cut.folder / "both.json").read_bytes()))) == wanted


def test_a_part_does_not_grow_with_the_rows(cut: Desk) -> None:
    sizes = []
    for rows in (300, 3_000):
        cut.samples(rows)
        samples = ("--samples", "inputs.npz", "--batch-size", "50")
        assert cut.call("record", "model.onnx", *samples, "--out", f"recorded-{rows}").code == 0
        place = ("--shard", "1/1", "--out", f"part-{rows}.json", "--source", "model.onnx")
        options = ("--decision", "output_0:argmax", "--probes", "none", *place)
        assert cut.call("compare", f"recorded-{rows}", "wrong.onnx", *samples, *options).code == 0
        sizes.append((cut.folder / f"part-{rows}.json").stat().st_size)
    # Longer numbers, and more bins of a histogram.
    assert sizes[1] < 2 * sizes[0]


def test_a_changed_part_has_another_digest(cut: Desk) -> None:
    assert _merged(cut, 2).code == 1
    path = cut.folder / "part-2.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"rows":', '"rows":1', 1), encoding="utf-8")
    assert cut.call("merge", "part-1.json", "part-2.json").code == 5


@pytest.mark.parametrize(("number", "size"), [(1, "3"), (2, "50")])
def test_another_batch_size_is_bad_input(cut: Desk, number: int, size: str) -> None:
    cut.samples(60)
    samples = ("--samples", "inputs.npz", "--batch-size")
    assert cut.call("record", "model.onnx", *samples, "10", "--out", "recorded").code == 0
    place = ("--shard", f"{number}/2", "--out", "part.json")
    called = cut.call("compare", "recorded", "wrong.onnx", *samples, size, *place)
    assert (called.code, called.err.count("error:")) == (2, 1)


def test_a_part_names_no_code_that_runs(cut: Desk) -> None:
    assert _merged(cut, 2).code == 1
    cut.module("evil", "raise SystemExit('ran')")

    def metric(part: dict[str, Any]) -> None:
        part["job"]["rules"]["gold"][0].update(metric="evil:metric")

    _forge(cut.folder / "part-1.json", metric)
    called = cut.call("merge", "part-1.json", "part-2.json")
    assert called.code == 2
    assert "ran" not in called.out + called.err.partition("error:")[0]


def test_each_batch_must_be_the_one_recorded(cut: Desk) -> None:
    changed = _SAMPLES.replace("gold = x[:, 0] > 0", "x = x * (number != 8); gold = x[:, 0] > 0")
    cut.module("shard_samples", textwrap.dedent(changed))
    assert _shard(cut, 1, 2).code == 0
    assert _shard(cut, 2, 2).code == 5


@pytest.mark.parametrize("batches", [8, 10])
def test_the_samples_must_have_as_many_batches(cut: Desk, batches: int) -> None:
    cut.module("shard_samples", _SAMPLES.replace("range(9)", f"range(0, {batches})"))
    assert _shard(cut, 2, 2).code == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("model.onnx",), "record model.onnx"),
        (("reference", "--takes", "candidate=x"), "--takes"),
        (("reference", "--gold", "shard_samples:batches:output_0"), "function"),
    ],
)
def test_what_cannot_be_cut_is_refused(cut: Desk, options: tuple[str, ...], words: str) -> None:
    reference, *more = options
    place = ("--shard", "1/2", "--out", "part.json")
    called = cut.call("compare", reference, "wrong.onnx", "--samples", "shard_samples:batches", *more, *place)
    assert called.code == 2
    assert words in called.err
    assert not (cut.folder / "part.json").exists()


def test_a_function_has_no_digest_that_binds_parts(cut: Desk) -> None:
    cut.module("answering", "def answer(inputs):\n    return {'output_0': inputs['x'][:, :3]}\n")
    called = _shard(cut, 1, 2, model="answering:answer")
    assert called.code == 2
    assert not (cut.folder / "part-1.json").exists()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_is_one_of_so_many(cut: Desk, text: str) -> None:
    assert cut.call("compare", "reference", "wrong.onnx", *_OPTIONS, f"--shard={text}", "--out", "part.json").code == 2


@pytest.mark.thorough
@pytest.mark.children
def test_parts_that_were_killed_are_made_again(cut: Desk) -> None:
    assert _merged(cut, 3).code == 1
    wanted = json.dumps(without_times(json.loads((cut.folder / "said.json").read_bytes())))
    names = {path.name for path in cut.folder.iterdir()}
    for seconds in (0.2, 0.7, 1.2, 1.7, 2.2):
        (cut.folder / "part-2.json").unlink(missing_ok=True)
        place = ("--shard", "2/3", "--out", "part-2.json")
        command = [sys.executable, "-m", "paritygate", "compare", "reference", "wrong.onnx", *_OPTIONS, *place]
        with subprocess.Popen(command, cwd=cut.folder, stderr=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            process.kill()
        assert _shard(cut, 2, 3).code == 0
        called = cut.json("merge", *(f"part-{number}.json" for number in (3, 2, 1)))
        assert json.dumps(without_times(called.data)) == wanted
    # What a killed process leaves is not a part, and is in no other place.
    assert {path.name for path in cut.folder.iterdir() if path.suffix != ".json"} <= names
