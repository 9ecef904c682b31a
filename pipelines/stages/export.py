"""Export: the source becomes every target variant, each by a child process of its own."""

from __future__ import annotations

import shutil

from paritygate.artifact import Artifact, file_digests
from paritygate.backends import version_of
from paritygate.errors import ConversionError, InputFileError, ParitygateError, StorageError, UsageError
from paritygate.files import MARKER, make_marked_folder, remove_marked_folder, storage_errors
from paritygate.machine import machine_facts
from paritygate.pipelines.child import ChildJob, Progress, run_child
from paritygate.pipelines.workspace import FailedVariant, RunFolder
from paritygate.precision import Variant
from paritygate.signature import Signature

__all__ = ["export_stage"]


def export_stage(run: RunFolder, *, time_limit_s: float, progress: Progress) -> dict[str, FailedVariant]:
    """Make every target of the run's spec; what fails is written down, the others go on.

    Raises:
        InputFileError: The source does not exist.
        StorageError: The disk is full.
    """
    # A source that is not there is wrong for every variant: said once, before any child starts.
    _ = run.resolved.source
    failures: dict[str, FailedVariant] = {}
    for variant in run.resolved.variants:
        failure = _try_export(run, variant, time_limit_s=time_limit_s, progress=progress)
        if failure is not None:
            failures[str(variant)] = failure
    run.save_failures(failures)
    return failures


def _try_export(run: RunFolder, variant: Variant, *, time_limit_s: float, progress: Progress) -> FailedVariant | None:
    try:
        _export(run, variant, time_limit_s=time_limit_s, progress=progress)
    except (UsageError, InputFileError, StorageError):
        # These are about the spec, the source or the disk: they hold for every variant.
        raise
    except ParitygateError as err:
        return FailedVariant.from_error(str(variant), err)
    return None


def _export(run: RunFolder, variant: Variant, *, time_limit_s: float, progress: Progress) -> Artifact:
    resolved = run.resolved
    final = run.variant_folder(str(variant))
    remove_marked_folder(final)
    staged = run.folder / f".{variant}.partial"
    remove_marked_folder(staged)
    make_marked_folder(staged)
    files = staged / "files"
    with storage_errors(files):
        files.mkdir()
    signature = resolved.signature
    try:
        made = run_child(
            ChildJob(
                name="export",
                args={
                    "source": resolved.source.to_json(),
                    "format": variant.format,
                    "precision": str(variant.precision),
                    "folder": str(files),
                    "signature": signature.to_json() if signature else None,
                    "rename": dict(resolved.spec.model.rename),
                    "opset": resolved.spec.opset,
                    "files": list(resolved.spec.model.files),
                },
                folder=run.jobs(f"export-{variant}"),
                what=f"the conversion of {resolved.name} to {variant}",
                time_limit_s=time_limit_s,
                crash_error=ConversionError,
            ),
            lambda stage, done, total: progress(f"{variant}: {stage}", done, total),
        )
        with storage_errors(final):
            shutil.move(str(files), str(final))
            (final / MARKER).touch()
    finally:
        remove_marked_folder(staged)
    artifact = Artifact(
        variant=variant,
        folder=final,
        main=made["main"],
        signature=Signature.from_json(made["signature"]),
        files=file_digests(final),
        made_by={
            "paritygate": version_of("paritygate"),
            "source": made["source"],
            "notes": made["notes"],
            "facts": made["facts"],
            "machine": machine_facts(),
        },
    )
    artifact.save()
    return artifact
