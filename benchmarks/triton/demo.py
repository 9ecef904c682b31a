"""From a release to a real Triton server that answers it: `demo.py ENVIRONMENT`, which `make triton-demo` calls.

It takes the demo's release, makes one where there is none, writes its view, starts the server on the shadow of the
view, compares the server's answers with the released file's, and ends the server.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from running import running
from triton_server import TritonServer, shadow_of, why_no_server

from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import show
from paritygate.pipelines.release.views.publish import PublishedView, publish_view
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.report.terminal.screen import WIDTH, command_lines
from paritygate.pipelines.serving.place import Place
from paritygate.validate.samples.source import SampleSource

__all__ = ["MODEL", "SAMPLES", "call", "command_of", "publish", "released", "say"]

MODEL = "klue-sts"
SAMPLES = "paritygate.fixtures.sts:evaluation_pairs"
_ROOT = Path("artifacts/triton-demo")
# The shadow's backend runs it.
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
    repository = released()
    with tempfile.TemporaryDirectory(prefix="paritygate-triton-") as folder:
        work = Path(folder)
        published = publish(repository, work)
        with TritonServer(place, work / "shadow", work) as server:
            server.wait_until_ready(MODEL)
            warm = sum(event["event"] == "executed" for event in server.done())
            say(f"\nTriton {server.get('/v2')['version']} is ready at {server.grpc}, after {warm} warm-up calls.")
            say("Its backend is the python backend, on the released bytes: the wheel that")
            say("it comes in brings no other.")
            code = call(
                *("compare", str(published.artifact), f"grpc://{server.grpc}/{MODEL}", "--samples", SAMPLES),
                *("--decision", "logits:threshold=3"),
            )
            calls = [event for event in server.done() if event["event"] == "executed"][warm:]
            asked = sum(event["requests"] for event in calls)
            say(f"The server answered {asked} requests in {len(calls)} calls of the model.")
    return code


def released() -> Path:
    """Return the repository with the demo's release, and make one where there is none.

    Raises:
        SystemExit: A step failed.
    """
    repository = next(filter(_has_release, (Path("artifacts/repository"), _ROOT / "repository")), None)
    if repository is not None:
        return repository
    run = ["run", MODEL, "--target", _VARIANT, "--no-promote", "--root", str(_ROOT)]
    promote = ["promote", "--run", "latest", "--despite", "the demo serves one variant", "--root", str(_ROOT)]
    if call(*run) or call(*promote):
        sys.exit("nothing was released")
    return _ROOT / "repository"


def publish(repository: Path, work: Path) -> PublishedView:
    """Write the view of the release, and its shadow below `work`, on which a server starts.

    Raises:
        SystemExit: The view was not written.
    """
    models = _ROOT / "models"
    if call(
        *("triton", MODEL, "--no-follow", "--variant", _VARIANT, "--samples", SAMPLES),
        *("--repository", str(repository), "--out", str(models)),
    ):
        sys.exit("the view was not written")
    # The command wrote it a moment ago, and so nothing is written again.
    order = ViewRequest(
        command="triton",
        model=MODEL,
        which="prod",
        root=models,
        name=MODEL,
        variant=_VARIANT,
        samples=SAMPLES,
    )
    published = publish_view(repository, order, SampleSource(text=SAMPLES, folder=Path.cwd()))
    shadow_of(published.view, models).write(Place(work / "shadow"))
    return published


def _has_release(repository: Path) -> bool:
    try:
        found = show(repository, MODEL, "prod")
    except ParitygateError:
        return False
    return _VARIANT in [entry["name"] for entry in found.manifest["variants"]]


def command_of(*words: str) -> list[str]:
    """Print a command as a user writes it, and return it for a process."""
    say("\n$ " + "\n".join(command_lines(shlex.join(["convert-and-validate", *words]), width=WIDTH - 2)))
    return [str(_TOOL), *words]


def call(*words: str) -> int:
    """Print a command, run it, and return its exit code."""
    with running(command_of(*words)) as process:
        return process.wait()


def say(text: str) -> None:
    """Print at once, because processes print to the same terminal."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
