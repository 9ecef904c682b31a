"""Check that a converted ONNX model can be served: it is valid, its operators are known, and ONNX Runtime loads it.

A precision without support in ONNX Runtime's CPU provider is not loaded, as the facts show.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from paritygate.backends import require_backend
from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.operators import OperatorRow, check_operators, node_name, unsupported_operators
from paritygate.errors import ConversionError
from paritygate.formats import why_not_run
from paritygate.models.onnx.file import OPTIMISER_HINT, check_onnx, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import nodes_in
from paritygate.models.onnx.locales import hint_on_locale
from paritygate.precision import Variant

_OPERATOR_HINT = "write the model with operators that ONNX has, or serve it in its own format"
_HINT = "replace the operator by standard ONNX ones of the opset, or write the model with another opset"
# ONNX Runtime names an unknown operator or version only in these messages.
_NOT_IMPLEMENTED = re.compile(r"Could not find an implementation for (\S+?)\(\d+\) node with name '(.*?)'")
_NOT_REGISTERED = re.compile(r"error: (?:(?P<domain>[^:\s]*):)?(?P<operator>\w+)\(-?\d+\) is not a registered")
_IR_LIMIT = re.compile(r"max supported IR version: (\d+)")
_FAR_TOO_HIGH = 1000


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the file is proved sound."""
    path = job.folder / conversion.main
    with our_file():
        model = read_onnx(path)
        check_operators(model, hint=_OPERATOR_HINT)
        check_onnx(path)
    # Not a failure of the converter, because the model is proved where it runs.
    reason = why_not_run(Variant(format="onnx", precision=job.precision), "cpu")
    loaded_in = f"onnxruntime {load_in_onnxruntime(path)}" if reason is None else f"nothing: {reason}"
    facts = {"loaded_in": loaded_in}
    return as_promised(job, conversion, signature_of_onnx(model), facts, keeps_names=True)


def _open(model: str | bytes, *, is_optimised: bool = True) -> Any:  # noqa: ANN401 - a session of ONNX Runtime, which has no types
    require_backend("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def load_in_onnxruntime(path: Path) -> str:
    """Load the model on the CPU, with the optimisations it is served with; return the runtime's version.

    Raises:
        ConversionError: ONNX Runtime refuses the model. UnsupportedOperatorsError names one operator and all its nodes.
        MissingBackendError: ONNX Runtime is not installed.
    """
    require_backend("onnxruntime")
    import onnxruntime

    try:
        _open(str(path))
    except Exception as err:
        version = onnxruntime.__version__
        text = " ".join(str(err).split())
        if _loads_unoptimised(path):
            msg = f"ONNX Runtime {version} cannot optimise the converted model, which is valid: {text[:500]}"
            raise ConversionError(msg, hint=OPTIMISER_HINT) from err
        rows = _rows(text, path, f"ONNX Runtime {version} does not implement it")
        if rows:
            raise unsupported_operators(rows, target=f"ONNX Runtime {version}") from err
        msg = f"ONNX Runtime {version} cannot load the converted model: {text[:500]}"
        hint = hint_on_locale(text) or "convert it with another opset, or look at the model in a viewer"
        raise ConversionError(msg, hint=hint) from err
    return str(onnxruntime.__version__)


def _loads_unoptimised(path: Path) -> bool:
    try:
        _open(str(path), is_optimised=False)
    except Exception:  # noqa: BLE001 - whatever it raises, the file does not load so
        return False
    return True


def _rows(text: str, path: Path, reason: str) -> list[OperatorRow]:
    match = _NOT_IMPLEMENTED.search(text)
    if match:
        return [(match[1], match[2] or "(unnamed)", f"{reason} for these dtypes", _HINT)]
    match = _NOT_REGISTERED.search(text)
    if not match:
        return []
    domain, operator = match["domain"] or "", match["operator"]
    those = [node for node in nodes_in(read_onnx(path).graph) if (node.domain, node.op_type) == (domain, operator)]
    named = f"{domain}::{operator}" if domain else operator
    return [(named, node, reason, _HINT) for node in map(node_name, those)] or [(named, "(unnamed)", reason, _HINT)]


def highest_ir_version() -> int | None:
    """Return the highest IR version that the installed ONNX Runtime reads, or None if unknown."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", [value], [result])
    probe = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=_FAR_TOO_HIGH)
    try:
        _open(probe.SerializeToString())
    except Exception as err:  # noqa: BLE001 - whatever it raises, the message is what is asked for
        match = _IR_LIMIT.search(str(err))
        return int(match[1]) if match else None
    return None
