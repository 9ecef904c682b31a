"""From a release to a real Triton server that answers it: `demo.py ENVIRONMENT`, which `make triton-demo` calls.

It takes the demo's release, makes one where there is none, writes its view, starts the server on the shadow of the
view, holds the server's answers against the released file's, and ends the server.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from triton_server import TritonServer, shadow_of, why_no_server

from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import show
from paritygate.pipelines.release.views.publish import publish_view
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.report.terminal.screen import WIDTH, command_lines
from paritygate.pipelines.serving.place import Place
from paritygate.validate.samples.source import SampleSource

_MODEL = "klue-sts"
_SAMPLES = "paritygate.fixtures.sts:evaluation_pairs"
_ROOT = Path("artifacts/triton-demo")
# What is run by the shadow's backend.
_VARIANT = "onnx-fp32"
_TOOL = Path(sys.executable).with_name("convert-and-validate")


def main(place: Path) -> int:
    """Do all of it, and return the exit code of the comparison.

    Raises:
        SystemExit: There is no server, or a step failed.
    """
    why = why_no_server(place)
    if why:
        sys.exit(why)
    repository = next(filter(_has_release, (Path("artifacts/repository"), _ROOT / "repository")), None)
    if repository is None:
        repository = _ROOT / "repository"
        run = ["run", _MODEL, "--target", _VARIANT, "--no-promote", "--root", str(_ROOT)]
        promote = ["promote", "--run", "latest", "--despite", "the demo serves one variant", "--root", str(_ROOT)]
        if _call(run) or _call(promote):
            return 1
    models = _ROOT / "models"
    if _call(
        [
            *("triton", _MODEL, "--no-follow", "--variant", _VARIANT, "--samples", _SAMPLES),
            *("--repository", str(repository), "--out", str(models)),
        ]
    ):
        return 1
    with tempfile.TemporaryDirectory(prefix="paritygate-triton-") as folder:
        work = Path(folder)
        # What the command wrote a moment ago, and so nothing is written again.
        order = ViewRequest(
            command="triton",
            model=_MODEL,
            which="prod",
            root=models,
            name=_MODEL,
            variant=_VARIANT,
            samples=_SAMPLES,
        )
        published = publish_view(repository, order, SampleSource(text=_SAMPLES, folder=Path.cwd()))
        shadow_of(published.view, models).write(Place(work / "shadow"))
        with TritonServer(place, work / "shadow", work) as server:
            server.wait_until_ready(_MODEL)
            warm = sum(event["event"] == "executed" for event in server.done())
            _say(f"\nTriton {server.get('/v2')['version']} is ready at {server.grpc}, after {warm} warm-up calls.")
            _say("Its backend is the python backend, on the released bytes: the wheel that")
            _say("it comes in brings no other.")
            code = _call(
                [
                    *("compare", str(published.artifact), f"grpc://{server.grpc}/{_MODEL}", "--samples", _SAMPLES),
                    *("--decision", "logits:threshold=3"),
                ]
            )
            calls = [event for event in server.done() if event["event"] == "executed"][warm:]
            asked = sum(event["requests"] for event in calls)
            _say(f"The server answered {asked} requests in {len(calls)} calls of the model.")
    return code


def _has_release(repository: Path) -> bool:
    try:
        found = show(repository, _MODEL, "prod")
    except ParitygateError:
        return False
    return _VARIANT in [entry["name"] for entry in found.manifest["variants"]]


def _call(words: Sequence[str]) -> int:
    _say("\n$ " + "\n".join(command_lines(shlex.join(["convert-and-validate", *words]), width=WIDTH - 2)))
    return subprocess.run([_TOOL, *words], check=False).returncode


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
