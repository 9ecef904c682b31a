"""Find nodes of an ONNX model that no runtime can run, because ONNX lacks their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paritygate.errors import UnsupportedOperatorsError
from paritygate.models.onnx.graph import all_nodes, schema_of
from paritygate.text import first_of, one_or_many

if TYPE_CHECKING:
    import onnx

# operator, node, reason, hint
OperatorRow = tuple[str, str, str, str]

_NAMED = 5
_ONNX_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})
# ONNX Runtime's own operators; only loading the model shows whether it has one.
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})


def node_name(node: onnx.NodeProto) -> str:
    """Return the node's name, or that of its first output if it has none."""
    return node.name or next((name for name in node.output if name), "(unnamed)")


def unknown_operators(
    model: onnx.ModelProto, *, reason_of: Callable[[onnx.NodeProto], str | None], hint: str
) -> list[OperatorRow]:
    """Return a row with the hint for every node whose operator ONNX lacks in the model's opset, or that has a reason.

    `reason_of` returns why a node was not converted; None looks it up in ONNX. Nodes of ONNX Runtime's own domain and
    of the model's functions are left out. Weights are not needed.
    """
    versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    local = {(function.domain, function.name) for function in model.functions}
    rows = []
    for node in all_nodes(model):
        if (node.domain, node.op_type) in local or node.domain in _RUNTIME_DOMAINS:
            continue
        # An unconverted operator may share its name with a different one of ONNX's.
        reason = reason_of(node) or _reason(node, versions.get(node.domain or "ai.onnx", 0))
        if reason:
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            rows.append((operator, node_name(node), reason, hint))
    return rows


def _reason(node: onnx.NodeProto, version: int) -> str:
    if node.domain not in _ONNX_DOMAINS:
        return f"no runtime knows the operator domain {node.domain!r}"
    schema = schema_of(node.op_type, version, node.domain)
    if schema is None:
        return f"ONNX has no such operator in opset {version}"
    return f"ONNX has removed it in opset {version}" if schema.deprecated else ""


def check_operators(model: onnx.ModelProto, *, hint: str) -> None:
    """Raise UnsupportedOperatorsError with a row a node if ONNX lacks operators of the model."""
    rows = unknown_operators(model, reason_of=lambda _: None, hint=hint)
    if rows:
        raise unsupported_operators(rows, target="ONNX")


def unsupported_operators(
    rows: list[OperatorRow], *, target: str, lack: str = "does not have"
) -> UnsupportedOperatorsError:
    """Return the error with these rows, whose message names the operators; `target` lacks them."""
    operators = list(dict.fromkeys(row[0] for row in rows))
    these = one_or_many(len(operators), "this operator", "these operators")
    msg = f"{target} {lack} {these} of the model: {first_of(operators, _NAMED)}"
    return UnsupportedOperatorsError(msg, rows=rows, hint=rows[0][3])
