"""Why a job is done again, where it is asked otherwise: the first difference, called as the user calls it."""

from __future__ import annotations

from typing import Any

import pytest

from paritygate.pipelines.cache.request import difference_of_requests


def _request(**parts: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON data
    return {"job": "export", "args": {}, "here": "/a", "machine": {"cores": 2}, "variables": {"A": "1"}, **parts}


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            {"args": {"spec": {"spec": {"opset": 17}}}},
            {"args": {"spec": {"spec": {"opset": 18}}}},
            "opset changed (17 -> 18)",
        ),
        ({"args": {"spec": {"name": "a"}}}, {"args": {"spec": {"name": "b"}}}, 'spec.name changed ("a" -> "b")'),
        ({"args": {"job": {"device": "cpu"}}}, {"args": {"job": {}}}, 'device changed ("cpu" -> nothing)'),
        (
            {"args": {"job": {"source": {"folder": "/a"}}}},
            {"args": {"job": {"source": {"folder": "/b"}}}},
            'the folder of the model changed ("/a" -> "/b")',
        ),
        (
            {"args": {"job": {"rules": {"tolerance": {"max_abs_diff": 0.1}}}}},
            {"args": {"job": {"rules": {"tolerance": {"max_abs_diff": 0.2}}}}},
            "tolerance.max_abs_diff changed (0.1 -> 0.2)",
        ),
        ({}, {"machine": {"cores": 4}}, "cores changed (2 -> 4)"),
        ({}, {"variables": {"A": "2"}}, "the environment variable A changed"),
        ({}, {"here": "/b"}, 'the folder that the command is called in changed ("/a" -> "/b")'),
        ({"args": {"job": {"samples": "s" * 99}}}, {"args": {"job": {"samples": "t"}}}, "samples changed"),
        ({"args": {"is_fit_known": True, "ties": {"a": "b"}}}, {"args": {"is_fit_known": False, "ties": {}}}, ""),
        ({}, {}, ""),
    ],
)
def test_the_first_difference_is_told(before: dict[str, Any], now: dict[str, Any], words: str) -> None:
    assert difference_of_requests(_request(**before), _request(**now)) == words
