"""What the command line says of itself: help, backends, schemas, and how it meets what it does not know."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import jsonschema
import pytest

import paritygate
from paritygate.backends import BACKENDS, backend_state
from paritygate.pipelines.cli.app import COMMANDS, FOLDERS, cli
from paritygate.pipelines.compare.result import schema_of_result
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS, schema_of_spec

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_an_example_that_it_would_take(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # An example may name a file that is written.
    monkeypatch.chdir(desk.folder)
    called = desk.call(name, "--help")

    assert called.code == 0
    assert called.err == ""
    assert called.out.startswith(f"Usage: convert-and-validate {name} ")
    examples = called.out.partition("Example:\n")[2].partition("\nOptions:")[0]
    commands = [line.strip() for line in examples.replace(" \\\n", "").splitlines()]
    assert [line for line in examples.splitlines() if "  " in line.strip()] == []
    lines = [shlex.split(line) for line in commands if line.startswith("convert-and-validate ")]
    assert lines, called.out
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for _, given, *args in lines:
        assert given == name
        # Parses, or raises what is wrong with the example.
        command.make_context(name, args)


def test_the_help_lists_every_command_and_file(desk: Desk, project_root: Path) -> None:
    called = desk.call("--help")

    assert called.code == 0
    assert [
        line.split()[0] for line in called.out.partition("Commands:\n")[2].splitlines() if line[:3].strip()
    ] == list(COMMANDS)
    files = {
        (path.parent.name, path.stem.replace("_", "-"))
        for path in project_root.glob("pipelines/cli/commands/*/*.py")
        if path.stem != "__init__"
    }
    assert files == {(folder, name) for folder, names in FOLDERS.items() for name in names}
    assert sorted(name for _, name in files) == sorted(COMMANDS)


def test_options_of_compare_are_grouped_and_each_stands_once(desk: Desk) -> None:
    called = desk.call("compare", "--help")

    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", called.out.partition("\nOptions:")[2], re.MULTILINE)
    command = cli.get_command(click.Context(cli), "compare")
    assert command is not None
    options = [each for each in command.get_params(click.Context(command)) if isinstance(each, click.Option)]
    has = [max(each.opts, key=len) for each in options if not each.hidden]
    assert sorted(shown) == sorted(has)
    at = called.out.partition("\nOptions about the verdict:\n")[2].partition("\nOptions about ")[0]
    assert "--tolerance" in at
    assert "--endpoint" not in at


def test_without_a_command_the_plain_help_is_shown(desk: Desk) -> None:
    called = desk.call()

    assert (called.code, called.out) == (2, "")
    assert called.err == desk.call("--help").out


def test_the_version_is_that_of_the_package(desk: Desk) -> None:
    called = desk.call("--version")

    assert (called.code, called.out) == (0, f"convert-and-validate, version {paritygate.__version__}\n")


def test_a_command_that_does_not_exist_is_wrong_usage(desk: Desk) -> None:
    called = desk.call("promot")

    assert called.code == 2
    assert called.err == (
        "error: no such command 'promot': did you mean 'promote'?\n"
        "hint: convert-and-validate [OPTIONS] COMMAND [ARGS]...; for more: convert-and-validate --help\n"
    )


@pytest.mark.parametrize(
    "args",
    [
        ("run",),
        ("run", "spec.yaml", "--bogus"),
        ("run", "spec.yaml", "--time-limit", "0"),
        ("run", "spec.yaml", "--device", "tpu"),
        ("export",),
        ("show",),
        ("verify",),
        ("schema", "report"),
        ("backends", "extra"),
    ],
)
def test_wrong_arguments_are_wrong_usage(desk: Desk, args: tuple[str, ...]) -> None:
    called = desk.call(*args)

    assert called.code == 2
    wrong, hint = called.err.splitlines()
    assert wrong.startswith("error: ")
    assert hint.startswith(f"hint: convert-and-validate {args[0]} [OPTIONS]")
    assert hint.endswith(f"; for more: convert-and-validate {args[0]} --help")


def test_backends_lists_what_is_there_and_how_to_install_the_rest(desk: Desk) -> None:
    called = desk.json("backends")

    assert called.code == 0
    assert [item["name"] for item in called.data["backends"]] == list(BACKENDS)
    for item in called.data["backends"]:
        state = backend_state(item["name"])
        assert item["is_available"] is state.is_available
        assert item["version"] == state.version
        assert item["install"].startswith("pip install ")
        assert item["name"] in called.out
        assert ("missing: " + item["name"] in called.out) is not item["is_available"]
    assert max(map(len, called.out.splitlines())) <= 80
    assert called.data["targets"] == [str(variant) for variant in AVAILABLE_TARGETS]
    assert f"targets of this version: {', '.join(called.data['targets'])}" in " ".join(called.out.split())
    assert json.loads(desk.call("backends", "--json", "-").out) == called.data


@pytest.mark.parametrize(("kind", "schema"), [("spec", schema_of_spec()), ("comparison", schema_of_result())])
def test_schema_prints_a_valid_schema(desk: Desk, kind: str, schema: dict[str, object]) -> None:
    called = desk.call("schema", kind)

    assert called.code == 0
    printed = json.loads(called.out)
    assert printed == schema
    jsonschema.Draft202012Validator.check_schema(printed)


def test_the_comparisons_of_a_run_follow_the_published_schema(finished: Desk) -> None:
    said = json.loads((finished.folder / "said.json").read_text(encoding="utf-8"))

    jsonschema.validate(said["runs"][0]["variants"]["onnx-fp32"], schema_of_result())


def test_the_module_runs_as_a_program_and_returns_the_exit_code(desk: Desk) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paritygate", "run", "absent.yaml"],
        cwd=desk.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: spec absent.yaml does not exist\nhint: give a .yaml file")


def test_debug_adds_the_traceback(desk: Desk) -> None:
    plain, debug = desk.call("run", "--verbose", "absent.yaml"), desk.call("--debug", "run", "absent.yaml")

    assert plain.code == debug.code == 2
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err


def test_debug_adds_the_traceback_of_a_function_that_another_process_called(desk: Desk) -> None:
    desk.samples()
    desk.module("twice", "def same(arrays):\n    return arrays\n\ndef other(arrays):\n    raise ValueError('at 5')\n")
    arguments = ("compare", "twice:same", "twice:other", "--samples", "inputs.npz")

    plain, debug = desk.call(*arguments), desk.call("--debug", *arguments)

    assert plain.code == debug.code == 5
    assert "Traceback" not in plain.err
    assert "in other" in debug.err.partition("error: ")[0]
    assert all(words in plain.err for words in ("candidate", "twice:other", "twice.py:5", "at 5"))


def test_a_file_for_json_that_cannot_be_written_is_said_before_any_work(desk: Desk) -> None:
    (desk.folder / "folder.json").mkdir()

    called = desk.call("run", "--verbose", "spec.yaml", "--json", "folder.json")

    assert called.code == 2
    assert "folder.json" in called.err
    assert desk.runs == []


def test_the_verdict_is_printed_if_its_json_cannot_be_written(desk: Desk) -> None:
    (desk.folder / "copy.onnx").write_bytes((desk.folder / "model.onnx").read_bytes())
    call = ("compare", "model.onnx", "copy.onnx", "--samples", "inputs.npz", "--probes", "none")

    called = desk.call(*call, "--json", "/dev/full")

    assert called.code == 5
    assert "verdict: " in called.out


def test_a_folder_that_is_missing_for_json_is_said_before_any_work_and_not_made(desk: Desk) -> None:
    called = desk.call("run", "--verbose", "spec.yaml", "--json", "reslts/said.json")

    assert called.code == 2
    assert "mkdir -p reslts" in called.err
    assert (desk.runs, (desk.folder / "reslts").exists()) == ([], False)
