"""Check that a converted OpenVINO model loads, compiles with its settings, and keeps the signature."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import NotAvailableError
from paritygate.models.openvino.model import openvino_version, read_openvino, signature_of_openvino
from paritygate.models.openvino.settings import (
    DEFAULT_HINT,
    PRECISION_HINT,
    compile_openvino,
    is_capable,
    read_settings,
)

_BF16 = "bf16"


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the files are proved sound."""
    path = job.folder / conversion.main
    with our_file():
        model = read_openvino(path)
        settings = read_settings(path)
    facts: dict[str, Any] = {"loaded_in": f"openvino {openvino_version()}"}
    hint = str((settings or {}).get(PRECISION_HINT, DEFAULT_HINT))
    notes = conversion.notes
    if not is_capable(hint):
        # Not a failure of the converter, because the model is proved where it runs.
        settings = None
        facts["not_compiled_for"] = f"{hint}: this CPU does not compute in it"
        notes = (*notes, f"this CPU does not compute in {hint}: the model was compiled here for {DEFAULT_HINT} only")
    compiled = compile_openvino(model, settings)
    if hint == _BF16 == compiled.hint and _BF16 not in compiled.operators and not compiled.has_bodies:
        # It would be the FP32 model under another name, with looser limits.
        msg = f"no operator computes in bf16 (got {compiled.describe_operators()})"
        raise NotAvailableError(msg, hint="remove the bf16 target")
    facts |= {"precision_hint": compiled.hint, "operators_by_precision": dict(compiled.operators)}
    # OpenVINO has no names for dims.
    return as_promised(job, replace(conversion, notes=notes), signature_of_openvino(model), facts, keeps_names=False)
