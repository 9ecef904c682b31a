"""Padding that nobody declared: differences there are findings, and fail only what a service could meet."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paritygate as pg
from paritygate.__main__ import _run as main
from paritygate.pipelines.spec.roles import parse_roles
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

_ROWS, _WIDTH = 60, 6
_NAN = float("nan")
# Of a graph with the tensors x (embeddings), set (the mask as floats) and column (the same beside features).
_MASKED = [
    "kept = Mul(x, column)",
    "total = ReduceSum(kept, middle)",
    "context = Div(total, six)",
    "h = Add(x, context)",
]
_MEAN_OF_ALL = [
    "kept = Mul(x, column)",
    "total = ReduceSum(x, middle)",
    "context = Div(total, six)",
    "h = Add(x, context)",
]


def _model(
    bench: Bench,
    name: str,
    *,
    padded: float = 0.0,
    valid: float = 0.0,
    body: list[str] = _MASKED,
    mask: str = "attention_mask",
    dtype: str = "int64",
    pooled: float | None = None,
    dims: tuple[str, str] = ("batch", "sequence"),
) -> str:
    """Write a model of ids and a mask: each position and the mean of those that are set.

    Args:
        bench: Where.
        name: Of the file.
        padded: What is added where the mask is 0.
        valid: What is added to one feature where it is set.
        body: The nodes from `x` to `h`.
        mask: The name of the mask.
        dtype: Its dtype.
        pooled: What is added to the pooled output where the mask is nowhere set; None for no such output.
        dims: The names of the dims of `hidden`.
    """
    import onnx

    text = [
        "x = Gather(table, input_ids)",
        f"set = Cast<to=1>({mask})",
        "column = Unsqueeze(set, last)",
        *body,
        "unset = Sub(one, column)",
        "is_unset = Greater(unset, half)",
        "wrong = Mul(column, valid)",
        "error = Where(is_unset, padded, wrong)",
        "hidden = Add(h, error)",
    ]
    outputs: dict[str, tuple[str, list[int | str]]] = {"hidden": ("float", [*dims, 4])}
    if pooled is not None:
        text += [
            "most = ReduceMax<axes=[1], keepdims=1>(set)",
            "none = Sub(one, most)",
            "nothing = Mul(none, pooled)",
            "sums = ReduceSum<keepdims=0>(kept, middle)",
            "logits = Add(sums, nothing)",
        ]
        outputs["logits"] = ("float", ["batch", 4])
    nodes = onnx.parser.parse_graph(f"g () => () {{ {' '.join(text)} }}").node
    return bench.model(
        name,
        list(nodes),
        inputs={"input_ids": ("int64", ["batch", "sequence"]), mask: (dtype, ["batch", "sequence"])},
        outputs=outputs,
        weights={
            "table": bench.normal(50, 4),
            "last": np.int64([-1]),
            "middle": np.int64([1]),
            "six": np.float32(6),
            "one": np.float32(1),
            "half": np.float32(0.5),
            "two": np.float32(2),
            "padded": np.float32(padded),
            "valid": np.float32([0, valid, 0, 0]),
            "pooled": np.float32(pooled or 0),
        },
    )


def _rows(kind: str = "right", *, empty: int = 0) -> dict[str, NDArray[np.generic]]:
    """Return ids and a mask; `empty` rows of them are nowhere set."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, _WIDTH + 1, _ROWS)
    lengths[0] = _WIDTH
    lengths[1 : 1 + empty] = 0
    places = np.arange(_WIDTH)
    mask = {
        "right": places < lengths[:, None],
        "left": places >= _WIDTH - lengths[:, None],
        "inside": (rng.random((_ROWS, _WIDTH)) < 0.5) & (lengths > 0)[:, None],
    }[kind]
    return {"input_ids": rng.integers(1, 50, (_ROWS, _WIDTH)) * mask, "attention_mask": mask.astype(np.int64)}


def _compared(bench: Bench, *sides: str, kind: str = "right", empty: int = 0, options: tuple[str, ...] = ()) -> Outcome:
    return bench.compare(*sides, "--samples", bench.npz("padded.npz", _rows(kind, empty=empty)), *options)


