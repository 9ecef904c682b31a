"""The base of all runners: it checks a batch, runs it, names the outputs, and explains failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.batch import Arrays
from paritygate.errors import BackendError, ParitygateError
from paritygate.models.loading import LoadedModel
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.text import first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Reasons why a runner does not run on one thread, as the end of a message.
ALL_THERE_IS = "one thread is all there is"
FIXED_BY_TENSORFLOW = "TensorFlow fixes its threads when it starts"
NOT_KNOWN = "on how many threads it ran is not known here"
ON_THE_GPU = "it is computed on the GPU"
_NOT_OFFERED = "its runner does not choose them"
_IGNORE_OUTPUT = "leave it out: outputs: {NAME: {ignore: REASON}} in the spec, or --outputs with the others"
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFacts:
    """The facts about a run, read back from the runtime.

    `device` is the one that really ran, such as `cpu` or `cuda:sm90`. `provider`, `tf32` and `optimisation` are None
    where there is no such thing. `precision_found` is that of the weights; None where it cannot be read. `warnings`
    name what was not seen yet and weakens a pass, `provider_warnings` what the provider leaves open or changes.
    `may_be_called_at_once` allows `run` from several threads. `classes` of an output's columns are those that the model
    names. Of a server, `answered_as` are the versions in its answers, and `largest_batch` the most rows of a request,
    None if unknown. `unread` are outputs that the signature lacks. `half_precision` is `float16` or `bfloat16` where a
    PyTorch module computes in it. `in_training` names the parts and operators of a PyTorch file that run in train mode.
    """

    runtime: str
    version: str
    device: str
    provider: str | None = None
    precision_found: Precision | None = None
    tf32: bool | None = None
    optimisation: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provider_warnings: tuple[str, ...] = ()
    may_be_called_at_once: bool = False
    classes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    answered_as: tuple[str, ...] = ()
    largest_batch: int | None = None
    unread: tuple[str, ...] = ()
    half_precision: str | None = None
    in_training: tuple[str, ...] = ()


class Runner(ABC):
    """One model that is ready to run. The class of a runtime loads it, and runs it in `_call`.

    `loaded` is the opened model, set by `opening.open_model`. `second_names` maps the model's own name of an output to
    another by which it can be selected.
    """

    loaded: LoadedModel
    second_names: Mapping[str, str] = {}
    # For the message of a failed call: what failed, and the hint.
    _what: str = "the model failed"
    _hint: str = "check that the model was exported for such samples"

    def __init__(self, served: Signature, facts: RuntimeFacts, own: Signature | None = None) -> None:
        """Take the signature under the names served, and the facts.

        `own` has the same inputs and outputs under the runtime's names; None where these do not differ or are not used.
        """
        self._served = served
        self._facts = facts
        self._own = own or served

    @property
    def signature(self) -> Signature:
        """Return inputs and outputs under the names served."""
        return self._served

    @property
    def facts(self) -> RuntimeFacts:
        """Return what runs, read back from the runtime."""
        return self._facts

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the signature, or the runtime failed.
            UsageError: The model does not return the outputs of its declared signature.
        """
        check_inputs(self.signature, inputs)
        feed = {own.name: inputs[spec.name] for own, spec in zip(self._own.inputs, self.signature.inputs, strict=True)}
        try:
            answers = self._call(feed)
        except ParitygateError:
            raise
        except Exception as err:
            msg = f"{self._what} on {describe_arrays(inputs)}: {self._reason(err)}"
            raise BackendError(msg, hint=self._hint_for(err)) from err
        return {
            spec.name: _text(spec, array) if spec.dtype == "string" else array
            for spec, array in zip(self.signature.outputs, answers, strict=True)
        }

    def on_one_thread(self) -> AbstractContextManager[Runner] | str:
        """Return an opener of the same model on one thread, or why there is none.

        It measures the reference's own noise. It is closed on exit, and this runner's outputs stay the same. Opening
        raises ParitygateError where the model cannot be loaded once more.
        """
        return _NOT_OFFERED

    def unoptimised(self) -> AbstractContextManager[Runner] | None:
        """Return an opener of the model without graph optimisations, or None; it raises ParitygateError on failure."""
        return None

    @abstractmethod
    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        """Return the outputs in the order of the signature, in arrays that belong to the caller; raise any error.

        `feed` holds the inputs by the runtime's own names, in the order of the signature. They are the caller's, and
        must not be changed.
        """

    def _reason(self, err: Exception) -> str:
        """Return an error of the runtime in one line."""
        return reason_of(err)

    def _hint_for(self, err: Exception) -> str:
        """Return what to do after an error of the runtime."""
        del err
        return self._hint


def check_inputs(signature: Signature, inputs: Arrays) -> None:
    """Raise BackendError unless a batch has exactly the model's inputs, dtypes, ranks and fixed sizes.

    Frameworks may cast, broadcast or drop inputs. Here nothing is cast or dropped, in any framework.
    """
    if len(inputs) != len(signature.inputs) or any(spec.name not in inputs for spec in signature.inputs):
        names = ", ".join(inputs) or "nothing"
        wanted = ", ".join(spec.name for spec in signature.inputs)
        msg = f"the model expects the inputs {wanted} (got {names})"
        raise BackendError(msg, hint="give every input of the model under its name, and no others")
    for spec in signature.inputs:
        if not _fits(spec, inputs[spec.name]):
            msg = f"the model expects {spec} (got {describe_arrays({spec.name: inputs[spec.name]})})"
            raise BackendError(msg, hint="give the samples in the dtype and shape that the model expects")


def _fits(spec: TensorSpec, array: NDArray[np.generic]) -> bool:
    is_of_dtype = array.dtype.kind in "UO" if spec.dtype == "string" else array.dtype.name == spec.dtype
    if spec.shape is None:
        return is_of_dtype
    return (
        is_of_dtype
        and array.ndim == len(spec.shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, array.shape, strict=True))
    )


def _text(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return text of a runtime, Python's strings or UTF-8, as a NumPy array, which is stored and compared.

    BackendError is raised for anything else, and for text that NumPy would change.
    """
    import numpy as np

    values = array.ravel().tolist()
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as err:
        msg = f"the output {spec} holds bytes that are not UTF-8: {err.object!r}"
        raise BackendError(msg, hint=_IGNORE_OUTPUT) from err
    wrong = [value for value in texts if not isinstance(value, str) or value.endswith("\0")]
    if wrong:
        msg = f"the output {spec} holds {wrong[0]!r}, which is not text, or ends in a null character and would lose it"
        raise BackendError(msg, hint=_IGNORE_OUTPUT)
    return np.asarray(texts, dtype=str).reshape(array.shape)


def describe_arrays(arrays: Arrays) -> str:
    """Return names, dtypes and shapes in one line, such as `input_ids: int64[8, 64]`."""
    return "; ".join(
        f"{name}: {'text' if array.dtype.kind == 'U' else array.dtype}{list(array.shape)}"
        for name, array in arrays.items()
    )


def reason_of(err: BaseException) -> str:
    """Return class and first line of an exception, such as `IndexError: index out of range in self`."""
    line = first_line(err)
    name = type(err).__name__
    return line if line == name else f"{name}: {line}"


def threads_of_process() -> frozenset[str] | None:
    """Return the ids of this process's threads; None where the system does not show them."""
    return frozenset(task.name for task in _TASKS.iterdir()) if _TASKS.is_dir() else None
