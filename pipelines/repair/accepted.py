"""Make the repair of a conversion that a spec accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.changes import changes_of
from paritygate.models.source import ModelRef, SourceKind
from paritygate.text import first_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# So many changes are named.
_SHOWN = 4
# The key of the accepted repair in the facts of an artifact.
ACCEPTED = "accepted_repair"


def with_accepted_repair(
    job: ConversionJob,
    conversion: Conversion,
    accepted: Mapping[str, Any],
    source: ModelRef,
    row: Mapping[str, NDArray[np.generic]],
) -> Conversion:
    """Return the conversion with the accepted changes in its file, and with a note on them.

    The source runs on the batch `row`, so that its weights have the names that the search gave them.

    Raises:
        ConversionError: The changes do not fit the file or the source, or the changed file is unsound.
    """
    changes = changes_of(accepted["changes"])
    facts = {**conversion.facts, ACCEPTED: dict(accepted)}
    note = f"repaired as the spec accepts it: {repair_text(accepted)}"
    conversion = replace(conversion, facts=facts, notes=(*conversion.notes, note))
    if not len(changes):
        return conversion
    # Most conversions need none of this.
    from paritygate.convert.onnx.changes import change_file
    from paritygate.convert.onnx.check_onnx import check
    from paritygate.pipelines.repair.proposals import origin_of
    from paritygate.validate.tensors.meter import Meter
    from paritygate.validate.tensors.opening import open_graph

    own = {served: name for name, served in job.rename.items()} if job.source.kind is SourceKind.ONNX else {}
    feed = {own.get(name, name): array for name, array in row.items()}
    origin = origin_of(open_graph(source, [feed], Meter(), conversion.signature))
    change_file(job.folder / conversion.main, changes, origin)
    return check(job, conversion)


def repair_text(accepted: Mapping[str, Any]) -> str:
    """Return the parts of an accepted repair, and who accepts it."""
    changes = accepted.get("changes", {})
    parts = [f"{name} {accepted[name]}" for name in ("exporter", "opset") if accepted.get(name)]
    parts += [_of_weight(item) for item in changes.get("weights", ())]
    parts += [f"{item['name']} of {item['node']} is {item.get('value')}" for item in changes.get("attributes", ())]
    parts += [f"the source's nodes make {item['name']}" for item in changes.get("grafts", ())]
    return f"{first_of(parts, _SHOWN)}; accepted by {accepted['author']}: {accepted['reason']}"


def _of_weight(item: Mapping[str, Any]) -> str:
    if item.get("value") is not None:
        return f"{item['name']} is {item['value']:g}"
    order = f", axes {item['axes']}" if item.get("axes") else ""
    return f"{item['name']} is the source's {item['source']}{order}"
