"""Compare two releases: variants, inputs and outputs, rules, measured differences, speed and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from paritygate.errors import ExitCode
from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.choice.figures import machine_in_words
from paritygate.pipelines.release.interface import signature_changes
from paritygate.pipelines.release.released_files import released_benchmark, released_signature
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.text import one_or_many

_FIGURES = ("mismatches", "mismatch_rate_upper_95", "max_abs_diff", "mean_abs_diff")
_SOURCE = "source"
# Keys of a spec that are not rules of the comparison. Limits of each variant have rows of their own.
_NO_RULES = frozenset({
    "benchmark", "calibration", "model", "onnxruntime", "opset", "promote", "reason", "report", "samples", "serve",
    "targets", "tensorrt", "tensorrt_rtx", "tolerance",
})  # fmt: skip


class DiffSide(Struct, frozen=True, kw_only=True):
    """Name one of the two releases, and who released it.

    `asked_less` has what its rules ask less of a variant than those of an earlier run, and `reason` why.
    """

    model: str
    version: int
    aliases: tuple[str, ...]
    variants: tuple[str, ...]
    who: str
    created: str
    reason: str | None
    asked_less: tuple[str, ...]


class DiffRow(Struct, frozen=True, kw_only=True):
    """Hold one fact of a variant in both releases; None where a release lacks it.

    `figure` is `variant`, `digest`, `tolerance`, `rule`, `size_bytes`, `latency_p50_ms`, or a measured difference.
    `about` is the output, the limit, the rule's place in the spec, or the batch size and concurrency. A rule is of all
    variants, so its `variant` is empty.
    """

    variant: str
    figure: str
    about: str
    was: Any
    now: Any
    is_changed: bool


class ReleaseDiff(Struct, frozen=True, kw_only=True):
    """Describe how the second release differs from the first."""

    schema_version: int = 1
    was: DiffSide
    now: DiffSide
    signature: tuple[str, ...]  # changes of inputs and outputs; with any, the exit code is 1
    rows: tuple[DiffRow, ...]
    not_compared: tuple[str, ...]
    exit_code: int


def diff_releases(was: ReleaseDetails, now: ReleaseDetails) -> ReleaseDiff:
    """Compare two releases of the same or of two models.

    Raises:
        ArtifactIntegrityError: A file that is read is corrupt.
    """
    signature, not_compared = _signature(was, now)
    speed, skipped = _speed(was, now)
    return ReleaseDiff(
        was=_side(was),
        now=_side(now),
        signature=signature,
        rows=(*_variants(was, now), *_rules(was, now), *_tolerances(was, now), *_numbers(was, now), *speed),
        not_compared=(*not_compared, *skipped),
        exit_code=int(ExitCode.PARITY_FAILED if signature else ExitCode.PASS),
    )


def _side(details: ReleaseDetails) -> DiffSide:
    provenance = details.manifest.get("provenance") or {}
    return DiffSide(
        model=details.model,
        version=details.version,
        aliases=details.aliases,
        variants=tuple(_entries(details)),
        who=details.record.who,
        created=details.record.time,
        reason=(provenance.get("spec") or {}).get("reason"),
        asked_less=tuple(
            f"{item['variant']}: {less}" for item in provenance.get("asked_less") or () for less in item["asked_less"]
        ),
    )


def _entries(details: ReleaseDetails) -> dict[str, Mapping[str, Any]]:
    return {entry["name"]: entry for entry in details.manifest["variants"]}


def _row(variant: str, figure: str, about: str, values: tuple[object, object]) -> DiffRow:
    was, now = values
    return DiffRow(variant=variant, figure=figure, about=about, was=was, now=now, is_changed=was != now)


def _variants(was: ReleaseDetails, now: ReleaseDetails) -> Iterator[DiffRow]:
    """Yield the variants of each release, with digest and size."""
    one, other = _entries(was), _entries(now)
    for name in dict.fromkeys((*one, *other)):
        sides = one.get(name), other.get(name)
        for figure in ("digest", "size_bytes"):
            before, after = (None if side is None else side[figure] for side in sides)
            yield _row(name, figure, "", (before, after))


def _rules(was: ReleaseDetails, now: ReleaseDetails) -> Iterator[DiffRow]:
    """Yield the declared rules of both specs, by their place there; none if a release does not hold its spec."""
    specs = [(details.manifest.get("provenance") or {}).get("spec") or {} for details in (was, now)]
    if not all(specs):
        return
    before, after = (dict(_declared(spec)) for spec in specs)
    for name in dict.fromkeys((*before, *after)):
        yield _row("", "rule", name, (before.get(name), after.get(name)))


def _declared(spec: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in spec.items():
        if not place and key in _NO_RULES:
            continue
        if isinstance(value, Mapping):
            yield from _declared(value, f"{place}{key}.")
        elif value is not None:
            yield f"{place}{key}", value


def _tolerances(was: ReleaseDetails, now: ReleaseDetails) -> Iterator[DiffRow]:
    one, other = (details.manifest.get("provenance", {}).get("tolerances", {}) for details in (was, now))
    for variant in _common(was, now):
        before, after = (dict(_limits(side.get(variant) or {})) for side in (one, other))
        for name in dict.fromkeys((*before, *after)):
            yield _row(variant, "tolerance", name, (before.get(name), after.get(name)))


def _limits(tolerance: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each limit by its name, those of an output as `OUTPUT:NAME`."""
    for name, value in tolerance.items():
        if isinstance(value, Mapping):
            for inner, limits in value.items():
                yield from (
                    _limits(limits, f"{inner}:") if isinstance(limits, Mapping) else ((f"{name}.{inner}", limits),)
                )
        else:
            yield f"{prefix}{name}", value


