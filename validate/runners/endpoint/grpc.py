"""The Open Inference Protocol, version 2, over gRPC: Triton, KServe, MLServer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.batch import Arrays
from paritygate.errors import BackendError, MeasurementError, ParitygateError
from paritygate.models.endpoint import Endpoint, EndpointLimits
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.answer_size import AnswerSize, answer_size, description_size
from paritygate.validate.runners.endpoint.client import NO_HOST, NOTHING_LISTENS, Pace
from paritygate.validate.runners.endpoint.connection import CLOSED
from paritygate.validate.runners.endpoint.descriptions import batch_size_in, signature_in
from paritygate.validate.runners.endpoint.messages import SERVICE, messages
from paritygate.validate.runners.endpoint.open_inference import CONFIGURATION
from paritygate.validate.runners.endpoint.tensors import as_bytes, datatype_of, from_bytes, name_and_dtype, spec_of
from paritygate.validate.runners.endpoint.versions import AnsweredVersions, no_such_version
from paritygate.validate.runners.endpoint.words import in_full, in_short, quoted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PROTOCOL = "the protocol is the Open Inference Protocol, version 2"
_NO_GRPC = "the port does not serve gRPC, but perhaps HTTP"
# Errors of connections in gRPC's words, and those that a user knows.
_OF_CONNECTIONS = {
    "Failed parsing HTTP/2": _NO_GRPC,
    "http1.x": _NO_GRPC,
    "failed to connect to all addresses": NOTHING_LISTENS,
    "Socket closed": CLOSED,
    "Connection reset": CLOSED,
    "Broken pipe": CLOSED,
    "GOAWAY": CLOSED,
    "errors resolving": NO_HOST,
    "resolution failed": NO_HOST,
}
# gRPC's words for an answer that is larger than the channel takes, packed or not; servers say it of a request.
_TOO_LARGE, _OF_REQUEST = "larger than max", "SERVER"
# gRPC counts bytes in 31 bits.
_LARGEST_MESSAGE = 31


class OpenInferenceGrpc:
    """One model of a server, reached over gRPC."""

    transport = "gRPC with bytes"

    def __init__(self, endpoint: Endpoint, limits: EndpointLimits) -> None:
        """Read the server's description of itself."""
        require_backend("grpcio")
        self._endpoint, self._host = endpoint, endpoint.host
        self._versions = AnsweredVersions(endpoint)
        self._name = {"name": endpoint.model, "version": endpoint.version}
        self._limits = limits
        self._pace = Pace(limits, endpoint.host)
        self._channels: dict[int, Any] = {}
        self._lock = threading.Lock()
        server = self._call("ServerMetadata")
        self.server, self.version = in_short(server.name) or "unknown", in_short(server.version) or "unknown"
        self._extensions = tuple(server.extensions)

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of its answers so far."""
        return self._versions.found

    def signature(self) -> Signature | None:
        """Return the server's description of the model; None where it lacks inputs or outputs."""
        description = self._described()
        return signature_in({"inputs": list(description.inputs), "outputs": list(description.outputs)}, _spec)

    def largest_batch(self) -> int | None:
        """Return the most rows of a request, by Triton's extension; None where it is missing or needless."""
        if CONFIGURATION not in self._extensions:
            return None
        size = self._call("ModelConfig", **self._name).config.max_batch_size
        return batch_size_in({"max_batch_size": size}, "max_batch_size")

    def _described(self) -> Any:  # noqa: ANN401 - a message of the protocol
        try:
            return self._call("ModelMetadata", **self._name)
        except (BackendError, MeasurementError) as err:
            # Triton is unavailable for a version that it unloaded.
            if self._endpoint.version:
                has = tuple(self._call("ModelMetadata", name=self._endpoint.model).versions)
                if has and self._endpoint.version not in has:
                    raise no_such_version(self._endpoint, has, str(err).partition("\n")[0]) from err
            raise

    def ask(self, feed: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name; all that the server has where none are named."""
        answer = self._call(
            "ModelInfer",
            model_name=self._name["name"],
            model_version=self._name["version"],
            inputs=[{"name": n, "datatype": datatype_of(array), "shape": array.shape} for n, array in feed.items()],
            outputs=[{"name": spec.name} for spec in outputs],
            raw_input_contents=list(map(as_bytes, feed.values())),
        )
        answers = _read(answer)
        self._versions.add(answer.model_version)
        return answers

    def _call(self, method: str, **fields: Any) -> Any:  # noqa: ANN401 - messages of the protocol
        import grpc

        request, response = (messages()[f"{method}{side}"] for side in ("Request", "Response"))
        size = answer_size(self._limits) if method == "ModelInfer" else description_size(self._limits)
        ask = self._channel(size.most).unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._pace.wait()
        try:
            answer = ask(request(**fields), timeout=self._limits.timeout_s)
        except grpc.RpcError as err:
            raise self._error(err, size) from err
        self._pace.count_answer()
        if answer.ByteSize() > size.most:
            raise size.exceeded()
        return answer

    def _channel(self, most: int) -> Any:  # noqa: ANN401 - a grpc.Channel
        """Return a channel for answers of up to so many bytes, rounded up to a power of two.

        Larger ones are not held in memory, because gRPC reads the size of a message before the message.
        """
        import grpc

        most = 1 << min((most - 1).bit_length(), _LARGEST_MESSAGE)
        with self._lock:
            if most not in self._channels:
                sizes = [("grpc.max_receive_message_length", most - 1), ("grpc.max_send_message_length", -1)]
                options = [*sizes, ("grpc.enable_http_proxy", 0)]
                self._channels[most] = grpc.insecure_channel(self._host, options=options)
            return self._channels[most]

    def _error(self, err: Any, size: AnswerSize) -> ParitygateError:  # noqa: ANN401 - a grpc.RpcError
        import grpc

        code, details = err.code(), str(err.details() or "nothing was said")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details and not details.startswith(_OF_REQUEST):
            self._pace.count_answer()
            return size.exceeded()
        words = f"{code.name}: {in_short(details)}{in_full(details)}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            reason = f"no answer within {self._limits.timeout_s:g} s (--endpoint timeout_s)"
            return self._pace.not_answered(reason, is_gone=False)
        if code is grpc.StatusCode.UNAVAILABLE:
            reason = next((own for part, own in _OF_CONNECTIONS.items() if part in details), "")
            words = f"{reason} ({code.name}){quoted(details)}" if reason else words
            error = self._pace.not_answered(words, is_gone=bool(reason))
            # The server's own words may hold values, and reports hold none.
            error.reason = f"{reason} ({code.name})" if reason else code.name
            return error
        self._pace.count_answer()
        if code is grpc.StatusCode.UNIMPLEMENTED:
            what = f"speaks gRPC, and not the Open Inference Protocol ({code.name})"
            msg = f"the server at {self._host} {what}{quoted(details)}"
            return BackendError(msg, hint="give the gRPC port of the server, such as 8001 of Triton")
        return BackendError(f"the server answered {words}", hint="look in the server's log for the reason")


def _read(answer: Any) -> dict[str, NDArray[np.generic]]:  # noqa: ANN401 - a message of the protocol
    """Return the outputs of an answer by name; raise BackendError where one cannot be read, or is there twice."""
    if len(answer.raw_output_contents) != len(answer.outputs):
        msg = f"the server answered {len(answer.outputs)} outputs with {len(answer.raw_output_contents)} values"
        raise BackendError(msg, hint="use a server that returns raw bytes, such as Triton")
    arrays: dict[str, NDArray[np.generic]] = {}
    for item, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
        name = in_short(item.name)
        if item.name in arrays:
            raise BackendError(f"the server answered the output {name} twice", hint=_PROTOCOL)
        try:
            _, dtype = name_and_dtype({"name": item.name, "datatype": item.datatype})
            arrays[item.name] = from_bytes(raw, dtype, tuple(item.shape))
        except (ValueError, OverflowError) as err:
            raise BackendError(f"the answer of the server cannot be read: {name} holds {err}", hint=_PROTOCOL) from err
    return arrays


def _spec(item: Any) -> TensorSpec:  # noqa: ANN401 - a message of the protocol
    return spec_of({"name": item.name, "datatype": item.datatype, "shape": list(item.shape)})
