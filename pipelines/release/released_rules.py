"""Read the variants of a release, and the rules by which it was judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from pydantic import ValidationError

from paritygate.errors import UsageError
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.precision import Variant
from paritygate.text import meant
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES


def variant_of(details: ReleaseDetails, wanted: str | None) -> str:
    """Return the name of a released variant, the preferred one for None; raise UsageError if there is none such."""
    names = [entry["name"] for entry in details.manifest["variants"]]
    if wanted is not None and wanted not in names:
        msg = f"version {details.version} of {details.model!r} has no variant {wanted!r} (released: {', '.join(names)})"
        raise UsageError(msg, hint=f"name one of these{meant(wanted, names)}")
    return wanted or str(names[0])


def rules_of(details: ReleaseDetails, variant: Variant, decisions: Sequence[str] = ()) -> GateRules:
    """Return the rules that the release was judged by, with other decisions where any are given.

    Raises:
        UsageError: The rules are of another version of this program, or a decision is malformed.
    """
    data = (details.manifest.get("provenance") or {}).get("spec")
    try:
        rules = (
            GateRules(tolerance=DEFAULT_TOLERANCES[variant.precision])
            if data is None
            else ResolvedSpec(spec=Spec.model_validate(data), folder=Path(), origin="the release").rules(variant)
        )
    except (ValidationError, UsageError) as err:
        msg = f"the rules of {details.model!r} version {details.version} cannot be read by this version"
        raise UsageError(msg, hint="release the model again with this version, and judge by that release") from err
    return replace(rules, decisions=tuple(map(parse_decision, decisions))) if decisions else rules
