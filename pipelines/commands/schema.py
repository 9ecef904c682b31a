"""`schema`: the published JSON Schemas."""

from __future__ import annotations

import json

import click

__all__ = ["command"]


@click.command("schema")
@click.argument("kind", type=click.Choice(["spec", "comparison"]))
def command(kind: str) -> int:
    """Print a JSON Schema: of a spec, or of the result of a comparison (compare --json).

    \b
    Example:
      convert-and-validate schema spec
    """
    from paritygate.pipelines.result import schema_of_result
    from paritygate.pipelines.spec import schema_of_spec

    schema = schema_of_spec() if kind == "spec" else schema_of_result()
    click.echo(json.dumps(schema, indent=2))
    return 0
