"""Which kind of server a folder of models is for: it holds views of that kind alone.

A server takes every folder there for a model of its own, and two views of one name would write into one folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paritygate.errors import UsageError
from paritygate.pipelines.serving.kserve import MANIFEST
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.tensorflow_serving import MODELS_FILE
from paritygate.pipelines.serving.triton.view import CONFIG_FILE

# The kinds of views by the command that writes them.
KINDS: Mapping[str, str] = {"triton": "Triton", "tfserving": "TensorFlow Serving", "kserve": "KServe"}


def check_kind(place: Place, command: str, *, root: str, elsewhere: str) -> None:
    """Check that a folder of models holds no view of another kind than the one that a command writes.

    Args:
        place: The folder.
        command: The command.
        root: The folder's path, for the message.
        elsewhere: The command that writes to another folder, for the hint.

    Raises:
        UsageError: It holds one.
    """
    for kind, file in _marks(place):
        if kind != command:
            msg = (
                f"{root} holds a view for {KINDS[kind]} ({file}), so that no view for {KINDS[command]} is written "
                f"there (allowed: a folder that is empty or absent, or one with views for {KINDS[command]} alone)"
            )
            raise UsageError(msg, hint=f"write it to a folder of its own: {elsewhere}")


def _marks(place: Place) -> Iterator[tuple[str, str]]:
    """Yield the kind of every view that there is, and the file that it is known by, whoever wrote it."""
    if place.read(MODELS_FILE) is not None:
        yield "tfserving", MODELS_FILE
    for folder in place.folders(""):
        for kind, name in (("triton", CONFIG_FILE), ("kserve", MANIFEST)):
            if place.read(f"{folder}/{name}") is not None:
                yield kind, f"{folder}/{name}"
