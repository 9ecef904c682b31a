"""Compare answers in a process of its own, for a parent that sends the requests. Lines of JSON come and go.

The first line names the server and the release, and gets the requests. Each other line holds an answer.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from paritygate.errors import MeasurementError, ParitygateError, UsageError
from paritygate.pipelines.live.result import LiveRequest
from paritygate.pipelines.live.target import Target, prepare
from paritygate.pipelines.live.traffic import Exchange, Outcome
from paritygate.pipelines.release.compared import parse_release
from paritygate.roots import root_of
from paritygate.validate.runners.endpoint.open_inference import Answer, OpenInference
from paritygate.validate.samples.source import SampleSource


def main() -> None:
    """Answer the lines of standard input until it ends."""
    # Whatever else prints must not come between the answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        target: Target | None = None
        for line in sys.stdin:
            given = json.loads(line)
            try:
                if target is None:
                    target = _target(given)
                    said = _requests(target)
                else:
                    said = _judged(target, given)
            except ParitygateError as err:
                hint = f"; {err.hint}" if err.hint else ""
                said = {"error": f"{err}{hint}", "exit_code": int(err.exit_code)}
            out.write(json.dumps(said) + "\n")
            out.flush()


def _target(given: dict[str, Any]) -> Target:
    """Return the server; raises as `prepare`, and UsageError or MeasurementError for one that cannot be judged here."""
    model, which, variant = parse_release(given["against"])
    request = LiveRequest(
        repository=root_of(given["repository"]),
        url=given["url"],
        model=model,
        which=which,
        variant=variant,
        samples=SampleSource(text=given["samples"], folder=Path.cwd()),
        rows=given["rows"],
        host=given["may_load"],
    )
    target = prepare(request, "ParityUser", callers=1, progress=lambda *_: None)
    if not isinstance(target.traffic.server.described, OpenInference):
        msg = f"ParityUser sends the Open Inference Protocol over HTTP (got {given['url']})"
        raise UsageError(msg, hint="write for example http://127.0.0.1:8000/v2/models/NAME")
    if target.described_otherwise:
        msg = f"the server describes another model: {target.described_otherwise[0]}"
        raise MeasurementError(msg, hint="serve the release")
    return target


def _requests(target: Target) -> dict[str, Any]:
    traffic, served = target.traffic, target.served
    asked = [traffic.server.asked(feed, traffic.outputs) for feed in traffic.questions.inputs]
    bodies = [{"body": base64.b64encode(each.body).decode(), "headers": dict(each.headers)} for each in asked]
    return {"release": f"{served.model} version {served.version}, {served.variant}", "requests": bodies}


def _judged(target: Target, given: dict[str, Any]) -> dict[str, Any]:
    """Return the place of the rows of an answer, and why it is wrong; empty for a right one."""
    content, which = base64.b64decode(given["content"]), given["which"]
    length = int(given["length"]) if given["length"].isdecimal() else len(content)
    answer = Answer(length=length, content=content)
    exchange = Exchange(number=0, which=which, outcome=Outcome.ANSWERED, answer=answer)
    difference = target.traffic.difference_of(exchange)
    return {"rows": target.traffic.questions.rows[which], "why": "" if difference.is_right else str(difference)}


if __name__ == "__main__":
    main()
