"""What is written as YAML reads back as what was meant, whatever names a model has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.pipelines.inspecting.spec_text import yaml_text
from paritygate.pipelines.spec.yaml import load_yaml

# What a spec may hold: no control characters, and no halves of surrogate pairs.
_TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=30)
_NUMBERS = st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6)
_LEAVES = _TEXT | st.booleans() | _NUMBERS
_DATA = st.recursive(
    _LEAVES | st.lists(_LEAVES, max_size=4),
    lambda inner: st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(
    data=st.dictionaries(_TEXT, _DATA, min_size=1, max_size=4),
    remark=st.text(max_size=200),
    deep=st.booleans(),
)
def test_data_and_comments_of_any_text_read_back_as_the_data(data: dict[str, Any], remark: str, *, deep: bool) -> None:
    first = next(iter(data))
    place = (first, *data[first])[:2] if deep and isinstance(data[first], dict) else (first,)

    text = yaml_text(data, {place: [remark, remark]}, head=[remark])

    assert load_yaml(text, origin="written") == data


@pytest.mark.parametrize(
    "name", ["yes", "null", "1", "0x1f", "2024-01-01", "a: b", "# no", "a,b", "}", "'", '"', "a\\tb", "é", "x" * 200]
)
def test_names_that_mean_something_to_yaml_are_names(name: str) -> None:
    data = {"model": {name: {"of": name, "all": [name, 1.5, True]}}, name: name}

    assert load_yaml(yaml_text(data, {}), origin="written") == data


def test_comments_stand_above_their_entry_and_short_mappings_on_one_line() -> None:
    data = {"model": {"name": "m", "dims": {"batch": {"min": 1, "max": 8}}}, "targets": ["onnx-fp32"]}

    text = yaml_text(data, {("model", "dims", "batch"): ["guess: so\nname: evil"]}, head=["Written."])

    assert text == (
        "# Written.\n\nmodel:\n  name: m\n  dims:\n    # guess: so\\nname: evil\n    batch: {min: 1, max: 8}\n\n"
        "targets: [onnx-fp32]\n"
    )


def test_comments_fit_80_columns_and_a_command_in_them_is_not_broken() -> None:
    command = f"  convert-and-validate init {'model ' * 20}".rstrip()
    data = {"model": {"dims": {"batch": {"min": 1, "opt": 8, "max": 64}, "sequence": {"min": 1, "opt": 9, "max": 99}}}}

    text = yaml_text(data, {("model", "dims"): ["word " * 40, "", "a paragraph"]}, head=["word " * 40, command])

    assert f"# {command}\n" in text
    assert max(len(line) for line in text.splitlines() if command not in line) <= 80
    assert "\n\n  # a paragraph\n  dims:\n" in text
