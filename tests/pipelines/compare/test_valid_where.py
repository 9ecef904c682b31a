"""`valid_where`: an output is compared only where an input, such as an attention mask, is set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paritygate as pg
from paritygate.__main__ import _run as main

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench

_ROWS, _WIDTH = 60, 6


def _tokens(bench: Bench, name: str, *, padded: float = 0.0, valid: float = 0.0, dim: str = "sequence") -> str:
    """Write `logits = x * weight`, off by one number where the mask is not set, and by another in class 1 where it is.

    A number that is NaN or infinite comes of a division by the mask.
    """
    import onnx

    node = onnx.helper.make_node
    nodes = [
        node("Cast", ["mask"], ["set"], to=1),
        node("Unsqueeze", ["set", "last"], ["column"]),
        node("Mul", ["x", "weight"], ["scaled"]),
        node("Mul", ["column", "valid"], ["wrong"]),
        node("Sub", ["one", "column"], ["unset"]),
        node("Greater", ["unset", "half"], ["is_unset"]),
        node("Where", ["is_unset", "padded", "wrong"], ["error"]),
        node("Add", ["scaled", "error"], ["logits"]),
    ]
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", "sequence", 3]), "mask": ("int64", ["batch", "sequence"])},
        outputs={"logits": ("float", ["batch", dim, 3])},
        weights={
            "last": np.int64([-1]),
            "weight": np.float32([1, 2, 3]),
            "one": np.float32([1]),
            "half": np.float32([0.5]),
            "valid": np.float32([0, valid, 0]),
            "padded": np.float32([padded]),
        },
    )


def _padded(bench: Bench) -> dict[str, NDArray[np.generic]]:
    lengths = np.random.default_rng(0).integers(1, _WIDTH + 1, _ROWS)
    lengths[0] = _WIDTH
    mask = (np.arange(_WIDTH) < lengths[:, None]).astype(np.int64)
    return {"x": bench.normal(_ROWS, _WIDTH, 3), "mask": mask}


@pytest.fixture
def samples(bench: Bench) -> str:
    """Rows of 1 to 6 positions, padded on the right."""
    return bench.npz("padded.npz", _padded(bench))


_DECISION = ("--decision", "logits:argmax,axis=2")


@pytest.mark.usefixtures("asks_probes")
@pytest.mark.parametrize("padded", [3.0, 1e9, float("nan"), float("-inf")])
def test_a_difference_where_the_mask_is_not_set_passes_and_is_counted(
    bench: Bench, samples: str, padded: float
) -> None:
    sides = _tokens(bench, "reference"), _tokens(bench, "candidate", padded=padded)
    asked = ("--samples", samples, *_DECISION, "--repeat", "2")

    outcome = bench.compare(*sides, *asked, "--valid-where", "logits=mask")

    assert (outcome.code, outcome.result["verdict"]) == (0, "pass"), outcome.out
    every, count = 3 * _ROWS * _WIDTH, 3 * int(_padded(bench)["mask"].sum())
    assert outcome.check("valid_where")["detail"] == (
        f"{count} of {every} values count, those where mask is set; {every - count} do not count"
    )
    assert outcome.result["outputs"]["logits"]["values"] == count
    assert bench.compare(*sides, *asked).code == 1


@pytest.mark.usefixtures("asks_probes")
@pytest.mark.parametrize("valid", [1e-2, 3.0])
def test_a_difference_where_the_mask_is_set_fails(bench: Bench, samples: str, valid: float) -> None:
    sides = _tokens(bench, "reference"), _tokens(bench, "candidate", padded=7.0, valid=valid)

    outcome = bench.compare(*sides, "--samples", samples, *_DECISION, "--valid-where", "logits=mask")

    assert outcome.code == 1
    failed = {check["name"] for check in outcome.result["checks"] if check["status"] == "fail"}
    assert failed >= {"max_abs_diff", "mean_abs_diff", "max_row_rel_diff", "probe_batches"}


@pytest.mark.usefixtures("asks_probes")
def test_a_reference_that_is_nan_where_nothing_counts_is_judged_by_the_rest(bench: Bench, samples: str) -> None:
    reference = _tokens(bench, "reference", padded=float("nan"))
    asked = ("--samples", samples, "--valid-where", "logits=mask")

    right = bench.compare(reference, _tokens(bench, "right", padded=5.0), *asked)
    assert (right.code, right.result["verdict"]) == (0, "pass"), right.out
    assert bench.compare(reference, _tokens(bench, "wrong", valid=0.01), *asked).code == 1
    # Undeclared, such a reference is refused.
    refused = bench.compare(reference, _tokens(bench, "again", padded=5.0), "--samples", samples)
    assert (refused.code, refused.result["error"]["kind"]) == (5, "ReferenceRefusedError")


def test_recorded_outputs_are_judged_by_what_counts_of_them(bench: Bench, samples: str) -> None:
    arrays = _padded(bench)
    logits = arrays["x"] * np.float32([1, 2, 3])
    logits[arrays["mask"] == 0] = np.nan
    recorded = bench.npz("expected.npz", {"logits": logits})
    asked = ("--samples", samples, "--valid-where", "logits=mask")

    assert bench.compare(recorded, _tokens(bench, "right"), *asked).code == 0
    assert bench.compare(recorded, _tokens(bench, "wrong", valid=0.01), *asked).code == 1


def test_a_recording_that_counts_every_position_has_another_scale(bench: Bench, samples: str) -> None:
    reference = str(bench.folder / "recorded")
    assert main(["record", _tokens(bench, "reference"), "--samples", samples, "--out", reference]) == 0

    outcome = bench.compare(reference, _tokens(bench, "other"), "--samples", samples, "--valid-where", "logits=mask")

    assert outcome.code == 2
    assert "recorded with valid_where none, but this comparison has logits=mask" in outcome.err


@pytest.mark.parametrize(
    ("dim", "asked", "message"),
    [
        ("positions", "logits=mask", "dim 'sequence' of the mask is none of the output's"),
        ("sequence", "logits=musk", "'musk' is not an input (inputs: x, mask)"),
        ("sequence", "scores=mask", "valid_where scores=mask names 'scores', which is not an output that is compared"),
        ("sequence", "logits", "--valid-where 'logits' is not of the form NAME=VALUE"),
    ],
)
def test_what_does_not_fit_is_wrong_usage(bench: Bench, samples: str, dim: str, asked: str, message: str) -> None:
    sides = _tokens(bench, "reference", dim=dim), _tokens(bench, "candidate", dim=dim)

    outcome = bench.compare(*sides, "--samples", samples, "--valid-where", asked)

    assert outcome.code == 2
    assert message in outcome.err


def test_in_python_it_is_a_mapping(bench: Bench, samples: str) -> None:
    sides = _tokens(bench, "reference"), _tokens(bench, "candidate", padded=3.0)
    call = {"samples": samples, "probes": "none"}

    assert pg.compare(*sides, **call, valid_where={"logits": "mask"}).verdict == "pass"
    assert pg.compare(*sides, **call).verdict == "fail"


_SPEC = """
model: {{name: tokens, source: {source}}}
samples: {{source: {samples}}}
targets: [onnx-fp32]
min_rows: 10
outputs: {{logits: {{valid_where: {mask}}}}}
promote: {{fallback: none}}
"""


def test_a_run_records_and_judges_by_it(bench: Bench, samples: str, tmp_path: Path) -> None:
    import yaml

    source = _tokens(bench, "source", padded=float("nan"))
    spec = yaml.safe_load(_SPEC.format(source=source, samples=samples, mask="mask"))

    outcome = pg.run(spec, root=tmp_path, promote=False, probes="none")

    assert outcome.results["onnx-fp32"].verdict == "pass"
    checks = {check.name: check.detail for check in outcome.results["onnx-fp32"].checks}
    assert "values count, those where mask is set" in checks["valid_where"]


def test_a_spec_whose_mask_does_not_fit_is_refused_before_anything_runs(
    bench: Bench, samples: str, tmp_path: Path
) -> None:
    import yaml

    spec = yaml.safe_load(_SPEC.format(source=_tokens(bench, "source"), samples=samples, mask="musk"))

    with pytest.raises(pg.ParitygateError, match=r"outputs: valid_where logits=musk: 'musk' is not an input"):
        pg.run(spec, root=tmp_path, promote=False, probes="none")


def _texts(is_left: bool) -> dict[str, NDArray[np.generic]]:  # noqa: FBT001 - where the padding is
    rng = np.random.default_rng(0)
    places, lengths = np.arange(12), rng.integers(1, 13, 96)
    mask = places >= 12 - lengths[:, None] if is_left else places < lengths[:, None]
    # A text of nothing at all: every position attends to nothing.
    mask[5] = False
    return {"input_ids": rng.integers(1, 100, (96, 12)) * mask, "attention_mask": mask.astype(np.int64)}


def _transformer(kind: str) -> Any:  # noqa: ANN401 - a module; PyTorch is loaded here
    """Return two layers with PyTorch's own attention: like BERT with a pooled output, or like GPT-2."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out, self.more, self.less = (nn.Linear(*size) for size in _SIZES)
            self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            rows, places, _ = x.shape
            heads = self.qkv(self.norms[0](x)).view(rows, places, 3, 4, 8).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
            x = x + self.out(attended.transpose(1, 2).reshape(rows, places, 32))
            return x + self.less(nn.functional.gelu(self.more(self.norms[1](x))))

    class Texts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.head = nn.Embedding(100, 32), nn.Embedding(32, 32), nn.Linear(32, 3)
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
            place = torch.arange(input_ids.shape[1])
            mask = attention_mask[:, None, None, :].bool()
            mask = mask & (place[None, :] <= place[:, None] if kind == "gpt2" else place[None, :] >= 0)
            x = self.words(input_ids) + self.places(place)
            for layer in self.layers:
                x = layer(x, mask)
            return {"hidden": x} if kind == "gpt2" else {"hidden": x, "logits": self.head(x[:, 0])}

    torch.manual_seed(0)
    return Texts().eval()


