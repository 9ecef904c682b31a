"""A declared limit is about the samples: made-up inputs are held to nothing stricter than the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


def _off_for_single_rows(bench: Bench, off: float) -> str:
    """Write the linear model whose answer to a batch of one row is off, as no sample shows."""
    import onnx

    make = onnx.helper.make_node
    return bench.model(
        "single",
        [
            make("MatMul", ["x", "weight"], ["product"]),
            make("Shape", ["x"], ["shape"]),
            make("Gather", ["shape", "zero"], ["rows"]),
            make("Equal", ["rows", "one"], ["is_single"]),
            make("Cast", ["is_single"], ["factor"], to=onnx.TensorProto.FLOAT),
            make("Mul", ["factor", "off"], ["error"]),
            make("Add", ["product", "error"], ["logits"]),
        ],
        inputs={"x": ("float", ["batch", 4])},
        outputs={"logits": ("float", ["batch", 3])},
        weights={
            "weight": bench.normal(4, 3, seed=7),
            "zero": np.int64(0),
            "one": np.int64(1),
            "off": np.float32(off),
        },
    )


@pytest.mark.parametrize(("off", "code"), [(5e-5, 0), (1e-2, 1)])
def test_a_made_up_batch_is_held_to_the_default_where_a_stricter_limit_is_declared(
    bench: Bench, off: float, code: int
) -> None:
    arguments = [bench.linear("reference"), _off_for_single_rows(bench, off), "--samples", bench.samples()]

    outcome = bench.compare(*arguments, "--probes", "batches", "--tolerance", "max_abs_diff=1e-5")

    assert outcome.status("max_abs_diff", "logits") == "pass"
    assert outcome.code == code
