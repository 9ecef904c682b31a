"""Run a model on a server: Triton, KServe, MLServer, TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from paritygate.batch import Arrays
from paritygate.errors import UsageError
from paritygate.models.endpoint import Endpoint, EndpointLimits, parse_endpoint
from paritygate.models.endpoint import Protocol as ServerProtocol
from paritygate.models.example import signature_seen
from paritygate.models.json_mapping import JsonMapping
from paritygate.models.loading import LoadedModel
from paritygate.signature import Signature, TensorSpec, dtype_name, rename_signature
from paritygate.validate.runners.endpoint.grpc import OpenInferenceGrpc
from paritygate.validate.runners.endpoint.json_fields import JsonFields
from paritygate.validate.runners.endpoint.open_inference import OpenInference
from paritygate.validate.runners.endpoint.tensorflow_serving import TensorFlowServing
from paritygate.validate.runners.endpoint.tensors import check_answer
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Server(Protocol):
    """The calls of every protocol.

    Each call raises MeasurementError where the server does not answer, and BackendError where it refuses the inputs or
    its answer cannot be read.
    """

    server: str
    version: str

    @property
    def transport(self) -> str:
        """Return the form in which values are sent."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of the answers so far."""

    def signature(self) -> Signature | None:
        """Return the description of the model; None without one."""

    def largest_batch(self) -> int | None:
        """Return the most rows of a request; None without a limit."""

    def ask(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name; all where none are named."""


def open_model(loaded: LoadedModel) -> EndpointRunner:
    """Return the model on the server, ready to run; without a description, as of KServe, one request shows its outputs.

    UsageError is raised for a wrong address, or without a signature and an example.
    """
    ref = loaded.ref
    mapping = ref.endpoint_json
    endpoint = parse_endpoint(ref.text, is_mapped=mapping is not None)
    limits = ref.endpoint_limits or EndpointLimits()
    server: Server
    if mapping is not None:
        server = JsonFields(endpoint, limits, mapping)
    else:
        server = open_server(endpoint, limits, ref.signature_key)
    own = server.signature()
    if own is not None:
        return EndpointRunner(server, endpoint, own, rename_signature(own, ref.rename), is_described=True)
    served = ref.signature
    if served is None:
        if loaded.example is None:
            msg = f"the server does not describe the inputs and outputs of {endpoint.model}"
            raise UsageError(msg, hint="give samples with at least one row")
        rows = loaded.example.of_the_other().by_own_names(ref.rename)
        rows = rows if mapping is None else _mapped(rows, mapping, ref.takes)
        served = signature_seen(loaded.example, rows, server.ask(rows, ()), ref.rename)
    back = {new: name for name, new in ref.rename.items()}
    return EndpointRunner(server, endpoint, rename_signature(served, back), served, is_described=False)


def _mapped(rows: Arrays, mapping: JsonMapping, takes: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the inputs that a mapping names; raise UsageError where one is missing."""
    for name in mapping.inputs:
        if name not in rows:
            why = f"--takes does not name (it names: {', '.join(takes)})"
            hint = "give both mappings the same names"
            if not takes:
                why = f"the other model does not take (it takes: {', '.join(rows)})"
                hint = (
                    "name inputs in the mapping as the other model does, or give --map MAPPED=OTHER. If the "
                    f"server takes other columns of the samples, add --takes SIDE={name}"
                )
            raise UsageError(f"the mapping has the input {name!r}, which {why}", hint=hint)
    return {name: rows[name] for name in mapping.inputs}


def open_server(endpoint: Endpoint, limits: EndpointLimits, signature_key: str | None = None) -> Server:
    """Return the client of a server of a known protocol; raises as the calls of `Server`."""
    if endpoint.protocol is ServerProtocol.TENSORFLOW_SERVING:
        return TensorFlowServing(endpoint, limits, signature_key)
    if endpoint.protocol is ServerProtocol.OPEN_INFERENCE_GRPC:
        return OpenInferenceGrpc(endpoint, limits)
    return OpenInference(endpoint, limits)


class EndpointRunner(Runner):
    """One model on a server."""

    _what = "the server failed"
    _hint = "check that the model on the server accepts these samples"

    def __init__(
        self, server: Server, endpoint: Endpoint, own: Signature, served: Signature, *, is_described: bool
    ) -> None:
        notes = [f"a server answered over {server.transport}: its device and precision are unknown"]
        if not is_described:
            notes.append("the server does not describe the model: its outputs are those of the first answer")
        self._largest_batch = server.largest_batch()
        facts = RuntimeFacts(
            runtime=server.server,
            version=server.version,
            device="unknown",
            notes=tuple(notes),
            may_be_called_at_once=True,
            largest_batch=self._largest_batch,
        )
        super().__init__(served, facts, own)
        self._server = server
        self._endpoint = endpoint
        self._is_described = is_described
        self._has_answered = not is_described

    @property
    def facts(self) -> RuntimeFacts:
        """Return what runs, as far as known: only answers show the version of the model."""
        if not self._has_answered:
            return self._facts
        versions, model = self._server.versions, self._endpoint.model
        note = "the server does not report the version of the model that answered"
        if versions:
            note = f"the server answered as version {' and '.join(versions)} of {model}"
            if not self._endpoint.version:
                note += ", by its own choice: write /versions/N after the name to choose one"
        return replace(self._facts, notes=(*self._facts.notes, note), answered_as=versions)

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        rows = max((len(array) for array in feed.values() if array.ndim), default=0)
        if self._largest_batch is not None and rows > self._largest_batch:
            msg = f"the server accepts {self._largest_batch} rows per request (got {rows}): lower --batch-size"
            raise ValueError(msg)
        answers = answer_of(self._server, feed, self._own.outputs, is_described=self._is_described)
        self._has_answered = True
        return [answers[spec.name] for spec in self._own.outputs]


def answer_of(
    server: Server, feed: Arrays, outputs: Sequence[TensorSpec], *, is_described: bool = True
) -> dict[str, NDArray[np.generic]]:
    """Return the answer of a server, which has to have these outputs; the server may describe them.

    It raises as the calls of `Server`, and ValueError where an output is missing.
    """
    answers = server.ask(feed, outputs if is_described else ())
    missing = [spec.name for spec in outputs if spec.name not in answers]
    if missing:
        msg = f"the server did not answer {', '.join(missing)} (it answered: {', '.join(answers) or 'nothing'})"
        raise ValueError(msg)
    for spec in outputs:
        array = answers[spec.name]
        dtype = "string" if array.dtype.kind == "O" else dtype_name(array.dtype)
        check_answer(spec if is_described else replace(spec, shape=None), dtype, array.shape)
    return answers
