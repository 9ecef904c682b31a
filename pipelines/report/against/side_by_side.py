"""Compare two runs of a model: each variant's verdict and speed, and the changes between the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.files import digest_of_json
from paritygate.pipelines.benchmark.result import BenchmarkPoint
from paritygate.pipelines.report.figures import number, shorten, size_words, times
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.summary import figures_of
from paritygate.pipelines.report.tables.run import artifact_size
from paritygate.pipelines.report.tables.speed import measured_speed
from paritygate.pipelines.report.tables.table import Row, Table, status, table_of
from paritygate.pipelines.report.why import why_of_variant
from paritygate.text import counted, first_of, one_or_many

_NOTHING = "-"
_ABSENT = "not a target"
_VALUE_LENGTH = 120
_WHY_LENGTH = 300
_FEW = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two runs: its report, and its spec as JSON data."""

    report: ReportData
    spec: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SideBySide:
    """The contents of the page about `run` and an older run (`against`).

    - `headline`: the change in one sentence. `reasons`: `(verdict, variant, why)` of changed variants that do not pass.
    - `speed_words`: whether speeds can be compared.
    - `changes`: differences of inputs and specs; None without any. `unchanged`: what is equal, in one sentence.
    """

    title: str
    run: ReportData
    against: ReportData
    headline: str
    reasons: tuple[tuple[str, str, str], ...]
    parity: Table
    speed: Table
    speed_words: str
    changes: Table | None
    unchanged: str


def side_by_side(run: Side, against: Side) -> SideBySide:
    """Return the comparison of a run with an older one."""
    new, old = run.report, against.report
    facts = [(what, *pair) for what, *pair in _facts(run, against)]
    changed = [(what, before, now) for what, before, now in facts if before != now]
    same = [what for what, before, now in facts if before == now]
    return SideBySide(
        title=new.model if new.model == old.model else f"{new.model} against {old.model}",
        run=new,
        against=old,
        headline=_headline(new, old),
        reasons=tuple(_reasons(new, old)),
        parity=_parity_table(new, old),
        speed=_speed_table(new, old),
        speed_words=_speed_words(new, old),
        changes=table_of("What is not the same", ("what", "against", "run"), [*changed, *_spec_changes(run, against)])
        if changed or run.spec != against.spec
        else None,
        unchanged=f"The same in both: {', '.join(same)}." if same else "",
    )


def _names(new: ReportData, old: ReportData) -> list[str]:
    return list(dict.fromkeys(variant.name for report in (new, old) for variant in report.variants))


def _variant(report: ReportData, name: str) -> VariantReport | None:
    return next((variant for variant in report.variants if variant.name == name), None)


def _pairs(new: ReportData, old: ReportData) -> Iterator[tuple[str, VariantReport | None, VariantReport | None]]:
    """Yield each variant of either run: its name, and its old and new report."""
    for name in _names(new, old):
        yield name, _variant(old, name), _variant(new, name)


def _headline(new: ReportData, old: ReportData) -> str:
    both = [(name, was, now) for name, was, now in _pairs(new, old) if was is not None and now is not None]
    changed = [f"{name} ({was.verdict}, now {now.verdict})" for name, was, now in both if was.verdict != now.verdict]
    if not both:
        return "The two runs have no variant in common."
    if not changed:
        every = one_or_many(len(both), "The one variant", f"All {len(both)} variants")
        return f"{every} in both runs {one_or_many(len(both), 'has', 'have')} the same verdict."
    of = f"{len(changed)} of {counted(len(both), 'variant')}"
    return f"{of} {one_or_many(len(changed), 'has', 'have')} another verdict: {first_of(changed, _FEW)}."


def _reasons(new: ReportData, old: ReportData) -> Iterator[tuple[str, str, str]]:
    for name, was, now in _pairs(new, old):
        if now is not None and now.verdict != "pass" and (was is None or was.verdict != now.verdict):
            yield now.verdict, name, shorten(why_of_variant(now), _WHY_LENGTH)


def _heads(*titles: str) -> tuple[str, ...]:
    return ("variant", *(f"{title}, {side}" for title in titles for side in ("against", "run")))


def _parity_table(new: ReportData, old: ReportData) -> Table:
    rows = tuple(
        (name, *(_ABSENT if item is None else status(item.verdict) for item in (was, now)), *_figures(was, now))
        for name, was, now in _pairs(new, old)
    )
    columns = _heads("verdict", ">difference of its limit", ">mismatches")
    return table_of("What came of each variant", columns, rows)


