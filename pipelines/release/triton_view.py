"""A release as a Triton server reads it: which variant, under which name, and what the spec says of serving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import UsageError
from paritygate.pipelines.release.published_view import PublishedView, published_view
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.to_serve import ReleaseToServe, release_to_serve
from paritygate.pipelines.release.triton_tuned import Tuned, read_tuned
from paritygate.pipelines.release.view_folder import check_folder
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.pipelines.serving.triton.backends import BACKENDS, served_signature
from paritygate.pipelines.serving.triton.config import ServedModel
from paritygate.pipelines.serving.triton.settings import TunedSettings
from paritygate.pipelines.serving.triton.view import TritonView, WrittenView, make_view, write_view
from paritygate.pipelines.serving.written import Head
from paritygate.pipelines.spec.names import check_name
from paritygate.signature import Signature
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PublishedTritonView = PublishedView[TritonView, WrittenView]


def publish_triton_view(
    repository: Path, order: ViewOrder, samples: SampleSource | None = None, *, overwrite: bool = False
) -> PublishedTritonView:
    """Write the view of a release, whose files are verified first, and return what it is.

    Args:
        repository: The root of the repository.
        order: What is asked for.
        samples: Where real inputs come from that the server is warmed up with; no warm-up if None.
        overwrite: As of `write_view`.

    Raises:
        ChangedViewError: As `check_folder` and `write_view`.
        UsageError: There is no such release or variant, Triton does not serve it, or the configuration breaks a rule.
        ArtifactIntegrityError: The release is not what was released.
        InputFileError: There is no such repository, or the samples cannot be read.
        StorageError: The view cannot be written.
    """
    found = release_to_serve(
        repository, order.model, order.which, variant=order.variant, formats=tuple(BACKENDS), server="Triton"
    )
    check_folder(repository, order, overwrite=overwrite)
    place = LocalPlace(order.root)
    view = triton_view_of(found, order, samples, read_tuned(place, check_name("model", order.name)))
    return published_view(repository, found, order, view, write_view(view, place, overwrite=overwrite))


def triton_view_of(
    found: ReleaseToServe, order: ViewOrder, samples: SampleSource | None, tuned: Tuned | None = None
) -> TritonView:
    """Return the view of a variant of a release, not written yet.

    Args:
        found: The variant.
        order: What is asked for.
        samples: Where real inputs come from that the server is warmed up with; no warm-up if None.
        tuned: What was measured where it is served; None if nothing was.

    Raises:
        UsageError: The name is none, Triton does not serve it, or the configuration breaks a rule.
        InputFileError: The samples cannot be read.
    """
    artifact, details = found.artifact, found.details
    served = ServedModel(
        artifact=artifact,
        name=check_name("model", order.name),
        version=details.version,
        devices=found.devices,
        own=_own_of(details),
        server=order.server,
        tuned=TunedSettings() if tuned is None else tuned.for_variant(artifact.digest, served_signature(artifact)),
    )
    return make_view(
        served,
        warmup=None if samples is None else _first_row(samples, artifact.signature),
        # Without the aliases: where one more points here, the server has nothing to load again.
        head=Head(
            said=f"{order.model} version {details.version}, {found.variant}",
            files=artifact.digest,
            options=order.head_options,
        ),
    )


def _own_of(details: ReleaseDetails) -> Mapping[str, Any]:
    spec = (details.manifest.get("provenance") or {}).get("spec") or {}
    own: Mapping[str, Any] = (spec.get("serve") or {}).get("triton") or {}
    return own


def _first_row(samples: SampleSource, signature: Signature) -> dict[str, NDArray[np.generic]]:
    """Return the first row of the samples, or as many as the model takes where it takes no other number."""
    batch = next(open_samples(samples)(), None)
    if batch is None:
        msg = f"the samples {samples.text} hold no row"
        raise UsageError(msg, hint="give samples with at least one row")
    inputs = fit_inputs(batch, signature)
    check_shapes(batch, inputs, signature)
    rows = {
        spec.name: spec.shape[0] if spec.shape and isinstance(spec.shape[0], int) else 1 for spec in signature.inputs
    }
    return {name: array[: rows[name]] for name, array in inputs.items()}
