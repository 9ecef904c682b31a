"""Convert PyTorch to a program of torch.export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend, version_of
from paritygate.convert.contract import notes_left_out
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch.program import (
    check_ranges,
    declared_signature,
    example,
    refuse_script_module,
    untraceable,
)
from paritygate.models.torch.archive import NAMES_FILE, SaidNames
from paritygate.models.torch.module import as_named_module, put_in_eval_mode, unused_outputs

if TYPE_CHECKING:
    import torch

    from paritygate.signature import Signature

_MAIN = "model.pt2"
_STACK_TRACE = "stack_trace"


def convert(job: ConversionJob) -> Conversion:
    """Write the module, in eval mode with a note, as `model.pt2`, with the names of the signature in it."""
    require_backend("torch")
    import torch

    signature = declared_signature(job)
    refuse_script_module(job.model)
    eval_note = put_in_eval_mode(job.model)
    named = as_named_module(job.model, signature, job.rename)
    program = _export(named, signature, job.ties)
    check_ranges(program, signature.inputs, signature.dims, ties=job.ties)
    for node in program.graph.nodes:
        # The traces hold paths of this machine, so files would differ between checkouts.
        node.meta.pop(_STACK_TRACE, None)
    names = SaidNames(signature=signature).to_text()
    torch.export.save(program, job.folder / _MAIN, extra_files={NAMES_FILE: names})
    return Conversion(
        main=_MAIN,
        signature=signature,
        notes=tuple(note for note in (eval_note, *notes_left_out(unused_outputs(named))) if note),
        facts={"torch": version_of("torch")},
    )


def _export(named: torch.nn.Module, signature: Signature, ties: Mapping[str, str]) -> torch.export.ExportedProgram:
    import torch

    arrays, shapes = example(named, signature, ties)

    def export(sizes: Any) -> torch.export.ExportedProgram:  # noqa: ANN401 - what torch.export takes for sizes
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return torch.export.export(named, arrays, dynamic_shapes=sizes)

    try:
        return export((shapes,))
    except Exception as err:
        suggested = _suggested(err, (shapes,))
        if suggested is None:
            raise untraceable(err, "torch.export") from err
    try:
        return export(suggested)
    except Exception as err:
        raise untraceable(err, "torch.export") from err


def _suggested(err: Exception, sizes: Any) -> Any:  # noqa: ANN401 - what torch.export takes for sizes
    """Return the sizes that PyTorch suggests, or None.

    They let the module be exported, so that the check of the ranges can name the dim that is too narrow.
    """
    from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes

    # Without the advice in the printed error, which cannot be parsed.
    message = str(getattr(err, "msg", ""))
    if "Suggested fixes:" not in message:
        return None
    try:
        return refine_dynamic_shapes_from_suggested_fixes(message, sizes)
    except Exception:  # noqa: BLE001 - it reads a message; where it cannot, the error itself is told
        return None
