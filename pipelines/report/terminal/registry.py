"""Copies of releases in OCI registries, in the terminal."""

from __future__ import annotations

from paritygate.pipelines.release.oci.pull import Pulled
from paritygate.pipelines.release.oci.push import Pushed
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import command_lines, wrapped
from paritygate.roots import Root
from paritygate.text import counted


def print_pushed(pushed: Pushed, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print where a release is now, and its status there."""
    done = "pushed" if pushed.is_new else "there already"
    lines = [f"{pushed.model} version {pushed.version}: {done}: {pushed.reference}"]
    if not is_quiet:
        status = "validated" if pushed.is_validated else "none, because not every variant passed in its own runtime"
        lines.append(f"status: {status}; {counted(len(pushed.referrers), 'artifact')} refer to it")
    print_lines((line for words in lines for line in wrapped(words)), err=to_stderr)


def print_pulled(pulled: Pulled, repository: Root, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print which release was copied, who signed it, and how to verify it."""
    done = f"pulled {counted(pulled.files, 'file')} from" if pulled.is_new else "there already, as in"
    signed = f", signed by {pulled.signer}" if pulled.signer else ""
    print_lines(wrapped(f"{pulled.model} version {pulled.version}: {done} {pulled.reference}{signed}"), err=to_stderr)
    if not is_quiet:
        verify = command_on(repository, "verify", pulled.model, str(pulled.version))
        print_lines(command_lines(f"next: {verify}"), err=to_stderr)
