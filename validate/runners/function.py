"""Run a function of Python that takes a mapping of arrays and returns one: a model of any kind that we do not know."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.example import signature_seen
from paritygate.models.named_call import check_rename, select_outputs, source_names
from paritygate.validate.runners.interface import check_inputs, describe_arrays, reason_of
from paritygate.validate.runners.runner import ModelToRun, RuntimeFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.signature import Signature

__all__ = ["FunctionRunner", "open_model"]


def open_model(model: ModelToRun) -> FunctionRunner:
    """Return the function, ready to be called; without a signature it is called once to see its outputs.

    It is given the inputs that the other model takes, or all of the samples where that is not known.

    Raises:
        UsageError: It returns no mapping of arrays, or neither a signature nor an example is given.
        BackendError: It failed.
    """
    signature = model.signature
    if signature is None:
        if model.example is None:
            msg = f"the inputs and outputs of {model.source.text} are not known: a function does not say them"
            raise UsageError(msg, hint="give samples with at least one row")
        rows = model.example.of_the_other().by_own_names(model.rename)
        signature = signature_seen(model.example, rows, _call(model.model, rows), model.rename)
    check_rename(signature, model.rename)
    return FunctionRunner(model.model, signature, model.rename)


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
        raise BackendError(msg, hint="check that the samples are within what the function takes") from err
    msg = f"the function returned a {type(answer).__name__}, not a mapping of arrays by name"
    raise UsageError(msg, hint='return for example {"logits": logits}')


class FunctionRunner:
    """One function of named arrays."""

    def __init__(self, function: Callable[..., Any], signature: Signature, rename: Mapping[str, str]) -> None:
        self._function = function
        self._signature = signature
        self._rename = rename
        self._names = source_names(signature.inputs, rename)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        return self._signature

    @property
    def facts(self) -> RuntimeFacts:
        """What runs: Python; what the function calls in its turn is not known."""
        return RuntimeFacts(
            runtime="python",
            version=platform.python_version(),
            device="unknown",
            notes=("a function answered: what it computes with, where, and in which precision is not known",),
        )

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those that it was first called with, or it failed.
            UsageError: It does not return the outputs that the signature has.
        """
        check_inputs(self._signature, inputs)
        own = {name: inputs[spec.name] for name, spec in zip(self._names, self._signature.inputs, strict=True)}
        arrays, _ = select_outputs(_call(self._function, own), self._signature, self._rename)
        return {spec.name: array for spec, array in zip(self._signature.outputs, arrays, strict=True)}
