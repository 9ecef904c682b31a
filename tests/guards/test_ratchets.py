"""Numbers of the product that only get smaller: `ratchet.json` holds them, and no number is raised without a reason.

A number that is lower than in the file is written into it. Who has to raise one writes the sentence that says why
beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

_FILE = Path(__file__).with_name("ratchet.json")
_PARTS = ("convert", "validate", "pipelines", "src/paritygate", "fixtures")
_LOADED = "import sys; print(sum(name.split('.')[0] == 'paritygate' for name in sys.modules))"
# As the command and its child process load them, without a framework.
_COMPARE = "import paritygate.pipelines.cli.commands.judging.compare, paritygate.pipelines.jobs.compare; "
_API = "import paritygate.api; "
# The command itself, whose models are outputs recorded before.
_COMMAND = """
import pathlib, sys, tempfile
import numpy as np
from paritygate.pipelines.cli.app import cli
with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    np.savez(place / "x.npz", x=np.ones((2, 2), np.float32))
    np.savez(place / "one.npz", y=np.eye(2, dtype=np.float32))
    np.savez(place / "other.npz", y=np.full((2, 2), 2, np.float32))
    files = [str(place / file) for file in ("one.npz", "other.npz", "x.npz")]
    sys.stdout = sys.stderr
    assert cli(["compare", *files[:2], "--samples", files[2]], standalone_mode=False) == 1
    sys.stdout = sys.__stdout__
"""


def _limits() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def _loaded(statement: str) -> int:
    done = subprocess.run([sys.executable, "-c", statement + _LOADED], check=True, capture_output=True, text=True)
    return int(done.stdout)


def _modules(root: Path) -> list[Path]:
    # Parts are linked into the package: each is counted once.
    return [path for part in _PARTS for path in sorted((root / part).rglob("*.py"))]


def _lines(root: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _modules(root))


def _most_in_a_test_folder(root: Path) -> int:
    return max(Counter(path.parent for path in (root / "tests").rglob("*.py")).values())


def measured(root: Path) -> dict[str, int]:
    """Return every number as it is now."""
    return {
        "modules loaded by the command compare": _loaded(_COMMAND),
        "modules loaded by compare": _loaded(_COMPARE),
        "modules loaded by import paritygate.api": _loaded(_API),
        "lines of the product": _lines(root),
        "files in the largest folder of tests": _most_in_a_test_folder(root),
    }


def test_no_number_is_above_its_ratchet(project_root: Path) -> None:
    found = measured(project_root)

    assert found.keys() == _limits().keys()
    assert {name: number for name, number in found.items() if number > int(str(_limits()[name]["most"]))} == {}


def test_a_number_that_was_raised_says_why() -> None:
    for name, limit in _limits().items():
        raised = limit["raised_because"]
        assert isinstance(raised, list), name
        assert all(isinstance(reason, str) and reason.endswith(".") for reason in raised), name
