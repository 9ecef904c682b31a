"""A release as KServe runs it on its Triton."""

from __future__ import annotations

from pathlib import Path

from paritygate.errors import UsageError
from paritygate.pipelines.release.published_view import PublishedView, published_view
from paritygate.pipelines.release.to_serve import release_to_serve
from paritygate.pipelines.release.triton_view import triton_view_of
from paritygate.pipelines.release.view_folder import check_folder
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.kserve import KServeView, WrittenKServe, make_kserve_view, write_kserve
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.pipelines.serving.triton.backends import BACKENDS
from paritygate.validate.samples.source import SampleSource

PublishedKServe = PublishedView[KServeView, WrittenKServe]


def publish_kserve_view(
    repository: Path, order: ViewOrder, samples: SampleSource | None = None, *, overwrite: bool = False
) -> PublishedKServe:
    """Write the view of a release, whose files are verified first, and return what it is.

    Args:
        repository: The root of the repository.
        order: What is asked for.
        samples: Where real inputs come from that the server is warmed up with; no warm-up if None.
        overwrite: As of `write_kserve`.

    Raises:
        ChangedViewError: As `check_folder` and `write_kserve`.
        UsageError: There is no such release or variant, Triton does not serve it, the configuration breaks a rule, or
            KServe takes no service of that name, or reads nothing from that place.
        ArtifactIntegrityError: The release is not what was released.
        InputFileError: There is no such repository, or the samples cannot be read.
        StorageError: The view cannot be written.
    """
    if order.storage_uri is None or order.server is None:
        asked = {"--storage-uri pvc://CLAIM/PATH": order.storage_uri, "--server 25.10": order.server}
        missing = [example for example, value in asked.items() if value is None]
        msg = f"kserve needs {' and '.join(example.split()[0] for example in missing)}"
        raise UsageError(msg, hint=f"give for example {' '.join(missing)}")
    found = release_to_serve(
        repository, order.model, order.which, variant=order.variant, formats=tuple(BACKENDS), server="KServe's Triton"
    )
    check_folder(repository, order, overwrite=overwrite)
    triton = triton_view_of(found, order, samples)
    groups = triton.config.get("instance_group", ())
    view = make_kserve_view(
        triton,
        storage_uri=order.storage_uri,
        server=order.server,
        is_on_gpu=any(group.get("kind") == "KIND_GPU" for group in groups),
    )
    written = write_kserve(view, LocalPlace(order.root), overwrite=overwrite)
    return published_view(repository, found, order, view, written)
