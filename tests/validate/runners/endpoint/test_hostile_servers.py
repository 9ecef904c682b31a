"""No server is believed too easily: whatever it sends, the outcome is a verdict other than pass, soon, in few words."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.validate.runners.endpoint.hostile import MAPPING, MODES, RIGHT, Mode, original, serving_mode

import paritygate as pg
from paritygate.validate.runners.endpoint.connection import Connections, HttpRequest, TooLargeError

_X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
# What never answers is left soon, and what answers has as long as a slow machine needs.
_TIMEOUT_S, _PATIENT_S = 0.4, 600.0
# Far below what the servers that never end would take.
_LONGEST_S = 600.0


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Yield what the tests of this module count, which is printed at their end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\nhostile servers: {dict(counted)}")  # noqa: T201 - the figures


def compare(mode: Mode, *, timeout_s: float = _TIMEOUT_S) -> pg.Comparison:
    with serving_mode(mode) as url:
        return pg.compare(
            original,
            url,
            samples={"x": _X},
            batch_size=8,
            min_rows=16,
            probes=(),
            endpoint={"requests_per_second": 1e5, "timeout_s": timeout_s},
            endpoint_json=MAPPING if mode.protocol == "json" else None,
        )


def test_there_are_a_hundred_ways() -> None:
    assert len(MODES) >= 100


@pytest.mark.parametrize("name", MODES)
def test_no_hostile_server_passes(name: str, figures: Counter[str]) -> None:
    begin = time.monotonic()

    result = compare(MODES[name])

    seconds = time.monotonic() - begin
    figures["modes"] += 1
    figures[str(result.verdict)] += 1
    figures["longest, in ms"] = max(figures["longest, in ms"], round(seconds * 1000))
    assert result.verdict in {"fail", "error"}, str(result)
    assert result.exit_code in {1, 5}
    assert seconds < _LONGEST_S
    # One clear error: of a few lines that are quoted at most, and none of ours.
    assert "unexpected" not in str(result)
    assert max(map(len, str(result).splitlines())) < 2000


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_unusual_and_right_passes(name: str, figures: Counter[str]) -> None:
    result = compare(RIGHT[name], timeout_s=_PATIENT_S)

    figures["right"] += 1
    figures["right that pass"] += result.verdict == "pass"
    assert result.verdict == "pass", str(result)


@pytest.mark.parametrize("name", ["gzip of 64 MB of zeros", "a body without end", "chunks without end"])
def test_no_more_memory_is_taken_than_an_answer_may_have(name: str) -> None:
    most = 1 << 20
    with serving_mode(MODES[name]) as url:
        body = b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}'
        request = HttpRequest(method="POST", path="/v2/models/tiny/infer", body=body)
        connections = Connections(url.partition("/v2")[0], most=1)
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError):
                connections.exchange(request, seconds=_PATIENT_S, most=most)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * most


@pytest.mark.parametrize(
    ("outputs", "most_mib"),
    [
        # All outputs of 8 rows have less than 200 bytes, and 1 MiB is allowed in any case.
        ([], 1),
        # What the reference answers of the others is not known.
        (["logits"], 3),
    ],
)
def test_an_answer_may_have_64_times_the_bytes_of_the_reference(outputs: list[str], most_mib: int) -> None:
    def verdict(padding: int) -> Any:  # noqa: ANN401 - as the API has it
        padded = Mode(protocol="json", answer=lambda found: {**found, "padding": " " * padding})
        with serving_mode(padded) as url:
            return pg.compare(
                original,
                url,
                samples={"x": _X},
                batch_size=8,
                min_rows=16,
                outputs=outputs,
                probes=(),
                endpoint={"requests_per_second": 1e5, "max_answer_mb": 3},
                endpoint_json=MAPPING,
            ).verdict

    most = most_mib << 20
    assert verdict(most - 4096) == "pass"
    assert verdict(most + 1) in {"fail", "error"}
