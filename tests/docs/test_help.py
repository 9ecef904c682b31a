"""The help of every command ends with examples that are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from paritygate.pipelines.cli.app import COMMANDS, cli

TOOL = "convert-and-validate"
CALLS: list[list[str]] = [[], *([name] for name in COMMANDS)]


def shown_help(call: list[str], width: int = 200) -> str:
    """Return the help as a user sees it."""
    ran = CliRunner().invoke(cli, [*call, "--help"], terminal_width=width)
    assert ran.exit_code == 0
    return ran.output


def examples(call: list[str]) -> list[str]:
    """Return the commands below `Example:`, one entry each."""
    command = cli.get_command(click.Context(cli), call[0]) if call else cli
    assert command is not None
    text = (command.help or "").partition("Example:")[2]
    return [line.strip() for line in text.replace("\\\n", " ").strip().splitlines()]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_help_ends_with_an_example(call: list[str]) -> None:
    found = examples(call)

    assert found
    assert all(line.startswith(f"{TOOL} {' '.join(call)}".strip()) for line in found)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_examples_of_the_help_are_commands_with_options_that_exist(
    call: list[str], parse_call: Callable[[list[str]], click.Context]
) -> None:
    for line in examples(call):
        parse_call(shlex.split(line)[1:])


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_help_shows_each_example_on_a_line_of_its_own(call: list[str]) -> None:
    lines = [line.strip() for line in shown_help(call).splitlines()]

    assert "Example:" in lines
    assert not any("\\b" in line for line in lines)
    for line in examples(call):
        begin = re.split(r"\s{2,}", line)[0]
        assert any(shown.startswith(begin) for shown in lines), f"{line!r} is not a line of:\n{lines}"


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_help_fits_a_terminal(call: list[str]) -> None:
    assert [line for line in shown_help(call, width=80).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_one_sentence(name: str) -> None:
    assert COMMANDS[name].endswith(".")
    assert "\n" not in COMMANDS[name]
