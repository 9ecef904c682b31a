"""On which GPUs engines run: the list that is kept for machines without the library is the library's own."""

from __future__ import annotations

from typing import Any

import pytest

from paritygate.engine.capabilities import capabilities_of
from paritygate.engine.gpu_fit import RTX_CAPABILITIES, why_not_built_for
from paritygate.engine.library import open_library


@pytest.mark.rtx
def test_the_capabilities_kept_are_those_of_the_library() -> None:
    assert capabilities_of(open_library("tensorrt-rtx")).compute_capabilities == RTX_CAPABILITIES


@pytest.mark.parametrize("settings", [{}, {"compute_capabilities": None}, {"compute_capabilities": []}])
def test_where_nothing_was_asked_for_it_is_8_0_and_above(settings: dict[str, Any]) -> None:
    facts = {"library": "tensorrt-rtx", "engine_settings": settings}

    found = [name for name in RTX_CAPABILITIES if not why_not_built_for(f"cuda:sm{name.replace('.', '')}", facts)]

    assert found == ["8.0", "8.6", "8.9", "12.0", "12.1"]


def test_without_a_level_an_engine_is_for_the_gpu_it_was_built_on() -> None:
    facts = {"library": "tensorrt", "engine_settings": {}, "built_on": {"capability": "90"}}

    assert why_not_built_for("cuda:sm90", facts) == ""
    assert why_not_built_for("cuda:sm89", facts).startswith("was built on cuda:sm90")