_SIZES = ((32, 96), (32, 32), (32, 64), (64, 32))


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("kind", ["bert", pytest.param("gpt2", marks=pytest.mark.thorough)])
def test_a_transformer_whose_attention_is_to_nothing_is_judged_by_its_texts(tmp_path: Path, kind: str) -> None:
    import torch

    model = _transformer(kind)
    arrays = _texts(kind == "gpt2")
    np.savez(tmp_path / "texts.npz", **arrays)  # type: ignore[arg-type]  # keys are free in a mapping
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=32)}
    torch.onnx.export(
        model,
        tuple(torch.from_numpy(array[:4]) for array in arrays.values()),
        str(tmp_path / "exported.onnx"),
        input_names=list(arrays),
        output_names=["hidden"] if kind == "gpt2" else ["hidden", "logits"],
        dynamic_shapes=(dims, dims),
        dynamo=True,
        verbose=False,
    )

    no_empty_rows = {"attention_mask": {"empty": False}}

    def compared(
        valid_where: dict[str, str], edge: str = "warn", roles: dict[str, Any] = no_empty_rows
    ) -> pg.Comparison:
        asked: dict[str, Any] = {"valid_where": valid_where, "probes": "none", "edge": edge, "roles": roles}
        return pg.compare(model, tmp_path / "exported.onnx", samples=tmp_path / "texts.npz", **asked)

    # The text of nothing is a row of the samples: what is one answer a text has to hold there as well.
    assert compared({}, roles={}).verdict == ("pass" if kind == "gpt2" else "fail")
    # PyTorch answers 0 where a position attends to nothing, the ONNX file the mean.
    found = {check.output: check.measured for check in compared({}).padding_findings}
    assert compared({}).verdict == "pass"
    assert found.keys() == ({"hidden"} if kind == "gpt2" else {"hidden", "logits"})
    assert min(found.values(), default=0) > 0.1
    assert compared({}, edge="fail").verdict == "fail"
    assert compared({"hidden": "attention_mask"}).verdict == "pass"
    with torch.no_grad():
        model.layers[1].out.bias[3] += 1e-3
    assert compared({"hidden": "attention_mask"}).verdict == "fail"
    assert compared({}).verdict == "fail"


