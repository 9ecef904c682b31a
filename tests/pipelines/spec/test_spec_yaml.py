"""YAML that nobody should have written: refused at once, in one line that names the place, however it was made."""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.errors import ParitygateError, UsageError
from paritygate.pipelines.spec.loading import load_spec, parse_spec
from paritygate.pipelines.spec.yaml import load_yaml

_PACKAGED = sorted((Path(__file__).parents[3] / "pipelines/specs").glob("*.yaml"))


def _laughs(levels: int, *, merge: bool = False) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}" if merge else "a0: &a0 [x, x]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        inner = f"{{z{level}: [{aliases}], <<: [{aliases}]}}" if merge else f"[{aliases}]"
        lines.append(f"a{level}: &a{level} {inner}")
    return "\n".join(lines)


HOSTILE = {
    "a billion laughs": (_laughs(10), "line 5: a4 has more than 20000 entries, with what its aliases stand for"),
    "a billion merges": (
        _laughs(10, merge=True),
        "line 4: a3.z3 has more than 20000 entries, with what its aliases stand for",
    ),
    "an alias of itself": ("a: &a [*a]", "line 1: a.0 is *a, which stands for what it is in"),
    "an alias of what is around": ("a: &a {b: {c: *a}}", "line 1: a.b.c is *a, which stands for what it is in"),
    "deep lists": ("a: " + "[" * 5000 + "]" * 5000, "line 1: a.0.0.0.0"),
    "deep mappings": ("\n".join(" " * i + "a:" for i in range(400)), "line 20: a.a.a"),
    "deep by aliases": (
        "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [[[*a{i - 1}]]]" for i in range(1, 40))]),
        "is nested more than 20 levels deep",
    ),
    "a huge integer": ("seed: " + "9" * 100_000, "line 1: seed is a number of 100000 digits"),
    "10**5000": (
        f"model:\n  dims: {{batch: {{max: {10**4000}0}}}}",
        "line 2: model.dims.batch.max is a number of",
    ),
    "a huge hexadecimal": ("seed: 0x" + "f" * 5000, "line 1: seed is a number of 5002 digits"),
    "an integer beyond 64 bits": (
        f"seed: {1 << 64}",
        "line 1: seed is 18446744073709551616 (allowed: -9223372036",
    ),
    "a date": ("min_rows: 2024-01-01", "line 1: min_rows is a date (2024-01-01), which no key of a spec takes"),
    "a date that is none": ("min_rows: 2024-99-99", "line 1: min_rows is a date (2024-99-99)"),
    "a time": ("a:\n- 2024-01-01 10:00:00", "line 2: a.0 is a date (2024-01-01 10:00:00)"),
    "base 60": ("seed: 1:30", "line 1: seed is a number in base 60 to YAML (1:30)"),
    "digits that are none": ("seed: 0x_", "line 1: seed is not a number (0x_)"),
    "a key twice": ("model:\n  name: a\n  name: b", "line 3: the key model.name occurs twice (first in line 2)"),
    "a key that is a number": ("axes: {3: 1}", "line 1: the key 3 of axes is a number, and keys are text"),
    "a key that is true": ("axes: {on: 1}", "line 1: the key on of axes is a truth value, and keys are text"),
    "a key that is nothing": ("~: 1", "line 1: the key ~ of the spec is nothing, and keys are text"),
    "a key that is a list": ("? [a, b]\n: 1", "line 1: the key there of the spec is a list, and keys are text"),
    "a key that is a date": ("2024-01-01: 1", "line 1: the key 2024-01-01 of the spec is a date, and keys are text"),
    "a tag": ("a: !!python/object/apply:os.system [ls]", "line 1: a bears the tag tag:yaml.org,2002:python/object/app"),
    "a tag that lies": ("a: !!int abc", "line 1: a bears the tag tag:yaml.org,2002:int, and tags are not read"),
    "a set": ("a: !!set {b, c}", "line 1: a bears the tag tag:yaml.org,2002:set"),
    "NUL, written": ('model:\n  name: "a\\0b"', r"line 2: model.name holds the control character \u0000"),
    "NUL in a key": ('axes: {"a\\0": 1}', r"line 1: a key of axes holds the control character \u0000"),
    "half of a surrogate pair": ('a: "\\ud800"', r"line 1: a holds the control character \ud800"),
    "NUL": ("a: 1\nb: \x00", r"line 2 holds the control character \u0000"),
    "ESC": ("a: \x1b[2J", r"line 1 holds the control character \u001b"),
    "the sign =": ("a: =", "line 1: a is a sign of YAML's own (=), which no key of a spec takes"),
    "the sign <<": ("a: <<", "line 1: a is a sign of YAML's own (<<), which no key of a spec takes"),
    "a merge of text": ("<<: text", "line 1 is not valid YAML: expected a mapping or list of mappings for merging"),
    "two documents": ("a: 1\n---\nb: 2", "is not valid YAML: but found another document"),
    "an unknown alias": ("a: *b", "line 1 is not valid YAML: found undefined alias 'b'"),
    "too many bytes": ("# " + "x" * (1 << 18), "has 262146 bytes (allowed: 262144)"),
}


