"""Importing `paritygate` costs nothing, type checkers see what it offers, and it offers what the commands do."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paritygate as pg
import paritygate.api
from paritygate.pipelines.cli.commands.judging.compare import command as compare_command
from paritygate.pipelines.cli.commands.running.plan import command as plan_command
from paritygate.pipelines.cli.commands.running.run import command as run_command

if TYPE_CHECKING:
    import click

_PROGRAM = """
import json, sys
before = set(sys.modules)
import paritygate
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_package_imports_nothing_else() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)

    assert json.loads(ran.stdout) == ["paritygate"]


def test_what_the_package_offers_is_there_and_nothing_else() -> None:
    offered = {name for name in pg.__all__ if name != "__version__"}

    assert offered == set(paritygate.api.__all__)
    assert all(getattr(pg, name) is getattr(paritygate.api, name) for name in offered)
    assert offered <= set(dir(pg))
    with pytest.raises(AttributeError, match="module 'paritygate' has no attribute 'comparee'"):
        _ = pg.comparee  # type: ignore[attr-defined]


def test_type_checkers_are_shown_every_name(project_root: Path) -> None:
    package = project_root / "src/paritygate"
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    (imported,) = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert imported.module == "paritygate.api"
    assert {alias.name for alias in imported.names} == set(pg.__all__) - {"__version__"}
    assert (package / "py.typed").is_file()


@pytest.mark.parametrize(
    ("command", "function", "other_names"),
    [
        (
            compare_command,
            pg.compare,
            {
                "decision": "decisions",
                "constant_decision": "constant_decisions",
                "map": "rename",
                "match": "matches",
                "axis": "axes",
                "role": "roles",
                "signature": "signatures",
            },
        ),
        (run_command, pg.run, {"target": "targets", "constraint": "constraints"}),
        (plan_command, pg.plan, {"target": "targets", "constraint": "constraints"}),
    ],
)
def test_every_option_of_the_command_is_an_argument(
    command: click.Command, function: Callable[..., object], other_names: dict[str, str]
) -> None:
    listed = [item for item in command.params if item.opts[0][0] == "-" and not getattr(item, "hidden", False)]
    options = {item.opts[0].removeprefix("--").replace("-", "_") for item in listed}
    # What a terminal has, and what holds for the children of a command.
    options -= {"format", "json", "quiet", "report", "verbose", "memory_limit"}
    # Several machines and processes, a file that is made, and the model of a recording.
    options -= {"shard", "out", "engine", "workers", "ray_address", "repair", "source"}
    # In the API it is a part of `endpoint`.
    options -= {"max_answer_mb"}
    arguments = inspect.signature(function).parameters

    assert {other_names.get(name, name) for name in options} == {
        name for name, item in arguments.items() if item.kind is item.KEYWORD_ONLY and name != "progress"
    }
