"""`backends`: list the available frameworks and runtimes."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.output import Output, output_options


@click.command("backends")
@output_options("json")
def command(*, output: Output) -> int:
    """List frameworks and runtimes: version, what they are used for, and how to install those that are missing.

    \b
    Example:
      convert-and-validate backends
    """
    from paritygate.backends import BACKENDS, backend_state
    from paritygate.pipelines.report.terminal.backends import backends_lines
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS

    states = [backend_state(name) for name in BACKENDS]
    if not output.to_stderr:
        print_lines(backends_lines(states))
    output.write(
        {
            "targets": [str(variant) for variant in AVAILABLE_TARGETS],
            "backends": [
                {
                    "name": state.backend.name,
                    "is_available": state.is_available,
                    "version": state.version,
                    "used_for": state.backend.used_for,
                    "reason": state.reason,
                    "side_by_side": dict(state.side_by_side),
                    "install": state.install,
                }
                for state in states
            ],
        },
    )
    return 0