@pytest.mark.parametrize("kind", ["right", "left"])
@pytest.mark.parametrize("is_probing", [True, False])
def test_a_difference_at_padding_passes_and_is_said(bench: Bench, kind: str, is_probing: bool) -> None:  # noqa: FBT001
    bench.is_probing = is_probing

    outcome = _compared(bench, _model(bench, "reference"), _model(bench, "candidate", padded=3.0), kind=kind)

    assert (outcome.code, outcome.result["verdict"]) == (0, "pass"), outcome.out
    check = outcome.check("undeclared_padding", "hidden")
    assert (check["status"], check["measured"]) == ("edge", pytest.approx(3, rel=1e-5))
    mask = _rows(kind)["attention_mask"]
    rows, left_out = int((mask == 0).any(axis=1).sum()), 4 * int((mask == 0).sum())
    end = {"right": "the end", "left": "the beginning"}[kind]
    assert check["words"][0]["values"]["rows"] == rows
    assert "where attention_mask is 0: max_abs_diff: 3 > 0.0001" in check["detail"]
    assert f"with its zeros at {end} of every row" in check["detail"]
    assert check["words"][1]["values"]["left_out"] == left_out
    assert "write outputs: {hidden: {valid_where: attention_mask}} in the spec" in check["detail"]
    assert "or --valid-where hidden=attention_mask" in check["detail"]
    assert outcome.result["outputs"]["hidden"]["values"] == 4 * int((mask == 1).sum())
    printed = " ".join(outcome.out.split())
    assert "padding finding: hidden differs" in printed
    # Made-up rows that are padded otherwise count in full.
    assert (
        "verdict: pass, 1 out-of-sample finding, 1 padding" if is_probing else "verdict: pass, 1 padding"
    ) in printed


@pytest.mark.parametrize("is_probing", [True, False])
def test_padding_that_is_answered_alike_is_no_finding(bench: Bench, is_probing: bool) -> None:  # noqa: FBT001
    bench.is_probing = is_probing

    outcome = _compared(bench, _model(bench, "reference"), _model(bench, "candidate", padded=1e-5))

    assert (outcome.code, outcome.status("undeclared_padding")) == (0, "pass"), outcome.out
    assert "where attention_mask is 0" in outcome.check("undeclared_padding")["detail"]
    assert "padding finding" not in outcome.out


@pytest.mark.parametrize("valid", [1e-3, 3.0])
@pytest.mark.parametrize("kind", ["right", "left"])
def test_a_real_position_that_differs_fails(bench: Bench, valid: float, kind: str) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0, valid=valid)

    outcome = _compared(bench, *sides, kind=kind)

    assert outcome.code == 1
    assert outcome.failed >= {"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"}


@pytest.mark.parametrize("padded", [_NAN, float("inf")])
@pytest.mark.parametrize("is_probing", [True, False])
def test_nan_at_padding_fails(bench: Bench, padded: float, is_probing: bool) -> None:  # noqa: FBT001
    bench.is_probing = is_probing

    outcome = _compared(bench, _model(bench, "reference"), _model(bench, "candidate", padded=padded))

    assert outcome.code == 1
    assert "undeclared_padding" in outcome.failed
    assert "NaN or infinite where the reference is finite" in outcome.check("undeclared_padding")["detail"]


def test_a_constant_that_the_model_writes_at_padding_is_held(bench: Bench) -> None:
    # A service takes the largest score of all: what is not masked any more is chosen.
    outcome = _compared(bench, _model(bench, "reference", padded=-1e9), _model(bench, "candidate", padded=1.0))

    assert outcome.code == 1
    assert "undeclared_padding" in outcome.failed
    assert outcome.check("undeclared_padding")["words"][-1]["key"] == "padding.fill"


def test_a_candidate_that_ignores_the_mask_fails(bench: Bench) -> None:
    assert _compared(bench, _model(bench, "reference"), _model(bench, "candidate", body=_MEAN_OF_ALL)).code == 1


def test_edge_fail_holds_padding(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0)

    outcome = _compared(bench, *sides, options=("--edge", "fail"))

    assert (outcome.code, outcome.failed) == (1, {"undeclared_padding"})


def test_what_is_declared_is_no_finding(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0)

    outcome = _compared(bench, *sides, options=("--valid-where", "hidden=attention_mask"))

    assert outcome.code == 0
    assert {check["name"] for check in outcome.result["checks"]}.isdisjoint({"undeclared_padding"})
    assert "padding finding" not in outcome.out


