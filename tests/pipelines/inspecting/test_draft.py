"""What a first spec guesses, from what was seen of a model and its samples, and that it marks every guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paritygate.models.source import SourceKind
from paritygate.pipelines.inspecting.draft import Draft, draft_of
from paritygate.pipelines.inspecting.inspection import Inspection
from paritygate.pipelines.inspecting.naming import GivenName, guessed_name
from paritygate.pipelines.inspecting.survey import AnswerFacts, InputFacts, ModelSurvey
from paritygate.pipelines.spec.compatible_targets import fitting_targets
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.schema import Spec
from paritygate.signature import Dim, Signature, TensorSpec
from paritygate.validate.probes.inputs.roles import Role
from paritygate.validate.samples.random_rows import RandomInput, RandomRows

_IDS = TensorSpec(name="input_ids", dtype="int64", shape=("batch", "sequence"))
_MASK = TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "sequence"))


def _output(name: str = "output_0", shape: tuple[int | str | None, ...] = ("batch", 3)) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape)


def _answers(low: float = -1.0, high: float = 1.0, **facts: bool) -> AnswerFacts:
    return AnswerFacts(low=low, high=high, **{"is_shares": False, "is_on_both_sides": True, **facts})


def _survey(*outputs: TensorSpec, answers: dict[str, AnswerFacts] | None = None, **changes: Any) -> ModelSurvey:  # noqa: ANN401 - fields
    signature = Signature(inputs=(_IDS, _MASK), outputs=outputs or (_output(),))
    survey = ModelSurvey(
        inspection=Inspection(model="model.onnx", kind="onnx", precision="fp32"),
        signature=signature,
        is_said=True,
        rename={},
        rows=150,
        batch_size=None,
        pad={},
        sizes={"sequence": (4, 9, 31)},
        row_dims=("batch",),
        inputs={
            "input_ids": InputFacts(role=Role.ID, why="it indexes a table of 50 rows"),
            "attention_mask": InputFacts(role=Role.MASK, why="by its name", of="input_ids"),
        },
        answers=answers or {},
        random=None,
    )
    return replace(survey, **changes)


def _draft(survey: ModelSurvey, *, samples: str | None = "inputs.npz") -> Draft:
    return draft_of(survey, named=GivenName(name="m"), source="model.onnx", samples=samples)


def _is_marked(draft: Draft, *place: str) -> bool:
    """Return whether a comment above the entry marks it, in the text as well."""
    marks = [line for line in draft.comments.get(place, ()) if line.startswith("guess: ")]
    return bool(marks) and f"# {marks[0][:60]}" in draft.text()


@pytest.mark.parametrize(
    ("kind", "operators"),
    [("keras", {"TextVectorization": 1, "Dense": 2}), ("savedmodel", {"StringSplitV2": 1, "MatMul": 3})],
)
def test_what_tensorflow_alone_has_is_served_as_it_is(kind: str, operators: dict[str, int]) -> None:
    inspection = Inspection(model="net", kind=kind, precision="fp32", counts=operators)

    draft = _draft(_survey(inspection=inspection))

    assert (draft.data["targets"], draft.data["required"]) == (["savedmodel-fp32"], ["savedmodel-fp32"])
    assert _is_marked(draft, "targets")
    assert f"ONNX and TFLite lack {next(iter(operators))}" in draft.text()
    assert len([note for note in draft.notes if note.startswith("targets: ")]) == 1


def test_text_becomes_nothing_of_openvino() -> None:
    signature = Signature(inputs=(TensorSpec(name="text", dtype="string", shape=("batch",)),), outputs=(_output(),))
    inspection = Inspection(model="net", kind="keras", precision="fp32", counts={"StringLookup": 1})

    draft = _draft(_survey(inspection=inspection, signature=signature, inputs={}))

    assert "onnx-fp32" in draft.data["targets"]
    assert "openvino" not in draft.text()


def test_a_name_that_was_guessed_is_marked_and_a_given_one_is_not() -> None:
    guessed = draft_of(_survey(), named=guessed_name("mods:series"), source="mods:series", samples=None)

    assert guessed.data["model"]["name"] == "mods-series"
    assert _is_marked(guessed, "model", "name")
    assert guessed.guesses[0].startswith("model.name: mods-series - after the module and its callable; ")
    assert not _is_marked(_draft(_survey()), "model", "name")


@pytest.mark.parametrize(
    ("output", "answers", "rule"),
    [
        (_output("logits"), None, {"argmax": True}),
        (_output("class_probabilities"), None, {"argmax": True}),
        (_output("output_0"), _answers(0, 1, is_shares=True), {"argmax": True}),
        (_output("tokenLogits", ("batch", "sequence", 7)), None, {"argmax": True, "axis": 2}),
        (_output("logits", ("batch", 5, 8, 8)), None, None),
        (_output("logits", ("batch", "classes")), None, None),
        (_output("embedding", ("batch", 768)), _answers(), None),
        (_output("score", ("batch", 1)), _answers(0.1, 0.9), {"threshold": 0.5}),
        (_output("score", ("batch",)), _answers(0.1, 0.9), {"threshold": 0.5}),
        (_output("score", ("batch", 1)), _answers(0.1, 0.4, is_on_both_sides=False), None),
        (_output("score", ("batch", 1)), _answers(0.1, 4.9), None),
        (_output("logits", ("batch", 1)), None, None),
    ],
)
def test_a_decision_is_guessed_with_a_reason_or_not_at_all(
    output: TensorSpec, answers: AnswerFacts | None, rule: dict[str, Any] | None
) -> None:
    draft = _draft(_survey(output, answers={} if answers is None else {output.name: answers}))

    assert draft.data.get("decisions", {}).get(output.name) == rule
    assert _is_marked(draft, "decisions", output.name) == (rule is not None)


def test_an_output_without_a_rule_is_named_with_how_to_give_one() -> None:
    text = _draft(_survey(_output("score", ("batch", 1)))).text()

    assert "# No rule is guessed for score." in text
    assert "{score: {threshold: 0.5}}" in text


@pytest.mark.parametrize(
    ("shape", "answers", "rule"),
    [
        (("batch", 4), _answers(-3.0, 5.0), "{argmax: true}"),
        (("batch", 1), _answers(10.0, 50.0), "{threshold: 30.0}"),
        (("batch",), _answers(-4.0, 1.0), "{threshold: -1.5}"),
    ],
)
def test_the_example_of_a_rule_fits_the_output(shape: tuple[int | str, ...], answers: AnswerFacts, rule: str) -> None:
    text = _draft(_survey(_output("out", shape), answers={"out": answers})).text()

    assert f"decisions: {{out: {rule}}}" in " ".join(text.replace("#", "").split())


def test_what_is_said_of_roles_and_decisions_is_no_remark_on_the_targets() -> None:
    facts = {"input_ids": InputFacts(role=Role.ID, why="it indexes a table of 50 rows")}

    text = _draft(_survey(_output("score", ("batch", 1)), inputs=facts)).text()

    lines = text[: text.index("targets:")].splitlines()
    (roles,) = (at for at, line in enumerate(lines) if line.startswith("# a run gives input_ids the role id"))
    (decisions,) = (at for at, line in enumerate(lines) if line.startswith("# No rule is guessed"))
    (targets,) = (at for at, line in enumerate(lines) if line.startswith("# guess: formats"))
    assert decisions < roles < targets
    assert "" in lines[decisions:roles]
    assert "" in lines[roles:targets]
    assert "" not in lines[targets:]


def test_no_threshold_is_guessed_from_answers_to_random_rows() -> None:
    score = _output("score", ("batch", 1))
    random = RandomRows(inputs={"input_ids": RandomInput(dtype="int64", shape=("batch", "sequence"))}, rows=128)

    assert "decisions" not in _draft(_survey(score, answers={"score": _answers(0.1, 0.9)}, random=random)).data


def test_a_mask_is_declared_and_says_which_positions_of_an_output_count() -> None:
    hidden = _output("last_hidden_state", ("batch", "sequence", 16))
    draft = _draft(_survey(hidden, _output("logits"), valid_where={"last_hidden_state": "attention_mask"}))

    assert draft.data["roles"] == {"attention_mask": {"role": "mask", "of": "input_ids"}}
    assert draft.data["outputs"] == {"last_hidden_state": {"valid_where": "attention_mask"}}
    assert _is_marked(draft, "roles", "attention_mask")
    assert _is_marked(draft, "outputs", "last_hidden_state")
    assert "# a run gives input_ids the role id: it indexes a table of 50 rows" in draft.text()
    assert "If nobody reads it" not in draft.text()


def test_of_an_output_that_a_mask_may_or_may_not_pad_all_is_compared_and_how_it_is_declared_is_said() -> None:
    draft = _draft(_survey(_output("last_hidden_state", ("batch", "sequence", 16)), _output("logits")))

    assert "outputs" not in draft.data
    text = " ".join(draft.text().replace("# ", "").split())
    assert (
        "All of last_hidden_state is compared. If nobody reads it where attention_mask is 0, write "
        "outputs: {last_hidden_state: {valid_where: attention_mask}}"
    ) in text
    assert "All of logits" not in text


def test_dims_are_guessed_from_the_rows_within_what_the_model_allows() -> None:
    draft = _draft(_survey())
    assert draft.data["model"]["dims"] == {
        "batch": {"min": 1, "opt": 8, "max": 64},
        "sequence": {"min": 4, "opt": 9, "max": 31},
    }
    assert _is_marked(draft, "model", "dims", "sequence")

    few = Signature(inputs=(_IDS, _MASK), outputs=(_output(),), dims={"batch": Dim(min=2, opt=4, max=4)})
    assert _draft(_survey(signature=few)).data["model"]["dims"]["batch"] == {"min": 2, "opt": 4, "max": 4}


def test_what_a_model_does_not_say_is_declared_as_the_rows_show_it() -> None:
    draft = _draft(_survey(is_said=False))

    assert draft.data["model"]["inputs"]["input_ids"] == {"dtype": "int64", "shape": ["batch", "sequence"]}
    assert draft.data["model"]["outputs"] == {"output_0": {"dtype": "float32", "shape": ["batch", 3]}}
    assert _is_marked(draft, "model", "inputs")
    assert "inputs" not in _draft(_survey()).data["model"]
    assert "The model itself declares: input input_ids: int64[batch, sequence];" in " ".join(
        _draft(_survey()).text().split()
    )


def test_names_padding_and_a_fixed_batch_are_written() -> None:
    draft = _draft(_survey(rename={"input.1": "input_ids"}, pad={"input_ids": 1.0}, batch_size=4))

    assert draft.data["model"]["rename"] == {"input.1": "input_ids"}
    assert draft.data["samples"] == {"source": "inputs.npz", "batch_size": 4, "pad": {"input_ids": 1}}
    assert _is_marked(draft, "model", "rename")
    assert _is_marked(draft, "samples", "pad")


def test_random_rows_are_written_and_said_to_be_random() -> None:
    inputs = {
        "input_ids": RandomInput(dtype="int64", shape=("batch", "sequence"), high=49),
        "attention_mask": RandomInput(dtype="int64", shape=("batch", "sequence"), mask=True),
    }
    dims = {"batch": Dim(min=1, opt=8, max=64), "sequence": Dim(min=8, opt=32, max=64)}
    draft = _draft(_survey(random=RandomRows(inputs=inputs, rows=128, dims=dims)), samples=None)

    assert draft.data["samples"] == {
        "source": "random",
        "random": {
            "rows": 128,
            "inputs": {
                "input_ids": {"dtype": "int64", "shape": ["batch", "sequence"], "low": 0, "high": 49},
                "attention_mask": {"dtype": "int64", "shape": ["batch", "sequence"], "mask": True},
            },
        },
    }
    assert draft.data["model"]["dims"]["sequence"] == {"min": 8, "opt": 32, "max": 64}
    said = " ".join(draft.text().replace("# ", "").split())
    assert "These samples are random: a run of them is inconclusive at best, and releases nothing. Put real" in said


def test_targets_are_those_that_fit_the_source() -> None:
    assert {"onnx-fp32", "onnx-int8", "openvino-fp32"} <= set(fitting_targets(SourceKind.ONNX))
    assert not any(name.startswith(("torch", "pt2", "tflite")) for name in fitting_targets(SourceKind.ONNX))
    assert {"torch-fp32", "torchscript-fp32", "pt2-fp32"} <= set(fitting_targets(SourceKind.TORCH))
    assert {"savedmodel-fp32", "tflite-int8"} <= set(fitting_targets(SourceKind.KERAS))
    assert fitting_targets(SourceKind.TFLITE) == []


def test_a_model_of_lower_precision_is_not_made_less_precise() -> None:
    full = _draft(_survey())
    half = _draft(_survey(inspection=Inspection(model="model.onnx", kind="onnx", precision="fp16")))

    assert "onnx-fp16" in full.data["targets"]
    assert not any(name.endswith("-fp16") for name in half.data["targets"])
    assert "onnx-fp16" in half.text()


@pytest.mark.parametrize("kind", ["onnx", "savedmodel", "torchscript", "pt2", "keras", "torch"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_what_a_gate_requires_is_no_copy_of_the_source(kind: str, precision: str) -> None:
    draft = _draft(_survey(inspection=Inspection(model="model", kind=kind, precision=precision)))

    targets, (required,) = draft.data["targets"], draft.data["required"]
    assert required in targets
    if f"{kind}-fp32" in targets:
        # Nothing else can be made of it here, and the spec does not hide that.
        assert targets == [f"{kind}-fp32"]
        assert [note for note in draft.notes if note.startswith("required: ")]
    else:
        assert not [note for note in draft.notes if note.startswith("required: ")]


def test_a_gate_requires_fp32_before_less() -> None:
    copied = _draft(_survey(impossible={"openvino-fp32": "no"}))

    assert copied.data["targets"] == copied.data["required"] == ["onnx-fp16"]
    assert _draft(_survey(impossible={"onnx-fp16": "no", "openvino-fp32": "no"})).data["required"] == ["onnx-fp32"]


_NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


@given(
    names=st.lists(_NAMES, min_size=3, max_size=3, unique=True),
    dims=st.lists(_NAMES, min_size=2, max_size=2, unique=True),
    why=st.text(max_size=60),
    is_said=st.booleans(),
    classes=st.integers(1, 9),
)
def test_a_spec_of_any_names_loads_as_what_was_meant(
    names: list[str], dims: list[str], why: str, classes: int, *, is_said: bool
) -> None:
    rows, places = dims
    signature = Signature(
        inputs=tuple(TensorSpec(name=name, dtype="int64", shape=(rows, places)) for name in names[:2]),
        outputs=(_output(names[2], (rows, places, classes)), _output("logits", (rows, classes))),
    )
    facts = InputFacts(role=Role.MASK, why=why, of=names[0])
    draft = _draft(
        _survey(
            signature=signature,
            is_said=is_said,
            sizes={places: (1, 2, 3)},
            row_dims=(rows,),
            inputs={names[1]: facts},
            pad={names[0]: 0.0},
        )
    )

    text = draft.text("Written by a test.")

    assert yaml.safe_load(text) == draft.data
    assert parse_spec(text, folder=Path(), origin="spec.yaml").spec == Spec.model_validate(draft.data)
