"""The command that judges a server, as it is printed with a view: by the rules that the release was judged by."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease

_KINDS = {
    "triton": (),
    "tfserving": (),
    "kserve": ("--storage-uri", "s3://team/models", "--server", "25.10"),
}
_SPEC: Mapping[str, Any] = {
    "model": {"name": "adds", "source": "model.onnx"},
    "samples": {"source": "inputs.npz"},
    "targets": ["onnx-fp32"],
}


@pytest.fixture
def next_words(call: Callable[..., Result], make_release: Callable[..., StoredRelease]) -> Callable[..., list[str]]:
    """Return a function that makes a release and returns the words of the command that is printed with its view."""
    np.savez("inputs.npz", x=np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32))

    def words_of(
        *words: str, kind: str = "triton", variants: tuple[str, ...] = ("onnx-fp32",), spec: Mapping[str, Any] = _SPEC
    ) -> list[str]:
        make_release(*variants, spec=spec)
        result = call(kind, "adds", "--out", "models", *_KINDS[kind], *words)
        assert max(map(len, result.output.splitlines())) <= 80
        step = "then" if "\nnote: " in result.output else "next"
        command = result.output.rpartition(f"\n{step}: convert-and-validate ")[2]
        *said, option, repository = shlex.split(command.replace("\\\n", " "))
        assert (option, repository) == ("--repository", "repository")
        return said

    return words_of


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_of_view_is_judged_by_the_decision_and_the_samples_of_the_release(
    next_words: Callable[..., list[str]], kind: str
) -> None:
    spec = {**_SPEC, "decisions": {"y": {"threshold": ">=3"}}}

    words = next_words(kind=kind, variants=("onnx-fp32", "savedmodel-fp32"), spec=spec)

    # TensorFlow Serving does not serve the variant that is preferred.
    reference = "adds@prod/savedmodel-fp32" if kind == "tfserving" else "adds@prod"
    assert words[:2] == ["compare", reference]
    assert words[3:] == ["--samples", "inputs.npz", "--decision", "y:threshold=>=3"]


def test_a_decision_by_argmax_and_a_version_are_named_as_well(next_words: Callable[..., list[str]]) -> None:
    words = next_words("1", spec={**_SPEC, "decisions": {"y": {"argmax": True}}})

    assert (words[1], words[5:]) == ("adds@1", ["--decision", "y:argmax"])


@pytest.mark.parametrize(("variant", "said"), [("onnx-fp32", []), ("onnx-fp16", ["--precision", "fp16"])])
def test_the_precision_is_that_of_the_variant(
    next_words: Callable[..., list[str]], variant: str, said: list[str]
) -> None:
    assert next_words(variants=(variant,))[5:] == said


def test_all_that_the_spec_says_of_inputs_and_outputs_is_asked(
    tmp_path: Path, next_words: Callable[..., list[str]]
) -> None:
    spec = {
        **_SPEC,
        "samples": {"source": "inputs.npz", "pad": {"x": 0.5}},
        "decisions": {"y": {"argmax": True, "axis": 1, "constant": "one class is rare"}},
        "axes": {"y": 1},
        "non_finite": "match",
        "roles": {"x": {"role": "number", "nan": False}},
    }

    words = next_words(spec=spec)

    assert words[5:] == [
        *("--decision", "y:argmax,axis=1", "--constant-decision", "y=one class is rare", "--axis", "y=1"),
        *("--non-finite", "match", "--role", 'x={"role": "number", "nan": false}', "--pad", "x=0.5"),
    ]
    # `compare` takes them: a file that answers alike stands for the server.
    other = tmp_path / "other.onnx"
    model = onnx.load("repository/store/adds/1/onnx-fp32/model.onnx")
    model.producer_name = "another"
    onnx.save(model, other)
    result = CliRunner().invoke(
        cli, ["compare", words[1], str(other), *words[3:], "--repository", "repository"], standalone_mode=False
    )
    assert result.exception is None
    assert (result.return_value, "verdict: pass" in result.output) == (0, True), result.output


def test_an_output_that_is_not_compared_stays_so(next_words: Callable[..., list[str]]) -> None:
    spec = {**_SPEC, "outputs": {"y": {"ignore": "drawn anew on every call"}}}

    assert next_words(spec=spec)[5:] == ["--ignore", "y=drawn anew on every call"]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ({"source": "inputs.npz"}, "inputs.npz"),
        ({"source": "paritygate.fixtures.sts:evaluation_pairs"}, "paritygate.fixtures.sts:evaluation_pairs"),
        ({"source": "rows:load"}, "rows:load"),
    ],
)
def test_samples_are_named_where_they_are_found(
    tmp_path: Path, next_words: Callable[..., list[str]], samples: dict[str, str], said: str
) -> None:
    (tmp_path / "rows.py").write_text("raise RuntimeError('is not imported')\n")

    assert next_words(spec={**_SPEC, "samples": samples})[3:5] == ["--samples", said]


@pytest.mark.parametrize(
    "samples",
    [
        {"source": "elsewhere.npz"},
        {"source": "no_such_module_at_all:load"},
        {"source": "rows:load", "path": "rows.txt"},
        {"source": "pictures", "images": {"input": "x", "size": [2, 2]}},
    ],
)
def test_what_compare_cannot_read_is_to_be_saved_before_a_command_that_runs(
    tmp_path: Path, next_words: Callable[..., list[str]], samples: dict[str, Any]
) -> None:
    (tmp_path / "pictures").mkdir()

    words = next_words(spec={**_SPEC, "samples": samples})

    assert words[3:] == ["--samples", "inputs.npz"]


def test_columns_and_casts_of_the_spec_are_options(next_words: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    part = {"source": "rows.csv", "columns": {"x": ["a", "b"], "z": "c"}, "cast": {"x": "float32"}}

    words = next_words(spec={**_SPEC, "samples": part})

    assert words[3:5] == ["--samples", "rows.csv"]
    assert words[5:] == ["--columns", "x=a,b", "--columns", "z=c", "--cast", "x=float32"]


def test_samples_of_the_call_come_before_those_of_the_spec(
    tmp_path: Path, next_words: Callable[..., list[str]]
) -> None:
    np.savez(tmp_path / "others.npz", x=np.ones((3, 4), dtype=np.float32))

    assert next_words("--samples", "others.npz")[3:5] == ["--samples", "others.npz"]


def test_a_spec_that_an_earlier_version_wrote_otherwise_leaves_them_out(next_words: Callable[..., list[str]]) -> None:
    assert next_words(variants=("onnx-fp16",), spec={"unknown": 1})[3:] == [
        "--samples",
        "inputs.npz",
        "--precision",
        "fp16",
    ]
