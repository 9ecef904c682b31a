"""The versioned model repository on local disk: an immutable store, and the log that says what is in it.

    <repository>/store/<model>/<version>/   manifest.json, evidence.json, reports, <variant>/...
    <repository>/log/<model>/000001.json    numbered records; the state is what they add up to
    <repository>/staging/                   releases being put together; nobody reads there

The store never changes once published, and a folder there is a release only if the log says so.
"""

from paritygate.pipelines.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.repository.difference import FileDifference
from paritygate.pipelines.repository.inspect import (
    ModelSummary,
    ReleaseDetails,
    Verification,
    list_models,
    show,
    verify_release,
)
from paritygate.pipelines.repository.log import ModelState, Record, RecordKind, read_records, state_of
from paritygate.pipelines.repository.release import Release, promote

__all__ = [
    "FileDifference",
    "ModelState",
    "ModelSummary",
    "Provenance",
    "Record",
    "RecordKind",
    "Release",
    "ReleaseCandidate",
    "ReleaseDetails",
    "VariantCandidate",
    "VariantEvidence",
    "Verification",
    "list_models",
    "promote",
    "read_records",
    "show",
    "state_of",
    "verify_release",
]
