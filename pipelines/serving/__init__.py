"""List the kinds of model servers, whose modules write views of releases.

A kind is a row of `SERVERS`, the module named there with its `KIND`, and the command that writes its views.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Server(Struct, frozen=True, kw_only=True):
    """A row of the table, which imports nothing of the server."""

    title: str
    summary: str  # the command's short help
    file: str  # that identifies a view, in each model's folder or in the root
    module: str  # with its KIND
    sign: str = ""  # a text in that file, if other programs use its name

    @property
    def is_shared(self) -> bool:
        """Whether one file names all models of the server."""
        return "{name}" not in self.file

    def file_of(self, name: str) -> str:
        """Return the file that identifies the view of a model."""
        return self.file.format(name=name)


# By the command that writes the views.
SERVERS: Mapping[str, Server] = {
    "triton": Server(
        title="Triton",
        summary="Write a release into a Triton model repository.",
        file="{name}/config.pbtxt",
        module="paritygate.pipelines.serving.triton.server",
    ),
    "tfserving": Server(
        title="TensorFlow Serving",
        summary="Write a release into a TensorFlow Serving model folder.",
        file="models.config",
        module="paritygate.pipelines.serving.tensorflow_serving",
    ),
    "kserve": Server(
        title="KServe",
        summary="Write a release as a KServe InferenceService on Triton.",
        file="{name}/inferenceservice.yaml",
        module="paritygate.pipelines.serving.kserve",
    ),
    "ovms": Server(
        title="OpenVINO Model Server",
        summary="Write a release into an OpenVINO Model Server folder.",
        file="config.json",
        module="paritygate.pipelines.serving.ovms",
        sign="model_config_list",
    ),
}