def _common(was: ReleaseDetails, now: ReleaseDetails) -> list[str]:
    return [name for name in _entries(was) if name in _entries(now)]


def _numbers(was: ReleaseDetails, now: ReleaseDetails) -> Iterator[DiffRow]:
    """Yield the measured differences of the variants in both releases, by output and device."""
    one, other = (
        {(item["variant"], item["output"], item["device"], item["evidence"]): item for item in details.numbers}
        for details in (was, now)
    )
    for key in dict.fromkeys((*one, *other)):
        variant, output, device, evidence = key
        if variant in _common(was, now):
            about = output if evidence == "verified" else f"{output}, {evidence} on {device}"
            before, after = one.get(key, {}), other.get(key, {})
            yield from (_row(variant, name, about, (before.get(name), after.get(name))) for name in _FIGURES)


def _speed(was: ReleaseDetails, now: ReleaseDetails) -> tuple[list[DiffRow], list[str]]:
    """Return the median latencies that both releases measured on the same machine, and why others are left out."""
    one, other = released_benchmark(was), released_benchmark(now)
    if one is None or other is None:
        missing = dict.fromkeys(str(side.version) for side, it in ((was, one), (now, other)) if it is None)
        versions = one_or_many(len(missing), "version {} has", "versions {} have").format(" and ".join(missing))
        return [], [f"speed: {versions} no benchmark"]
    rows: list[DiffRow] = []
    skipped: list[str] = []
    for variant in _common(was, now):
        before, after = one.of(variant), other.of(variant)
        if before is None or after is None:
            continue
        places = _place(one, before.device), _place(other, after.device)
        if places[0] != places[1]:
            skipped.append(f"{variant}: speed: it was measured on {places[0]}, and now on {places[1]}")
            continue
        for point in after.points:
            old = before.at(point.batch_size, point.concurrency)
            if old is not None:
                about = f"batch size {point.batch_size}, concurrency {point.concurrency}"
                rows.append(_row(variant, "latency_p50_ms", about, (old.latency_ms["p50"], point.latency_ms["p50"])))
    return rows, skipped


def _place(benchmark: BenchmarkResult, device: str | None) -> str:
    return f"{device} of {machine_in_words(benchmark.machine, device)}"


def _signature(was: ReleaseDetails, now: ReleaseDetails) -> tuple[tuple[str, ...], list[str]]:
    """Return the changes of inputs and outputs of the variants in both, else of the preferred ones."""
    converted = [[name for name in _entries(details) if name != _SOURCE] for details in (was, now)]
    if not all(converted):
        return (), ["signature: a release of the source itself does not record inputs and outputs"]
    both = [(name, name) for name in converted[0] if name in converted[1]]
    pairs = both or [(converted[0][0], converted[1][0])]
    changes: dict[str, list[str]] = {}
    for one, other in pairs:
        before, after = (released_signature(*side) for side in ((was, one), (now, other)))
        for change in signature_changes(before, after):
            changes.setdefault(change, []).append(other)
    return tuple(f"{', '.join(names)}: {change}" for change, names in changes.items()), []
