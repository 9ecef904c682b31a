"""However something reaches a job: where it changes, or cannot be followed, nothing is taken over.

What each job finds is held against the same job after the change, done anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.pipelines.cache.watched import environment, watch
from tests.pipelines.cache.ways import IN_MEMORY, OF_REUSED, REUSED, WAYS, Way, archive, database, furnish

from paritygate.pipelines.cache.memory import DigestCache
from paritygate.pipelines.cache.states import Dependencies, NotKept, first_difference, read_now
from paritygate.pipelines.process.file_access.accesses import FileAccesses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process reads")

_BEGIN = """
import json, os, sys
from pathlib import Path
from paritygate.pipelines.process.installed import compile_own_modules
from paritygate.pipelines.process.file_access.python import read_in_python, watch_python
compile_own_modules()
watch_python(int(sys.argv[2]) if len(sys.argv) > 2 else None)
here = Path(sys.argv[1])
own = here / "own"
"""
_END = """
print(json.dumps([value, read_in_python()], default=str))
"""
_LEAST = 60
# Longer than a step of the clock that files have their times from.
_SETTLED_S = 2.2


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a way.

    Attributes:
        before: What the job found first.
        after: What it finds after the change, done anew.
        not_kept: Why nothing is kept; empty where it is.
        difference: Why it would be done again; empty where it would be taken over.
    """

    before: Any
    after: Any
    not_kept: str
    difference: str

    @property
    def is_reused(self) -> bool:
        """Whether a later run would take over what was found first."""
        return not self.not_kept and not self.difference


def _command(here: Path) -> list[str]:
    return [sys.executable, "--check-hash-based-pycs", "always", str(here.with_suffix(".py")), str(here)]


def _prepare(here: Path, code: str, way: Way) -> None:
    here.mkdir()
    furnish(here, way)
    database(here, 1)
    archive(here, 1)
    here.with_suffix(".py").write_text(_BEGIN + textwrap.dedent(code) + _END, encoding="utf-8")


def _tried(here: Path, way: Way) -> Found:
    variables = {name: value.replace("HERE", str(here)) for name, value in way.variables.items()}
    path = os.pathsep.join([*filter(None, [variables.pop("PYTHONPATH", "")]), environment()["PYTHONPATH"]])
    with (
        mock.patch.dict(os.environ, {"PYTHONDONTWRITEBYTECODE": "", **variables}),
        mock.patch.object(sys, "path", path.split(os.pathsep)),
    ):
        way.prepare(here)
        listener, out = watch(_command(here), [here / "own"])
        before, noted = json.loads(out.splitlines()[-1])
        listener.add_of_python(noted)
        read, not_kept = _read(listener.close(), here)
        way.change(here)
        difference = first_difference(read, here / "run", DigestCache(here.with_suffix(".digests")), {})
        shutil.rmtree(here / "own")
        (here / "own").mkdir()
        found = subprocess.run(_command(here), capture_output=True, check=True, text=True, env=environment())
        return Found(
            before=before, after=json.loads(found.stdout.splitlines()[-1])[0], not_kept=not_kept, difference=difference
        )


def _read(accesses: FileAccesses, here: Path) -> tuple[Dependencies, str]:
    memory = DigestCache(here.with_suffix(".digests"))
    try:
        return read_now(accesses, here / "run", memory), ""
    except NotKept as err:
        return Dependencies(), str(err)
    finally:
        memory.save()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Mapping[str, Path]]:
    """The folders of all ways that are tried, old enough that their times tell of a change."""
    root = tmp_path_factory.mktemp("ways")
    found = (getattr(getattr(item, "callspec", None), "params", {}).get("way") for item in request.session.items)
    # Tests of other files have ways of their own.
    wanted = {way.name for way in found if isinstance(way, Way)}
    places = {}
    for number, way in enumerate(WAYS):
        if way.name in wanted:
            places[way.name] = root / f"way{number}"
            _prepare(places[way.name], way.code, way)
    time.sleep(_SETTLED_S)
    yield places
    shutil.rmtree(root, ignore_errors=True)
    Path(IN_MEMORY).unlink(missing_ok=True)


def test_there_are_many_ways() -> None:
    assert len({way.name for way in WAYS}) == len(WAYS) >= _LEAST


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=way.name, marks=() if way.is_short else pytest.mark.thorough) for way in WAYS],
)
def test_nothing_stale_is_taken_over(way: Way, prepared: Mapping[str, Path]) -> None:
    found = _tried(prepared[way.name], way)

    # A change that changes nothing would show nothing.
    assert found.before != found.after or way.changes_nothing
    print(f"{way.name}: {found.not_kept or found.difference}")  # noqa: T201
    assert not found.is_reused, found


def _add_what_nobody_searches(here: Path) -> None:
    """Make things beside the code of the user that nothing reads, lists or imports."""
    for name in ("unsearched", "un_searched"):
        (here / name).mkdir()
    (here / "unsearched.py").touch()


@pytest.mark.parametrize("name", REUSED)
def test_what_brings_nothing_is_taken_over(name: str, tmp_path: Path) -> None:
    here = tmp_path / "work"
    way = Way(name=name, code=REUSED[name], change=_add_what_nobody_searches, files=OF_REUSED)
    _prepare(here, way.code, way)
    time.sleep(0.05)

    found = _tried(here, way)

    assert (found.not_kept, found.difference) == ("", "")
    assert found.before == found.after
