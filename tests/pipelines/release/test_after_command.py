"""The command of `promote.after`: it gets the manifest, no shell, a time limit; its failure undoes no release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.conftest import Page

from paritygate.pipelines.release import after_command

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

# Writes down what it was given, and ends with the code in the file `code`, if there is one.
_HOOK = """
import json, os, pathlib, sys
calls = pathlib.Path("calls.json")
seen = json.loads(calls.read_text()) if calls.exists() else []
names = ("PARITYGATE_RELEASE_FOLDER", "PARITYGATE_ALIAS", "PARITYGATE_SIGNING_PASSWORD")
seen.append({"words": sys.argv[1:], "stdin": sys.stdin.read(), "env": [os.environ.get(name) for name in names]})
calls.write_text(json.dumps(seen))
print("registry is away")
print("key", os.environ.get("REGISTRY_TOKEN"))
print("longer key", os.environ.get("REGISTRY_SECRET"))
code = pathlib.Path("code")
sys.exit(int(code.read_text()) if code.exists() else 0)
"""
_PROMOTE = ("promote", "--run", "latest")


def _with(desk: Desk, after: str | Sequence[str]) -> Desk:
    """Have the run of a desk, which was not released to `other`, name a command after the release."""
    (desk.folder / "hook.py").write_text(_HOOK, encoding="utf-8")
    path = desk.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"].setdefault("promote", {}).update({"after": after, "to": "other"})
    path.write_text(json.dumps(data), encoding="utf-8")
    return desk


@pytest.fixture
def released_with(finished: Desk, tmp_path: Path) -> Callable[[str | Sequence[str]], Desk]:
    return lambda after: _with(finished.copy(tmp_path), after)


def _calls(desk: Desk) -> list[dict[str, Any]]:
    path = desk.folder / "calls.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def test_it_gets_the_manifest_and_its_words_as_they_are(
    released_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = released_with(f"{sys.executable} hook.py '$(touch pwned)' ; touch pwned `touch pwned` > pwned")
    monkeypatch.setenv("PARITYGATE_SIGNING_PASSWORD", "secret")
    monkeypatch.setenv("REGISTRY_TOKEN", "abcdef123")
    monkeypatch.setenv("REGISTRY_SECRET", "abcdef123.and-more")

    called = desk.json(*_PROMOTE)

    assert called.code == 0, str(called)
    (call,) = _calls(desk)
    release = desk.folder / "other/store/tiny/1"
    assert call["words"] == ["$(touch pwned)", ";", "touch", "pwned", "`touch", "pwned`", ">", "pwned"]
    assert call["stdin"] == (release / "manifest.json").read_text(encoding="utf-8")
    assert call["env"] == [str(release), "prod", None]
    assert not (desk.folder / "pwned").exists()
    after = called.data["after"]
    assert (after["exit_code"], after["problem"], after["version"]) == (0, "", 1)
    noted = json.loads((desk.folder / "other/after/tiny/000001.json").read_text(encoding="utf-8"))
    assert after.pop("output") == "registry is away\nkey ***\nlonger key ***"
    assert noted == {"schema_version": 1, **after}


def test_its_failure_leaves_the_release_and_is_repeated_until_it_ends_with_0(
    released_with: Callable[..., Desk],
) -> None:
    desk = released_with([sys.executable, "hook.py"])
    (desk.folder / "code").write_text("7")

    failed = desk.json(*_PROMOTE)
    again = desk.json(*_PROMOTE)
    (desk.folder / "code").unlink()
    repeated = desk.json(*_PROMOTE)
    done = desk.json(*_PROMOTE)

    assert [(item.code, item.data["version"]) for item in (failed, again, repeated, done)] == [
        (5, 1),
        (5, 1),
        (0, 1),
        (0, 1),
    ]
    assert [item.data["is_new"] for item in (failed, again)] == [True, False]
    assert (failed.data["after"]["exit_code"], repeated.data["after"]["exit_code"]) == (7, 0)
    assert done.data["after"] is None
    assert len(_calls(desk)) == 3
    assert "registry is away" in failed.err
    assert "promote --run" in failed.err
    shown = desk.json("show", "tiny", "prod", "--repository", "other")
    assert (shown.code, shown.data["version"]) == (0, 1)


def test_each_alias_and_each_move_has_its_own_command(released_with: Callable[..., Desk]) -> None:
    desk = released_with([sys.executable, "hook.py"])
    (desk.folder / "code").write_text("7")
    staging = (*_PROMOTE, "--alias", "staging")

    failed = desk.json(*staging)
    (desk.folder / "code").unlink()
    prod = desk.json(*_PROMOTE)
    repeated = desk.json(*staging)

    assert [item.data["after"]["exit_code"] for item in (failed, prod, repeated)] == [7, 0, 0]
    assert [item.data["after"]["record"] for item in (failed, prod, repeated)] == [1, 2, 1]
    assert desk.json(*staging).data["after"] is desk.json(*_PROMOTE).data["after"] is None


@pytest.mark.parametrize(
    ("after", "problem"),
    [(["no-such-program"], "could not be started"), (["sh", "-c", "kill -9 $$"], "was ended by signal 9")],
)
def test_a_command_that_does_not_start_or_is_killed_is_a_failure(
    released_with: Callable[..., Desk], after: list[str], problem: str
) -> None:
    called = released_with(after).json(*_PROMOTE)

    assert (called.code, called.data["version"], called.data["after"]["exit_code"]) == (5, 1, None)
    assert problem in called.data["after"]["problem"]


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(
    released_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_command, "LIMIT_S", 0.2)
    desk = released_with(["sh", "-c", "sleep 600 & sleep 600; true"])

    called = desk.json(*_PROMOTE)

    assert (called.code, called.data["version"], called.data["after"]["exit_code"]) == (5, 1, None)
    assert "did not end within" in called.data["after"]["problem"]


def test_a_run_ends_with_5_and_stays_released(desk: Desk) -> None:
    desk.spec(promote={"after": "false"})

    called = desk.json("run", "spec.yaml")

    (run,) = called.data["runs"]
    assert (called.code, run["exit_code"], run["release"]["version"], run["after"]["exit_code"]) == (5, 5, 1, 1)
    assert desk.releases == ["tiny/1"]
    junit = desk.call("run", "spec.yaml", "--format", "junit")
    assert (junit.code, '<error message="released, but promote.after ended with exit code 1"' in junit.out) == (5, True)


@pytest.mark.parametrize(
    "after", ["", "  ", "echo 'open", ["echo", ""], [1, 2], {"run": "echo"}, "curl https://me:secret@host/x"]
)
def test_what_is_no_command_is_an_error_of_the_spec(desk: Desk, after: object) -> None:
    desk.spec(promote={"after": after})

    called = desk.call("run", "spec.yaml")

    assert called.code == 2, str(called)
    assert "promote.after" in called.err
    assert "secret@" not in called.err


def test_unpack_names_the_command_of_a_foreign_spec_and_runs_nothing(desk: Desk) -> None:
    (desk.folder / "hook.py").write_text(_HOOK, encoding="utf-8")
    desk.spec(promote={"after": [sys.executable, "hook.py"], "to": "s3://models/releases"})
    assert desk.call("run", "spec.yaml", "--no-promote").code == 0
    assert desk.call("pack", "--run", str(desk.run_folder), "--output", "p.tar").code == 0

    unpacked = desk.json("unpack", "p.tar", "--root", "other")

    assert unpacked.code == 0, str(unpacked)
    assert f"promote.after of its spec: {sys.executable} hook.py" in " ".join(unpacked.out.split())
    # An address is the same from everywhere.
    assert "--repository" not in unpacked.out
    assert _calls(desk) == []


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_example_of_the_docs_registers_a_release_in_mlflow(
    released_with: Callable[..., Desk], tmp_path: Path, project_root: Path
) -> None:
    env, pip = tmp_path / "mlflow", [str(tmp_path / "mlflow/bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    installed = subprocess.run([*pip, "mlflow-skinny", "sqlalchemy", "alembic"], capture_output=True, check=False)
    if installed.returncode:
        pytest.skip(f"mlflow cannot be installed: {installed.stderr.decode()[-200:]}")
    path = project_root / "docs/repository.md"
    page = Page(path=path, text=path.read_text(encoding="utf-8"))
    desk = released_with([str(env / "bin/python"), "register.py"])
    (example,) = (block.text for block in page.blocks if block.options.get("file") == "register.py")
    (desk.folder / "register.py").write_text(example, encoding="utf-8")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
        first, again = desk.json(*_PROMOTE), desk.json(*_PROMOTE, "--alias", "canary")
        query = (
            "import json, mlflow; c = mlflow.MlflowClient(); m = c.get_registered_model('tiny');"
            "print(json.dumps([m.aliases, [[v.source, v.tags] for v in c.search_model_versions(\"name='tiny'\")]]))"
        )
        found = subprocess.run(
            [str(env / "bin/python"), "-c", query], capture_output=True, text=True, check=True, env={**os.environ}
        )

    assert (first.code, again.code) == (0, 0), str(first)
    aliases, versions = json.loads(found.stdout.splitlines()[-1])
    ((source, tags),) = versions
    assert {alias: int(version) for alias, version in aliases.items()} == {"prod": 1, "canary": 1}
    assert source == str(desk.folder / "other/store/tiny/1")
    assert tags["paritygate.release"] == "1"
