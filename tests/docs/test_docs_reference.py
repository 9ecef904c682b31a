"""Tables in the pages say what the code says: exit codes, keys of the spec, limits, checks, conversions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

import paritygate.errors
from paritygate import __version__
from paritygate.backends import backend_state
from paritygate.convert.conversion import CONVERTERS, DERIVATIONS
from paritygate.convert.tensorflow import function
from paritygate.convert.torch import pt2_to_onnx, torch_to_onnx, torchscript_to_onnx
from paritygate.errors import ExitCode, ParitygateError
from paritygate.formats import FORMATS
from paritygate.models.source import SourceKind
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.compare.result import OutputResult
from paritygate.pipelines.spec.limits import CONSTRAINTS
from paritygate.pipelines.spec.loading import packaged_specs
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS, Spec
from paritygate.precision import Precision
from paritygate.validate.gate import verdict
from paritygate.validate.measure import precision_steps, robust_scale, statistics, strata
from paritygate.validate.measure.decisions import Rule
from paritygate.validate.measure.histogram import RESOLUTION
from paritygate.validate.measure.limits import ACTIVATION_FLOOR, SHARES_OF_RMS
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, SHARES_OF_SPREAD, Tolerance
from paritygate.validate.reference import record as reference
from paritygate.validate.samples.source import DEFAULT_BATCH_SIZE

if TYPE_CHECKING:
    from tests.docs.conftest import Page

# Where checks are named.
JUDGES = (
    "validate/gate/verdict.py",
    "validate/reference/record.py",
    "validate/gate/gate.py",
    "validate/measure/measurement.py",
    "validate/gate/resolution.py",
    "validate/reference/noise_floor.py",
    "validate/measure/strata.py",
    "validate/detections/judgement.py",
    "validate/detections/repeats.py",
)
JUDGES_OF_PIPELINES = (
    "pipelines/compare/excused/jumping_rows.py",
    "pipelines/compare/judged.py",
    "pipelines/compare/job.py",
    "pipelines/compare/probes.py",
)


def codes(cell: str) -> list[str]:
    """Return what stands in code style in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def errors_by_code() -> dict[int, set[str]]:
    """Return the names of the error classes that users can meet, by their exit code."""
    found: dict[int, set[str]] = {}
    for name in paritygate.errors.__all__:
        kind = getattr(paritygate.errors, name)
        if isinstance(kind, type) and issubclass(kind, ParitygateError) and kind is not ParitygateError:
            found.setdefault(int(kind.exit_code), set()).add(name)
    return found


def test_exit_codes_are_those_of_the_code(pages: dict[str, Page]) -> None:
    table = {int(row[0]): row for row in pages["docs/exit-codes.md"].rows() if row[0].isdigit()}

    assert set(table) == {int(code) for code in ExitCode}
    assert {code: set(codes(row[3])) for code, row in table.items() if row[3]} == errors_by_code()


def test_the_readme_and_the_help_name_the_same_exit_codes(pages: dict[str, Page]) -> None:
    in_readme = set(
        re.findall(r"\b(\d) \w+", " ".join(pages["README.md"].section("A gate in CI").split("(")[0].split()))
    )
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    in_help = set(re.findall(r"\b(\d) \w+", shown.partition("Exit codes:")[2].partition("130")[0]))

    assert in_readme == in_help == {str(int(code)) for code in ExitCode if code < ExitCode.INTERRUPTED}


def models_in(annotation: object) -> Iterator[tuple[type[BaseModel], bool]]:
    """Yield each model within an annotation, and whether it is the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False
    is_mapping = get_origin(annotation) is dict
    for inner in get_args(annotation):
        yield from ((model, is_mapping or is_inner_mapping) for model, is_inner_mapping in models_in(inner))


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key that a spec may have, with its field; `<name>` stands for a name of the user's."""
    for name, item in model.model_fields.items():
        key = f"{prefix}{item.alias or name}"
        yield key, item
        seen = set()
        for inner, is_mapping in models_in(item.annotation):
            # Kinds of a target share their name.
            for found, field in keys_of(inner, f"{key}.<name>." if is_mapping else f"{key}."):
                if found not in seen:
                    yield found, field
                seen.add(found)


def test_the_spec_page_has_every_key_and_no_other(pages: dict[str, Page]) -> None:
    documented = [codes(row[0])[0] for row in pages["docs/spec.md"].rows() if len(row) == 4 and codes(row[0])]
    keys = [key for key, _ in keys_of(Spec)]

    assert sorted(key for key in documented if not key.startswith("module:")) == sorted(keys)


@pytest.mark.parametrize("key", [key for key, _ in keys_of(Spec)])
def test_the_spec_page_has_the_default_of(key: str, pages: dict[str, Page]) -> None:
    item = dict(keys_of(Spec))[key]
    row = next(row for row in pages["docs/spec.md"].rows() if codes(row[0])[:1] == [key] and len(row) == 4)
    default = row[2]

    if item.is_required():
        assert default == "required"
    elif isinstance(value := item.get_default(call_default_factory=True), BaseModel):
        assert default == "all defaults below"
    elif value is None:
        # Said in words: what stands in code style is a value or another key.
        assert not default.startswith("`") or codes(default)[0] in {"max", "model.dims.batch.opt"}
    else:
        assert yaml.safe_load(codes(default)[0]) == value


