"""A release as TensorFlow Serving reads it."""

from __future__ import annotations

from pathlib import Path

from paritygate.pipelines.release.published_view import PublishedView, published_view
from paritygate.pipelines.release.to_serve import release_to_serve
from paritygate.pipelines.release.view_folder import check_folder
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.pipelines.serving.tensorflow_serving import (
    FORMAT,
    SavedModelView,
    WrittenSavedModel,
    make_saved_model_view,
    write_saved_model,
)
from paritygate.pipelines.spec.names import check_name

PublishedSavedModel = PublishedView[SavedModelView, WrittenSavedModel]


def publish_saved_model(repository: Path, order: ViewOrder, *, overwrite: bool = False) -> PublishedSavedModel:
    """Write the view of a release, whose files are verified first, and return what it is.

    Args:
        repository: The root of the repository.
        order: What is asked for.
        overwrite: As of `write_saved_model`.

    Raises:
        ChangedViewError: As `check_folder` and `write_saved_model`.
        UsageError: There is no such release or variant, or it is no SavedModel.
        ArtifactIntegrityError: The release is not what was released.
        InputFileError: There is no such repository.
        StorageError: The view cannot be written.
    """
    found = release_to_serve(
        repository, order.model, order.which, variant=order.variant, formats=(FORMAT,), server="TensorFlow Serving"
    )
    check_folder(repository, order, overwrite=overwrite)
    view = make_saved_model_view(
        found.artifact,
        name=check_name("model", order.name),
        version=found.details.version,
        base_path=order.base_path or str(order.root.absolute()),
    )
    written = write_saved_model(view, LocalPlace(order.root), overwrite=overwrite)
    return published_view(repository, found, order, view, written)
