"""A child process that keeps what it loaded, and replies to one request after the other."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from io import FileIO
from typing import Any

from msgspec.structs import replace

from paritygate.errors import ParitygateError
from paritygate.pipelines.process.child import (
    ChildEvents,
    ChildJob,
    result_of_child,
    start_child,
    stop_child,
    wait_for_end,
)

_EXIT_S = 5.0


class ServingChild:
    """A child whose job calls `serve` of `child_main`, to be closed in any case.

    Any method may raise the job's error, or its crash error after a crash or timeout. Then it is of no more use.
    """

    def __init__(self, job: ChildJob) -> None:
        theirs, ours = os.pipe()
        self._requests = FileIO(ours, "wb")
        try:
            self.child = start_child(replace(job, args={**job.args, "requests": theirs}), inherited=(theirs,))
        except BaseException:
            self._requests.close()
            raise
        finally:
            os.close(theirs)
        self.events = ChildEvents(self.child)

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        stop_child(self.child)

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the reply to a request, which has to come within so many seconds."""
        try:
            self._requests.write(f"{json.dumps(request)}\n".encode())
        except BrokenPipeError:
            raise self._death() from None
        return self.reply(seconds)

    def reply(self, seconds: float) -> dict[str, Any]:
        """Return the next reply."""
        reply = self.events.reply(time.monotonic() + seconds, lambda *_: None)
        if reply is None:
            raise self._death()
        return reply

    def _death(self) -> ParitygateError:
        """Return why the process is gone."""
        job, stage = self.child.job, self.events.stage
        with contextlib.suppress(TimeoutError):
            wait_for_end(self.child, time.monotonic() + _EXIT_S, stage)
        stop_child(self.child)
        try:
            result_of_child(self.child, stage)
        except ParitygateError as err:
            return err
        return job.crash_error(f"{job.what} ended while {stage}, before it was stopped", hint="try again")
