"""Define the messages of Triton's model configuration, so that protobuf itself reads and writes `config.pbtxt`.

Source: `model_config.proto` of triton-inference-server/common: messages, fields, their numbers and types. Parts that no
released artifact needs are left out: ensembles, sequences, and files by compute capability.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from paritygate.pipelines.serving.protobuf import ConfigError, message_class, message_of, parse_message
from paritygate.text import nearest_first

_PACKAGE = "inference"
_ROOT = "ModelConfig"
# Types of data by the names in signatures.
DATA_TYPES: Mapping[str, str] = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
    "bfloat16": "TYPE_BF16",
}
_ENUMS: Mapping[str, tuple[str, ...]] = {
    "DataType": ("TYPE_INVALID", *DATA_TYPES.values()),
    "InstanceKind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
    "InputFormat": ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"),
    "Priority": ("PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"),
    "TimeoutAction": ("REJECT", "DELAY"),
}
# Fields by message as `name number type`; `*` is repeated, `K>V` a map, and `|name` belongs to a oneof.
_MESSAGES: Mapping[str, str] = {
    "RateLimiterResource": "name 1 string, global 2 bool, count 3 uint32",
    "RateLimiter": "resources 1 RateLimiterResource*, priority 2 uint32",
    "InstanceGroup": "name 1 string, kind 4 InstanceKind, count 2 int32, rate_limiter 6 RateLimiter, gpus 3 int32*, "
    "profile 5 string*, passive 7 bool, host_policy 9 string",
    "Reshape": "shape 1 int64*",
    "Input": "name 1 string, data_type 2 DataType, format 3 InputFormat, dims 4 int64*, reshape 5 Reshape, "
    "is_shape_tensor 6 bool, allow_ragged_batch 7 bool, optional 8 bool, is_non_linear_format_io 9 bool",
    "Output": "name 1 string, data_type 2 DataType, dims 3 int64*, reshape 5 Reshape, label_filename 4 string, "
    "is_shape_tensor 6 bool, is_non_linear_format_io 7 bool",
    "Latest": "num_versions 1 uint32",
    "All": "",
    "Specific": "versions 1 int64*",
    "VersionPolicy": "latest 1 Latest |policy_choice, all 2 All |policy_choice, specific 3 Specific |policy_choice",
    "Graph": "level 1 int32",
    "Shape": "dim 1 int64*",
    "LowerBound": "batch_size 1 int32, input 2 string>Shape",
    "GraphSpec": "batch_size 1 int32, input 2 string>Shape, graph_lower_bound 3 LowerBound",
    "Cuda": "graphs 1 bool, busy_wait_events 2 bool, graph_spec 3 GraphSpec*, output_copy_stream 4 bool",
    "Accelerator": "name 1 string, parameters 2 string>string",
    "Accelerators": "gpu_execution_accelerator 1 Accelerator*, cpu_execution_accelerator 2 Accelerator*",
    "PinnedMemory": "enable 1 bool",
    "Optimization": "graph 1 Graph, priority 2 Priority, cuda 3 Cuda, execution_accelerators 4 Accelerators, "
    "input_pinned_memory 5 PinnedMemory, output_pinned_memory 6 PinnedMemory, "
    "gather_kernel_buffer_threshold 7 uint32, eager_batching 8 bool",
    "QueuePolicy": "timeout_action 1 TimeoutAction, default_timeout_microseconds 2 uint64, "
    "allow_timeout_override 3 bool, max_queue_size 4 uint32",
    "DynamicBatching": "preferred_batch_size 1 int32*, max_queue_delay_microseconds 2 uint64, "
    "preserve_ordering 3 bool, priority_levels 4 uint64, default_priority_level 5 uint64, "
    "default_queue_policy 6 QueuePolicy, priority_queue_policy 7 uint64>QueuePolicy",
    "Parameter": "string_value 1 string",
    "WarmupInput": "data_type 1 DataType, dims 2 int64*, zero_data 3 bool |input_data_type, "
    "random_data 4 bool |input_data_type, input_data_file 5 string |input_data_type",
    "Warmup": "name 1 string, batch_size 2 uint32, inputs 3 string>WarmupInput, count 4 uint32",
    "TransactionPolicy": "decoupled 1 bool",
    "Agent": "name 1 string, parameters 2 string>string",
    "RepositoryAgents": "agents 1 Agent*",
    "ResponseCache": "enable 1 bool",
    "MetricIdentifier": "family 1 string",
    "HistogramOptions": "buckets 1 double*",
    "MetricControl": "metric_identifier 1 MetricIdentifier, histogram_options 2 HistogramOptions |metric_options",
    "Metrics": "metric_control 1 MetricControl*",
    _ROOT: "name 1 string, platform 2 string, backend 17 string, runtime 25 string, version_policy 3 VersionPolicy, "
    "max_batch_size 4 int32, input 5 Input*, output 6 Output*, optimization 12 Optimization, "
    "dynamic_batching 11 DynamicBatching, instance_group 7 InstanceGroup*, default_model_filename 8 string, "
    "metric_tags 10 string>string, parameters 14 string>Parameter, model_warmup 16 Warmup*, "
    "model_transaction_policy 19 TransactionPolicy, model_repository_agents 23 RepositoryAgents, "
    "response_cache 24 ResponseCache, model_metrics 26 Metrics",
}
# The known fields of a whole configuration.
FIELDS = tuple(re.findall(r"(?:^|, )(\w+) ", _MESSAGES[_ROOT]))


@functools.cache
def config_class() -> Any:  # noqa: ANN401 - a class that protobuf makes
    """Return the class of a whole configuration."""
    return message_class(_PACKAGE, _ROOT, _MESSAGES, _ENUMS)


def config_of(data: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a message of protobuf
    """Return a configuration from JSON or YAML data under the names of its fields.

    Raises:
        ConfigError: A field is not known, or a value is not of its type.
    """
    for name in data:
        if name not in FIELDS:
            nearest = ", ".join(nearest_first(str(name), FIELDS)[:5])
            raise ConfigError(f"{name!r} is not a known field of a model configuration (nearest: {nearest})")
    return message_of(data, config_class())


def parse_text(text: str) -> Any:  # noqa: ANN401 - a message of protobuf
    """Return the configuration in a `config.pbtxt`; raise ConfigError, which begins with line and column."""
    return parse_message(text, config_class())
