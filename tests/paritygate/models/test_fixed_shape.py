"""The rule for fixed dims: what it makes of a signature, what it refuses, how it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.convert.conftest import sign

from paritygate.errors import InputFileError, UsageError
from paritygate.models.fixed_shape import FIXED_SHAPE_FILE, FixedShape, read_fixed_shape, write_fixed_shape
from paritygate.signature import Signature

_SIGNATURE = sign(
    {"ids": "int64[batch, sequence]", "mask": "bool[batch, sequence]", "scale": "float32[1]"},
    {"scores": "float32[batch, sequence, 2]", "label": "int64[batch]"},
    batch=(1, 4, 64),
    sequence=(8, 64, 128),
)
_PAD = {"ids": 0, "mask": 0}


def _rule(
    dims: Mapping[str, int], *, pad: Mapping[str, float] = _PAD, signature: Signature = _SIGNATURE, **dtypes: str
) -> FixedShape:
    return FixedShape(dims=dims, pad=pad, dtypes=dtypes, signature=signature)


def test_the_fixed_signature_has_sizes_and_dtypes() -> None:
    rule = _rule({"batch": 2, "sequence": 128}, ids="int32", mask="float32")

    assert rule.fixed_signature == sign(
        {"ids": "int32[2, 128]", "mask": "float32[2, 128]", "scale": "float32[1]"},
        {"scores": "float32[2, 128, 2]", "label": "int64[2]"},
    )
    assert (rule.rows_dim, rule.padded_dims, str(rule)) == ("batch", ("sequence",), "batch 2, sequence 128")


def test_dims_that_are_not_named_stay_open() -> None:
    rows_alone, size_alone = _rule({"batch": 2}, pad={}), _rule({"sequence": 128})

    assert str(rows_alone.fixed_signature.inputs[0]) == "ids: int64[2, sequence]"
    assert set(rows_alone.fixed_signature.dims) == {"sequence"}
    assert str(size_alone.fixed_signature.outputs[0]) == "scores: float32[batch, 128, 2]"
    assert size_alone.rows_dim is None


def test_the_rule_is_read_as_it_was_written(tmp_path: Path) -> None:
    rule = _rule({"batch": 2, "sequence": 128}, ids="int32")
    write_fixed_shape(rule, tmp_path)

    assert read_fixed_shape(tmp_path / FIXED_SHAPE_FILE) == rule


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"dims": 1, "pad": {}, "dtypes": {}, "signature": {}}'])
def test_a_damaged_rule_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / FIXED_SHAPE_FILE
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputFileError, match="is corrupt"):
        read_fixed_shape(path)


def test_a_missing_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="the rule for fixed dims is missing"):
        read_fixed_shape(tmp_path / FIXED_SHAPE_FILE)


_OTHER_ROWS = sign({"a": "float32[batch, 4]", "b": "float32[n, 4]"}, {"y": "float32[batch]"})
_PAIRS = sign({"a": "float32[batch, batch]"}, {"y": "float32[batch]"})
_REDUCED = sign({"a": "float32[batch, 4]"}, {"y": "float32[1]"})
_LONGER = sign({"a": "float32[batch, n]"}, {"y": "float32[batch, 2*n]"})
_UNKNOWN = sign({"a": "float32[batch, n]"}, {"y": "float32[batch, ?]"})
_TEXT = sign({"a": "string[batch, n]"}, {"y": "float32[batch]"})


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"dims": {"length": 8}}, "dim 'length' is not a symbolic dim of the inputs (they have: batch, sequence)"),
        ({"dims": {"sequence": 256}}, "dim 'sequence' is fixed at 256, but model.dims allows 8 to 128"),
        ({"dims": {"sequence": 4}}, "dim 'sequence' is fixed at 4, but model.dims allows 8 to 128"),
        (
            {"dims": {"sequence": 64}, "pad": {"ids": 0}},
            "the input mask: bool[batch, sequence] has a fixed dim besides",
        ),
        ({"dims": {"batch": 1}}, "pad names 'ids', which no fixed dim pads (allowed: none)"),
        ({"dims": {"sequence": 64}, "pad": {**_PAD, "token": 0}}, "pad names 'token'"),
        ({"dims": {"sequence": 64}, "pad": {**_PAD, "mask": 2}}, "pad gives 2 for 'mask', which bool cannot hold"),
        ({"dims": {"sequence": 64}, "pad": {**_PAD, "ids": 0.5}}, "pad gives 0.5 for 'ids', which int64 cannot hold"),
        (
            {"dims": {"sequence": 64}, "pad": {**_PAD, "ids": 2**40}, "dtypes": {"ids": "int32"}},
            "for 'ids', which int32 cannot hold",
        ),
        (
            {"dims": {"batch": 1}, "pad": {}, "dtypes": {"label": "int32"}},
            "dtypes names 'label', which is not an input",
        ),
        ({"dims": {"batch": 1}, "pad": {}, "dtypes": {"ids": "int16"}}, "cannot be given as 'int16'"),
        ({"dims": {"batch": 1}, "pad": {}, "dtypes": {"mask": "int32"}}, "cannot be given as 'int32'"),
        ({"dims": {"batch": 1}, "pad": {}, "dtypes": {"scale": "float16"}}, "cannot be given as 'float16'"),
        ({"dims": {"batch": 1}, "pad": {}, "signature": _OTHER_ROWS}, "rows of the input b: float32[n, 4] are counted"),
        ({"dims": {"batch": 1}, "pad": {}, "signature": _PAIRS}, "is not axis 0 of the input a"),
        (
            {"dims": {"batch": 1}, "pad": {}, "signature": _REDUCED},
            "the output y: float32[1] does not have it exactly once",
        ),
        ({"dims": {"n": 1}, "pad": {"a": 0}, "signature": _LONGER}, "the output y: float32[batch, 2*n] has a dim that"),
        ({"dims": {"n": 1}, "pad": {"a": 0}, "signature": _UNKNOWN}, "the output y: float32[batch, ?] has a dim that"),
        ({"dims": {"n": 1}, "pad": {"a": 0}, "signature": _TEXT}, "pad gives 0 for 'a', which string cannot hold"),
    ],
)
def test_what_cannot_be_fixed_is_refused_in_words(wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        FixedShape(**{"pad": _PAD, "signature": _SIGNATURE, **wanted})

    assert words in str(caught.value)
    assert caught.value.hint
