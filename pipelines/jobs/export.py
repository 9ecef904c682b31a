"""The job of one conversion, run in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import ConversionJob
from paritygate.pipelines.child import Progress
from paritygate.pipelines.loading import load_model
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.source import Source

__all__ = ["run"]


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Convert and return what was made as JSON data."""
    report("loading the source", 0, 0)
    loaded = load_model(Source.from_json(args["source"]))
    report(f"converting {loaded.source.kind} to {args['format']}", 0, 0)
    conversion = convert_and_check(
        ConversionJob(
            source=loaded.source,
            model=loaded.model,
            folder=Path(args["folder"]),
            signature=Signature.from_json(args["signature"]) if args["signature"] else None,
            rename=args["rename"],
            opset=args["opset"],
            precision=Precision(args["precision"]),
        ),
        args["format"],
    )
    return {
        "main": conversion.main,
        "signature": conversion.signature.to_json(),
        "notes": list(conversion.notes),
        "facts": dict(conversion.facts),
        "source": loaded.describe(args["files"]),
    }
