"""`schema`: print the published JSON Schemas."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("kind", type=click.Choice(["spec", "comparison", "selftest"]))
def command(kind: str) -> int:
    """Print a JSON Schema: of a spec, or of the result of compare --json or selftest --json.

    \b
    Example:
      convert-and-validate schema spec
    """
    from paritygate.pipelines.compare.result import schema_of_result
    from paritygate.pipelines.selftest.result import schema_of_selftest
    from paritygate.pipelines.spec.schema import schema_of_spec
    from paritygate.text import echo_block

    schemas = {"spec": schema_of_spec, "comparison": schema_of_result, "selftest": schema_of_selftest}
    echo_block(json.dumps(schemas[kind](), indent=2))
    return 0
