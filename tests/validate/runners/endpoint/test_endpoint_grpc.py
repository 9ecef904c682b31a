"""The Open Inference Protocol over gRPC: a server of it on the loopback interface."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.loopback import QuietHandler, serving

import paritygate as pg
from paritygate.errors import MeasurementError
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.pipelines.report.terminal.comparison import print_comparison
from paritygate.pipelines.report.terminal.printing import Shown
from paritygate.validate.runners.endpoint.grpc import OpenInferenceGrpc
from paritygate.validate.runners.endpoint.messages import SERVICE, messages

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
_WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"logits": np.tanh(inputs["x"] @ _WEIGHTS)}


class TinyModel:
    """What the server answers; `error` is added, and `refused` is a code of gRPC in place of an answer."""

    error = 0.0
    refused: grpc.StatusCode | None = None
    details = "as it was told"
    versions = ("1", "2")
    largest_batch = 0
    # Changes an answer before it is sent.
    change: Callable[[Any], None] = staticmethod(lambda _: None)
    compression: grpc.Compression | None = None
    of_no_version = grpc.StatusCode.NOT_FOUND

    def handlers(self) -> dict[str, Any]:
        made = {}
        for method in ("ServerMetadata", "ModelMetadata", "ModelConfig", "ModelInfer"):
            request, response = (messages()[f"{method}{side}"] for side in ("Request", "Response"))
            made[method] = grpc.unary_unary_rpc_method_handler(
                getattr(self, method), request.FromString, response.SerializeToString
            )
        return made

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802, ARG002
        extensions = ["model_configuration"] if self.largest_batch else []
        return messages()["ServerMetadataResponse"](name="tiny-server", version="3", extensions=extensions)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802, ARG002
        return messages()["ModelConfigResponse"](config={"max_batch_size": self.largest_batch})

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        if request.name != "tiny":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        if request.version not in {"", *self.versions}:
            context.abort(self.of_no_version, f"no version {request.version}")
        tensor = {"datatype": "FP32", "shape": [-1, 3]}
        return messages()["ModelMetadataResponse"](
            name="tiny",
            versions=self.versions,
            inputs=[{"name": "x", **tensor}],
            outputs=[{"name": "logits", **tensor, "shape": [-1, 2]}],
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        if self.refused is not None:
            context.abort(self.refused, self.details)
        if 0 < self.largest_batch < request.inputs[0].shape[0]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "too many rows")
        x = np.frombuffer(request.raw_input_contents[0], dtype=np.float32).reshape(request.inputs[0].shape)
        y = np.tanh(x @ _WEIGHTS) + np.float32(self.error)
        answer = messages()["ModelInferResponse"](
            model_version=self.versions[-1],
            outputs=[{"name": "logits", "datatype": "FP32", "shape": y.shape}],
            raw_output_contents=[y.tobytes()],
        )
        self.change(answer)
        if self.compression is not None:
            context.set_compression(self.compression)
        return answer


def started(told: TinyModel) -> tuple[grpc.Server, str]:
    """Return a server that runs, and the address of its model."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, told.handlers()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"grpc://127.0.0.1:{port}/tiny"


@pytest.fixture
def model() -> Iterator[tuple[TinyModel, str]]:
    """Yield what the server answers with, and its address."""
    told = TinyModel()
    server, address = started(told)
    yield told, address
    server.stop(grace=None).wait()


def compare(url: str) -> pg.Comparison:
    return pg.compare(
        original, url, samples={"x": _X}, probes=["batches"], endpoint={"requests_per_second": 1e5, "timeout_s": 600}
    )


def test_a_server_that_answers_as_the_original_passes(model: tuple[TinyModel, str]) -> None:
    result = compare(model[1])

    assert result.verdict == "pass", str(result)
    assert (result.candidate.runtime, result.candidate.version) == ("tiny-server", "3")


def test_a_server_that_answers_otherwise_fails(model: tuple[TinyModel, str]) -> None:
    model[0].error = 0.01

    assert compare(model[1]).verdict == "fail"


