"""Write and read the signed statement of what was measured: verdicts, limits and figures of the released variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.files import json_bytes, json_of
from paritygate.pipelines.release.repository.candidate import EVIDENCE_FILE, ReleaseCandidate
from paritygate.pipelines.release.repository.figures import figures_of
from paritygate.pipelines.release.signing.envelope import opened, signed, statement
from paritygate.pipelines.release.signing.keys import SigningKey, VerifyingKey

_KIND = "urn:paritygate:parity:1"


def parity_of(candidate: ReleaseCandidate, files: Mapping[str, str], key: SigningKey) -> bytes:
    """Return the content of the statement about a candidate's artifacts; `files` has the digests of all its files."""
    provenance, names = candidate.provenance, [variant.name for variant in candidate.variants]
    variants = [variant.to_json() for variant in candidate.variants]
    predicate = {
        "model": candidate.model,
        "verdict": "not compared" if any(variant.is_source for variant in candidate.variants) else "pass",
        "variants": variants,
        "limits": {name: of for name, of in provenance.tolerances.items() if name in names},
        "looser_limits": {name: of for name, of in provenance.looser_tolerances.items() if name in names},
        "figures": list(figures_of(variants, candidate.evidence)),
        "not_passed": [
            {"variant": item["variant"], "verdict": item["verdict"]}
            for item in candidate.choice.get("candidates", ())
            if item["verdict"] != "pass"
        ],
        "source": provenance.source,
        "samples": provenance.samples,
        "reference": provenance.reference,
        "evidence": files[EVIDENCE_FILE],
        "tools": dict(provenance.tools),
        "despite": candidate.despite,
        "trust": candidate.trust,
    }
    # A variant's own record is not a part of what was measured, and its digest covers what is.
    measured = [
        (f"{variant.name}/{name}", digest) for variant in candidate.variants for name, digest in variant.files.items()
    ]
    return json_bytes(signed(statement(_KIND, measured, predicate), key))


def parity_in(content: bytes, key: VerifyingKey) -> dict[str, Any]:
    """Return the statement in a file, once the signature of the key is checked.

    Raises:
        ValueError: It is no such file, or the key did not sign it.
    """
    return opened(json_of(content.decode()), _KIND, key)
