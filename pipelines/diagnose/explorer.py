"""Write the errors of a candidate's nodes as node data of Model Explorer, a viewer of graphs."""

from __future__ import annotations

import shlex
from pathlib import Path

from paritygate.files import write_json_atomically
from paritygate.validate.divergence.result import Divergence

# Nodes up to the tolerance, up to a tenth and above; those of a place have a colour of their own.
_GOOD, _SMALL, _LARGE, _PLACE = "#d9f0e1", "#fdf1d6", "#f6b26b", "#e06666"
_TENTH = 0.1


def write_node_data(divergence: Divergence, path: Path) -> None:
    """Write the error of each node, by its name in the candidate's file, and mark the places; may raise StorageError.

    A node has the largest error of its tensors. One without a partner in the reference has data only in a place.
    """
    errors: dict[str, float] = {}
    for step in divergence.growth:
        if step.error is not None:
            errors[step.node] = max(step.error, errors.get(step.node, 0.0))
    here = dict.fromkeys(name for place in divergence.located for name in place.candidate_nodes)
    # What is not finite is far off too.
    unknown = 1.0 if divergence.error is None else divergence.error
    results: dict[str, dict[str, float | str]] = {name: {"value": error} for name, error in errors.items()}
    results |= {name: {"value": errors.get(name, unknown), "bgColor": _PLACE} for name in here}
    colours = ((divergence.tolerance or 0.0, _GOOD), (_TENTH, _SMALL), (max([unknown, *errors.values()]), _LARGE))
    thresholds = [{"value": value, "bgColor": colour} for value, colour in colours]
    write_json_atomically(path, {"results": results, "thresholds": thresholds})


def explorer_command(path: Path, candidate: Path) -> str:
    """Return the command that opens the candidate with its node data."""
    words = ["model-explorer", "--extensions=model_explorer_onnx", f"--node_data_paths={path}", str(candidate)]
    return shlex.join(words)
