"""Tell by a server's version number whether it runs a release, and warn where it reports another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from paritygate.models.endpoint import parse_endpoint
from paritygate.models.source import ModelRef
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.words.sentence import say

_NAME = "served_version"
_STORE, _MANIFEST = "store", "manifest.json"


class ReleaseNumber(Struct, frozen=True, kw_only=True):
    """The name and number of a release, to compare with those that a server reports."""

    model: str
    version: str
    others: tuple[str, ...] = ()  # numbers of the model's other releases

    def differs(self, version: str, model: str = "") -> bool:
        """Return whether a server gives another number to the model; under another name, a number means nothing."""
        return model in {"", self.model} and version not in {"", self.version}

    def is_other(self, version: str, model: str = "") -> bool:
        """Return whether a server reports the number of another release. It may number models freely, too."""
        return self.differs(version, model) and version in self.others


def check_served_version(job: ComparisonJob, answered_as: Sequence[str]) -> tuple[Check, ...]:
    """Return a check of the versions that a server reports; none where it reports none.

    It applies where the reference is a file of a release, and the server uses the same name, because other servers
    number models freely. A difference is a warning, because the values show whether the model is correct.
    """
    if not answered_as:
        return ()
    model = parse_endpoint(job.candidate.text, is_mapped=True).model
    if len(answered_as) > 1:
        words = say("served.several", versions=" and ".join(answered_as), model=model)
        return (Check(name=_NAME, status=Status.WARNING, words=words),)
    (version,) = answered_as
    released = _release_of(job.reference)
    if released is None or released.model != model:
        return ()
    if not released.differs(version, model):
        return (Check(name=_NAME, status=Status.PASS, words=say("served", version=version, model=model)),)
    words = say("served.other", version=version, model=model, released=released.version)
    return (Check(name=_NAME, status=Status.WARNING, words=words),)


def _release_of(ref: ModelRef) -> ReleaseNumber | None:
    """Return the release of a model; None where it is of none."""
    for folder in (ref.place or Path()).parents:
        if folder.name.isdecimal() and folder.parent.parent.name == _STORE and (folder / _MANIFEST).is_file():
            return ReleaseNumber(model=folder.parent.name, version=folder.name)
    return None
