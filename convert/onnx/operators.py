"""Which nodes of an ONNX model no runtime can run: operators that ONNX does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paritygate.errors import UnsupportedOperatorsError
from paritygate.models.onnx.graph import all_nodes

if TYPE_CHECKING:
    import onnx

# operator, node, reason, hint
OperatorRow = tuple[str, str, str, str]

_ONNX_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})
# ONNX Runtime's own operators: only loading the model tells whether it has one.
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})


def node_name(node: onnx.NodeProto) -> str:
    """Return the node's name, or that of its first output if it has none."""
    return node.name or next((name for name in node.output if name), "(unnamed)")


def unknown_operators(
    model: onnx.ModelProto, *, reason_of: Callable[[onnx.NodeProto], str | None], hint: str
) -> list[OperatorRow]:
    """Return a row for every node whose operator ONNX does not have in the opset that the model imports.

    A node with a reason of its own has one too. Nodes of ONNX Runtime's own domain and of functions that the model
    brings along are left out.

    Args:
        model: The model; its weights are not needed.
        reason_of: Why a node was not converted; None where that is not known, and it is looked for in ONNX.
        hint: What to do about such a node.
    """
    versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    local = {(function.domain, function.name) for function in model.functions}
    rows = []
    for node in all_nodes(model):
        if (node.domain, node.op_type) in local or node.domain in _RUNTIME_DOMAINS:
            continue
        # What could not be converted may be called like an operator of ONNX's that does something else.
        reason = reason_of(node) or _reason(node, versions.get(node.domain or "ai.onnx", 0))
        if reason:
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            rows.append((operator, node_name(node), reason, hint))
    return rows


def _reason(node: onnx.NodeProto, version: int) -> str:
    import onnx

    if node.domain not in _ONNX_DOMAINS:
        return f"no runtime knows the operator domain {node.domain!r}"
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return f"ONNX has no such operator in opset {version}"
    return f"ONNX has removed it in opset {version}" if schema.deprecated else ""


def check_operators(model: onnx.ModelProto, *, hint: str) -> None:
    """Do nothing if ONNX has every operator of the model.

    Args:
        model: The model; its weights are not needed.
        hint: What to do about a node whose operator it does not have.

    Raises:
        UnsupportedOperatorsError: It does not have all of them, with one row per node.
    """
    rows = unknown_operators(model, reason_of=lambda _: None, hint=hint)
    if rows:
        raise unsupported_operators(rows, target="ONNX")


def unsupported_operators(
    rows: list[OperatorRow], *, target: str, lack: str = "does not have"
) -> UnsupportedOperatorsError:
    """Return the error that carries the rows; its message names the operators.

    Args:
        rows: One per node, at least one.
        target: What does not have the operators.
        lack: What is so of them instead, in words.
    """
    operators = list(dict.fromkeys(row[0] for row in rows))
    listed = ", ".join(operators[:5]) + (f" and {len(operators) - 5} more" if len(operators) > 5 else "")  # noqa: PLR2004
    msg = f"{target} {lack} {'this operator' if len(operators) == 1 else 'these operators'} of the model: {listed}"
    return UnsupportedOperatorsError(msg, rows=rows, hint=rows[0][3])
