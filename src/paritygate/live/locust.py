"""Locust users whose answers are compared with those of a released file. The extra `load` installs Locust.

Another process compares the answers when the load is over, so that comparing slows down no request.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from typing import Any, ClassVar
from urllib.parse import urlsplit

from locust import HttpUser, events
from locust.runners import STATE_INIT, STATE_STOPPED, LocalRunner

from paritygate.errors import ExitCode
from paritygate.text import counted, echo

_PROCESS = "paritygate.live.answer_process"
_LENGTH = "Inference-Header-Content-Length"
# The most bytes of different answers in memory; beyond, they are compared during the load.
_MOST_HELD = 256 << 20


class WrongAnswerError(Exception):
    """An answer is not that of the released file; Locust lists it with the failures of its request."""


# Locust need not be installed where types are checked.
class ParityUser(HttpUser):  # type: ignore[misc]
    """A user that sends samples of a released model to a server, by `ask` in its tasks."""

    abstract = True
    url: ClassVar[str]  # of the model on the server, in the Open Inference Protocol over HTTP
    against: ClassVar[str]  # the release, as MODEL@ALIAS
    samples: ClassVar[str]  # their file, or MODULE:CALLABLE
    rows: ClassVar[int] = 1  # of a request
    repository: ClassVar[str] = "artifacts/repository"
    may_load: ClassVar[str | None] = None  # another machine that may be loaded
    judge: ClassVar[_Judge]

    def ask(self) -> None:
        """Send the next request, and keep its answer until the load is over."""
        self.judge.ask(self.client)


class _Judge:
    """The requests of one class of users, and the process that compares the answers to them."""

    def __init__(self, user: type[ParityUser], environment: Any) -> None:  # noqa: ANN401 - of Locust
        """Let the released file run on the samples; exit with the code of the error if it does not."""
        # Ctrl-C is for Locust alone: the answers are compared after it.
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._stats = environment.stats
        self._lock = threading.Lock()
        self._answers: Counter[tuple[int, str, bytes]] = Counter()
        self._held = 0
        self.judged = self.wrong = self.code = 0
        names = ("url", "against", "samples", "rows", "repository", "may_load")
        found = self._told({name: getattr(user, name) for name in names})
        if "error" in found:
            sys.exit(self._failed(found))
        self.release: str = found["release"]
        self._requests = [(base64.b64decode(each["body"]), each["headers"]) for each in found["requests"]]
        self._numbers = itertools.count()
        self._url = f"{user.url.rstrip('/')}/infer"
        self._name = urlsplit(self._url).path
        # Locust asks for a host, although the address names one.
        user.host = user.url

    def ask(self, client: Any) -> None:  # noqa: ANN401 - of Locust
        which = next(self._numbers) % len(self._requests)
        body, headers = self._requests[which]
        response = client.post(self._url, data=body, headers=headers, name=self._name)
        if not response.ok:
            return
        answer = (which, response.headers.get(_LENGTH, ""), response.content)
        self._held += 0 if answer in self._answers else len(response.content)
        self._answers[answer] += 1
        if self._held > _MOST_HELD:
            self.compare()

    def compare(self) -> None:
        """Compare all answers that are held, and report wrong ones to Locust."""
        answers, self._answers, self._held = self._answers, Counter(), 0
        for (which, length, content), times in answers.items():
            text = base64.b64encode(content).decode()
            found = self._told({"which": which, "length": length, "content": text})
            if "error" in found:
                self._failed(found)
                return
            self.judged += times
            for _ in range(times if found["why"] else 0):
                self.wrong += 1
                self._stats.log_error("POST", self._name, WrongAnswerError(f"{found['rows']}: {found['why']}"))

    def _failed(self, found: dict[str, Any]) -> int:
        echo(f"ParityUser: {found['error']}", err=True)
        self.code = int(found["exit_code"])
        return self.code

    def _told(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what the process answers; it is waited for without a thread, so users go on."""
        assert self._process.stdin is not None  # noqa: S101 - it is piped
        assert self._process.stdout is not None  # noqa: S101 - likewise
        answer = b""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        ended = {"error": "the process that compares answers has ended", "exit_code": int(ExitCode.NOT_MEASURED)}
        found: dict[str, Any] = json.loads(answer) if answer else ended
        return found


def _begin(environment: Any, runner: Any, **_: object) -> None:  # noqa: ANN401 - of Locust
    users = [user for user in environment.user_classes if issubclass(user, ParityUser)]
    if users and not isinstance(runner, LocalRunner):
        echo("ParityUser runs in one process of Locust (got several; leave --processes and --worker out)", err=True)
        sys.exit(int(ExitCode.USAGE))
    for user in users:
        missing = [name for name in ("url", "against", "samples") if not getattr(user, name, "")]
        if missing:
            echo(f"ParityUser: {user.__name__} has no {missing[0]} (expected url, against and samples)", err=True)
            sys.exit(int(ExitCode.USAGE))
        user.judge = _Judge(user, environment)


def _compare(environment: Any, **_: object) -> None:  # noqa: ANN401 - of Locust
    for judge in _judges(environment):
        judge.compare()
        echo(f"{counted(judge.judged, 'answer')} compared with {judge.release}: {judge.wrong} wrong", err=True)


def _end(environment: Any, **_: object) -> None:  # noqa: ANN401 - of Locust
    judges = _judges(environment)
    if environment.runner is not None and environment.runner.state not in {STATE_INIT, STATE_STOPPED}:
        # After Ctrl-C, Locust stops users only when the exit code is known.
        environment.runner.stop()
    if any(judge.wrong for judge in judges):
        environment.process_exit_code = int(ExitCode.PARITY_FAILED)
    elif any(judge.code or not judge.judged for judge in judges):
        environment.process_exit_code = int(ExitCode.NOT_MEASURED)


def _judges(environment: Any) -> list[_Judge]:  # noqa: ANN401 - of Locust
    return [user.judge for user in environment.user_classes if issubclass(user, ParityUser)]


events.init.add_listener(_begin)
events.test_stop.add_listener(_compare)
events.quitting.add_listener(_end)
