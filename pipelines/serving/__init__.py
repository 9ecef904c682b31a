"""Model servers, and the views of releases that they read.

A kind of server is a row of `SERVERS`, the module that the row names, with a `KIND` in it, and the command that writes
its views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A row of the table, for which nothing of the server is imported.

    Attributes:
        title: What the server is called.
        summary: The short help of the command that writes its views.
        file: The file by which a view is known: in the folder of each model, or one in the root for all models.
        module: Where its `KIND` is.
        sign: What that file contains, where files of other programs have the same name.
    """

    title: str
    summary: str
    file: str
    module: str
    sign: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether one file names all models of the server."""
        return "{name}" not in self.file

    def file_of(self, name: str) -> str:
        """Return the file by which the view of a model is known."""
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
