"""Export every target variant from the source."""

from __future__ import annotations

from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.variant_maker import VariantMaker
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.text import counted


def export_stage(run: RunFolder, *, time_limit_s: float, progress: Progress) -> dict[str, FailedVariant]:
    """Make every target of the run's spec; record failures, and go on with the others.

    Raises:
        InputFileError: The source does not exist.
        UsageError: The spec asks for what cannot be made of its source.
        StorageError: The disk is full.
    """
    # A missing source concerns every variant: one error, before any child starts.
    _ = run.resolved.source
    names = run.resolved.target_names
    maker = VariantMaker(run, names, time_limit_s=time_limit_s, progress=progress)
    with stage(progress, "exporting", names) as did:
        made = {name: maker.make(name) for name in names}
        failures = {name: item for name, item in made.items() if isinstance(item, FailedVariant)}
        did(f"exported {len(made) - len(failures)} of {counted(len(made), 'variant')}")
    run.save_failures(failures)
    return failures
