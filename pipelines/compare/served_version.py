"""Whether a server answers as the version of its model that was released."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paritygate.models.endpoint import parse_endpoint
from paritygate.models.source import ModelRef
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.validate.gate.verdict import Check, Status

__all__ = ["check_served_version"]

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
        detail = (
            f"the server answered as versions {' and '.join(answered_as)} of {model}: it was given another one while "
            "it was asked; compare again, or ask one with /versions/N behind the name"
        )
        return (Check(name=_NAME, status=Status.WARNING, detail=detail),)
    (version,) = answered_as
    released = _release_of(job.reference)
    if released is None or released[0] != model:
        return ()
    if released[1] == version:
        detail = f"the server answered as version {version} of {model}, of which the reference is"
        return (Check(name=_NAME, status=Status.PASS, detail=detail),)
    detail = (
        f"the server answered as version {version} of {model}, and the reference is of version {released[1]}: start it "
        f"again, write its view again, or ask /versions/{released[1]} behind the name"
    )
    return (Check(name=_NAME, status=Status.WARNING, detail=detail),)


def _release_of(ref: ModelRef) -> tuple[str, str] | None:
    """Return name and version of the release that a model is a file of; None where it is of none."""
    for folder in (ref.place or Path()).parents:
        if folder.name.isdecimal() and folder.parent.parent.name == _STORE and (folder / _MANIFEST).is_file():
            return folder.parent.name, folder.name
    return None
