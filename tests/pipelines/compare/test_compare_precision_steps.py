"""A limit that the precision itself cannot keep to, at the size of the numbers, is said where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


@pytest.mark.parametrize(("options", "is_said"), [(("--precision", "fp16"), True), ((), False)])
def test_fp16_far_from_zero_is_told_of_its_steps(bench: Bench, *, options: tuple[str, ...], is_said: bool) -> None:
    expected = (11 + bench.normal(64, 2) / 100).astype(np.float32)

    outcome = bench.given({"y": expected}, {"y": expected + np.float32(0.016)}, *options)

    # Two steps of FP16 there: within what a single value may be off by, and beyond what all of them may be on the mean.
    assert outcome.status("max_abs_diff", "y") == ("pass" if is_said else "fail")
    assert outcome.status("mean_abs_diff", "y") == "fail"
    assert ("steps" in {words["key"] for words in outcome.check("mean_abs_diff", "y")["words"]}) is is_said
    # Nor can such values be told apart at all.
    assert ("resolution" in {check["name"] for check in outcome.result["checks"]}) is is_said


@pytest.mark.parametrize(("difference", "options"), [(3.0, ()), (0.016, ("--tolerance", "max_abs_diff=1e-3"))])
def test_no_tolerance_of_ones_own_is_advised_for_what_is_no_rounding_or_where_there_is_one(
    bench: Bench, difference: float, options: tuple[str, ...]
) -> None:
    expected = (11 + bench.normal(64, 2) / 100).astype(np.float32)

    outcome = bench.given({"y": expected}, {"y": expected + np.float32(difference)}, "--precision", "fp16", *options)

    assert outcome.status("max_abs_diff", "y") == "fail"
    keys = {words["key"] for words in outcome.check("max_abs_diff", "y")["words"]}
    assert "steps.own_tolerance" not in keys
    assert ("steps" in keys) is bool(options)
