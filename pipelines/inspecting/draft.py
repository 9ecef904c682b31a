"""Draft the first spec of a model: values that were read, and guesses that are marked with their reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from paritygate.backends import backend_state
from paritygate.codec import to_data
from paritygate.errors import UsageError
from paritygate.formats import FORMATS
from paritygate.models.half_precision import LOAD_IN_FP32, half_precision_words
from paritygate.models.source import SourceKind
from paritygate.models.tensorflow.savedmodel import SERVING_SIGNATURE
from paritygate.pipelines.inspecting.attempts import USUAL_TARGETS
from paritygate.pipelines.inspecting.naming import GivenName
from paritygate.pipelines.inspecting.spec_text import Place, flow_text, yaml_text
from paritygate.pipelines.inspecting.survey import BATCH_DIM, ModelSurvey
from paritygate.pipelines.spec.compatible_targets import fitting_targets
from paritygate.precision import Precision, Variant
from paritygate.signature import Dim, TensorSpec, is_float_dtype
from paritygate.text import counted, row_name
from paritygate.validate.measure.decisions import undecided
from paritygate.validate.measure.tolerance import SHARES_OF_SPREAD
from paritygate.validate.measure.valid_positions import valid_positions
from paritygate.validate.probes.inputs.roles import Role
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.random_rows import RANDOM

# A gate begins with what rounds least.
_FP32 = f"-{Precision.FP32}"
# Any model of TensorFlow becomes this, whatever its operators are.
_AS_IT_IS = "savedmodel-fp32"
# Keras layers that prepare text, and their operators, which both ONNX and TFLite lack.
_IN_TENSORFLOW_ALONE = frozenset(
    {
        *("Hashing", "HashedCrossing", "TextVectorization"),
        *("SparseCross", "StaticRegexReplace", "StringLower", "StringSplitV2", "StringToHashBucketFast"),
    }
)
# In the order of a reader's questions.
_ORDER = ("model", "samples", "decisions", "argmax_of", "outputs", "roles", "targets", "required", "promote")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CLASS_WORDS = frozenset({"logit", "logits", "prob", "probabilities", "probability", "probs", "softmax"})
# Beyond this rank any axis may hold the classes.
_CLASS_RANK = 3
_MATRIX_RANK = 2
_HALF = 0.5
# Columns whose spreads differ by more may be in different units.
_UNLIKE = 100.0
# Formulas as names, which exporters write, are not sizes of their own.
_DIM_NAME = re.compile(r"[\w.-]+")


class Draft(Struct, kw_only=True):
    """A spec in the making."""

    data: dict[str, Any]
    comments: dict[Place, list[str]] = field(default_factory=dict)  # above its entries
    guesses: list[str] = field(default_factory=list)  # one line each
    notes: list[str] = field(default_factory=list)  # other facts for the user

    def say(self, place: Place, *lines: str) -> None:
        """Add comments above an entry."""
        self.comments.setdefault(place, []).extend(lines)

    def guess(self, place: Place, value: Any, reason: str) -> None:  # noqa: ANN401 - plain data
        """Write a guessed value with the reason."""
        entry = self.data
        for key in place[:-1]:
            entry = entry.setdefault(key, {})
        entry[place[-1]] = value
        self.say(place, f"guess: {reason}")
        self.guesses.append(f"{'.'.join(place)}: {flow_text(value)} - {reason}")

    def text(self, *head: str) -> str:
        """Return the spec as YAML, with comments at its head."""
        return yaml_text({name: self.data[name] for name in _ORDER if name in self.data}, self.comments, head=head)


def draft_of(
    survey: ModelSurvey, *, named: GivenName, source: str, samples: str | None, signature: str | None = None
) -> Draft:
    """Return the spec that a survey of a model leads to.

    `source` and `samples` are as the spec names them; None means random rows. `signature` is one of a SavedModel that
    the user chose.
    """
    draft = Draft(data={"model": {"name": named.name, "source": source}, "samples": {"source": samples or RANDOM}})
    if named.guess:
        draft.guess(("model", "name"), named.name, named.guess)
    if survey.half_precision is not None:
        note = f"{half_precision_words(survey.half_precision)}; {LOAD_IN_FP32}"
        draft.say(("model", "source"), note)
        draft.notes.append(f"model.source: {note}")
    _add_signature(draft, survey, signature)
    _add_names(draft, survey)
    _add_dims(draft, survey)
    _add_samples(draft, survey)
    _add_decisions(draft, survey)
    _add_masks(draft, survey)
    targets = _targets_of(survey)
    _add_columns(draft, survey, targets.required)
    _add_targets(draft, survey, targets)
    draft.data["promote"] = {"to": "artifacts/repository", "alias": "prod"}
    draft.say(("promote",), "Where what passed is released. With prefer: fastest speed is measured, and decides.")
    return draft


def _add_signature(draft: Draft, survey: ModelSurvey, asked: str | None) -> None:
    """Write the signature of a SavedModel, where it was chosen or there are several."""
    place, used = ("model", "signature"), asked or SERVING_SIGNATURE
    others = ", ".join(name for name in survey.inspection.signatures if name != used)
    if asked is not None:
        draft.data["model"]["signature"] = asked
        if others:
            draft.say(place, f"The others that the model has: {others}")
            draft.notes.append(f"model.signature: {asked} was taken, as asked; the others: {others}")
    elif others:
        draft.guess(place, used, f"it is the one that servers take; the others: {others} (--signature takes one)")


def _add_names(draft: Draft, survey: ModelSurvey) -> None:
    if survey.rename:
        (own, served), *_ = survey.rename.items()
        reason = f"the model calls it {own!r}, and the samples hold {served!r} and no {own!r}"
        draft.guess(("model", "rename"), dict(survey.rename), reason)
    signature, model = survey.signature, draft.data["model"]
    if survey.is_said:
        declared = "; ".join(f"{side} {spec}" for side, spec in _tensors(survey))
        draft.say(("model", "source"), f"The model itself declares: {declared}")
        return
    for key, specs in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        model[key] = {spec.name: {"dtype": spec.dtype, "shape": list(spec.shape or ())} for spec in specs}
    fixed = [
        f"axis {axis} of {spec.name} is {size}"
        for spec in signature.inputs
        for axis, size in enumerate(spec.shape or ())
        if isinstance(size, int)
    ]
    reason = f"as all {counted(survey.rows, 'row')} of the samples show it; dims that vary have names"
    if fixed:
        reason += f"; where another varies in use, write a name in place of its size: {', '.join(fixed)}"
    draft.say(("model", "inputs"), f"guess: {reason}")
    draft.say(("model", "outputs"), "guess: as the model answers batches of these rows")
    draft.guesses.append(f"model.inputs, model.outputs: {reason}")


def _tensors(survey: ModelSurvey) -> Iterator[tuple[str, TensorSpec]]:
    yield from (("input", spec) for spec in survey.signature.inputs)
    yield from (("output", spec) for spec in survey.signature.outputs)


def _add_dims(draft: Draft, survey: ModelSurvey) -> None:
    named = {dim for spec in survey.signature.inputs for dim in spec.shape or () if isinstance(dim, str)}
    for dim in (dim for dim in survey.signature.symbols if dim in named and _DIM_NAME.fullmatch(dim)):
        sizes, reason = _sizes_of(dim, survey)
        if sizes is not None:
            draft.guess(("model", "dims", dim), to_data(sizes), reason)


def _sizes_of(dim: str, survey: ModelSurvey) -> tuple[Dim | None, str]:
    allowed = survey.signature.dims.get(dim)
    if dim in survey.row_dims:
        low, high = (1, BATCH_DIM.max) if allowed is None else (allowed.min, min(BATCH_DIM.max, allowed.max))
        high = max(low, high)
        sizes = Dim(min=low, opt=min(max(BATCH_DIM.opt, low), high), max=high)
        return sizes, "how many rows a call takes; opt is the usual number"
    if survey.random is not None:
        return survey.random.dims.get(dim), "usual sizes: give those that the service sends"
    if dim not in survey.sizes:
        return None, ""
    low, usual, high = survey.sizes[dim]
    seen = f"every row has {low}" if low == high else f"the rows have {low} to {high}, half of them up to {usual}"
    return Dim(min=low, opt=usual, max=high), f"{seen}; give what the service sends"


def _add_samples(draft: Draft, survey: ModelSurvey) -> None:
    if survey.random is not None:
        inputs = {
            name: {
                "dtype": item.dtype,
                "shape": list(item.shape),
                **({"mask": True} if item.mask else {"low": _number(item.low), "high": _number(item.high)}),
            }
            for name, item in survey.random.inputs.items()
        }
        draft.data["samples"]["random"] = {"rows": survey.random.rows, "inputs": inputs}
        draft.say(
            ("samples",),
            "These samples are random: a run of them is inconclusive at best, and releases nothing. Put real inputs "
            "in their place: source: inputs.npz, with one array an input, and no random.",
        )
        draft.guesses.append("samples: random rows, which show that the model converts and nothing of its answers")
    else:
        draft.say(("samples", "source"), f"{counted(survey.rows, 'row')}.")
    _add_columns_read(draft, survey)
    _add_pictures(draft, survey)
    if survey.batch_size is not None:
        draft.data["samples"]["batch_size"] = survey.batch_size
        draft.say(("samples", "batch_size"), f"The model takes {counted(survey.batch_size, 'row')} a call.")
    if survey.pad:
        names = ", ".join(survey.pad)
        reason = f"rows of {names} differ in length; this pads shorter ones, and must be what your service uses"
        draft.guess(("samples", "pad"), {name: _number(value) for name, value in survey.pad.items()}, reason)


def _add_columns_read(draft: Draft, survey: ModelSurvey) -> None:
    place = ("samples", "columns")
    columns = {name: names[0] if len(names) == 1 else list(names) for name, names in survey.columns.items()}
    if survey.side_by_side:
        names = ", ".join(survey.side_by_side)
        reason = f"no column is called {names}; the order of the columns has to be that of the training"
        draft.guess(place, columns, reason)
    elif columns:
        draft.data["samples"]["columns"] = columns
    if survey.left_out:
        note = f"left out because the model has no such input: {', '.join(survey.left_out)}"
        draft.say(place if columns else ("samples", "source"), note)
        draft.notes.append(f"samples: {note}")
    for name, labels in survey.possible_labels.items():
        for column in labels:
            note = f"the model gets {column}, which may be the label because it is at one end and holds class numbers "
            note += f"alone; if it is not an input, name those that are: --columns {name}=COLUMN,COLUMN"
            draft.say(place, f"note: {note}")
            draft.notes.append(f"samples: {note}")
    for name, row in survey.not_numbers.items():
        draft.notes.append(
            f"samples: {name} holds NaN, first in {row_name(row)}: a run refuses answers that are not finite; correct "
            "the samples, or write non_finite: match if such answers belong there"
        )
    if survey.cast:
        reason = "the samples hold these in another dtype, but the model expects this one"
        draft.guess(("samples", "cast"), dict(survey.cast), reason)


def _add_pictures(draft: Draft, survey: ModelSurvey) -> None:
    """Write the preparation of pictures, with the steps that often differ in a service."""
    if survey.images is None:
        return
    usual = to_data(PictureRules(input="", size=(1, 1)))
    rules = {key: value for key, value in to_data(survey.images).items() if value != usual[key]}
    draft.guess(("samples", "images"), rules, f"{survey.pictures}; it must be what your service does")
    draft.say(
        ("samples", "images"),
        "Check resize and crop, the order of the colours (RGB, BGR), scale, mean and std: docs/spec.md has all keys.",
    )


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def _add_decisions(draft: Draft, survey: ModelSurvey) -> None:
    open_ones = []
    for spec in survey.signature.outputs:
        if not is_float_dtype(spec.dtype):
            continue
        rule = _rule_of(spec, survey)
        if rule is None:
            # Services rarely decide by a table of numbers a row, such as states of layers.
            open_ones += [spec.name] if spec.shape is None or len(spec.shape) <= _MATRIX_RANK else []
        else:
            draft.guess(("decisions", spec.name), *rule)
    for label, scores in survey.argmax_of.items():
        reason = f"{scores} had its largest value at this index in every row; rounding may flip near ties"
        draft.guess(("argmax_of", label), scores, reason)
    if note := undecided(survey.signature.outputs, {*draft.data.get("decisions", {}), *survey.argmax_of.values()}):
        draft.notes.append(f"decisions: {note}")
    if open_ones:
        names = ", ".join(open_ones)
        is_apart = "decisions" not in draft.data
        draft.say(
            ("targets",) if is_apart else ("decisions",),
            f"No rule is guessed for {names}. If your service decides by it, say how, such as",
            f"decisions: {flow_text({open_ones[0]: _example_of_rule(open_ones[0], survey)})}: then answers that flip",
            "are counted.",
            *([""] if is_apart else []),
        )


def _example_of_rule(name: str, survey: ModelSurvey) -> dict[str, Any]:
    """Return a rule that fits the output's shape, with a threshold that its values cross."""
    spec = next(spec for spec in survey.signature.outputs if spec.name == name)
    if spec.shape is not None and len(spec.shape) == _MATRIX_RANK and spec.shape[1] != 1:
        return {"argmax": True}
    answers = survey.answers.get(name)
    return {"threshold": _HALF if answers is None else float(f"{(answers.low + answers.high) / 2:.2g}")}


