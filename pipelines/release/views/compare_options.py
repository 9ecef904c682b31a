"""The options with which `compare` holds a server against a released file as the release itself was judged."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paritygate.errors import UsageError
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.rules.gate_rules import words_of_roles, words_of_rules
from paritygate.pipelines.rules.table import Scope
from paritygate.pipelines.spec.parts import SamplesPart
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.precision import Precision, Variant
from paritygate.text import in_full


def samples_to_compare(details: ReleaseDetails) -> str | None:
    """Return the samples of the release's spec as `compare` takes them; None if it cannot read them from here."""
    spec = _spec_of(details)
    return None if spec is None else _samples_of(spec.samples)


def compare_options(details: ReleaseDetails, variant: Variant) -> tuple[str, ...]:
    """Return the options beside the samples: the precision, and what the spec says of inputs and outputs.

    Its tolerances are none of them: the server runs the very file, so that the defaults of its precision hold.

    Args:
        details: The release.
        variant: The variant that is served.
    """
    spec = _spec_of(details)
    words = () if variant.precision is Precision.FP32 else ("--precision", str(variant.precision))
    return (*words, *(_asked(spec, variant) if spec is not None else ()))


def _spec_of(details: ReleaseDetails) -> Spec | None:
    """Return the spec that was released by; None where an earlier version wrote what this one does not take."""
    said: Any = (details.manifest.get("provenance") or {}).get("spec")
    try:
        return Spec.model_validate(said)
    except (ValidationError, UsageError):
        return None


def _samples_of(part: SamplesPart) -> str | None:
    if part.path is not None or part.images is not None or part.random is not None:
        # No option says these.
        return None
    module, colon, _ = part.source.partition(":")
    is_there = Path(part.source).exists() or (bool(colon) and _is_module(module.partition(".")[0]))
    return part.source if is_there else None


def _is_module(name: str) -> bool:
    """Return whether there is such a module, which is looked for from here on, and not imported."""
    if not name.isidentifier():
        return False
    return Path(name).is_dir() or Path(f"{name}.py").is_file() or importlib.util.find_spec(name) is not None


def _asked(spec: Spec, variant: Variant) -> Iterator[str]:
    resolved = ResolvedSpec(spec=spec, folder=Path(), origin="the release")
    yield from words_of_rules(resolved.rules(variant), Scope.OUTPUTS)
    yield from words_of_roles(resolved.roles)
    for name, columns in spec.samples.columns.items():
        yield from ("--columns", f"{name}={','.join([columns] if isinstance(columns, str) else columns)}")
    for name, dtype in spec.samples.cast.items():
        yield from ("--cast", f"{name}={dtype}")
    for name, value in spec.samples.pad.items():
        yield from ("--pad", f"{name}={in_full(value)}")