_SELECTING = ["kept = Mul(x, column)", "c = Cast<to=9>(column)", "other = Mul(x, two)", "h = Where(c, x, other)"]
_SWAPPED = ["kept = Mul(x, column)", "c = Cast<to=9>(column)", "other = Sub(x, two)", "h = Where(c, x, other)"]
_INVERTED = ["kept = Mul(x, column)", "c = Cast<to=9>(column)", "h = Where(c, half, x)"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param({}, "inside", id="zeros inside of a row"),
        pytest.param({"body": _MEAN_OF_ALL}, "right", id="padding that is read elsewhere"),
        pytest.param({"body": _SELECTING}, "right", id="a choice between two results"),
        pytest.param({"body": _INVERTED}, "right", id="a mask of what is padded"),
        pytest.param({"dims": ("batch", "tokens")}, "right", id="dims of other names"),
    ],
)
def test_where_a_condition_does_not_hold_a_difference_fails(bench: Bench, change: dict[str, Any], kind: str) -> None:
    sides = _model(bench, "reference", **change), _model(bench, "candidate", padded=3.0, **change)

    outcome = _compared(bench, *sides, kind=kind)

    assert outcome.code == 1
    assert "max_abs_diff" in outcome.failed


@pytest.mark.parametrize(("mask", "dtype"), [("is_holiday", "bool"), ("is_holiday", "int64"), ("holiday_mask", "bool")])
@pytest.mark.parametrize("kind", ["right", "left"])
@pytest.mark.parametrize("is_probing", [True, False])
def test_what_is_chosen_by_a_flag_has_to_be_right_either_way(
    bench: Bench,
    mask: str,
    dtype: str,
    kind: str,
    is_probing: bool,  # noqa: FBT001
) -> None:
    bench.is_probing = is_probing
    arrays = _rows(kind)
    arrays[mask] = arrays.pop("attention_mask").astype(dtype)
    body = [line for line in _SELECTING if not line.startswith("kept")]
    wrong = [line for line in _SWAPPED if not line.startswith("kept")]
    sides = [_model(bench, name, body=nodes, mask=mask, dtype=dtype) for name, nodes in (("a", body), ("b", wrong))]

    outcome = bench.compare(*sides, "--samples", bench.npz("flags.npz", arrays))

    assert outcome.code == 1
    assert "max_abs_diff" in outcome.failed
    roles = outcome.result["probes"]["roles"]
    assert not is_probing or (roles[mask]["role"] == "mask") is (mask == "holiday_mask")


@pytest.mark.parametrize("is_probing", [True, False])
@pytest.mark.parametrize("roles", [(), ("--role", "attention_mask={empty: true}")])
def test_a_row_of_the_samples_that_attends_to_nothing_has_to_hold(
    bench: Bench,
    is_probing: bool,  # noqa: FBT001
    roles: tuple[str, ...],
) -> None:
    bench.is_probing = is_probing
    sides = _model(bench, "reference", pooled=0.0), _model(bench, "candidate", padded=3.0, pooled=0.7)

    outcome = _compared(bench, *sides, empty=2, options=roles)

    assert (outcome.code, "max_abs_diff" in outcome.failed) == (1, True), outcome.out
    assert outcome.check("max_abs_diff", "logits")["measured"] == pytest.approx(0.7, rel=1e-3)
    (looks_like,) = outcome.result["outputs"]["logits"]["looks_like"]
    assert "add empty: false to attention_mask below roles" in looks_like


@pytest.mark.parametrize("kind", ["right", "inside"])
@pytest.mark.parametrize("edge", ["warn", "fail"])
def test_a_row_that_is_declared_never_to_occur_is_a_finding_of_its_pooled_output(
    bench: Bench, kind: str, edge: str
) -> None:
    bench.is_probing = False
    sides = _model(bench, "reference", pooled=0.0), _model(bench, "candidate", pooled=0.7)
    never = ("--role", "attention_mask={empty: false}", "--edge", edge)

    outcome = _compared(bench, *sides, kind=kind, empty=2, options=never)

    assert outcome.code == 0, outcome.out
    check = outcome.check("undeclared_padding", "logits")
    assert (check["status"], check["measured"]) == ("edge", pytest.approx(0.7, rel=1e-3))
    # All other rows have to hold.
    wrong = _model(bench, "wrong", body=[line.replace("x, column", "x, half") for line in _MASKED], pooled=0.7)
    assert "max_abs_diff" in _compared(bench, sides[0], wrong, kind=kind, empty=2, options=never).failed


