"""What a spec says of outputs: metrics against gold, detections to match, outputs to ignore."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from paritygate.errors import UsageError
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import ResolvedSpec, schema_of_spec
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gold.rule import GoldRule

_SPEC = """
model:
  name: tiny
  source: net:model
  inputs: {x: {dtype: float32, shape: [batch, 4]}}
  outputs:
    logits: {dtype: float32, shape: [batch, 1]}
    boxes: {dtype: float32, shape: [batch, found, 4]}
    scores: {dtype: float32, shape: [batch, found]}
    noise: {dtype: float32, shape: [batch, 4]}
  dims: {batch: {min: 1, opt: 8, max: 64}, found: {min: 1, max: 100}}
samples: {source: net:samples}
targets: [onnx-fp32]
"""


def _parse(more: str) -> ResolvedSpec:
    text = _SPEC + more
    resolved = parse_spec(text, folder=Path("/spec"), origin="spec.yaml")
    jsonschema.Draft202012Validator(schema_of_spec()).validate(yaml.safe_load(text))
    return resolved


def test_one_metric_or_several_are_taken() -> None:
    pearson = GoldRule(metric="pearson", output="logits")

    assert _parse("").gold == ()
    assert _parse("gold: {metric: pearson, output: logits}").gold == (pearson,)
    assert _parse("gold: [{metric: pearson, output: logits}]").gold == (pearson,)
    assert _parse(
        "gold: [{metric: f1, output: logits, gold_above: 3, tolerance: {mlperf: 99.9}},"
        " {metric: 'my.metrics:f', output: logits, tolerance: {max_drop: 0.1}}]"
    ).gold == (
        GoldRule(metric="f1", output="logits", ratio=0.999, gold_above=3.0),
        GoldRule(metric="my.metrics:f", output="logits", max_drop=0.1),
    )
    assert _parse("gold: {metric: pearson, output: logits, tolerance: {ratio: 0.9}}").gold[0].ratio == 0.9


def test_matches_and_ignored_outputs_are_taken() -> None:
    resolved = _parse(
        "matches: {detections: {boxes: boxes, scores: scores, iou: 0.8, format: xywh}}\n"
        "outputs: {noise: {ignore: drawn anew}}\n"
    )

    assert resolved.matches == (MatchRule(name="detections", boxes="boxes", scores="scores", iou=0.8, format="xywh"),)
    assert resolved.ignored == {"noise": "drawn anew"}


def test_a_match_of_one_output_names_its_columns() -> None:
    resolved = _parse('matches: {det: {output: scores, boxes: "0:4", scores: 4, classes: 5}}\n')

    rule = MatchRule(name="det", output="scores", boxes="0:4", scores="4", classes="5")
    assert resolved.matches == (rule,)
    assert rule.outputs == ("scores",)


def test_an_output_may_be_held_to_a_cosine_similarity_and_is_compared_then() -> None:
    resolved = _parse("outputs: {logits: {min_cosine_similarity: 0.99}, noise: {ignore: drawn anew}}\n")

    assert resolved.ignored == {"noise": "drawn anew"}
    assert resolved.rules(resolved.variants[0]).min_cosine_similarity == {"logits": 0.99}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("gold: {metric: kappa, output: logits}", "'kappa' is not a metric"),
        ("gold: {metric: pearson}", "gold.output: is missing"),
        ("gold: [{metric: pearson, output: logits, tol: 1}]", r"gold.0.tol: unknown key \(allowed: metric, output"),
        (
            "gold: {metric: pearson, output: logits, tolerance: {}}",
            r"exactly one of ratio, max_drop, mlperf is needed \(seen: none",
        ),
        (
            "gold: {metric: pearson, output: logits, tolerance: {ratio: 0.9, mlperf: 99}}",
            r"gold.tolerance: exactly one of ratio, max_drop, mlperf is needed \(seen: ratio, mlperf",
        ),
        ("gold: {metric: pearson, output: logits, tolerance: {mlperf: 98}}", "mlperf=98 is not a rule of MLPerf"),
        ("gold: {metric: pearson, output: absent}", "gold.output names 'absent', which is not an output"),
        ("gold: 3", r"gold: a mapping is needed \(seen: 3\)"),
        ("matches: {d: {boxes: absent, scores: scores}}", "matches.d names 'absent', which is not an output"),
        ("matches: {d: {boxes: boxes, scores: scores, iou: 2}}", "iou=2 is not an intersection over union"),
        ("matches: {d: {boxes: boxes}}", "matches.d.scores: is missing"),
        (
            "matches: {d: {boxes: boxes, scores: scores}}\ndecisions: {scores: {threshold: 0.5}}",
            "match 'd' names 'scores', which decision scores:threshold=0.5 uses already",
        ),
        (
            "matches: {d: {boxes: boxes, scores: scores}}\ngold: {metric: pearson, output: scores}",
            "match 'd' names 'scores', which gold pearson:scores uses already",
        ),
        ("outputs: {noise: {ignore: ' '}}", "outputs.noise.ignore: "),
        (
            "outputs: {noise: {ignore: REASON}}",
            "outputs.noise.ignore: the word REASON is a placeholder",
        ),
        ("outputs: {noise: {min_cosine_similarity: 1.5}}", "outputs.noise.min_cosine_similarity: "),
        ("outputs: {noise: {min_sqnr: .nan}}", "outputs.noise.min_sqnr: "),
        ("outputs: {noise: {}}", "write either ignore: REASON, or one or more of min_cosine_similarity, "),
        ("outputs: {noise: {ignore: a, min_cosine_similarity: 0.9}}", "write either ignore: REASON, or"),
        ("outputs: {absent: {ignore: why}}", "outputs names 'absent', which is not an output"),
        (
            "outputs: {noise: {ignore: a}, logits: {ignore: b}, boxes: {ignore: c}, scores: {ignore: d}}",
            r"every output is ignored \(boxes, logits, noise, scores\)",
        ),
        (
            "outputs: {logits: {ignore: a}}\ndecisions: {logits: {threshold: 3}}",
            "decision logits:threshold=3 is on 'logits', but outputs ignores it",
        ),
        (
            "outputs: {logits: {ignore: a}}\ngold: {metric: pearson, output: logits}",
            "gold pearson:logits is on 'logits', but outputs ignores it",
        ),
        (
            "outputs: {scores: {ignore: a}}\nmatches: {d: {boxes: boxes, scores: scores}}",
            "match 'd' is on 'scores', but outputs ignores it",
        ),
    ],
)
def test_what_refers_to_nothing_or_contradicts_itself_is_refused(more: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _parse(more)
    assert caught.value.exit_code == 2
    assert caught.value.hint