def test_a_function_has_the_dims_that_its_answer_shows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.standard_normal((40, 6)).astype(np.float32),
        "mask": (np.arange(6) < rng.integers(1, 7, 40)[:, None]).astype(np.int64),
    }
    np.savez(tmp_path / "padded.npz", **arrays)  # type: ignore[arg-type]  # keys are free in a mapping

    def reference(inputs: dict[str, Any]) -> dict[str, Any]:
        found = np.stack([inputs["x"], inputs["x"] * 2], axis=-1) * inputs["mask"][..., None]
        return {"y": found.astype(np.float32), "of_row": inputs["x"].sum(1)}

    def candidate(inputs: dict[str, Any], *, valid: float = 0) -> dict[str, Any]:
        found = reference(inputs)
        is_set = inputs["mask"][..., None] != 0
        return {**found, "y": np.where(is_set, found["y"] + np.float32(valid), np.float32(7))}

    def wrong(inputs: dict[str, Any]) -> dict[str, Any]:
        return candidate(inputs, valid=0.1)

    def compared(other: Any, output: str) -> pg.Comparison:  # noqa: ANN401 - a function
        where = {output: "mask"}
        return pg.compare(
            reference, other, samples=tmp_path / "padded.npz", valid_where=where, probes="none", outputs=["y", "of_row"]
        )

    assert compared(candidate, "y").verdict == "pass"
    assert compared(wrong, "y").verdict == "fail"
    with pytest.raises(pg.ParitygateError, match="dim '6 at axis 1' of the mask is none of the output's"):
        compared(candidate, "of_row")


def test_a_mask_that_is_declared_after_a_failure_needs_a_reason(bench: Bench, samples: str, tmp_path: Path) -> None:
    import yaml

    spec = yaml.safe_load(_SPEC.format(source=_tokens(bench, "source", padded=0.1), samples=samples, mask="mask"))
    # FP16 rounds nothing of the model but what stands where the mask is not set.
    spec |= {"targets": ["onnx-fp16"], "tolerance": {"onnx-fp16": {"max_abs_diff": 1e-12}}}
    asked = {"root": tmp_path, "promote": False, "probes": "none"}
    failed = pg.run({**spec, "outputs": {}}, **asked)
    assert failed.results["onnx-fp16"].verdict == "fail"

    with pytest.raises(pg.ParitygateError, match="logits is compared only where mask is set"):
        pg.run(spec, **asked)
    assert pg.run({**spec, "reason": "padding"}, **asked).results["onnx-fp16"].verdict == "pass"
