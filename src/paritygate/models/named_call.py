"""Call a model of any framework by the names of its inputs and outputs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.text import a_or_an, counted

if TYPE_CHECKING:
    from paritygate.signature import Signature, TensorSpec

_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def check_rename(signature: Signature, rename: Mapping[str, str]) -> None:
    """Check that every name served by `rename`, `{source's name: name served}`, is in the signature."""
    served = {spec.name for spec in (*signature.inputs, *signature.outputs)}
    for source, name in rename.items():
        if name not in served:
            msg = f"rename serves {source!r} as {name!r}, which the signature does not have (it has: {_listed(served)})"
            hint = (
                "write rename as {name in the source: name served}; model.inputs and model.outputs have the name served"
            )
            raise UsageError(msg, hint=hint)


def source_names(specs: Iterable[TensorSpec], rename: Mapping[str, str]) -> tuple[str, ...]:
    """Return the source's name of each input or output, in their order; `rename` has the name served by source's name.

    Raises:
        UsageError: Two names served would be the same tensor of the source, or the other way round.
    """
    inverse: dict[str, str] = {}
    for source, served in rename.items():
        if served in inverse:
            msg = f"rename serves both {inverse[served]!r} and {source!r} as {served!r}"
            raise UsageError(msg, hint="give each of them a name of its own")
        inverse[served] = source
    names = [inverse.get(spec.name, spec.name) for spec in specs]
    for spec, name in zip(specs, names, strict=True):
        if names.count(name) > 1:
            msg = f"{name!r} of the source would be served twice, once as {spec.name!r}"
            raise UsageError(msg, hint="rename the other one as well: {name in the source: name served}")
    return tuple(names)


def takes_keywords(function: Callable[..., Any], names: Sequence[str], what: str) -> bool:
    """Return whether `function` is to be called with `names` as keywords, rather than in their order.

    Keywords are used when the function has parameters of all these names, order when it has none of them. Anything in
    between would feed an input to the wrong parameter.

    Args:
        function: It takes one tensor per name.
        names: The source's names of the inputs, in the order of the signature.
        what: The function's name in messages.

    Raises:
        UsageError: Only some of the names are parameters, or their number does not fit.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Compiled functions hide their parameters.
        return False
    named = {item.name for item in parameters if item.kind in _NAMED}
    kinds = {item.kind for item in parameters}
    required = [item.name for item in parameters if item.default is item.empty and item.kind in {*_POSITIONAL, *_NAMED}]
    unknown = [name for name in names if name not in named]
    takes_any_keyword = inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds
    if not unknown or takes_any_keyword:
        missing = [name for name in required if name not in names]
        if missing:
            msg = f"{what} needs {_listed(missing)}, which the signature does not have (it has: {_listed(names)})"
            raise UsageError(msg, hint="declare these inputs too, or give the parameters a default")
        return True
    if len(unknown) < len(names):
        msg = f"{what} has no parameter {_listed(unknown)} (it has: {_listed(named)})"
        raise UsageError(msg, hint="name the inputs as the parameters are, or rename: {parameter: name served}")
    most = len([item for item in parameters if item.kind in _POSITIONAL])
    if len(required) > len(names) or (len(names) > most and inspect.Parameter.VAR_POSITIONAL not in kinds):
        msg = f"{what} does not accept {counted(len(names), 'input')} in order (its parameters: {_listed(named)})"
        raise UsageError(msg, hint="declare its inputs under the names of its parameters")
    return False


def is_default_output_name(name: str) -> bool:
    """Return whether the name is one of `default_output_names`."""
    return re.fullmatch(r"output_\d+", name) is not None


def default_output_names(count: int) -> tuple[str, ...]:
    """Return the names of outputs that have none in the source: `output_0`, `output_1`, ..."""
    return tuple(f"output_{index}" for index in range(count))


def outputs_by_name(answer: Any) -> Mapping[str, Any]:  # noqa: ANN401 - whatever the user's model returns
    """Return a model's outputs by name; `output_0`, `output_1`, ... where it has no names."""
    if isinstance(answer, Mapping):
        return answer
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        named: Mapping[str, Any] = answer._asdict()
        return named
    parts = list(answer) if isinstance(answer, (list, tuple)) else [answer]
    return dict(zip(default_output_names(len(parts)), parts, strict=True))


def select_outputs(
    result: Any,  # noqa: ANN401 - whatever the user's model returns
    signature: Signature,
    rename: Mapping[str, str],
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the outputs in the order of the signature, and the names of those it leaves out.

    A mapping and a named tuple are read by name. A tensor, a list and a tuple are read as `output_0`, `output_1`, ...
    if the signature (before renaming) uses these names. Otherwise they are read in order, if there are as many as in
    the signature.

    Raises:
        UsageError: An output of the signature is missing or no tensor.
    """
    names = source_names(signature.outputs, rename)
    outputs = _by_name(result, names)
    if outputs is None:
        # No mapping by position for any number, because a loss before the logits would get their name.
        outputs = _by_position(result, names)
    missing = [name for name in names if name not in outputs]
    if missing:
        msg = f"the model returned no output {_listed(missing)} (it returned: {_listed(outputs)})"
        raise UsageError(msg, hint="name the outputs as the model does, or rename: {name in the source: name served}")
    for name in names:
        if not (hasattr(outputs[name], "shape") and hasattr(outputs[name], "dtype")):
            msg = f"output {name!r} of the model is {a_or_an(type(outputs[name]).__name__)}, not a tensor"
            raise UsageError(msg, hint="wrap the model so that it returns only tensors")
    return tuple(outputs[name] for name in names), tuple(str(name) for name in outputs if name not in names)


def _by_name(result: Any, names: Sequence[str]) -> Mapping[str, Any] | None:  # noqa: ANN401 - as select_outputs
    if isinstance(result, Mapping):
        return result
    fields = getattr(result, "_fields", None)
    if isinstance(result, tuple) and fields and set(fields) & set(names):
        return dict(zip(fields, result, strict=True))
    return None


def _by_position(result: Any, names: Sequence[str]) -> Mapping[str, Any]:  # noqa: ANN401 - as select_outputs
    tensors = list(result) if isinstance(result, (list, tuple)) else [result]
    defaults = default_output_names(len(tensors))
    if set(names) <= set(defaults):
        return dict(zip(defaults, tensors, strict=True))
    if len(tensors) != len(names):
        msg = f"the model returned {counted(len(tensors), 'output')} without names, the signature has {len(names)}"
        raise UsageError(msg, hint="declare them all in their order, or choose some by rename: {output_1: name served}")
    return dict(zip(names, tensors, strict=True))


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(str(name)) for name in names) or "none"
