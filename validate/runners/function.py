"""Run a Python function that takes a mapping of arrays and returns one: a model of any unknown kind."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.importing import is_object_path, place_in_users_code
from paritygate.models.example import signature_seen
from paritygate.models.loading import LoadedModel
from paritygate.models.named_call import check_rename, select_outputs, source_names
from paritygate.signature import Signature
from paritygate.text import a_or_an, in_one_line
from paritygate.validate.runners.runner import Runner, RuntimeFacts, describe_arrays


def open_model(loaded: LoadedModel) -> FunctionRunner:
    """Return the function, ready to run; without a signature, one call shows its outputs.

    It gets the other model's inputs, or all of the samples where these are unknown. UsageError is raised where it
    returns no mapping of arrays, or without a signature and an example.
    """
    signature, rename = loaded.ref.signature, loaded.ref.rename
    if signature is None:
        if loaded.example is None:
            msg = f"the inputs and outputs of {loaded.ref.text} are unknown, because a function does not declare them"
            raise UsageError(msg, hint="give samples with at least one row")
        rows = loaded.example.of_the_other().by_own_names(rename)
        signature = signature_seen(loaded.example, rows, _call(loaded, rows), rename)
    check_rename(signature, rename)
    return FunctionRunner(loaded, signature, rename)


def _call(loaded: LoadedModel, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
    name = f"the {loaded.side} {loaded.ref.name}" if loaded.side else loaded.ref.name
    try:
        # Copies, because the function may change its inputs in place.
        answer = loaded.model({name: np.array(array) for name, array in inputs.items()})
        if isinstance(answer, Mapping):
            # And it may return an array that it writes to at the next call.
            return {name: np.array(array) for name, array in answer.items()}
    except ParitygateError:
        raise
    except Exception as err:
        raise failed_on(name, describe_arrays(inputs), err, _hint_for(err, loaded)) from err
    msg = f"{name} returned {a_or_an(type(answer).__name__)}, not a mapping of arrays by name"
    raise UsageError(msg, hint='return for example {"logits": logits}')


def failed_on(name: str, inputs: str, err: Exception, hint: str) -> BackendError:
    """Return the error of code of the user's, with the place where it was raised."""
    place = place_in_users_code(err)
    where = f" ({place})" if place else ""
    return BackendError(f"{name} failed on {inputs}: {in_one_line(err)}{where}", hint=hint)


def _hint_for(err: Exception, loaded: LoadedModel) -> str:
    """Return how to call the function if it does not take one dict of arrays, and else to correct it."""
    is_call = isinstance(err, TypeError) and err.__traceback__ is not None and err.__traceback__.tb_next is None
    if is_call or (isinstance(err, AttributeError | TypeError) and "dict" in str(err)):
        return "the function is given a dict of arrays: call it with one"
    return "correct your code" + (
        "; --debug before the command prints its traceback" if is_object_path(loaded.ref.text) else ""
    )


class FunctionRunner(Runner):
    """One function of named arrays."""

    def __init__(self, loaded: LoadedModel, signature: Signature, rename: Mapping[str, str]) -> None:
        names = source_names(signature.inputs, rename)
        own = [replace(spec, name=name) for spec, name in zip(signature.inputs, names, strict=True)]
        facts = RuntimeFacts(
            runtime="python",
            version=platform.python_version(),
            device="unknown",
            notes=("a function answered: its runtime, device and precision are unknown",),
        )
        super().__init__(signature, facts, replace(signature, inputs=tuple(own)))
        self._source = loaded
        self._rename = rename

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        arrays, _ = select_outputs(_call(self._source, feed), self._served, self._rename)
        return arrays
