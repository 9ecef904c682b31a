"""Explain errors of PyTorch's exporters to the user, in one line or one table."""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paritygate.convert.error_origin import causes, one_line, users_line
from paritygate.convert.onnx.operators import OperatorRow, unsupported_operators
from paritygate.errors import ConversionError, ParitygateError

# One operator in the exporter's report: its name, the reason, its nodes.
_REPORTED = re.compile(
    r"^- `(?P<operator>[^`]+)`:\s+(?P<reason>.*?)\.? Example node: .*All nodes: `\[(?P<nodes>.*)\]`$"
)
_FIRST_REPORTED = re.compile(
    r"op='(?P<operator>[^']+)', overload='(?P<overload>[^']*)'\)>\. Failure message: (?P<why>.*)"
)
_FIRST_NODE = re.compile(r"translating node %(\S+)")
_OPERATOR_HINT = "write it with operators that ONNX has, or serve the model as it is"
# By name, because the class is not public, and has moved between versions of PyTorch.
_RAISED = "GuardOnDataDependentSymNode"
# Parts of PyTorch that compute; others trace, and are in every traceback.
_COMPUTING = frozenset({"nn", "distributions", "functional.py"})
_CHOOSE = "compute both sides and choose with torch.where, or use torch.cond"
_ELSEWHERE = "call it so that it does not look at values, or leave this format out of targets"
_HINTS = {
    "_detect_is_causal_mask": "it looks whether the mask is causal where nobody says so: pass tgt_is_causal=True with "
    "the mask (of nn.TransformerEncoder is_causal, of nn.Transformer src_is_causal as well), False if it is not"
}


class ModuleError(ConversionError):
    """The fault is in the module itself, so no other exporter can succeed."""


def export_by_dynamo(*arguments: Any, **settings: Any) -> Any:  # noqa: ANN401 - an ONNXProgram, which is not public
    """Return the program of torch.onnx.export on top of torch.export.

    Raises:
        ParitygateError: The export failed.
    """
    import torch

    export = functools.partial(torch.onnx.export, *arguments, dynamo=True, verbose=False, **settings)
    try:
        return export()
    except Exception as err:
        raise _explained(err, export) from err


def _explained(err: Exception, export: Callable[..., object]) -> ParitygateError:
    chain = causes(err)
    for cause in chain:
        if isinstance(cause, ParitygateError):
            return cause
    # By name, because these classes are not public, and have moved between versions of PyTorch.
    kinds = [type(cause).__name__ for cause in chain]
    if "DispatchError" in kinds:
        rows = _reported_operators(export) or _first_operator(chain)
        return unsupported_operators(rows, target="ONNX")
    is_traced = "TorchExportError" not in kinds[:-1]
    root = chain[-1] if is_traced else chain[kinds.index("TorchExportError") + 1]
    place = users_line(root)
    if (branch := branch_on_values(chain)) is not None:
        msg, hint = branch
        # The TorchScript exporter would silently write the example's branch.
        return ModuleError(msg, hint=hint)
    step = "torch.onnx cannot write the module" if is_traced else "torch.export cannot trace the module"
    msg = f"{step}: {type(root).__name__}: {one_line(root)}{place}"
    return ConversionError(
        msg, hint=("read the whole trace in the log, and the limits of torch.export in its documentation")
    )


def _reported_operators(export: Callable[..., object]) -> list[OperatorRow]:
    """Return all operators without a translation, because the error names only the first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # It fails again, but leaves the report.
        with contextlib.suppress(Exception):
            export(report=True, artifacts_dir=folder)
        lines = [line for file in sorted(folder.glob("*.md")) for line in file.read_text("utf-8").splitlines()]
    matches = [match for match in map(_REPORTED.match, lines) if match]
    return sorted(
        (match["operator"], node, match["reason"].strip(), _OPERATOR_HINT)
        for match in matches
        for node in match["nodes"].split(", ")
    )


def _first_operator(chain: list[BaseException]) -> list[OperatorRow]:
    texts = [str(cause) for cause in chain]
    reported = next((match for match in map(_FIRST_REPORTED.search, texts) if match), None)
    node = next((match[1] for match in map(_FIRST_NODE.search, texts) if match), "(unnamed)")
    if reported is None:
        return [("(unknown)", node, one_line(chain[-1]), _OPERATOR_HINT)]
    return [(f"{reported['operator']}.{reported['overload']}", node, reported["why"].strip(), _OPERATOR_HINT)]


def branch_on_values(chain: Sequence[BaseException]) -> tuple[str, str] | None:
    """Return message and hint if a tracer of PyTorch's met a branch on values; None for other errors."""
    raised = [cause for cause in chain if type(cause).__name__ == _RAISED]
    if not raised:
        return None
    place = next(filter(None, map(users_line, (*raised, *chain))), "")
    package, function = _library_function(raised[0])
    if not package:
        return f"the module branches on the values of a tensor{place}: a graph holds no such branch", _CHOOSE
    called = f", called{place}" if place else ""
    msg = f"{package} itself branches on the values of a tensor, in {function}{called}, which a graph cannot do"
    return msg, _HINTS.get(function, _ELSEWHERE)


def _library_function(err: BaseException) -> tuple[str, str]:
    """Return package and function of the innermost code that computes, if it is a library's; else empty ones."""
    for frame in reversed(traceback.extract_tb(err.__traceback__)):
        parts = Path(frame.filename).parts
        if "site-packages" not in parts:
            return "", ""
        package, *inside = parts[parts.index("site-packages") + 1 :]
        if package != "torch" or inside[0] in _COMPUTING:
            return package.removesuffix(".py"), frame.name
    return "", ""