def test_a_pooled_output_is_judged_in_every_row_with_a_position(bench: Bench) -> None:
    reference = _model(bench, "reference", pooled=0.0)
    body = [*_MASKED[:1], "more = Add(kept, half)", *_MASKED[1:]]
    shifted = [line.replace("kept, middle", "more, middle") for line in body]
    candidate = _model(bench, "candidate", body=shifted, pooled=0.0)

    assert _compared(bench, reference, candidate, empty=2).code == 1


def test_a_role_that_is_declared_stands_above_what_is_inferred(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0)
    assert _compared(bench, *sides, options=("--role", "attention_mask=number")).code == 1
    assert _compared(bench, *sides, options=("--role", "attention_mask=mask")).code == 0
    # A name that says nothing.
    arrays = _rows()
    arrays["seen"] = arrays.pop("attention_mask")
    sides = _model(bench, "reference", mask="seen"), _model(bench, "candidate", mask="seen", padded=3.0)
    outcome = bench.compare(*sides, "--samples", bench.npz("seen.npz", arrays))
    assert (outcome.code, outcome.status("undeclared_padding")) == (0, "edge")


def test_a_decision_at_padding_is_none(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0)

    outcome = _compared(bench, *sides, options=("--decision", "hidden:multilabel=0,axis=2"))

    assert outcome.code == 0
    decision = outcome.result["decisions"]["hidden"]
    assert decision["mismatches"] == 0
    assert sum(decision["classes"].values()) == 4 * int(_rows()["attention_mask"].sum())
    wrong = _model(bench, "wrong", padded=3.0, valid=3.0)
    outcome = _compared(bench, sides[0], wrong, options=("--decision", "hidden:multilabel=0,axis=2"))
    assert "decision_mismatches" in outcome.failed


def test_a_recorded_reference_knows_of_it_and_outputs_from_elsewhere_do_not(bench: Bench) -> None:
    samples = bench.npz("padded.npz", _rows())
    reference, folder = _model(bench, "reference"), str(bench.folder / "recorded")
    candidate = _model(bench, "candidate", padded=3.0)
    assert main(["record", reference, "--samples", samples, "--out", folder]) == 0

    outcome = bench.compare(folder, candidate, "--samples", samples)
    assert (outcome.code, outcome.status("undeclared_padding")) == (0, "edge")
    import onnxruntime

    (hidden,) = onnxruntime.InferenceSession(reference).run(None, _rows())
    assert bench.compare(bench.npz("y.npz", {"hidden": hidden}), candidate, "--samples", samples).code == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("attention_mask", "--role 'attention_mask' is not of the form NAME=VALUE"),
        ("attention_mask=musk", "role attention_mask=musk: 'musk' is not a role (allowed: mask, "),
        ("attention_mask={role: musk}", "role attention_mask={role: musk}: role: 'id', 'mask', 'length', "),
        ("attention_mask={hollow: true}", "hollow: unknown key (allowed: role, low, high, of, pad, empty, "),
        ("attention_mask={lo: 3}", "hint: did you mean 'low' instead of 'lo'?"),
        ("attention_mask={low: many}", "low: a number is needed (seen: 'many')"),
        ("attention_mask=[3]", "attention_mask=[3]: a mapping is needed (seen: a list)"),
        ("attention_mask={low: 2, high: 1}", "low: 2 is above high: 1"),
        ("attention_mask={", "not YAML"),
        ("mask=mask", "the role is for 'mask', which is not an input (inputs: input_ids, attention_mask)"),
    ],
)
def test_a_role_that_does_not_fit_is_wrong_usage(bench: Bench, given: str, message: str) -> None:
    outcome = _compared(bench, _model(bench, "a"), _model(bench, "b", padded=1.0), options=("--role", given))

    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())