def _rule_of(spec: TensorSpec, survey: ModelSurvey) -> tuple[dict[str, Any], str] | None:
    """Return the decision that an output is for, and why; None without evidence."""
    shape, answers = spec.shape, survey.answers.get(spec.name)
    if not shape:
        return None
    rank, last = len(shape), shape[-1]
    if rank in {_MATRIX_RANK, _CLASS_RANK} and isinstance(last, int) and last > 1:
        words = {word.lower() for word in _WORDS.findall(spec.name)}
        if answers is not None and answers.is_shares:
            why = f"its {last} numbers sum up to 1, as shares of classes do"
        elif words & _CLASS_WORDS:
            why = f"its name, and {last} numbers on its last axis"
        else:
            return None
        return {"argmax": True, **({"axis": rank - 1} if rank == _CLASS_RANK else {})}, why
    is_one_number = rank == 1 or (rank == _MATRIX_RANK and last == 1)
    is_of_half = answers is not None and answers.low >= 0 and answers.high <= 1 and answers.is_on_both_sides
    if is_one_number and is_of_half and answers is not None and survey.random is None:
        why = f"one number a row, from {answers.low:.3g} to {answers.high:.3g}, on both sides of {_HALF}"
        return {"threshold": _HALF}, why
    return None


def _add_masks(draft: Draft, survey: ModelSurvey) -> None:
    masks = [name for name, facts in survey.inputs.items() if facts.role is Role.MASK]
    for name in masks:
        facts = survey.inputs[name]
        role = {"role": str(Role.MASK), **({} if facts.of is None else {"of": facts.of})}
        draft.guess(("roles", name), role, facts.why)
    others = [
        f"a run gives {name} the role {facts.role}: {facts.why}; if it has another one, write that below roles"
        for name, facts in survey.inputs.items()
        if facts.role not in {Role.MASK, Role.NUMBER}
    ]
    if masks:
        draft.say(("roles",), *others)
    elif others:
        # Apart from the comments on targets.
        draft.say(("targets",), *others, "")
    for spec in survey.signature.outputs:
        if is_float_dtype(spec.dtype):
            _add_positions(draft, spec, masks, survey)


