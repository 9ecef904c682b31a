"""What a configuration for Triton follows from: the artifact's dims, the declared sizes, the device, and the spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.pipelines.serving.conftest import SIGNATURE

from paritygate.artifact import Artifact
from paritygate.errors import UsageError
from paritygate.pipelines.serving.protobuf import ConfigError, data_of, text_of
from paritygate.pipelines.serving.triton.backends import files_of, served_signature
from paritygate.pipelines.serving.triton.config import ServedModel, make_config
from paritygate.pipelines.serving.triton.messages import config_of, parse_text
from paritygate.signature import Signature, TensorSpec


def served(artifact: Artifact, **fields: Any) -> ServedModel:  # noqa: ANN401 - any field of it
    return ServedModel(artifact=artifact, name="adds", version=3, **{"devices": ("cpu",), **fields})


def signature_of(inputs: dict[str, tuple[Any, ...] | None], outputs: dict[str, tuple[Any, ...] | None]) -> Signature:
    sides = [
        tuple(TensorSpec(name=name, dtype="float32", shape=shape) for name, shape in side.items())
        for side in (inputs, outputs)
    ]
    return Signature(inputs=sides[0], outputs=sides[1])


def test_a_batched_model_has_no_batch_in_its_dims(make_artifact: Callable[..., Artifact]) -> None:
    config = make_config(served(make_artifact()))

    assert config.data["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert config.data["max_batch_size"] == 16
    assert config.data["dynamic_batching"] == {"max_queue_delay_microseconds": 100}
    assert config.data["version_policy"] == {"specific": {"versions": [3]}}
    assert config.notes == ()


def test_without_declared_sizes_the_batch_is_small_and_a_note_says_so(make_artifact: Callable[..., Artifact]) -> None:
    config = make_config(served(make_artifact(signature=replace(SIGNATURE, dims={}))))

    assert config.data["max_batch_size"] == 8
    assert "declare model.dims.batch" in config.notes[0]


@pytest.mark.parametrize(
    "signature",
    [
        signature_of({"x": (1, 4)}, {"y": (1, 4)}),
        signature_of({"x": ("batch", 4), "table": (4, 4)}, {"y": ("batch", 4)}),
        signature_of({"x": ("batch", 4)}, {"y": ("rows", 4)}),
        signature_of({"x": ("batch", 4)}, {"y": ()}),
    ],
    ids=["static", "an input without", "an output of another", "a scalar output"],
)
def test_a_model_without_one_batch_dim_everywhere_is_not_batched(
    make_artifact: Callable[..., Artifact], signature: Signature
) -> None:
    config = make_config(served(make_artifact(signature=signature)))

    dims = [-1 if isinstance(size, str) else size for size in signature.inputs[0].shape or ()]
    assert config.data["max_batch_size"] == 0
    assert config.data["input"][0]["dims"] == dims
    assert "dynamic_batching" not in config.data
    assert "not batched" in config.notes[0]


def test_an_output_of_labels_is_not_batched_unless_the_spec_takes_its_other_shape(
    make_artifact: Callable[..., Artifact],
) -> None:
    artifact = make_artifact(signature=signature_of({"x": ("batch", 4)}, {"label": ("batch",)}))

    alone = make_config(served(artifact))
    batched = make_config(served(artifact, own={"max_batch_size": 4}))

    assert (alone.data["max_batch_size"], alone.data["output"][0]["dims"]) == (0, [-1])
    assert "Triton would answer it with one dim more" in alone.notes[0]
    assert batched.data["output"] == [
        {"name": "label", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}}
    ]


def test_an_output_of_no_known_rank_is_refused(make_artifact: Callable[..., Artifact]) -> None:
    artifact = make_artifact(signature=signature_of({"x": ("batch", 4)}, {"y": None}))

    with pytest.raises(UsageError, match="the rank of 'y' is unknown"):
        make_config(served(artifact))


@pytest.mark.parametrize(
    ("devices", "kind"),
    [(("cpu",), "KIND_CPU"), (("cuda:sm90",), "KIND_GPU"), (("cpu", "cuda:sm90"), "KIND_AUTO"), ((), "KIND_AUTO")],
)
def test_a_model_is_served_where_it_was_verified(
    make_artifact: Callable[..., Artifact], devices: tuple[str, ...], kind: str
) -> None:
    config = make_config(served(make_artifact(), devices=devices))

    assert config.data["instance_group"] == [{"count": 1, "kind": kind}]


def test_what_the_spec_says_takes_the_place_of_what_would_stand_there(make_artifact: Callable[..., Artifact]) -> None:
    own = {
        "dynamic_batching": {"max_queue_delay_microseconds": 500},
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
        "response_cache": {"enable": True},
    }

    data = make_config(served(make_artifact(), own=own)).data

    assert data["dynamic_batching"] == {"max_queue_delay_microseconds": 500}
    assert data["instance_group"] == own["instance_group"]
    assert data["response_cache"] == {"enable": True}


def test_null_leaves_a_field_out(make_artifact: Callable[..., Artifact]) -> None:
    assert "dynamic_batching" not in make_config(served(make_artifact(), own={"dynamic_batching": None})).data


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"max_batchsize": 4}, "'max_batchsize' is not a known field"),
        ({"max_batch_size": "many"}, "max_batch_size"),
        ({"dynamic_batching": {"delay": 4}}, 'no field named "delay"'),
        ({"instance_group": [{"kind": "GPU"}]}, "Invalid enum value GPU"),
        ({"name": "other"}, "--name gives it"),
        ({"version_policy": {"all": {}}}, "the alias decides"),
        ({"backend": "python"}, "it follows from the variant"),
    ],
)
def test_what_the_spec_cannot_say_is_refused_in_words(
    make_artifact: Callable[..., Artifact], own: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config(served(make_artifact(), own=own))


def test_protobuf_reads_what_protobuf_wrote(make_artifact: Callable[..., Artifact]) -> None:
    data = make_config(served(make_artifact(), own={"parameters": {"threads": {"string_value": "1"}}})).data

    found = data_of(parse_text(text_of(config_of(data))))

    assert config_of(found) == config_of(data)
    assert found["parameters"] == {"threads": {"string_value": "1"}}


@pytest.mark.parametrize(
    ("variant", "files", "there"),
    [
        ("onnx-fp32", ("model.onnx",), {"model.onnx": "model.onnx"}),
        (
            "onnx-fp32",
            ("model.onnx", "model.onnx.data"),
            {"model.onnx/model.onnx": "model.onnx", "model.onnx/model.onnx.data": "model.onnx.data"},
        ),
        ("openvino-fp32", ("net.xml", "net.bin"), {"model.xml": "net.xml", "model.bin": "net.bin"}),
        ("tensorrt-fp16", ("model.plan", "engine.json"), {"model.plan": "model.plan"}),
        ("torchscript-fp32", ("model.pt",), {"model.pt": "model.pt"}),
    ],
)
def test_files_have_the_names_that_the_backend_opens(
    make_artifact: Callable[..., Artifact], variant: str, files: tuple[str, ...], there: dict[str, str]
) -> None:
    assert files_of(make_artifact(variant, files=files)) == there


@pytest.mark.parametrize("variant", ["pt2-fp32", "savedmodel-fp32", "tflite-fp32", "tensorrt-rtx-fp16", "torch-fp32"])
def test_what_triton_does_not_serve_is_refused_with_the_reason(
    make_artifact: Callable[..., Artifact], variant: str
) -> None:
    with pytest.raises(
        UsageError, match=r"Triton does not serve .*: .+ \(allowed: onnx, tensorrt, openvino, torchscript\)"
    ):
        files_of(make_artifact(variant))


def test_openvino_weights_that_are_missing_are_named(make_artifact: Callable[..., Artifact]) -> None:
    with pytest.raises(UsageError, match=r"no weights net\.bin beside net\.xml"):
        files_of(make_artifact("openvino-fp32", files=("net.xml",)))


def test_torchscript_names_its_tensors_by_position(make_artifact: Callable[..., Artifact]) -> None:
    signature = served_signature(make_artifact("torchscript-fp32", files=("model.pt",)))

    assert [spec.name for spec in (*signature.inputs, *signature.outputs)] == ["x__0", "y__0"]


def test_an_engine_is_served_on_a_gpu(make_artifact: Callable[..., Artifact]) -> None:
    config = make_config(served(make_artifact("tensorrt-fp16", files=("model.plan",)), devices=("cuda:sm90",)))

    assert (config.data["backend"], config.data["instance_group"][0]["kind"]) == ("tensorrt", "KIND_GPU")


def test_openvino_is_not_batched_and_told_what_it_computes_in(make_artifact: Callable[..., Artifact]) -> None:
    files = ("model.xml", "model.bin")

    plain = make_config(served(make_artifact("openvino-fp32", files=files)))
    low = make_config(served(make_artifact("openvino-bf16", files=files)))

    assert (plain.data["max_batch_size"], plain.data["input"][0]["dims"]) == (0, [-1, 4])
    assert "dynamic_batching" not in plain.data
    assert "ENABLE_BATCH_PADDING" in plain.notes[0]
    assert "takes no hint to compute in f32" in plain.notes[1]
    assert low.data["parameters"] == {"HINT_BF16": {"string_value": "YES"}}
