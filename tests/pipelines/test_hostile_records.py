"""Our own JSON with wrong types in it, as a hand edit or a damaged disk leaves it: one clear error, and never a release."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.usefixtures("jobs_here")

_WRONG: tuple[object, ...] = (None, True, -1, 1e300, "text", [], ["text"], {}, {"text": 1}, [[[]]], "\ud800", 10**400)
# What reads each file, quickest first.
_READERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "evidence.json": (("choose", "--run", "RUN"), ("promote", "--run", "RUN")),
    "onnx-fp32/artifact.json": (
        ("choose", "--run", "RUN"),
        ("promote", "--run", "RUN"),
        ("pack", "RUN", "--output", "p"),
    ),
    "reference/record.json": (("promote", "--run", "RUN"), ("validate", "--run", "RUN", "--quiet")),
    "onnx-fp32.result.json": (("promote", "--run", "RUN"),),
    "benchmark.json": (("choose", "--run", "RUN"), ("promote", "--run", "RUN")),
    "spec.json": (("choose", "--run", "RUN"), ("promote", "--run", "RUN"), ("pack", "RUN", "--output", "p")),
    "log": (("list",), ("show", "tiny"), ("verify", "tiny"), ("promote", "--run", "RUN")),
    "store": (("list",), ("show", "tiny"), ("verify", "tiny")),
}


@pytest.fixture(scope="module")
def measured(finished: Desk, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk whose run was benchmarked as well."""
    desk = finished.copy(tmp_path_factory.mktemp("measured"))
    called = desk.call("benchmark", "--run", str(desk.run_folder), "--quiet", "--rounds", "2")
    assert called.code == 0, str(called)
    return desk


def _leaves(data: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    yield place
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from _leaves(value, (*place, key))


def _edited(data: Any, place: tuple[str | int, ...], value: object) -> Any:  # noqa: ANN401 - JSON
    """Return JSON data with another value at a place, or without what stands there where the value is `...`."""
    if not place:
        return None if value is ... else value
    copy = json.loads(json.dumps(data))
    inner = copy
    for step in place[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


def _file(desk: Desk, name: str) -> Path:
    repository = desk.folder / "artifacts/repository"
    if name == "log":
        return next(iter(sorted(repository.glob("log/tiny/*.json"))))
    if name == "store":
        return repository / "store/tiny/1/manifest.json"
    return desk.run_folder / name


def _fuzz(desk: Desk, name: str, count: int) -> tuple[dict[str, int], list[str]]:
    """Edit the file `count` times, call what reads it, and return the figures and what was not said as an error."""
    path = _file(desk, name)
    path.chmod(0o644)
    content = path.read_bytes()
    data = json.loads(content)
    places = list(_leaves(data))
    chance = random.Random(name)  # noqa: S311 - a seed, so that a failure comes again
    figures = {"edits": 0, "calls": 0, "refused": 0}
    wrong = []
    before = desk.releases
    for _ in range(count):
        place, value = chance.choice(places), chance.choice((*_WRONG, ...))
        path.write_text(json.dumps(_edited(data, place, value)), encoding="utf-8")
        figures["edits"] += 1
        for command in _READERS[name]:
            called = desk.call(*(str(desk.run_folder) if word == "RUN" else word for word in command))
            (desk.folder / "p").unlink(missing_ok=True)
            figures["calls"] += 1
            figures["refused"] += called.code != 0
            if "unexpected" in called.err + called.out or "Traceback" in called.err + called.out:
                wrong.append(f"{command[0]} {place} {value!r}: {called.err.splitlines()[0][:200]}")
    path.write_bytes(content)
    return figures, wrong


@pytest.mark.parametrize("name", _READERS)
def test_x(measured: Desk, tmp_path: Path, name: str) -> None:
    figures, wrong = _fuzz(measured.copy(tmp_path), name, 60)
    import sys

    sys.stdout.write(f"{name} {figures} wrong {len(wrong)}\n" + "\n".join(wrong) + "\n")
