"""Load a released variant for a server written in Python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.artifact import Artifact
from paritygate.pipelines.compare.models import artifact_model
from paritygate.signature import TensorSpec
from paritygate.validate.runners.endpoint.answering import described_tensors, tensors_answered, tensors_asked
from paritygate.validate.runners.opening import open_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ReleasedModel:
    """Run a variant of a release in its runtime: a function from arrays by name to arrays by name.

    Several threads may call it: calls wait for each other where the runtime requires it.
    """

    def __init__(self, name: str, version: int, folder: Path, *, device: str = "cpu") -> None:
        """Load a verified variant from its folder in the release, to run on `cpu` or `cuda`.

        Raises:
            MissingBackendError: Its runtime is not installed.
            BackendError: The runtime refused it.
        """
        self.name, self.version, self.variant = name, version, folder.name
        self._runner = open_model(artifact_model(Artifact.read_record(folder)), device)
        is_free = self._runner.facts.may_be_called_at_once
        self._one_at_a_time = contextlib.nullcontext() if is_free else threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name} version {self.version}, {self.variant}>"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The names, dtypes and shapes of its inputs."""
        return self._runner.signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The names, dtypes and shapes of its outputs."""
        return self._runner.signature.outputs

    def __call__(self, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the outputs by name for a batch; nothing is cast.

        Raises:
            BackendError: The arrays do not match `inputs`, or the runtime failed.
        """
        with self._one_at_a_time:
            return self._runner.run(arrays)

    def infer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a request of the Open Inference Protocol, version 2, both as JSON data.

        The response has all outputs, even if the request names some.

        Raises:
            UsageError: It is no such request, or its values are not of the model's datatype.
            BackendError: It lacks an input, or one is of another shape, or the runtime failed.
        """
        signature = self._runner.signature
        outputs = self(tensors_asked(request, signature))
        id_field = {"id": request["id"]} if "id" in request else {}
        return {**self._who(), **id_field, "outputs": tensors_answered(outputs, signature)}

    def describe(self) -> dict[str, Any]:
        """Return the protocol's description of a model: names, datatypes and shapes, as JSON data."""
        sides = {"inputs": described_tensors(self.inputs), "outputs": described_tensors(self.outputs)}
        return {"name": self.name, "versions": [str(self.version)], "platform": self.variant, **sides}

    def _who(self) -> dict[str, Any]:
        return {"model_name": self.name, "model_version": str(self.version)}
