"""Whether a server answers as the version of its model that was released."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paritygate.models.endpoint import parse_endpoint
from paritygate.models.source import ModelRef
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.words.sentence import say

_NAME = "served_version"
_STORE, _MANIFEST = "store", "manifest.json"


def check_served_version(job: ComparisonJob, answered_as: Sequence[str]) -> tuple[Check, ...]:
    """Return what there is to say of the versions that a server answered as: nothing where it says none.

    That it is another version than the released one is said where the reference is a file of a release, and the model
    has the same name on the server: other servers number models as they like. Whether it answers rightly is for the
    values to show, so neither fails.
    """
    if not answered_as:
        return ()
    model = parse_endpoint(job.candidate.text, is_mapped=True).model
    if len(answered_as) > 1:
        words = say("served.several", versions=" and ".join(answered_as), model=model)
        return (Check(name=_NAME, status=Status.WARNING, words=words),)
    (version,) = answered_as
    released = _release_of(job.reference)
    if released is None or released[0] != model:
        return ()
    if released[1] == version:
        return (Check(name=_NAME, status=Status.PASS, words=say("served", version=version, model=model)),)
    words = say("served.other", version=version, model=model, released=released[1])
    return (Check(name=_NAME, status=Status.WARNING, words=words),)


def _release_of(ref: ModelRef) -> tuple[str, str] | None:
    """Return name and version of the release that a model is a file of; None where it is of none."""
    for folder in (ref.place or Path()).parents:
        if folder.name.isdecimal() and folder.parent.parent.name == _STORE and (folder / _MANIFEST).is_file():
            return folder.parent.name, folder.name
    return None