def test_more_rows_than_a_server_takes_at_once_are_not_asked_by_probes(model: tuple[TinyModel, str]) -> None:
    model[0].largest_batch = 16

    result = compare(model[1])

    assert result.verdict == "pass", str(result)
    assert result.probes.asked["batches"].rows
    assert "rows, and the server takes 16 at once" in result.probes.asked["batches"].unfit_first[0]


@pytest.mark.parametrize(
    ("code", "verdict", "words"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "fail", "the server answered INVALID_ARGUMENT: as it was told"),
        (grpc.StatusCode.UNAVAILABLE, "error", "stopped answering after 2 answers: UNAVAILABLE: as it was told"),
    ],
)
def test_a_server_that_refuses_is_said_in_its_own_words(
    model: tuple[TinyModel, str], code: grpc.StatusCode, verdict: str, words: str
) -> None:
    model[0].refused = code

    result = compare(model[1])

    assert (result.verdict, words in str(result)) == (verdict, True), str(result)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("no row of Jane Roe", "UNAVAILABLE"),
        ("Socket closed for Jane Roe", "it closed the connection without an answer (UNAVAILABLE)"),
    ],
)
def test_the_reason_of_a_lost_request_holds_no_words_of_the_server(
    model: tuple[TinyModel, str], said: str, reason: str
) -> None:
    server = OpenInferenceGrpc(parse_endpoint(model[1]), EndpointLimits())
    model[0].refused, model[0].details = grpc.StatusCode.UNAVAILABLE, said

    with pytest.raises(MeasurementError, match="Jane Roe") as found:
        server.ask({"x": _X[:1]}, [])

    assert found.value.reason == reason


def _twice(answer: Any) -> None:  # noqa: ANN401 - a message
    answer.outputs.append(answer.outputs[0])
    answer.raw_output_contents.append(answer.raw_output_contents[0])


def _field(**fields: Any) -> Callable[[Any], None]:  # noqa: ANN401 - as the message has them
    def change(answer: Any) -> None:  # noqa: ANN401 - a message
        for name, value in fields.items():
            if name == "shape":
                del answer.outputs[0].shape[:]
                answer.outputs[0].shape.extend(value)
            else:
                setattr(answer.outputs[0], name, value)

    return change


def _raw(change: Callable[[bytes], bytes]) -> Callable[[Any], None]:
    def changed(answer: Any) -> None:  # noqa: ANN401 - a message
        answer.raw_output_contents[0] = change(answer.raw_output_contents[0])

    return changed


_HOSTILE: dict[str, Callable[[Any], None]] = {
    "an output twice": _twice,
    "a size of -1": _field(shape=[-1, 2]),
    "a huge size": _field(shape=[2**62, 2**62]),
    "no datatype": _field(datatype=""),
    "another datatype": _field(datatype="INT32"),
    "no name": _field(name=""),
    "too few bytes": _raw(lambda raw: raw[:-1]),
    "too many bytes": _raw(lambda raw: raw + bytes(4)),
    "8 MiB": _raw(lambda raw: raw + bytes(8 << 20)),
    "values without an output": lambda answer: answer.raw_output_contents.append(b""),
    "no values": lambda answer: answer.raw_output_contents.pop(),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_no_hostile_answer_passes(model: tuple[TinyModel, str], name: str) -> None:
    model[0].change = _HOSTILE[name]

    result = compare(model[1])

    assert result.verdict in {"fail", "error"}, str(result)
    assert "unexpected" not in str(result)


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
def test_an_answer_is_no_larger_than_64_times_that_of_the_reference_also_where_it_is_packed(
    model: tuple[TinyModel, str], compression: grpc.Compression | None
) -> None:
    model[0].compression = compression
    assert compare(model[1]).verdict == "pass"

    # 64 MiB of zeros are 64 kB when they are packed.
    model[0].change = _raw(lambda raw: raw + bytes(64 << 20))
    result = compare(model[1])

    assert result.verdict in {"fail", "error"}
    assert "larger than 1 MiB" in str(result)


_TRACEBACK = "cannot run:\n" + "\n".join(f"  File 'part_{number}.py', line {number}" for number in range(40))


def test_what_a_server_says_at_length_is_one_short_line_and_quoted_in_full_below(model: tuple[TinyModel, str]) -> None:
    model[0].refused, model[0].details = grpc.StatusCode.INTERNAL, _TRACEBACK

    result = compare(model[1])

    (check,) = [check for check in result.checks if check.name == "accepts_inputs"]
    first, _, rest = check.detail.partition("\n")
    assert "the server answered INTERNAL: cannot run: File 'part_0.py', line 0 File 'part_1.py'" in first
    assert first.endswith(" ...")
    assert rest.splitlines() == ["  | cannot run:", *(f"  | {line}" for line in _TRACEBACK.splitlines()[1:])]


def test_the_screen_has_no_more_of_it_than_the_short_line(model: tuple[TinyModel, str]) -> None:
    model[0].refused, model[0].details = grpc.StatusCode.INTERNAL, _TRACEBACK
    lines: list[str] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "paritygate.pipelines.report.terminal.comparison.print_lines", lambda found, **_: lines.extend(found)
        )
        print_comparison(compare(model[1]), Shown())

    assert max(map(len, lines)) <= 80
    assert "part_39.py" not in "".join(lines)
    assert len(lines) <= 12, lines


