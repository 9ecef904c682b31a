"""`ParityUser` in a locustfile, run by Locust itself."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk
    from tests.pipelines.live.conftest import Served

    Locust = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="Locust is not installed (the extra `load`)"),
]


@pytest.fixture
def locust(finished: Desk, served: Served) -> Locust:
    """Return a function that lets two users send 60 requests, and more fields of their class."""

    def run(**fields: object) -> subprocess.CompletedProcess[str]:
        given = {"url": served.address, "against": "tiny@prod", "samples": "inputs.npz", **fields}
        # A field that is None is left out.
        lines = "\n".join(f"    {name} = {value!r}" for name, value in given.items() if value is not None)
        text = textwrap.dedent("""
            import itertools
            import gevent
            from locust import task
            from paritygate.live.locust import ParityUser

            numbers = itertools.count(1)

            class Scores(ParityUser):
            {lines}

                @task
                def score(self):
                    self.ask()
                    if next(numbers) == 60:
                        gevent.spawn(self.environment.runner.quit)
        """)
        (finished.folder / "locustfile.py").write_text(text.replace("{lines}", lines), encoding="utf-8")
        command = [sys.executable, "-m", "locust", "-f", "locustfile.py", "--headless", "-u", "2", "-r", "2"]
        return subprocess.run(
            [*command, "--run-time", "300s"],
            cwd=finished.folder,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )

    return run


def _wrong_of(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str]]:
    """Return the wrong answers in Locust's report of errors, each with its number and rows."""
    lines = re.findall(r"^(\d+) +POST .*WrongAnswerError\(['\"](rows? .+?) of the samples", done.stderr, re.MULTILINE)
    return [(int(times), rows) for times, rows in lines]


def test_right_answers_pass(served: Served, locust: Locust) -> None:
    done = locust()

    assert (done.returncode, _wrong_of(done)) == (0, []), done.stderr
    assert served.asked >= 60


def test_wrong_answers_are_failures_of_their_request(served: Served, locust: Locust) -> None:
    # Two in sixty, both with status 200.
    served.changed = lambda number, logits: np.roll(logits, 1, axis=-1) if number in {20, 40} else logits

    done = locust()

    assert (done.returncode, [times for times, _ in _wrong_of(done)]) == (1, [1, 1]), done.stderr


def test_an_answer_that_cannot_be_read_is_wrong(served: Served, locust: Locust) -> None:
    served.instead = lambda number, _: 200 if number == 5 else None

    done = locust()

    assert (done.returncode, len(_wrong_of(done))) == (1, 1), done.stderr
    assert "secret-input" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"against": "tiny@nowhere"}, 2),
        ({"against": None}, 2),
        ({"url": None}, 2),
        ({"samples": None}, 2),
        ({"url": "http://example.org/v2/models/tiny"}, 2),
        ({"url": "http://127.0.0.1:9/v2/models/tiny"}, 5),
    ],
)
def test_nothing_is_sent_where_the_release_or_the_server_is_missing(
    served: Served, locust: Locust, fields: dict[str, object], code: int
) -> None:
    done = locust(**fields)

    assert (done.returncode, served.asked) == (code, 0), done.stderr
    assert "Traceback" not in done.stderr