def _add_positions(draft: Draft, output: TensorSpec, masks: list[str], survey: ModelSurvey) -> None:
    """Write the positions of an output that count, if the evidence is complete; else a comment with the declaration."""
    own_mask = survey.valid_where.get(output.name)
    if own_mask is not None:
        reason = (
            f"values where {own_mask} is 0 are not compared, because the model drops these positions and all "
            "samples have them at one end of a row"
        )
        draft.guess(("outputs", output.name), {"valid_where": own_mask}, reason)
        return
    mask = next((name for name in masks if _says_positions(name, output, survey)), None)
    if mask is not None:
        declared = flow_text({"outputs": {output.name: {"valid_where": mask}}})
        draft.say(
            ("roles",),
            f"All of {output.name} is compared. If nobody reads it where {mask} is 0, write {declared[1:-1]}",
        )


def _says_positions(mask: str, output: TensorSpec, survey: ModelSurvey) -> bool:
    try:
        valid_positions({output.name: mask}, [survey.signature])
    except UsageError:
        return False
    return True


def _add_columns(draft: Draft, survey: ModelSurvey, required: str) -> None:
    """Write a comment with limits by column for outputs whose columns have very different spreads."""
    for name, answers in survey.answers.items() if survey.random is None else ():
        spreads = [spread for spread in answers.spreads if spread > 0]
        if not spreads or max(spreads) <= _UNLIKE * min(spreads):
            continue
        share = SHARES_OF_SPREAD[Variant.parse(required).precision]
        limits = [float(f"{share * spread:.1g}") if spread > 0 else None for spread in answers.spreads]
        names = [f"column_{place}" for place in range(len(limits))]
        tolerance = {required: {"outputs": {name: {"max_abs_diff": limits}}}}
        draft.say(
            ("targets",),
            f"The columns of {name} vary by {min(spreads):.2g} to {max(spreads):.2g}, so each has a limit by its own "
            "spread. If your service bears more or less, name the columns and set their limits:",
            f"  outputs: {flow_text({name: {'columns': names}})}",
            f"  tolerance: {flow_text(tolerance)}",
            "",
        )


