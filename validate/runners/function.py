"""Run a Python function that takes a mapping of arrays and returns one: a model of any unknown kind."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.example import signature_seen
from paritygate.models.loading import LoadedModel
from paritygate.models.named_call import check_rename, select_outputs, source_names
from paritygate.signature import Signature
from paritygate.text import a_or_an
from paritygate.validate.runners.runner import Runner, RuntimeFacts, describe_arrays, reason_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def open_model(loaded: LoadedModel) -> FunctionRunner:
    """Return the function, ready to run; without a signature, one call shows its outputs.

    It gets the other model's inputs, or all of the samples where these are unknown. UsageError is raised where it
    returns no mapping of arrays, or without a signature and an example.
    """
    signature, rename = loaded.ref.signature, loaded.ref.rename
    if signature is None:
        if loaded.example is None:
            msg = f"the inputs and outputs of {loaded.ref.text} are not known: a function does not say them"
            raise UsageError(msg, hint="give samples with at least one row")
        rows = loaded.example.of_the_other().by_own_names(rename)
        signature = signature_seen(loaded.example, rows, _call(loaded.model, rows), rename)
    check_rename(signature, rename)
    return FunctionRunner(loaded.model, signature, rename)


def _call(function: Callable[..., Any], inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    try:
        # Copies, because the function may change its inputs in place.
        answer = function({name: np.array(array) for name, array in inputs.items()})
        if isinstance(answer, Mapping):
            # And it may return an array that it writes to at the next call.
            return {name: np.array(array) for name, array in answer.items()}
    except ParitygateError:
        raise
    except Exception as err:
        msg = f"the function failed on {describe_arrays(inputs)}: {reason_of(err)}"
        raise BackendError(msg, hint="the function is given a dict of arrays: call it with one") from err
    msg = f"the function returned {a_or_an(type(answer).__name__)}, not a mapping of arrays by name"
    raise UsageError(msg, hint='return for example {"logits": logits}')


class FunctionRunner(Runner):
    """One function of named arrays."""

    def __init__(self, function: Callable[..., Any], signature: Signature, rename: Mapping[str, str]) -> None:
        names = source_names(signature.inputs, rename)
        own = [replace(spec, name=name) for spec, name in zip(signature.inputs, names, strict=True)]
        facts = RuntimeFacts(
            runtime="python",
            version=platform.python_version(),
            device="unknown",
            notes=("a function answered: what it computes with, where, and in which precision is not known",),
        )
        super().__init__(signature, facts, replace(signature, inputs=tuple(own)))
        self._function = function
        self._rename = rename

    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        arrays, _ = select_outputs(_call(self._function, feed), self._served, self._rename)
        return arrays
