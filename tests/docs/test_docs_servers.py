"""The page on servers shows what the tests run, and its table has every server of which it shows code."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.servers.conftest import SERVERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.conftest import Page

_FOUND = {
    "version": "1.0",
    "loaded": "onnx-fp32",
    "protocols": ["HTTP with JSON", "gRPC with bytes"],
    "verdict": "pass",
    "rows": 120,
    "max_abs_diff": 1e-7,
    "is_described": True,
    "other_model": {"verdict": "fail", "max_abs_diff": 8.0},
    "other_bytes": "refused",
}


@pytest.fixture(scope="module")
def tables(project_root: Path) -> ModuleType:
    """Return the module that writes the table, by its path: another folder has one of the same name."""
    spec = importlib.util.spec_from_file_location("table_of_servers", project_root / "benchmarks/servers/table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_server_has_code_a_command_and_pinned_packages(pages: dict[str, Page], project_root: Path) -> None:
    shown = {"shell": set[str](), "python": set[str]()}
    for block in pages["docs/servers.md"].blocks:
        if "server" in block.options:
            shown.setdefault(block.language, set()).add(block.options["server"])
    pinned = {path.stem for path in (project_root / "benchmarks/servers/requirements").glob("*.txt")}

    assert shown["shell"] == shown["python"] == set(SERVERS) == pinned
    assert f"SERVERS := {' '.join(SERVERS)}\n" in (project_root / "Makefile").read_text()


def test_the_table_has_every_server(pages: dict[str, Page], tables: ModuleType) -> None:
    rows = pages["docs/results-servers.md"].rows("What was run")

    assert [row[0] for row in rows] == list(tables.NAMES.values())
    assert list(tables.NAMES) == list(SERVERS)
    assert all(row[1].startswith("not run: ") or (row[6], row[8][:4]) == ("pass", "fail") for row in rows)


def test_a_server_that_was_not_run_is_in_the_table_with_the_reason(tables: ModuleType) -> None:
    reasons = dict.fromkeys(SERVERS, "there is no .venv-servers/x")

    lines = tables.table({"fastapi": _FOUND}, reasons).splitlines()[2:]

    assert lines[0] == (
        "| FastAPI | 1.0 | V2: HTTP with JSON, gRPC with bytes | onnx-fp32 | 120 | 1.0e-07 | pass | yes | "
        "fail: off by 8.0; other bytes: refused |"
    )
    assert [line.split(" | ")[1] for line in lines[1:]] == ["not run: there is no .venv-servers/x"] * 5
