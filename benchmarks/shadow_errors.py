"""Simulate how often the sequential test of `shadow` is right, and how many requests it takes.

    python benchmarks/shadow_errors.py [--seeds 300]

Between two changed answers no verdict turns into a rollback, so only those are looked at: that is a look after each
request.
"""

from __future__ import annotations

import argparse

import numpy as np

from paritygate.pipelines.shadow.sequential import SequentialTest, Verdict

_MOST = 0.0005


def first_rollback(rate: float, requests: int, seed: int) -> int | None:
    """Return after how many requests a rollback is certain; None where it never is."""
    test = SequentialTest(_MOST)
    for place in np.flatnonzero(np.random.default_rng(seed).random(requests) < rate):
        test.add_equal(int(place) - test.requests)
        test.add(1.0)
        if test.verdict is Verdict.ROLLBACK:
            return test.requests
    return None


def requests_to_promote() -> int:
    """Return after how many requests without a change a release is promoted."""
    test = SequentialTest(_MOST)
    while test.verdict is Verdict.HOLD:
        test.add_equal(10)
    return test.requests


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300)
    seeds = range(parser.parse_args().seeds)
    found = [place for seed in seeds if (place := first_rollback(10 * _MOST, 3000, seed)) is not None]
    print(f"ten times the rate: found within 3,000 requests for {len(found)} of {len(seeds)} seeds, ", end="")
    print(f"half of them within {np.median(found):.0f}")
    print(f"no change: promoted after {requests_to_promote():,} requests", flush=True)
    alarms = sum(first_rollback(_MOST, 10**6, seed) is not None for seed in seeds)
    print(f"the allowed rate, 10^6 requests: {alarms} of {len(seeds)} seeds are a false rollback")


if __name__ == "__main__":
    main()
