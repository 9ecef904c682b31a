"""List the targets that a source of a framework can become."""

from __future__ import annotations

from paritygate.convert.conversion import CONVERTERS, DERIVATIONS
from paritygate.models.source import SourceKind
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS
from paritygate.precision import Precision, Variant


def fitting_targets(kind: SourceKind) -> list[str]:
    """Return the variants without settings that a kind of source can become, in the order of `AVAILABLE_TARGETS`."""
    return [
        str(variant)
        for variant in AVAILABLE_TARGETS
        if variant.precision is not Precision.MIXED and _is_made_of(str(variant), kind)
    ]


def _is_made_of(name: str, kind: SourceKind) -> bool:
    if name in DERIVATIONS:
        return _is_made_of(DERIVATIONS[name].base, kind)
    return (kind, Variant.parse(name).format) in CONVERTERS
