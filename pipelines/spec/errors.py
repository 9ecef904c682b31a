"""Describe what is wrong with a spec: the key, its value, what is allowed, and an example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from paritygate.errors import UsageError
from paritygate.pipelines.rules.table import RULES
from paritygate.pipelines.spec.schema import Spec
from paritygate.pipelines.spec.targets import place_in_spec
from paritygate.text import closest

# As pydantic describes it.
_Problem = Mapping[str, Any]

# Examples of the rules that stand below `outputs.NAME`: the options have them as `NAME=EXAMPLE`.
_OF_OUTPUTS = {
    rule.key.partition(".")[2]: yaml.safe_load(rule.example.rpartition("=")[2])
    for rule in RULES
    if rule.key.startswith("outputs.")
}
# An example of every key, for hints. Names of inputs, outputs, dims and targets are those of one model.
EXAMPLE: Mapping[str, Any] = {
    "model": {
        "name": "scores", "source": "model.onnx", "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}}, "rename": {"output_0": "logits"},
        "dims": {"batch": {"min": 1, "opt": 8, "max": 64}}, "files": ["weights.safetensors"],
        "signature": "serving_default", "exporter": "dynamo",
    },
    "samples": {
        "source": "inputs.npz", "path": "dev.json", "batch_size": 16, "pad": {"x": 0},
        "images": {
            "input": "pixel_values", "size": [224, 224], "resize": "shorter", "shorter": 256, "resample": "bilinear",
            "crop": "center", "layout": "NCHW", "channels": "RGB", "scale": 0.00392156862745098,
            "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "dtype": "float32",
        },
        "random": {
            "rows": 128,
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4], "low": 0, "high": 1, "mask": False}},
        },
        "columns": {"x": ["age", "income"]}, "cast": {"x": "float32"}, "strata": ["source"],
    },
    "decisions": {
        "logits": {
            "argmax": True, "threshold": 0.5, "top_k": 5, "multilabel": 0.5, "axis": 1,
            "constant": "all rows are of one class",
        },
    },
    "targets": ["onnx-fp32", "onnx-fp16"], "required": ["onnx-fp32"],
    "tolerance": {"onnx-fp16": {"max_abs_diff": 0.01}},
    "argmax_of": {"label": "logits"},
    "gold": {
        "metric": "accuracy", "output": "logits", "tolerance": {"ratio": 0.99, "max_drop": 0.01, "mlperf": 99},
        "gold_above": 3.0,
    },
    "matches": {
        "faces": {
            "boxes": "boxes", "scores": "scores", "classes": "classes", "num": "num", "iou": 0.9,
            "score_tolerance": 0.01, "score_floor": 0.3, "max_box_diff": 0.01, "output": "output0", "picture": 0,
            "axis": 1, "other_tolerance": 0.01, "format": "xyxy",
        },
    },
    "outputs": {
        "debug": {"ignore": "random by design"},
        "embedding": {name: example for name, example in _OF_OUTPUTS.items() if name != "ignore"},
        "clicks": {"columns": ["p_click", "revenue"]},
    },
    "axes": {"logits": 1},
    "non_finite": "match",
    "roles": {
        "x": {
            "role": "number", "low": 0, "high": 255, "of": "input_ids", "pad": 0, "empty": False, "padding": "right",
            "shortest": 1, "nan": True, "infinity": False,
        },
    },
    "edge": "fail", "probes": ["batches", "masks"], "reason": "the service never sends one row alone", "min_rows": 100,
    "repeat": 3, "opset": 18, "seed": 0,
    "calibration": {
        "source": "calibration.npz", "path": "train.json", "batch_size": 16, "pad": {"x": 0}, "share": 0.2, "rows": 128,
        "tool": "onnxruntime", "method": "minmax", "activations": "int8",
    },
    "benchmark": {"batch_sizes": [1, 8], "concurrency": [1, 4], "rounds": 7, "seconds": 0.25, "price_per_hour": 1.5},
    "onnxruntime": {"provider": "cuda"},
    "tensorrt": {
        "workspace_mb": 1024, "optimization_level": 3, "hardware_compatibility": "ampere_plus",
        "version_compatible": True, "timing_cache": "timings.cache",
    },
    "tensorrt_rtx": {"compute_capabilities": ["8.9"], "workspace_mb": 1024},
    "repair": {
        "accept": {
            "onnx-fp32": {
                "author": "Ada", "reason": "it writes another epsilon", "exporter": "torchscript", "opset": 17,
                "changes": {"attributes": [{"node": "norm", "name": "epsilon", "value": 1e-5}]},
            },
        },
    },
    "promote": {
        "to": "artifacts/repository", "alias": "prod", "prefer": "fastest", "limits": {"latency_p95_ms": 20},
        "against": {"size_mb": 1.05}, "for": ["cpu"], "accept": {"tensorrt-fp16": "emulated"}, "fallback": "source",
    },
    "serve": {"triton": {"max_batch_size": 8}},
    "report": {"inputs": "hide"},
}  # fmt: skip
# Targets may be mappings too, with their own keys.
_STATIC_TARGET: Mapping[str, Any] = {
    "name": "onnx-fp32",
    "static": {"batch": 1, "sequence": 128},
    "pad": {"input_ids": 0},
    "dtypes": {"input_ids": "int32"},
}
_MIXED_TARGET: Mapping[str, Any] = {"name": "onnx-mixed", "lower": "fp16", "max_runs": 60}
# Short examples of mappings with exclusive or many keys.
_SHORT: Mapping[tuple[str, ...], Any] = {
    ("decisions",): {"logits": {"argmax": True}},
    ("decisions", "logits"): {"argmax": True},
    ("gold",): {"metric": "accuracy", "output": "logits"},
    ("gold", "tolerance"): {"ratio": 0.99},
    ("matches",): {"faces": {"boxes": "boxes", "scores": "scores"}},
    ("matches", "faces"): {"boxes": "boxes", "scores": "scores"},
    ("model",): {"name": "scores", "source": "model.onnx"},
    ("samples",): {"source": "inputs.npz"},
    ("samples", "random"): {"inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}}},
    ("samples", "random", "inputs", "x"): {"dtype": "float32", "shape": ["batch", 4]},
    ("samples", "images"): {"input": "pixel_values", "size": [224, 224]},
    ("roles",): {"x": {"role": "number"}},
    ("roles", "x"): {"role": "number"},
    ("calibration",): {"rows": 128},
    ("benchmark",): {"batch_sizes": [1, 8]},
    ("tensorrt",): {"workspace_mb": 1024},
    ("promote",): {"alias": "prod"},
    ("repair",): {"accept": {"onnx-fp32": {"author": "Ada", "reason": "a fault of the exporter", "opset": 17}}},
    ("repair", "accept"): {"onnx-fp32": {"author": "Ada", "reason": "a fault of the exporter", "opset": 17}},
    ("repair", "accept", "onnx-fp32"): {"author": "Ada", "reason": "a fault of the exporter", "opset": 17},
}

# The needed value, by pydantic's kind of problem.
_NEEDED = {
    "string_type": "text",
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a mapping"),
    "list_type": "a list",
    "greater_than_equal": "a number of at least {ge:g}",
    "greater_than": "a number above {gt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "less_than": "a number below {lt:g}",
    "too_short": "at least {min_length} of them",
    "string_too_short": "text that is not empty",
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
}
# Descriptions of patterns.
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "a name of letters, digits and . _ - that begins with a letter or digit",
    r"^[0-9]{1,2}\.[0-9]$": "text such as '8.9'",
    r"\S": "text that is not empty",
}
_SHOWN = 60


def spec_error(origin: str, data: Mapping[str, Any], err: ValidationError) -> UsageError:
    """Return the problems of a spec as one error, one part of its message for each key; `data` is the spec as read."""
    problems = _by_place([(place_in_spec(problem["loc"]), problem) for problem in err.errors()], data)
    msg = f"spec {origin} is wrong: " + "; ".join(
        f"{_named(place)}: {_words(place, of_place)}" for place, of_place in problems.items()
    )
    meant = [hint for place, of_place in problems.items() if (hint := _meant(place, of_place[0]["type"]))]
    # One example at a time: the next call shows the next problem.
    places = [place for place, of_place in problems.items() if of_place[0]["type"] != "extra_forbidden"]
    example = next(filter(None, map(_example_hint, places)), "")
    return UsageError(msg, hint=" ".join(meant) or example or "list the allowed keys: convert-and-validate schema spec")


def role_problem(name: str, data: object, err: ValidationError) -> tuple[str, str]:
    """Return the first problem with a role that is written as in a spec, and which key is meant."""
    within = {"roles": {name: data}}
    problems = _by_place([(("roles", name, *problem["loc"]), problem) for problem in err.errors()], within)
    place, of_place = next(iter(problems.items()))
    words, key = _words(place, of_place), place[2:]
    return f"{_named(key)}: {words}" if key else words, _meant(place, of_place[0]["type"])


def _named(place: Sequence[int | str]) -> str:
    return ".".join(map(str, place)) or "all of it"


def _by_place(
    problems: Iterable[tuple[Sequence[int | str], _Problem]], data: object
) -> dict[tuple[int | str, ...], list[_Problem]]:
    """Return the problems by place: a value of several allowed types has one for each type."""
    by_place: dict[tuple[int | str, ...], list[_Problem]] = {}
    for location, problem in problems:
        place = _place_in_data(location, data, is_missing=problem["type"] == "missing")
        by_place.setdefault(place, []).append(problem)
    return by_place


def _place_in_data(location: Sequence[int | str], data: object, *, is_missing: bool) -> tuple[int | str, ...]:
    """Return where in the data a problem is, without pydantic's steps for alternatives."""
    place: list[int | str] = []
    inside: Any = data
    for number, step in enumerate(location):
        steps = inside if isinstance(inside, Mapping) else range(len(inside)) if isinstance(inside, list) else ()
        if step in steps:
            inside = inside[step]
        elif not is_missing or number < len(location) - 1:
            # The last step of a missing key is the key itself.
            continue
        place.append(step)
    return tuple(place)