def _refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_spec(text, folder=Path("/spec"), origin="spec.yaml")
    return caught.value


@pytest.mark.parametrize(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused_with_its_place(text: str, words: str) -> None:
    error = _refusal(text)

    assert str(error).startswith("spec spec.yaml")
    assert words in str(error)
    assert error.hint
    assert error.exit_code == 2
    assert len(str(error)) < 300


def test_a_billion_laughs_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        _refusal(_laughs(10))

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_no_more_of_a_file_is_read_than_a_spec_may_have(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)

    with pytest.raises(UsageError, match=r"has 262145 bytes \(allowed: 262144\)"):
        load_spec(str(path))


def test_aliases_and_merges_of_reasonable_size_mean_what_they_say() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\nd: '2024-01-01'\ne: '<<'\n'on': 1"

    assert load_yaml(text, origin="spec.yaml") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}] * 2,
        "d": "2024-01-01",
        "e": "<<",
        "on": 1,
    }


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 64) - 1, 0, 1_000])
def test_numbers_of_64_bits_are_read(number: int) -> None:
    assert load_yaml(f"a: {number}", origin="spec.yaml") == {"a": number}


@given(st.text(max_size=200))
def test_any_text_is_data_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        load_yaml(text, origin="spec.yaml")


_PIECES = (
    *("&a", "*a", "<<: *a", "!!int", "2024-01-01", "1:30", "~", "on", "[", "]", "{", "}", "- ", "? ", ": ", "9" * 100),
    *(".nan", ".inf", "'", '"', "\\", "\t", "\n", "#", "|", ">", "%", "@", "é", "\u202e", "\0", "1e999", "=", ","),
)
_VALUES = (*_PIECES, "[]", "{}", "3", "-1", "true", "text")


def _mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        # An earlier mutation may have cut everything.
        at = chance.randrange(max(1, len(text)))
        kind = chance.randrange(4)
        if kind == 0:
            text = text[:at] + chance.choice(_PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + chance.randint(1, 12) :]
        elif kind == 2:
            lines = text.splitlines()
            chance.shuffle(lines)
            text = "\n".join(lines)
        else:
            start = text.find(":", at)
            end = text.find("\n", start)
            text = text[: start + 1] + " " + chance.choice(_VALUES) + text[end:]
    return text


def _refusal_of_any(text: str) -> ParitygateError | None:
    try:
        parse_spec(text, folder=Path("/spec"), origin="spec.yaml")
    except ParitygateError as err:
        return err
    return None


def _fuzz(count: int) -> dict[str, int]:
    chance = random.Random(0)  # noqa: S311 - a seed, so that a failure comes again
    texts = [path.read_text(encoding="utf-8") for path in _PACKAGED]
    refused = 0
    for _ in range(count):
        text = _mutated(chance.choice(texts), chance)
        error = _refusal_of_any(text)
        if error is not None:
            assert error.exit_code == 2, text
            assert error.hint, text
            assert "Input should" not in str(error), text
            refused += 1
    return {"refused": refused, "taken": count - refused}


def test_mutated_specs_are_taken_or_refused_and_nothing_else(record_property: Callable[[str, object], None]) -> None:
    found = _fuzz(60)
    record_property("figures", f"60 mutated specs: {found}")

    assert found["refused"] > 30
    assert found["taken"] > 0


@pytest.mark.thorough
def test_many_mutated_specs_are_taken_or_refused_and_nothing_else(
    record_property: Callable[[str, object], None],
) -> None:
    found = _fuzz(3000)
    record_property("figures", f"3000 mutated specs: {found}")

    assert found["refused"] > 1500
    assert found["taken"] > 100