def _add_targets(draft: Draft, survey: ModelSurvey, chosen: _Targets) -> None:
    # Which targets were chosen is said with what was written, and needs no line among the guesses.
    draft.data |= {"targets": list(chosen.names), "required": [chosen.required]}
    draft.notes += [f"targets: {note}" for note in chosen.notes]
    lines = [f"It can become these as well: {', '.join(chosen.others)}"] if chosen.others else []
    draft.say(("targets",), f"guess: {chosen.reason}", *lines)
    if chosen.required == _copy_of_source(survey):
        note = f"{chosen.required} is a copy of the source, so a run compares nothing; compare the source with the "
        note += "model that it was made from: convert-and-validate compare"
        draft.say(("required",), note)
        draft.notes.append(f"required: {note}")
    else:
        draft.say(("required",), "guess: the others are shown, and released where they pass")


class _Targets(Struct, frozen=True, kw_only=True):
    """The targets of a spec: those chosen, the one that a gate requires, and the others that fit."""

    names: tuple[str, ...]
    required: str
    others: tuple[str, ...] = ()
    reason: str
    notes: tuple[str, ...] = ()


def _targets_of(survey: ModelSurvey) -> _Targets:
    fitting = _fitting_targets(SourceKind(survey.inspection.kind), survey)
    lacking = sorted(_IN_TENSORFLOW_ALONE & survey.inspection.counts.keys()) if _AS_IT_IS in fitting else []
    if lacking:
        reason = f"ONNX and TFLite lack {', '.join(lacking)}, so that nothing else can be made of the model"
        return _Targets(names=(_AS_IT_IS,), required=_AS_IT_IS, reason=reason, notes=(f"{_AS_IT_IS} alone: {reason}",))
    names = _usual_targets(fitting, survey) or (_copy_of_source(survey),)
    return _Targets(
        names=names,
        required=next((name for name in names if name.endswith(_FP32)), names[0]),
        others=tuple(name for name in fitting if name not in names and name not in survey.impossible),
        reason="formats that such a model converts to without further settings, and that run here",
        notes=tuple(f"left out {name}: {why}" for name, why in survey.impossible.items()),
    )


def _copy_of_source(survey: ModelSurvey) -> str:
    """Return the name of the target that copies the source, in whatever format it has: a gate of it is empty."""
    return f"{survey.inspection.kind}{_FP32}"


def _fitting_targets(kind: SourceKind, survey: ModelSurvey) -> list[str]:
    """Return the targets of a kind of model; OpenVINO has no text, as is known without a conversion."""
    has_text = any(spec.dtype == "string" for _, spec in _tensors(survey))
    return [name for name in fitting_targets(kind) if not (has_text and Variant.parse(name).format == "openvino")]


def _usual_targets(fitting: Sequence[str], survey: ModelSurvey) -> tuple[str, ...]:
    # A model that computes in less than FP32 is not lowered again.
    is_full = survey.inspection.precision in {str(Precision.FP32), None}
    return tuple(
        name
        for name in USUAL_TARGETS
        if name in fitting
        and name not in survey.impossible
        and name != _copy_of_source(survey)
        and (name.endswith(_FP32) or is_full)
        # Each model becomes ONNX, and what runs it may be installed later.
        and (name == USUAL_TARGETS[0] or backend_state(FORMATS[Variant.parse(name).format].runtime).is_available)
    )