def _figures(was: VariantReport | None, now: VariantReport | None) -> Row:
    (old_mismatches, old_share), (new_mismatches, new_share) = (
        figures_of(None if item is None else item.result) for item in (was, now)
    )
    return old_share, new_share, old_mismatches, new_mismatches


def _speed_table(new: ReportData, old: ReportData) -> Table:
    rows = []
    for name, was, now in _pairs(new, old):
        points = _point(was, old), _point(now, new)
        rows.append(
            (
                name,
                *(_size(item) for item in (was, now)),
                *(_speedup(point) for point in points),
                *(_NOTHING if point is None else number(point.latency_ms.get("p50")) for point in points),
            )
        )
    return table_of("Size and speed", _heads(">size", ">speed-up", ">p50 ms"), rows)


def _size(variant: VariantReport | None) -> str:
    return _NOTHING if variant is None or variant.artifact is None else size_words(artifact_size(variant.artifact))


def _point(variant: VariantReport | None, report: ReportData) -> BenchmarkPoint | None:
    benchmark = report.benchmark
    if variant is None or benchmark is None:
        return None
    speed, _ = measured_speed(variant, benchmark)
    return None if speed is None else speed.at(benchmark.batch_sizes[0], benchmark.concurrency[0])


def _speedup(point: BenchmarkPoint | None) -> str:
    return _NOTHING if point is None or point.speedup is None else times(point.speedup.ratio)


def _speed_words(new: ReportData, old: ReportData) -> str:
    if new.benchmark is None or old.benchmark is None:
        if new.benchmark is old.benchmark:
            return "Speed was measured in neither of them."
        return f"Speed was not measured in {'run' if new.benchmark is None else 'against'}."
    sides = [_measured_on(report) for report in (old, new)]
    if sides[0] != sides[1]:
        return (
            f"The times cannot be compared: those of against were measured on {sides[0]}, those of run on {sides[1]}. "
            "A speed-up is by the source on the same machine."
        )
    return f"Both were measured on {sides[0]}. Compare speed-ups rather than times, which a busy machine makes longer."


def _measured_on(report: ReportData) -> str:
    benchmark = report.benchmark
    if benchmark is None:
        return ""
    cpu: Mapping[str, Any] = benchmark.machine.get("cpu") or {}
    cores = benchmark.machine.get("cores")
    words = f"{benchmark.device}, {cpu.get('model', 'a processor that is not known')}"
    at = f"batch size {benchmark.batch_sizes[0]}, concurrency {benchmark.concurrency[0]}"
    return f"{words}{f', {cores} cores' if cores else ''}, {at}"


def _facts(run: Side, against: Side) -> Iterator[tuple[str, str, str]]:
    """Yield the facts that the results depend on: name, old and new value."""
    old, new = (dict(_facts_of(side.report)) for side in (against, run))
    for what in dict.fromkeys([*new, *old]):
        yield what, old.get(what, _NOTHING), new.get(what, _NOTHING)


def _facts_of(report: ReportData) -> Iterator[tuple[str, str]]:
    yield "model", report.model
    yield "source", report.source
    recording = report.recording
    if recording is not None:
        yield "digest of the source", str(recording.model.get("digest") or "not known")
        if recording.model.get("files"):
            yield "digest of its code", digest_of_json(dict(recording.model["files"]))
        yield "digest of the samples", recording.samples_digest
        yield "rows", number(recording.rows)
        yield "runtime of the source", f"{recording.runtime.get('runtime')} {recording.runtime.get('version')}"
    yield (
        "paritygate",
        next(
            (variant.result.paritygate for variant in report.variants if variant.result is not None), report.paritygate
        ),
    )
    machine = next((facts for _, facts in report.machines), {})
    cpu, gpu = machine.get("cpu") or {}, machine.get("gpu") or {}
    if machine:
        yield "processor", str(cpu.get("model", "not known"))
        yield "GPU", str(gpu.get("name", "none"))
        yield "system", str(machine.get("platform", "not known"))
        yield "Python", str(machine.get("python", "not known"))
    for name, version in machine.get("versions", {}).items():
        yield str(name), str(version)


def _spec_changes(run: Side, against: Side) -> Iterator[tuple[str, str, str]]:
    old, new = (dict(_flat(side.spec)) for side in (against, run))
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"spec: {key}", _value(old.get(key)), _value(new.get(key))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: object) -> str:
    if value is None:
        return _NOTHING
    words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shorten(words, _VALUE_LENGTH) or "none"