def kinds_of(annotation: object) -> list[str]:
    """Return what a value may be: choices as they are written, and the words of the page for all else."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return [kind for inner in get_args(annotation) for kind in kinds_of(inner)]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    kind = get_origin(annotation) or annotation
    assert isinstance(kind, type)
    if issubclass(kind, Enum):
        return [str(choice.value) for choice in kind]
    if issubclass(kind, BaseModel):
        return ["mapping"]
    words = {bool: "boolean", str: "text", int: "number", float: "number", list: "list", dict: "mapping"}
    return [] if kind is NoneType else [words[kind]]


@pytest.mark.parametrize("key", [key for key, _ in keys_of(Spec)])
def test_the_spec_page_has_the_type_and_the_bounds_of(key: str, pages: dict[str, Page]) -> None:
    item = dict(keys_of(Spec))[key]
    row = next(row for row in pages["docs/spec.md"].rows() if codes(row[0])[:1] == [key] and len(row) == 4)
    kind, meaning = row[1], row[3]
    shown = [*codes(kind), *re.findall(r"\b(?:boolean|list|mapping|number|text)\b", re.sub(r"`[^`]*`", "", kind))]

    if key == "decisions.<name>.argmax":
        # What is not an argmax has another rule.
        assert shown == ["true"]
    else:
        assert sorted(shown) == sorted(set(kinds_of(item.annotation)))
    assert meaning
    for bound in (getattr(limit, name, None) for limit in item.metadata for name in ("ge", "gt", "le", "lt")):
        # That a size is no less than 1 goes without saying.
        if bound is not None and not 0 <= bound <= 1:
            assert re.search(rf"(?<![\d.]){bound}(?![\d.]\d)", meaning), (key, bound)


def test_the_spec_page_has_the_defaults_that_follow_from_the_model(pages: dict[str, Page]) -> None:
    defaults = {codes(row[0])[0]: row[2] for row in pages["docs/spec.md"].rows() if len(row) == 4 and codes(row[0])}

    for converter in (torch_to_onnx, torchscript_to_onnx, pt2_to_onnx, function):
        assert defaults["opset"].startswith(f"{converter._OPSET};")
    assert defaults["samples.batch_size"].endswith(f"else {DEFAULT_BATCH_SIZE}")


def test_the_limits_are_those_of_the_code(pages: dict[str, Page]) -> None:
    rows = {codes(row[0])[0]: row[1:] for row in pages["docs/tolerances.md"].rows("Defaults")}

    assert {name: [float(cell) for cell in row] for name, row in rows.items()} == {
        str(precision): [item.max_abs_diff, item.mean_abs_diff, item.max_row_rel_diff, item.repeat_max_abs_diff]
        for precision, item in DEFAULT_TOLERANCES.items()
    }


def test_the_shares_of_a_spread_are_those_of_the_code(pages: dict[str, Page]) -> None:
    known = {str(precision) for precision in Precision}
    rows = [row for row in pages["docs/tolerances.md"].rows("Scaling") if set(codes(row[0])) <= known and len(row) > 2]
    found = {name: (float(row[1]), float(row[2])) for row in rows for name in codes(row[0])}

    assert found == {str(item): (SHARES_OF_SPREAD[item], SHARES_OF_RMS[item]) for item in Precision}
    said = re.search(r"(\S+) where the column comes from", pages["docs/tolerances.md"].prose)
    assert said is not None
    assert float(said[1]) == ACTIVATION_FLOOR


@pytest.mark.parametrize(
    "limit", [name for name in Tolerance.__struct_fields__ if name not in {"declared", "outputs", "precision"}]
)
def test_every_limit_is_on_the_page_and_in_the_help(limit: str, pages: dict[str, Page]) -> None:
    assert f"`{limit}`" in pages["docs/tolerances.md"].prose
    assert limit in CliRunner().invoke(cli, ["compare", "--help"]).output


def test_the_other_numbers_of_the_gate_are_those_of_the_code(pages: dict[str, Page]) -> None:
    gate = " ".join(pages["docs/gate.md"].prose.split())
    limits = " ".join(pages["docs/tolerances.md"].prose.split())

    assert f"{precision_steps.LEAST_STEPS} steps of the coarser of declared precision and dtype" in limits
    assert f"within which {robust_scale.BULK_SHARE * 100:g} % of the ordinary values lie" in limits
    assert f"divided by {robust_scale.NORMAL_REACH:.3f}" in limits
    assert f"at least {robust_scale._FILL_SHARE * 100:g} % of the values of a channel" in limits
    assert f"more than {robust_scale._FAR:g} times the median magnitude of the others" in limits
    assert f"while these are at most {robust_scale._VALUES_KEPT:,}" in limits
    assert f"(at least {robust_scale._LEAST_OF_A_CHANNEL // 2} of each channel)" in limits
    assert f"more than {verdict._MANY_VALUES:,} values" in limits
    assert "ten times the limit" in limits
    assert verdict._MANY_VALUES_FACTOR == 10
    assert f"above {verdict._MANY_VALUES:,} values" in gate
    for least, share in (verdict._IN_BAND, verdict._IN_BAND_COARSE):
        assert f"max({least}, {share * 100:g} %" in gate
    assert f"less than {verdict._COVERED_SHARE * 100:g} % of the decisions" in gate
    assert f"Up to {reference._REPEATED_ROWS} rows" in gate
    assert f"1/{round(1 / RESOLUTION)} of it at most" in gate
    assert f"max(abs(expected), {statistics._RELATIVE_FLOOR:g})" in gate
    assert f"(at most {strata._MAX_VALUES})" in gate
    assert statistics._WORST_ROWS == 10
    assert "The ten rows that differ most" in gate


def checks_in(code: str) -> set[str]:
    """Return the names of the checks that a source file makes."""
    found = set(re.findall(r'Check(?:Result)?\(\s*name="(\w+)"', code))
    found |= set(re.findall(r'(?:_within|_worst_channel)\(\s*"(\w+)"', code))
    found |= {f"contract.{name}" for name in re.findall(r'\bviolate\(\s*"(\w+)"', code)}
    return found | set(re.findall(r'"(reference_\w+)"', code))


def test_every_check_is_on_the_page_of_the_gate(pages: dict[str, Page], project_root: Path) -> None:
    made = set()
    for name in (*JUDGES, *JUDGES_OF_PIPELINES):
        made |= checks_in((project_root / name).read_text(encoding="utf-8"))
    page = pages["docs/gate.md"]
    # Numbers are defined there, some of them under the name of the check that judges them.
    text = page.prose.replace(page.section("Statistics"), "")
    missing = {name for name in made if f"`{name}`" not in text}

    assert {"max_abs_diff", "contract.shape", "reference_varies", "distinct", "bias"} <= made
    assert missing == set()


def test_every_number_of_an_output_is_defined(pages: dict[str, Page]) -> None:
    page = pages["docs/gate.md"]
    numbers = {*OutputResult.__struct_fields__} - {"dtype", "axis", "limits", "worst_rows"}

    assert {name for name in numbers if f"`{name}`" not in page.section("Statistics")} == set()


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_is_on_the_pages(rule: Rule, pages: dict[str, Page]) -> None:
    assert f"`{rule}" in pages["docs/gate.md"].section("6. Decisions")
    assert f"`decisions.<name>.{rule}`" in pages["docs/spec.md"].prose


def test_the_table_of_conversions_is_that_of_the_code(pages: dict[str, Page]) -> None:
    kinds = {
        "ONNX": SourceKind.ONNX,
        "PyTorch": SourceKind.TORCH,
        "TorchScript": SourceKind.TORCHSCRIPT,
        "torch.export": SourceKind.PT2,
        "Keras": SourceKind.KERAS,
        "TensorFlow": SourceKind.SAVEDMODEL,
    }
    page = pages["docs/spec.md"]
    rows = page.rows("Sources and targets")
    heading = next(line for line in page.section("Sources and targets").splitlines() if line.startswith("| source |"))
    columns = [re.findall(r"`([\w-]+)`", cell) for cell in heading.strip("| ").split("|")][2:]

    assert {form for forms in columns for form in forms} == set(FORMATS)
    assert [row[0].split()[0] for row in rows] == list(kinds)
    for row in rows:
        for forms, cell in zip(columns, row[2:], strict=True):
            for form in forms:
                is_made = is_made_of(form, kinds[row[0].split()[0]])
                assert (cell != "no") == is_made, (row, form)


def is_made_of(form: str, kind: SourceKind) -> bool:
    """Return whether a target of the format can be made of a source of the kind."""
    base = DERIVATIONS.get(f"{form}-fp32")
    return (kind, form) in CONVERTERS or (base is not None and is_made_of(base.base.rpartition("-")[0], kind))


def test_the_table_of_formats_is_that_of_the_code(pages: dict[str, Page]) -> None:
    rows = pages["docs/formats.md"].rows("What there is")
    shown = {f"{row[0].strip('`')}-{precision}" for row in rows for precision in re.findall(r"`(\w+)`", row[1])}

    assert shown == set(map(str, AVAILABLE_TARGETS))
    for row in rows:
        runtime = backend_state(FORMATS[row[0].strip("`")].runtime).backend
        assert runtime.extra == re.findall(r"`([\w-]+)`", row[3])[0], row


def test_every_limit_on_speed_is_on_its_page(pages: dict[str, Page]) -> None:
    named = {name for row in pages["docs/speed.md"].rows("Limits") for name in re.findall(r"`(\w+)`", row[0])}

    assert named == set(CONSTRAINTS)


def test_packaged_specs_are_on_the_page_of_the_spec(pages: dict[str, Page]) -> None:
    assert [name for name in packaged_specs() if f"`{name}`" not in pages["docs/spec.md"].prose] == []


def test_the_changelog_begins_with_this_version(pages: dict[str, Page]) -> None:
    assert re.findall(r"^## (\S+)", pages["CHANGELOG.md"].text, re.MULTILINE)[0] == __version__
