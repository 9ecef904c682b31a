"""What to say of a branch on the values of a tensor, which no graph holds: whose code it is in, and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from paritygate.convert.causes import users_line

__all__ = ["branch_on_values"]

# By name: the class is not public, and has moved between versions of PyTorch.
_RAISED = "GuardOnDataDependentSymNode"
# What of PyTorch a module computes with; the rest of it traces, and stands in every traceback.
_COMPUTING = frozenset({"nn", "distributions", "functional.py"})
_CHOOSE = "compute both sides and choose with torch.where, or use torch.cond"
_ELSEWHERE = "call it so that it does not look at values, or leave this format out of targets"
_HINTS = {
    "_detect_is_causal_mask": "it looks whether the mask is causal where nobody says so: pass tgt_is_causal=True with "
    "the mask (of nn.TransformerEncoder is_causal, of nn.Transformer src_is_causal as well), False if it is not"
}


def branch_on_values(chain: Sequence[BaseException]) -> tuple[str, str] | None:
    """Return message and hint where a tracer of PyTorch's met a branch on values; None where it failed otherwise.

    Args:
        chain: The error and all that it was raised from.
    """
    found = [cause for cause in chain if type(cause).__name__ == _RAISED]
    if not found:
        return None
    place = next(filter(None, map(users_line, (*found, *chain))), "")
    package, function = _library_function(found[0])
    if not package:
        return f"the module branches on the values of a tensor{place}: a graph holds no such branch", _CHOOSE
    called = f", called{place}" if place else ""
    msg = f"{package} itself branches on the values of a tensor, in {function}{called}: a graph holds no such branch"
    return msg, _HINTS.get(function, _ELSEWHERE)


def _library_function(err: BaseException) -> tuple[str, str]:
    """Return package and function of the innermost code that computes, if that is a library's; else empty ones."""
    for frame in reversed(traceback.extract_tb(err.__traceback__)):
        parts = Path(frame.filename).parts
        if "site-packages" not in parts:
            return "", ""
        package, *inside = parts[parts.index("site-packages") + 1 :]
        if package != "torch" or inside[0] in _COMPUTING:
            return package.removesuffix(".py"), frame.name
    return "", ""