def _words(place: Sequence[int | str], problems: Sequence[_Problem]) -> str:
    first = problems[0]
    if first["type"] == "extra_forbidden":
        return f"unknown key (allowed: {', '.join(_keys_beside(place))})"
    if first["type"] == "missing":
        return "is missing"
    own = [problem["msg"].removeprefix("Value error, ") for problem in problems if problem["type"] == "value_error"]
    if own:
        # Some messages have the value already.
        seen = "" if "(seen: " in own[0] else f" (seen: {words_of(first['input'])})"
        return f"{own[0]}{seen}"
    needed = " or ".join(dict.fromkeys(map(_needed, problems)))
    return f"{needed} is needed (seen: {words_of(first['input'])})"


def _needed(problem: _Problem) -> str:
    context = problem.get("ctx", {})
    if problem["type"] == "string_pattern_mismatch":
        return _PATTERNS[context["pattern"]]
    return _NEEDED[problem["type"]].format(**context)


def words_of(value: object) -> str:
    """Return a short description of a value: its kind, or the value as YAML."""
    if value is None:
        return "nothing"
    if isinstance(value, (Mapping, list)):
        kind = "a list" if isinstance(value, list) else "a mapping"
        return kind if value else f"{kind} without entries"
    shown = repr(value) if isinstance(value, str) else flow_yaml(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


def _meant(place: Sequence[int | str], kind: str) -> str:
    """Return a hint on the key that an unknown one may mean; empty where none is near."""
    if kind != "extra_forbidden":
        return ""
    close = closest(str(place[-1]), _keys_beside(place))
    return f"did you mean {close!r} instead of {place[-1]!r}?" if close else ""


def _example_hint(place: Sequence[int | str]) -> str:
    named = list(place)
    while named and isinstance(named[-1], int):
        # The example of an entry is its whole list.
        named.pop()
    around = example_of(named[:-1]) if named[1:] else None
    if isinstance(around, Mapping) and any(isinstance(part, Mapping) and named[-1] in part for part in around.values()):
        # The key belongs below a name, which the example shows.
        named.pop()
    example = example_of(named)
    return f"write for example {named[-1]}: {flow_yaml(example)}" if named and example is not None else ""


def example_of(place: Sequence[int | str]) -> Any:  # noqa: ANN401 - what stands at that key
    """Return an example of the value at a key of the spec, None without one; `place` may have the user's own names."""
    value: Any = EXAMPLE
    generic: list[str] = []
    for step, following in zip_longest(place, place[1:]):
        if isinstance(step, int):
            if generic == ["targets"]:
                value = _MIXED_TARGET if following in _MIXED_TARGET.keys() - _STATIC_TARGET.keys() else _STATIC_TARGET
            continue
        if not isinstance(value, Mapping):
            return None
        # A user's own name matches the name in the example that has the same key.
        alike = (name for name, part in value.items() if isinstance(part, Mapping) and following in part)
        generic.append(step if step in value else next(alike, next(iter(value))))
        value = value[generic[-1]]
    return _SHORT.get(tuple(generic), value)


def flow_yaml(value: object) -> str:
    """Return a value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1 << 20, sort_keys=False, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()


def block_yaml(value: object) -> list[str]:
    """Return a value as YAML, its lists and mappings of plain values in one line each."""
    return yaml.safe_dump(
        value, default_flow_style=None, width=1 << 20, sort_keys=False, allow_unicode=True
    ).splitlines()


def _keys_beside(location: Iterable[int | str]) -> list[str]:
    """Return the keys that are allowed where an unknown one was found."""
    part: Any = Spec
    is_inside_mapping = False
    for step in tuple(location)[:-1]:
        if is_inside_mapping or isinstance(step, int):
            # A name that the user chose, such as an input's, or a position in a list.
            is_inside_mapping = False
            continue
        if not (isinstance(part, type) and issubclass(part, BaseModel)):
            return []
        fields = {field.alias or name: field for name, field in part.model_fields.items()}
        annotation = fields[str(step)].annotation if str(step) in fields else None
        is_inside_mapping = "dict" in str(annotation)
        part = _model_in(annotation)
    if isinstance(part, type) and issubclass(part, BaseModel):
        return [field.alias or name for name, field in part.model_fields.items()]
    return []


def _model_in(annotation: object) -> object:
    """Return the model inside `dict[str, Model] | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        model = _model_in(inner)
        if isinstance(model, type):
            return model
    return None
