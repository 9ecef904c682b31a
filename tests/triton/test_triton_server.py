"""A release on a real Triton server: it loads the released bytes, is warm before it is ready, and answers right.

Its backend is not the one that a user's server has: the wheel brings the python backend alone. What is shown here is
the configuration, the files and their names, warm-up, batching and versions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.triton.conftest import GOLDEN, right_answer

from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.pipelines.serving.manifests import SERVERS
from paritygate.pipelines.serving.protobuf import data_of
from paritygate.pipelines.serving.triton.messages import parse_text
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.validate.runners.endpoint.grpc import OpenInferenceGrpc
from paritygate.validate.runners.endpoint.open_inference import OpenInference

pytestmark = [pytest.mark.triton, pytest.mark.thorough]
_FAST = EndpointLimits(requests_per_second=100_000)
_WITHIN = 1e-5


def grpc_of(server: Any) -> OpenInferenceGrpc:  # noqa: ANN401 - a server of a script
    return OpenInferenceGrpc(parse_endpoint(f"grpc://{server.grpc}/answers"), _FAST)


def test_the_released_bytes_answer_over_three_transports(
    start: Callable[..., Any], publish: Callable[..., TritonView]
) -> None:
    shadow = publish(7)

    with start() as server:
        server.wait_until_ready("answers", 7)
        binary = OpenInference(parse_endpoint(f"http://{server.http}/v2/models/answers"), _FAST)
        plain = OpenInference(parse_endpoint(f"http://{server.http}/v2/models/answers"), _FAST)
        plain._is_binary = False
        clients = {"HTTP with bytes": binary, "HTTP with JSON": plain, "gRPC with bytes": grpc_of(server)}
        for transport, client in clients.items():
            assert client.transport == transport
            signature = client.signature()
            assert signature is not None
            (output,) = signature.outputs
            answer = client.ask({"x": GOLDEN}, signature.outputs)["y"]
            # A server that is ready may still answer wrong, so its answers are compared with the expected ones.
            assert (output.name, output.dtype, output.shape) == ("y", answer.dtype.name, (None, answer.shape[1]))
            np.testing.assert_allclose(answer, right_answer(GOLDEN, 7), rtol=0, atol=_WITHIN)
        assert (binary.server, binary.version) == ("triton", "2.51.0")
        # The probes of a pod tell the version that is loaded from another.
        pod = SERVERS["triton"]
        assert server.get(pod.live["httpGet"]["path"]) is not None
        assert server.get(pod.ready.format(name="answers", version=7)) is not None
        assert server.get(pod.ready.format(name="answers", version=8)) is None
        events = server.done()

    # One request of one row and one of the preferred size, before anybody asked.
    assert [event["event"] for event in events[:3]] == ["loaded", "executed", "executed"]
    assert [event["rows"] for event in events[1:3]] == [1, 4]
    assert shadow.digests["model.onnx"] == publish(7).digests["model.onnx"]


def test_only_the_backend_of_the_shadow_differs(tmp_path: Path, publish: Callable[..., TritonView]) -> None:
    publish(1)

    ours, theirs = (
        data_of(parse_text((tmp_path / name / "answers/config.pbtxt").read_text())) for name in ("models", "shadow")
    )

    assert {name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)} == {"backend", "parameters"}
    one, other = (tmp_path / name / "answers/1/model.onnx" for name in ("models", "shadow"))
    assert one.read_bytes() == other.read_bytes()


def test_other_bytes_than_the_released_ones_are_not_loaded(
    tmp_path: Path, start: Callable[..., Any], publish: Callable[..., TritonView]
) -> None:
    publish(1)
    model = tmp_path / "shadow/answers/1/model.onnx"
    model.write_bytes(model.read_bytes() + b"\0")

    mode = ["--exit-on-error=false", "--strict-readiness=false"]
    with start(*mode) as server:
        # The server answers before it has tried to load the model.
        end = time.monotonic() + 60
        while "model.onnx is corrupt" not in server.log.read_text() and time.monotonic() < end:
            time.sleep(0.05)
        assert "model.onnx is corrupt" in server.log.read_text()
        assert not server.is_ready("answers")


def test_requests_are_merged(start: Callable[..., Any], publish: Callable[..., TritonView]) -> None:
    publish(1, dynamic_batching={"max_queue_delay_microseconds": 20_000})
    wrong: list[str] = []

    with start() as server:
        server.wait_until_ready("answers")
        client = grpc_of(server)

        def ask(number: int) -> None:
            rows = np.full((1, 4), number, dtype=np.float32)
            for _ in range(10):
                answer = client.ask({"x": rows}, ())["y"]
                if not np.allclose(answer, right_answer(rows, 1), atol=1e-3):
                    wrong.append(str(number))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = server.get("/v2/models/answers/stats")["model_stats"][0]

    assert wrong == []
    # Five rows are those of the warm-up.
    assert int(found["inference_count"]) == 85
    assert int(found["execution_count"]) < 60


def test_a_batch_above_the_largest_is_refused_by_the_server_itself(
    start: Callable[..., Any], publish: Callable[..., TritonView]
) -> None:
    publish(1)

    with start() as server:
        server.wait_until_ready("answers")
        data = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [17, 4], "data": [0.0] * 68}]}
        assert server.post("/v2/models/answers/infer", data) is None
        data = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [16, 4], "data": [0.0] * 64}]}
        assert server.post("/v2/models/answers/infer", data) is not None


def test_labels_without_a_dim_of_their_own_keep_their_shape(
    tmp_path: Path, servers: ModuleType, start: Callable[..., Any]
) -> None:
    # The server is told dims [-1] and no batching, so that an answer is [N] as the model's own.
    import onnx

    from paritygate.artifact import Artifact, file_digests
    from paritygate.pipelines.serving.place import Place
    from paritygate.pipelines.serving.triton.config import ServedModel
    from paritygate.pipelines.serving.triton.view import make_view
    from paritygate.precision import Variant
    from paritygate.signature import Signature, TensorSpec

    folder = tmp_path / "labels"
    folder.mkdir()
    types = onnx.TensorProto
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)],
        "labels",
        [onnx.helper.make_tensor_value_info("x", types.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("label", types.INT64, ["batch"])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
        outputs=(TensorSpec(name="label", dtype="int64", shape=("batch",)),),
    )
    artifact = Artifact(
        variant=Variant.parse("onnx-fp32"),
        folder=folder,
        main="model.onnx",
        signature=signature,
        files=file_digests(folder),
    )
    shapes = {}
    for name, own in (("alone", {}), ("batched", {"max_batch_size": 4})):
        view = make_view(ServedModel(artifact=artifact, name=name, version=1, devices=("cpu",), own=own))
        view.write(Place(tmp_path / "models"))
        servers.shadow_of(view, tmp_path / "models").write(Place(tmp_path / "shadow"))
    with start() as server:
        for name in ("alone", "batched"):
            server.wait_until_ready(name)
            client = OpenInferenceGrpc(parse_endpoint(f"grpc://{server.grpc}/{name}"), _FAST)
            answer = client.ask({"x": GOLDEN}, ())["label"]
            assert answer.ravel().tolist() == [3, 3]
            shapes[name] = answer.shape

    assert shapes == {"alone": (2,), "batched": (2, 1)}


def test_a_server_does_not_start_with_a_warm_up_above_the_largest_batch(
    tmp_path: Path, start: Callable[..., Any], publish: Callable[..., TritonView]
) -> None:
    publish(1)
    config = tmp_path / "shadow/answers/config.pbtxt"
    text = config.read_text()
    config.write_text(text.replace('samples_4"\n  batch_size: 4\n', 'samples_4"\n  batch_size: 17\n'))

    # The same files were seen to be refused one time, and to kill the process the next.
    with pytest.raises(RuntimeError, match="did not start"), start():
        pytest.fail("it started")
