"""The page on engines says what the code says: targets, and where things were run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.library import TENSORRT_RTX, open_library
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS

if TYPE_CHECKING:
    from tests.docs.conftest import Page


@pytest.fixture
def engines_page(pages: dict[str, Page]) -> Page:
    return pages["docs/tensorrt.md"]


def test_every_engine_target_is_on_the_page(engines_page: Page) -> None:
    named = re.findall(r"`([\w-]+)`", " ".join(row[0] for row in engines_page.rows("Precision")))

    assert sorted(named) == sorted(str(item) for item in AVAILABLE_TARGETS if item.format in ENGINE_FORMATS)


@pytest.mark.rtx
def test_the_compute_capabilities_are_those_of_the_library(engines_page: Page) -> None:
    found = re.search(r"those that TensorRT-RTX names: ([\d., and]+);", " ".join(engines_page.prose.split()))

    assert found
    assert tuple(re.findall(r"\d+\.\d", found[1])) == capabilities_of(open_library(TENSORRT_RTX)).compute_capabilities


def test_no_row_says_that_it_ran_on_a_gpu_without_figures(pages: dict[str, Page], project_root: Path) -> None:
    rows = pages["docs/results-gpu.md"].rows("What was run, and what never")
    on_gpu = {row[0]: row[2] for row in rows if len(row) == 3}

    assert {"TensorRT-RTX 1.7, build", "PyTorch, CUDA: FP32, TF32, FP16, BF16"} <= set(on_gpu)
    if not (project_root / "benchmarks/results/gpu_parity.json").exists():
        assert {name for name, said in on_gpu.items() if not said.startswith("never") and said != "-"} == set()
