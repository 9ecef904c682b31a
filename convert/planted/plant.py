"""Planting one fault, or one innocent rewrite, into an ONNX file: another file, checked to be sound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.convert.planted.graph_edit import GraphEdit
from paritygate.convert.planted.kinds import PLANTS, NotApplicable, PlantContext, Planted
from paritygate.errors import InputFileError, UsageError
from paritygate.models.onnx.file import check_onnx, read_onnx

if TYPE_CHECKING:
    import onnx

__all__ = ["plant", "plant_into"]


def plant_into(
    model: onnx.ModelProto, name: str, context: PlantContext
) -> tuple[onnx.ModelProto, Planted] | NotApplicable:
    """Return the model with the fault in it, and what was changed; the model given is used up.

    Raises:
        UsageError: There is no such fault.
    """
    if name not in PLANTS:
        msg = f"there is no fault {name!r}"
        raise UsageError(msg, hint=f"faults and innocent rewrites are: {', '.join(PLANTS)}")
    edit = GraphEdit(model)
    found = PLANTS[name].plant(edit, context)
    return found if isinstance(found, NotApplicable) else (edit.finish(), found)


def plant(source: Path, name: str, context: PlantContext, target: Path) -> Planted | NotApplicable:
    """Write the model in `source` with the fault in it to `target`, and check that it is valid.

    Args:
        source: An ONNX file.
        name: The fault, by the table.
        context: What is known of the model besides its graph.
        target: The file to write.

    Returns:
        What was changed; or why nothing could be, or that what came of it is no valid model.

    Raises:
        UsageError: There is no such fault.
        InputFileError: `source` is no ONNX model.
        StorageError: The disk is full.
    """
    import onnx

    model = read_onnx(source)
    onnx.external_data_helper.load_external_data_for_model(model, str(source.parent))
    found = plant_into(model, name, context)
    if isinstance(found, NotApplicable):
        return found
    changed, planted = found
    save_onnx(changed, target)
    try:
        check_onnx(target)
    except InputFileError as err:
        return NotApplicable(f"what comes of it is no valid model: {err}")
    return planted
