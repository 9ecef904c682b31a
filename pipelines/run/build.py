"""Build missing variants from those of the run, without its source, as on the machine with the GPU."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.variant_maker import VariantMaker, bases_of
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.target_choice import check_names
from paritygate.precision import Variant
from paritygate.text import counted


class BuildOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a build; `needs_source` names the missing variants that only the source can make."""

    artifacts: dict[str, Artifact]
    failures: dict[str, FailedVariant]
    needs_source: tuple[str, ...]


def build_stage(
    run: RunFolder, *, names: Sequence[str] = (), is_rebuilding: bool = False, time_limit_s: float, progress: Progress
) -> BuildOutcome:
    """Make the targets without an artifact or with a corrupt engine, from the artifacts in the run.

    `names` limits the targets. `is_rebuilding` also rebuilds those named, or every engine if none is. The source is not
    needed. A rebuilt engine is a new artifact, so measurements of the old one do not count for it.

    Raises:
        UsageError: A name is not a target of the run, or cannot be made without the source.
        ArtifactIntegrityError: An artifact to derive from was changed.
        InputFileError: The record of an artifact is corrupt.
        StorageError: The disk is full.
    """
    check_names(names, run.resolved)
    lacking = [name for name in names or run.resolved.target_names if _is_to_be_made(run, name, names, is_rebuilding)]
    wanted = [name for name in lacking if _has_base(run, name)]
    needs_source = tuple(name for name in lacking if name not in wanted)
    if names and needs_source:
        msg = f"{needs_source[0]} is made from the source or from missing files, and build only derives files"
        raise UsageError(msg, hint="make it on the machine with the source", command="convert-and-validate export SPEC")
    maker = VariantMaker(run, wanted, time_limit_s=time_limit_s, progress=progress)
    for name in wanted:
        for base in bases_of(Variant.parse(name)):
            # Raises if it was changed, before any time is spent.
            maker.there(base)
    with stage(progress, "building", wanted) as did:
        made = {name: maker.make(name) for name in wanted}
        count = sum(isinstance(item, Artifact) for item in made.values())
        did(f"built {count} of {counted(len(made), 'variant')}")
    failures = {name: item for name, item in made.items() if isinstance(item, FailedVariant)}
    earlier = {name: item for name, item in run.failures().items() if name not in made}
    all_failures = {**earlier, **failures}
    run.save_failures({name: all_failures[name] for name in run.resolved.target_names if name in all_failures})
    artifacts = {name: item for name, item in made.items() if isinstance(item, Artifact)}
    return BuildOutcome(artifacts=artifacts, failures=failures, needs_source=needs_source)


def _is_to_be_made(run: RunFolder, name: str, names: Sequence[str], is_rebuilding: bool) -> bool:  # noqa: FBT001 - as given
    folder, is_engine = run.variant_folder(name), Variant.parse(name).format in ENGINE_FORMATS
    if not (folder / ARTIFACT_FILE).is_file():
        return True
    if is_rebuilding and (is_engine or name in names):
        return True
    return is_engine and _is_damaged(run, name)


def _is_damaged(run: RunFolder, name: str) -> bool:
    try:
        run.artifact(name)
    except (ArtifactIntegrityError, InputFileError):
        return True
    return False


def _has_base(run: RunFolder, name: str) -> bool:
    """Return whether the run has anything that the variant is made from, directly or indirectly."""
    targets = run.resolved.target_names
    return any(
        ((run.variant_folder(base) if base in targets else run.base_folder(base)) / ARTIFACT_FILE).is_file()
        for base in bases_of(Variant.parse(name))
    )
