"""Keep releases in a versioned model repository, on disk or in an object store: the files, and the log of them.

   <repository>/store/<model>/<version>/   manifest.json, evidence.json, reports, <variant>/...
   <repository>/log/<model>/000001.json    numbered records; the state is what they add up to
   <repository>/staging/                   on disk: releases being put together; nobody reads there

The files never change once published, and a folder there is a release only if the log has its record.
"""

from paritygate.pipelines.release.repository.aliases import AliasMove, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.difference import FileDifference
from paritygate.pipelines.release.repository.inspect import (
    ModelSummary,
    ReleaseDetails,
    Verification,
    list_models,
    show,
    verify_release,
)
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.release.repository.release import StoredRelease, promote
from paritygate.pipelines.release.repository.state import ModelState, state_of

__all__ = [
    "AliasMove",
    "FileDifference",
    "ModelState",
    "ModelSummary",
    "Provenance",
    "Record",
    "RecordKind",
    "ReleaseCandidate",
    "ReleaseDetails",
    "StoredRelease",
    "VariantCandidate",
    "VariantEvidence",
    "Verification",
    "list_models",
    "point_alias",
    "promote",
    "read_records",
    "roll_back",
    "show",
    "state_of",
    "verify_release",
]
