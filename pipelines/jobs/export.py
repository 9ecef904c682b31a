"""The job of one conversion, run in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import ConversionJob
from paritygate.convert.fixed_shape import fix_and_check
from paritygate.fixed_shape import FixedShape
from paritygate.pipelines.calibration import CalibrationRequest, note_of_calibration, open_calibration
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
    signature = Signature.from_json(args["signature"]) if args["signature"] else None
    calibration = None
    if args["calibration"] is not None and signature is not None:
        report("choosing the calibration rows", 0, 0)
        calibration = open_calibration(CalibrationRequest.from_json(args["calibration"]), signature)
    report(f"converting {loaded.source.kind} to {args['format']}", 0, 0)
    job = ConversionJob(
        source=loaded.source,
        model=loaded.model,
        folder=Path(args["folder"]),
        signature=signature,
        rename=args["rename"],
        opset=args["opset"],
        precision=Precision(args["precision"]),
        files=tuple(args["files"]),
        calibration=calibration,
    )
    if args["fixed_shape"] is None:
        conversion = convert_and_check(job, args["format"])
    else:
        conversion = fix_and_check(job, args["format"], FixedShape.from_json(args["fixed_shape"]))
    note = note_of_calibration(conversion.facts)
    return {
        "main": conversion.main,
        "signature": conversion.signature.to_json(),
        "notes": [*conversion.notes, *([note] if note else [])],
        "facts": dict(conversion.facts),
        "source": loaded.describe(args["files"]),
    }
