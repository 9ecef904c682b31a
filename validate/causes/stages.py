"""The stage at which two lists of stages part, such as a tokenizer, a model and what follows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paritygate.errors import CacheMissError, ParitygateError
from paritygate.models.loading import LoadedModel
from paritygate.validate.causes.cause import Case
from paritygate.validate.divergence.stages import locate_stage
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.measure.check import NAMED, NOT_CONFIRMED, Cause
from paritygate.validate.runners.endpoint.stages import Stage, stages_of
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.words.sentence import joined, say

# Each is sent to each stage a few times, which may be a server.
_BATCHES = 3


def find(case: Case) -> Iterator[Cause]:
    """Yield the stages that differ on the reference's values, if both models are lists of stages."""
    ours = _stages(case.runner.loaded) if isinstance(case.candidate, ModelCandidate) else None
    try:
        reference = None if ours is None else case.open_reference()
    except CacheMissError:
        raise
    except ParitygateError:
        # The comparison warns that it cannot be loaded.
        return
    theirs = None if reference is None else _stages(reference.loaded)
    if ours is None or reference is None or theirs is None:
        return
    ids = {row.row_id for row in case.chosen}
    # Whole batches, because padding may make the difference.
    batches = itertools.islice((batch for batch in case.read() if ids.intersection(batch.ids)), _BATCHES)
    feeds = [fit_inputs(batch, reference.signature) for batch in batches]
    if not feeds:
        return
    found = locate_stage(theirs, ours, feeds)
    if places := found.located:
        # They are proven together, or none is.
        proven = say("cause.proven") if places[0].proven else ()
        yield Cause(kind="stages", outcome=NAMED, words=joined([place.words for place in places], "; ") + proven)
    elif found.words:
        yield Cause(kind="stages", outcome=NOT_CONFIRMED, words=found.words)


def _stages(loaded: LoadedModel) -> list[Stage] | None:
    return stages_of(loaded.model, loaded.ref.endpoint_limits)
