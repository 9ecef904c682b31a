"""What a runner is, and what all of them do alike: check a batch, feed it, name the answers, say what failed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import BackendError, ParitygateError
from paritygate.models.loading import LoadedModel
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Why a runner does not answer on one thread, in words that end a sentence.
ALL_THERE_IS = "one thread is all there is"
FIXED_BY_TENSORFLOW = "TensorFlow fixes its threads when it starts"
NOT_KNOWN = "on how many threads it ran is not known here"
ON_THE_GPU = "it is computed on the GPU"
_NOT_OFFERED = "its runner does not choose them"
_IGNORE_OUTPUT = "leave it out: outputs: {NAME: {ignore: REASON}} in the spec, or --outputs with the others"
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFacts:
    """What ran, read back from the runtime, not from what was asked.

    Attributes:
        runtime: Name of the runtime, such as `onnxruntime`.
        version: Its version.
        device: The device that really ran: `cpu`, `cuda:sm90`.
        provider: The execution provider that runs it; None where the runtime has no such thing.
        precision_found: The precision of the weights found in the model; None where it cannot be read.
        tf32: Whether TF32 may be used; None where the question does not arise.
        optimisation: Optimisation level of the runtime; None where there is none.
        notes: What the user should know, one sentence each.
        warnings: What was not seen so far and weakens what a pass says, one sentence each.
        provider_warnings: What the provider leaves open or does otherwise than asked, one sentence each.
        may_be_called_at_once: Whether `run` may be called from several threads at once.
        classes: By output, the classes that its columns stand for, where the model names them.
        answered_as: Of a server, the versions of the model that its answers said they are of by now.
        largest_batch: Of a server, how many rows it takes at once; None where it does not say.
        half_precision: `float16` or `bfloat16`, where a PyTorch module computes in it; None of any other model.
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
    half_precision: str | None = None


class Runner(ABC):
    """One model that is ready to run. The class of a runtime loads it, and says in `_call` how it is called.

    Attributes:
        loaded: What it was opened from; set by `opening.open_model`.
        second_names: By the model's own name of an output, another one under which it can be asked for too.
    """

    loaded: LoadedModel
    second_names: Mapping[str, str] = {}
    # What a message says when a call fails: what failed, and what to do then.
    _what: str = "the model failed"
    _hint: str = "check that the samples are within what the model was exported for"

    def __init__(self, served: Signature, facts: RuntimeFacts, own: Signature | None = None) -> None:
        """Take what every runner knows of its model.

        Args:
            served: Inputs and outputs under the names served.
            facts: What runs.
            own: The same inputs and outputs in the same order, as the runtime names them; None where these names do
                not differ or are not used.
        """
        self._served = served
        self._facts = facts
        self._own = own or served

    @property
    def signature(self) -> Signature:
        """Inputs and outputs under the names served."""
        return self._served

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, read back from the runtime."""
        return self._facts

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for one batch; the arrays belong to the caller.

        Raises:
            BackendError: The inputs are not those of the signature, or the runtime failed.
            UsageError: The model does not return the outputs of a signature that was declared for it.
        """
        check_inputs(self.signature, inputs)
        feed = {own.name: inputs[spec.name] for own, spec in zip(self._own.inputs, self.signature.inputs, strict=True)}
        try:
            found = self._call(feed)
        except ParitygateError:
            raise
        except Exception as err:
            msg = f"{self._what} on {describe_arrays(inputs)}: {self._reason(err)}"
            raise BackendError(msg, hint=self._hint_for(err)) from err
        return {
            spec.name: _text(spec, array) if spec.dtype == "string" else array
            for spec, array in zip(self.signature.outputs, found, strict=True)
        }

    def on_one_thread(self) -> AbstractContextManager[Runner] | str:
        """Return what opens a runner of the same model that computes on one thread, or why there is none.

        The reference's own noise is measured so. What is opened is given back when it is left; the runner itself
        answers afterwards as before.

        Raises:
            ParitygateError: On opening, the model cannot be loaded once more.
        """
        return _NOT_OFFERED

    def unoptimised(self) -> AbstractContextManager[Runner] | None:
        """Return what opens a runner of the same model whose graph the runtime does not rewrite; None without one.

        Raises:
            ParitygateError: On opening, the model cannot be loaded so.
        """
        return None

    @abstractmethod
    def _call(self, feed: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        """Return the outputs in the order of the signature, in arrays that belong to the caller.

        Args:
            feed: The inputs by the runtime's own names, in the order of the signature; they are the caller's, and
                not to be written to.

        Raises:
            Exception: Whatever the runtime raises.
        """

    def _reason(self, err: Exception) -> str:
        """Return in one line what an error of the runtime says."""
        return reason_of(err)

    def _hint_for(self, err: Exception) -> str:
        """Return what to do after an error of the runtime."""
        del err
        return self._hint


def check_inputs(signature: Signature, inputs: Mapping[str, NDArray[np.generic]]) -> None:
    """Check that a batch has exactly the inputs of the model, in its dtypes, ranks and fixed sizes.

    Frameworks differ in what they let pass: some cast, some broadcast, some drop what they do not
    know. Here nothing is cast or dropped, whatever the framework.

    Raises:
        BackendError: An input is missing, unknown, or not of the dtype and shape of the signature.
    """
    if len(inputs) != len(signature.inputs) or any(spec.name not in inputs for spec in signature.inputs):
        given = ", ".join(inputs) or "nothing"
        wanted = ", ".join(spec.name for spec in signature.inputs)
        msg = f"the model takes the inputs {wanted}; given was {given}"
        raise BackendError(msg, hint="give every input under its name, and no other")
    for spec in signature.inputs:
        if not _fits(spec, inputs[spec.name]):
            msg = f"the model takes {spec}; given was {describe_arrays({spec.name: inputs[spec.name]})}"
            raise BackendError(msg, hint="give the samples in the dtype and shape that the model takes")


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
    """Return text as an array of NumPy's, which is stored and compared; runtimes answer Python's strings, or UTF-8.

    Raises:
        BackendError: It is no text, or text that NumPy does not keep as it is.
    """
    import numpy as np

    values = array.ravel().tolist()
    try:
        found = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as err:
        msg = f"the output {spec} holds bytes that are no UTF-8: {err.object!r}"
        raise BackendError(msg, hint=_IGNORE_OUTPUT) from err
    wrong = next((value for value in found if not isinstance(value, str) or value.endswith("\0")), None)
    if wrong is not None:
        msg = f"the output {spec} holds {wrong!r}, which is not text, or ends in a null character and would lose it"
        raise BackendError(msg, hint=_IGNORE_OUTPUT)
    return np.asarray(found, dtype=str).reshape(array.shape)


def describe_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Return names, dtypes and shapes in one line, such as `input_ids: int64[8, 64]`."""
    return "; ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in arrays.items())


def first_line(err: BaseException) -> str:
    """Return the first line of what an exception says, or its class where it says nothing."""
    return (str(err).strip() or type(err).__name__).splitlines()[0].strip()


def reason_of(err: BaseException) -> str:
    """Return class and first line of an exception, such as `IndexError: index out of range in self`."""
    line = first_line(err)
    name = type(err).__name__
    return line if line == name else f"{name}: {line}"


def threads_of_process() -> frozenset[str] | None:
    """Return the ids of the threads that this process has; None where the system does not show them."""
    return frozenset(task.name for task in _TASKS.iterdir()) if _TASKS.is_dir() else None