@pytest.mark.parametrize("is_http", [False, True])
def test_where_no_server_of_grpc_listens_that_is_said_and_what_grpc_says_is_for_verbose(*, is_http: bool) -> None:
    with serving(QuietHandler) as url, socket.create_server(("127.0.0.1", 0)) as free:
        port = url.rpartition(":")[2] if is_http else free.getsockname()[1]
        # What took the port listens no more, and nothing else takes it so soon.
        free.close()
        result = compare(f"grpc://127.0.0.1:{port}/tiny")

    assert result.error is not None
    short, _, full = result.error.message.partition("\n")
    why = "the port does not serve gRPC, but perhaps HTTP" if is_http else "nothing takes connections there"
    assert short == f"the server at 127.0.0.1:{port} does not answer: {why} (UNAVAILABLE)"
    assert full.startswith("  | failed to connect to all addresses; ")


def test_a_server_of_another_protocol_over_grpc_is_said_to_be_one() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    result = compare(f"grpc://127.0.0.1:{port}/tiny")
    server.stop(grace=None).wait()

    assert result.error is not None
    short, _, full = result.error.message.partition("\n")
    words = "speaks gRPC, and not the Open Inference Protocol (UNIMPLEMENTED)"
    assert short == f"the server at 127.0.0.1:{port} {words}"
    assert full == "  | Method not found!"


_KILLED = """
import os, signal, sys
from tests.validate.runners.endpoint.test_endpoint_grpc import TinyModel, started

class Killed(TinyModel):
    def ModelInfer(self, request, context):
        os.kill(os.getpid(), signal.SIGKILL)

server, address = started(Killed())
print(address, flush=True)
sys.stdin.read()
"""


def test_a_server_that_is_killed_in_the_middle_went_away() -> None:
    command, root = [sys.executable, "-c", _KILLED], Path(__file__).resolve().parents[4]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        result = compare(process.stdout.readline().strip())

    assert result.error is not None
    words = "went away after 2 answers: it closed the connection without an answer (UNAVAILABLE)"
    assert words in result.error.message.partition("\n")[0]


def test_the_version_that_a_server_answers_as_is_noted(model: tuple[TinyModel, str]) -> None:
    words = "candidate: the server answered as version 2 of tiny"

    assert f"{words}, by its own choice: write /versions/N after the name to choose one" in compare(model[1]).notes
    assert words in compare(f"{model[1]}/versions/2").notes
    assert "version 2 of tiny, but version 1 was requested" in str(compare(f"{model[1]}/versions/1"))


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE])
def test_a_version_that_the_server_lacks_is_said_with_those_that_it_has(
    model: tuple[TinyModel, str], code: grpc.StatusCode
) -> None:
    # Triton is unavailable for a version that it had, and unloaded.
    model[0].of_no_version = code

    result = compare(f"{model[1]}/versions/9")

    assert result.error is not None
    assert "has no version 9 of tiny (it has: 1, 2): " in result.error.message
    assert f"{code.name}: no version 9" in result.error.message


def test_a_model_that_the_server_does_not_have(model: tuple[TinyModel, str]) -> None:
    assert "NOT_FOUND: no model other" in str(compare(model[1].replace("/tiny", "/other")))
