"""Sentences on checks with sample values; `python -m tests.validate.words.sample_sentences` writes their page."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

from paritygate.validate.words.sentence import render, say
from paritygate.validate.words.table import SENTENCES

__all__ = ["PAGE", "page", "rendered"]

PAGE = Path(__file__).with_name("sentences.txt")
_HEAD = "Sentences on checks, with sample values. `python -m tests.validate.words.sample_sentences` writes this page.\n"
# Values whose type or wording matters; every other number is 3, and every other text is its own name.
_SAMPLES: Mapping[str, object] = {
    "about": "a batch of 33 rows",
    "base": "onnx-fp32",
    "actual_dtype": "float16",
    "actual_names": ["text"],
    "actual_shape": "33, 2",
    "by": ", ",
    "check": "max_abs_diff",
    "digest": "sha256:1f0e",
    "each": "logits",
    "edge": "an empty row of attention_mask",
    "example": "row 'a-1': 3 detections",
    "expected_dtype": "float32",
    "expected_names": ["input_ids", "attention_mask"],
    "expected_shape": "33, 4",
    "fills": -1e9,
    "ids": ["a-1", "a-2"],
    "interval": say("gold.interval", low=-0.02, high=0.01),
    "advice": say("padding.advice", output="hidden", input="attention_mask"),
    "channels": 8,
    "difference": say("above", measured=0.25, limit=0.01),
    "input": "attention_mask",
    "inputs": ["image"],
    "match": "detections",
    "model": "tiny",
    "more": say("nothing"),
    "name": "max_abs_diff",
    "names": ["logits", "pooled"],
    "operator": "Tanh",
    "operators": ["Mul", "Add"],
    "other_operator": "Erf",
    "other_operators": ["Erf", "Mul"],
    "output": "logits",
    "outputs": ["logits", "pooled"],
    "over": "repeats and batch sizes",
    "part": " in row 3 of the batch",
    "precision": "fp16",
    "probe": "masks",
    "probes": ["ids", "values"],
    "row": "a-1",
    "first_row": "a-1",
    "last_row": "a-9",
    "rule": say("gold.ratio", ratio=99),
    "share": 0.05,
    "side": "own first answer",
    "stratum": "corpus",
    "what": "2 batches that the reference refuses",
    "where": say("padding.zero", input="attention_mask"),
    "without": say("gold.without", rows=3),
    "verdict": "fail",
}
_OF_KEY: Mapping[str, Mapping[str, object]] = {
    "accepts_inputs.batch": {"reason": "the model takes float32[1, 4]"},
    "divergence.constant": {"difference": say("weight.zero")},
    "divergence.exchanged": {"other": "pooled"},
    "divergence.other_output": {"actual": "float32[4, 3]", "expected": "float32[4]"},
    "divergence.rounded_weights": {"difference": say("weight.rounded", precision="BF16")},
    "weight.close": {"difference": 0.25},
    "weight.part_other": {"part": "columns", "numbers": [3, 7]},
    "weight.part_zero": {"part": "row", "numbers": [777]},
    "weight.shape": {"candidate": "[4, 3]", "reference": "[3]"},
    "exact": {"mismatches": 3, "values": 100},
    "gold": {"difference": -0.01},
    "match.left_by": {"values": say("left_of_value", count=3, value="web", rows=30)},
    "match.not_covered": {"values": say("stratum_value", value="web", rows=3)},
    "match.smallest": {"difference": 0.25},
    "noise.excuses_nothing": {"difference": 0.25},
    "noise.excused": {"difference": 0.25},
    "noise.in_batch": {"difference": 0.25},
    "probe.again_differs": {"difference": 0.25},
    "reference_batch": {"difference": 0.25},
    "reference_repeats": {"difference": 0.25},
    "reference_threads": {"difference": 0.25},
    "repeats": {"difference": 0.25},
    "gold.may_be_below": {"difference": 0.25},
    "resolution": {"channels": say("channels", count=2, names=["3", "7"]), "cause": say("resolution.noise")},
    "strata.few": {"values": say("stratum_value", value="web", rows=3)},
    "strata.left_out": {"values": say("stratum_value", value="web", rows=3)},
    "variation": {"channels": say("channels", count=3, names=["3", "7", "9"])},
}
_TEXTS = frozenset({"bound", "answer", "cause", "declared", "error", "found", "lacks", "reason", "text", "value"})
_TEXTS_TOO = frozenset({"versions", "wanted", "changed"})


def _sample(key: str, name: str) -> object:
    if name in _OF_KEY.get(key, {}):
        return _OF_KEY[key][name]
    if name in _SAMPLES:
        return _SAMPLES[name]
    return name.upper() if name in _TEXTS | _TEXTS_TOO else 3


def rendered() -> dict[str, str]:
    """Return every sentence by its key, with sample values."""
    found = {}
    for key, template in SENTENCES.items():
        names = {name.partition(".")[0] for _, name, _, _ in string.Formatter().parse(template) if name}
        found[key] = render(say(key, **{name: _sample(key, name) for name in sorted(names)}))
    return found


def page() -> str:
    """Return the page: a key and its sentence on each line."""
    lines = (f"{key:<28} {text.strip('. ,;:') or '-'}".replace("\n", "\\n") for key, text in rendered().items())
    return "\n".join([_HEAD, *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