def test_a_role_is_said_while_the_reference_can_be_asked(bench: Bench) -> None:
    samples, folder = bench.npz("padded.npz", _rows()), str(bench.folder / "recorded")
    assert main(["record", _model(bench, "reference"), "--samples", samples, "--out", folder]) == 0

    outcome = bench.compare(folder, _model(bench, "b"), "--samples", samples, "--role", "attention_mask=mask")

    assert outcome.code == 2
    assert "the role of 'attention_mask' is declared, but the reference was recorded before" in " ".join(
        outcome.err.split()
    )


def test_roles_in_python_are_written_as_in_a_spec(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", padded=3.0)
    call: dict[str, Any] = {"samples": _rows(), "probes": "none"}

    assert pg.compare(*sides, **call, roles={"attention_mask": {"role": "mask", "empty": False}}).verdict == "pass"
    assert pg.compare(*sides, **call, roles={"attention_mask": "number"}).verdict == "fail"
    with pytest.raises(pg.ParitygateError, match="roles is 'mask', a str: allowed is a mapping by name"):
        pg.compare(*sides, **call, roles="mask")  # type: ignore[arg-type]  # what is refused


def test_the_command_that_asks_a_probe_again_says_the_roles(bench: Bench) -> None:
    sides = _model(bench, "reference"), _model(bench, "candidate", body=_MEAN_OF_ALL)

    outcome = _compared(bench, *sides, options=("--probes", "masks", "--role", "input_ids={role: id, high: 49}"))

    words = shlex.split(outcome.result["probes"]["asked"]["masks"]["failures"][0]["again"])
    said = words[words.index("--role") + 1]
    assert parse_roles({"input_ids": said.removeprefix("input_ids=")}) == {
        "input_ids": DeclaredRole(role=Role.ID, high=49)
    }


def test_a_recording_counts_where_it_is_told_to(bench: Bench) -> None:
    samples, folder = bench.npz("padded.npz", _rows()), str(bench.folder / "recorded")
    asked = ("--valid-where", "hidden=attention_mask")
    assert main(["record", _model(bench, "a", padded=_NAN), "--samples", samples, "--out", folder, *asked]) == 0

    candidate = _model(bench, "b", padded=3.0)
    assert bench.compare(folder, candidate, "--samples", samples, *asked).code == 0
    assert bench.compare(folder, candidate, "--samples", samples).code == 2
    assert main(["record", "--run", folder, *asked]) == 2
    assert "record --run takes no --valid-where, because the run's spec sets it" in bench.capture.readouterr().err


_SPEC = """
model: {{name: texts, source: {source}}}
samples: {{source: {samples}}}
targets: [onnx-fp16]
tolerance: {{onnx-fp16: {{max_abs_diff: 1.0e-9, mean_abs_diff: 1.0e-9, max_row_rel_diff: 1.0e-9}}}}
min_rows: 10
probes: none
"""


def test_a_run_says_it_in_terminal_report_evidence_and_release(bench: Bench, tmp_path: Path) -> None:
    # FP16 rounds nothing of this model but what stands at padding: powers of 2 are exact, and 0.1 is not.
    source = _model(bench, "source", padded=0.1, body=["kept = Mul(x, column)", "h = Mul(kept, two)"])
    import onnx

    model = onnx.load(source)
    for weight in model.graph.initializer:
        if weight.name == "table":
            weight.CopyFrom(
                onnx.numpy_helper.from_array(np.exp2(np.arange(200).reshape(50, 4) % 9).astype("f"), "table")
            )
    onnx.save(model, source)
    spec = bench.folder / "spec.yaml"
    spec.write_text(_SPEC.format(source=source, samples=bench.npz("padded.npz", _rows())), encoding="utf-8")

    code = main(["run", str(spec), "--root", str(tmp_path)])

    printed = " ".join(" ".join(bench.capture.readouterr()).split())
    assert code == 0, printed
    assert "padding finding: onnx-fp16: hidden differs" in printed
    (run,) = (tmp_path / "runs" / "texts").iterdir()
    for name in ("report.md", "report.html", "evidence.json"):
        assert "where attention_mask is 0" in (run / name).read_text(encoding="utf-8")
    assert main(["show", "texts", "--verbose", "--repository", str(tmp_path / "repository")]) == 0
    shown = " ".join(bench.capture.readouterr().out.split())
    assert "padding finding of onnx-fp16: hidden differs" in shown
