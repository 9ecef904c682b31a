"""Define Triton as a kind of server, with the view of a released variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.errors import UsageError
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import ModelToServe, ServerKind
from paritygate.pipelines.serving.triton.backends import BACKENDS, files_of, served_signature
from paritygate.pipelines.serving.triton.config import ServedModel
from paritygate.pipelines.serving.triton.settings import TunedSettings
from paritygate.pipelines.serving.triton.tuned import Tuned, read_tuned
from paritygate.pipelines.serving.triton.view import TritonView, make_view, version_in_config
from paritygate.signature import Signature
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def triton_view_of(model: ModelToServe, tuned: Tuned | None = None) -> TritonView:
    """Return the view of a variant of a release, not written yet, with settings that were measured, if any.

    Raises:
        UsageError: Triton does not serve it, or the configuration breaks a rule.
        InputFileError: The samples cannot be read.
    """
    artifact = model.artifact
    served = ServedModel(
        artifact=artifact,
        name=model.name,
        version=model.version,
        devices=model.devices,
        own=model.own.get("triton") or {},
        server=model.server,
        tuned=TunedSettings() if tuned is None else tuned.for_variant(artifact.digest, served_signature(artifact)),
    )
    warmup = None if model.samples is None else _first_row(model.samples, artifact.signature)
    return make_view(served, warmup=warmup, head=model.head)


def _make(model: ModelToServe, place: Place) -> TritonView:
    return triton_view_of(model, read_tuned(place, model.name))


def _first_row(samples: SampleSource, signature: Signature) -> dict[str, NDArray[np.generic]]:
    """Return the first row of the samples, or as many as the model takes if it takes no other number."""
    batch = next(open_samples(samples)(), None)
    if batch is None:
        raise UsageError(f"the samples {samples.text} hold no row", hint="give samples with at least one row")
    inputs = fit_inputs(batch, signature)
    check_shapes(batch, inputs, signature)
    rows = {
        spec.name: spec.shape[0] if spec.shape and isinstance(spec.shape[0], int) else 1 for spec in signature.inputs
    }
    return {name: array[: rows[name]] for name, array in inputs.items()}


KIND = ServerKind(
    reads="Triton", formats=tuple(BACKENDS), make=_make, shown=version_in_config, files_of=files_of, reads_stores=True
)
