"""Find the options with which `compare` judges a server by the rules of the release itself."""

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
    """Return the options other than samples: the precision, and the spec's rules for inputs and outputs.

    Tolerances are left out: the server runs the released file itself, so the defaults of its precision apply.
    """
    spec = _spec_of(details)
    words = () if variant.precision is Precision.FP32 else ("--precision", str(variant.precision))
    return (*words, *(_asked(spec, variant) if spec is not None else ()))


def _spec_of(details: ReleaseDetails) -> Spec | None:
    """Return the spec of the release; None where an earlier version wrote a spec that this one refuses."""
    data: Any = (details.manifest.get("provenance") or {}).get("spec")
    try:
        return Spec.model_validate(data)
    except (ValidationError, UsageError):
        return None


def _samples_of(part: SamplesPart) -> str | None:
    if part.path is not None or part.images is not None or part.random is not None:
        # No option of `compare` takes these.
        return None
    module, colon, _ = part.source.partition(":")
    is_there = Path(part.source).exists() or (bool(colon) and _is_module(module.partition(".")[0]))
    return part.source if is_there else None


def _is_module(name: str) -> bool:
    """Return whether the working folder or Python has such a module, without importing it."""
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
