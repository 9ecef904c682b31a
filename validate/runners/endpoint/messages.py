"""The messages of the Open Inference Protocol, version 2, over gRPC, as far as they are sent or read here.

Sources: `grpc_predict_v2.proto` of the protocol's specification; Triton's `grpc_service.proto` and `model_config.proto`
for the configuration of a model, an extension. Fields that are not here are skipped, as protobuf does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

_PACKAGE = "inference"
SERVICE = f"{_PACKAGE}.GRPCInferenceService"
# The fields of each message: name, number, type, and whether it is repeated.
_TENSOR = (("name", 1, "string", False), ("datatype", 2, "string", False), ("shape", 3, "int64", True))
_MESSAGES: Mapping[str, tuple[tuple[str, int, str, bool], ...]] = {
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": (
        ("name", 1, "string", False),
        ("version", 2, "string", False),
        ("extensions", 3, "string", True),
    ),
    "ModelMetadataRequest": (("name", 1, "string", False), ("version", 2, "string", False)),
    "Tensor": _TENSOR,
    "RequestedOutput": (("name", 1, "string", False),),
    "ModelMetadataResponse": (
        ("name", 1, "string", False),
        ("versions", 2, "string", True),
        ("inputs", 4, "Tensor", True),
        ("outputs", 5, "Tensor", True),
    ),
    "ModelConfigRequest": (("name", 1, "string", False), ("version", 2, "string", False)),
    "ModelConfig": (("max_batch_size", 4, "int32", False),),
    "ModelConfigResponse": (("config", 1, "ModelConfig", False),),
    "ModelInferRequest": (
        ("model_name", 1, "string", False),
        ("model_version", 2, "string", False),
        ("inputs", 5, "Tensor", True),
        ("outputs", 6, "RequestedOutput", True),
        ("raw_input_contents", 7, "bytes", True),
    ),
    "ModelInferResponse": (
        ("model_name", 1, "string", False),
        ("model_version", 2, "string", False),
        ("outputs", 5, "Tensor", True),
        ("raw_output_contents", 6, "bytes", True),
    ),
}


@functools.cache
def messages() -> Mapping[str, Any]:
    """Return the classes of the messages by name.

    `Tensor` is all three messages of a tensor in the specification, which differ in fields that are not used here.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="paritygate/inference.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_repeated in fields:
            label = kinds.LABEL_REPEATED if is_repeated else kinds.LABEL_OPTIONAL
            entry = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
    # A pool of our own, because a client of Triton in the same process defines messages of these names as well.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }
