"""Compare a run with a release, and find the served variants that are worse by more than the declared factors.

Only figures measured on both sides are compared: variants of one name, on one device, by one kind of evidence.
Speed needs the same machine and the same load as well. Names and dtypes of inputs and outputs need no measurement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.codec import from_data
from paritygate.errors import ArtifactIntegrityError, ExitCode, MeasurementError
from paritygate.files import corrupt_errors
from paritygate.pipelines.choice.choose import choose_stage, evidence_to_choose_by
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_RUN_HERE, ComparisonResult
from paritygate.pipelines.release.interface import INTERFACE, interface_changes
from paritygate.pipelines.release.released_files import released_benchmark, released_signature
from paritygate.pipelines.release.repository.inspect import ReleaseDetails, has_records
from paritygate.pipelines.release.repository.manifest import read_released_evidence
from paritygate.pipelines.release.timed import timed, why_not_comparable, why_not_trusted
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.workspace import RunFolder, worst_code
from paritygate.pipelines.spec.against import FIGURES
from paritygate.roots import Root

# What is allowed where a model has no release yet.
FIRST_RELEASE = "first-release"
# What is allowed where a run has fewer variants than the release, on purpose.
FEWER_VARIANTS = "fewer-variants"

# Below this part of its limit a difference counts as this part, so that factors have something to multiply.
_SMALL_SHARE = 0.05
# Processors and versions of libraries move a difference by as much as this part of its limit.
_SMALL_CHANGE = 0.1
_LARGEST = frozenset({"max_abs_diff", "p9999_abs_diff"})
_LATENCY = "latency_p50_ms"
_EVIDENCE_SCHEMA = 2
_MEGABYTE = 1e6
_SKIPPED = frozenset({NOT_RUN_HERE, NOT_AVAILABLE})


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldFigure:
    """Hold one figure of a variant on both sides.

    `figure` is one of `FIGURES`, `verdict` for a variant that did not pass, or `interface`. `interface` counts the
    changes of inputs and outputs that break a client of the release.
    """

    variant: str
    figure: str
    about: str = ""  # the output or the metric; empty for all
    was: float | None = None  # None for a verdict, as are `now` and `allowed`
    now: float | None = None
    allowed: float | None = None
    is_worse: bool = False
    verdict: str = ""
    changes: tuple[str, ...] = ()  # of inputs and outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionCheck:
    """Hold the comparison of a run with a release."""

    schema_version: int = 1
    model: str
    run: str
    version: int  # of the release; 0 where the model has none yet
    aliases: tuple[str, ...]
    factors: Mapping[str, float]
    figures: tuple[HeldFigure, ...]  # the worse first
    not_compared: tuple[str, ...]  # each with its reason
    missing: tuple[str, ...] = ()  # variants of the release that the run lacks, unless that is allowed
    notes: tuple[str, ...]
    exit_code: int  # 1 if something is worse or missing; else that of a released variant that was not measured; else 0

    @property
    def worse(self) -> tuple[HeldFigure, ...]:
        """The figures that are worse."""
        return tuple(item for item in self.figures if item.is_worse)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """Hold the entries of a variant in the run and in the release, of the same kind and on the same device."""

    variant: str
    now: EvidenceEntry
    was: EvidenceEntry


def compare_with_release(
    run: RunFolder, released: ReleaseDetails, factors: Mapping[str, float], *, allowed: Collection[str] = ()
) -> RegressionCheck:
    """Return whether the variants of a release are worse in a run.

    The evidence of both sides and the release's manifest are checked. `factors` replace those of the spec and the
    defaults. `allowed` has the deliberate changes: `INTERFACE`, `FEWER_VARIANTS`, or none.

    Raises:
        InputFileError: The run was not validated, or its evidence or benchmark is corrupt.
        ArtifactIntegrityError: The evidence of the run is about other artifacts, or the release was changed.
        MeasurementError: Nothing could be compared.
    """
    evidence = evidence_to_choose_by(run)
    # A run that cannot be chosen from is not compared either.
    choose_stage(run, evidence=evidence)
    declared = run.resolved.spec.promote.against | dict(factors)
    in_force = {name: item.factor for name, item in FIGURES.items()} | declared
    earlier = _released_evidence(released)
    figures: list[HeldFigure] = []
    left_out: list[str] = []
    codes = [int(ExitCode.PASS)]
    pairs: list[_Pair] = []
    missing = () if FEWER_VARIANTS in allowed else _missing(evidence, released)
    if missing:
        codes.append(int(ExitCode.PARITY_FAILED))
    for entry in released.manifest["variants"]:
        name = entry["name"]
        if entry["role"] == "source":
            left_out.append(f"{name}: version {released.version} is the source itself, released as it is")
            continue
        pair = _pair(name, entry, evidence, earlier)
        if isinstance(pair, str):
            left_out.append(f"{name}: {pair}")
            codes.append(_code_of_missing(run, name))
            continue
        if pair.now.verdict in _SKIPPED:
            left_out.append(f"{name}: {pair.now.verdict}: {pair.now.reason}")
        elif pair.now.verdict != "pass":
            is_worse = pair.now.verdict == "fail"
            figures.append(HeldFigure(variant=name, figure="verdict", verdict=pair.now.verdict, is_worse=is_worse))
            codes.append(pair.now.exit_code)
        if pair.now.result is not None and pair.now.result.is_measured and pair.was.result is not None:
            pairs.append(pair)
            figures += _of_results(pair, in_force)
            figures.append(_size(run, pair, int(entry["size_bytes"]), in_force))
    speeds = _speeds(run, released, pairs, in_force, is_declared=_LATENCY in declared)
    figures += speeds.figures
    left_out += speeds.left_out
    codes.append(speeds.exit_code)
    if not figures and max(codes) == ExitCode.PASS:
        why = "; ".join(left_out) or "the result has no variant"
        msg = f"{released.model} version {released.version} cannot be compared with the run: {why}"
        raise MeasurementError(msg, hint="leave --against out to release a first version")
    figures += _interfaces(run, released, is_allowed=INTERFACE in allowed)
    if any(item.is_worse for item in figures):
        codes.append(int(ExitCode.PARITY_FAILED))
    return RegressionCheck(
        model=released.model,
        run=str(run.folder),
        version=released.version,
        aliases=released.aliases,
        factors=in_force,
        figures=tuple(sorted(figures, key=lambda item: not item.is_worse)),
        not_compared=tuple(left_out),
        missing=missing,
        notes=tuple(dict.fromkeys(note for pair in pairs for note in _notes(pair))),
        exit_code=worst_code(codes),
    )


def first_release(run: RunFolder, repository: Root, factors: Mapping[str, float]) -> RegressionCheck | None:
    """Return a result without figures if the model has no release; None if it has one.

    Raises:
        RepositoryError: The log of the repository is corrupt.
    """
    name = run.resolved.name
    if has_records(repository, name):
        return None
    note = f"{name} has no release in {repository}, so there was nothing to compare with"
    return RegressionCheck(
        model=name,
        run=str(run.folder),
        version=0,
        aliases=(),
        factors=dict(factors),
        figures=(),
        not_compared=(),
        notes=(note,),
        exit_code=int(ExitCode.PASS),
    )


def _interfaces(run: RunFolder, released: ReleaseDetails, *, is_allowed: bool) -> Iterator[HeldFigure]:
    """Yield for each variant of both sides the changes that break a client of the release, even if it passed."""
    there = run.exported()
    for entry in released.manifest["variants"]:
        name = entry["name"]
        if entry["role"] == "source" or name not in there:
            continue
        was = released_signature(released, name)
        changes = interface_changes(was, run.artifact(name).signature)
        count = float(len(changes))
        yield HeldFigure(
            variant=name,
            figure=INTERFACE,
            was=0.0,
            now=count,
            allowed=count if is_allowed else 0.0,
            is_worse=bool(changes) and not is_allowed,
            changes=changes,
        )


def _released_evidence(released: ReleaseDetails) -> Evidence:
    data = read_released_evidence(released.folder, released.manifest)
    if data.get("schema_version") != _EVIDENCE_SCHEMA:
        msg = f"version {released.version} was released by another version of paritygate, with unreadable evidence"
        raise MeasurementError(
            msg, hint=("release the model once with this version, and compare later runs with that release")
        )
    what = f"the evidence of {released.model} version {released.version}"
    hint = "restore the release from a backup, or promote the model again"
    with corrupt_errors(what, kind=ArtifactIntegrityError, hint=hint):
        return from_data(Evidence, data)


def _pair(name: str, entry: Mapping[str, Any], evidence: Evidence, earlier: Evidence) -> _Pair | str:
    """Return the variant on both sides, or the message why there is none."""
    kinds = {item["kind"] for item in (entry["evidence"], *entry["evidence"].get("also", ()))}
    was = [
        item
        for document in earlier.documents()
        for item in document.entries
        if (item.variant, item.artifact) == (name, entry["digest"]) and item.evidence in kinds and item.result
    ]
    now = [item for document in evidence.documents() for item in document.entries if item.variant == name]
    if not was:
        return "its measurements are not in the release"
    if not now:
        return "it is not a variant of the run"
    for old in was:
        for new in now:
            if (new.evidence, new.device) == (old.evidence, old.device):
                return _Pair(variant=name, now=new, was=old)
    # An unmeasured entry has no device; the one about its files comes before an emulated one.
    if now[0].result is None or not now[0].result.is_measured:
        return _Pair(variant=name, now=now[0], was=was[0])
    seen, there = (", ".join(f"{item.evidence} on {item.device}" for item in side) for side in (now, was))
    return f"it was {seen} now, and {there} then"


def _code_of_missing(run: RunFolder, name: str) -> int:
    """Return the exit code of a released variant that the run could not make; 0 if the run did not include it."""
    failure = run.failures().get(name)
    return int(ExitCode.PASS) if failure is None or failure.verdict in _SKIPPED else failure.exit_code


def _missing(evidence: Evidence, released: ReleaseDetails) -> tuple[str, ...]:
    """Return the released variants that the run lacks: they are not targets, or no longer available for the model."""
    names = [entry["name"] for entry in released.manifest["variants"] if entry["role"] != "source"]
    return tuple(name for name in names if (entry := evidence.entry(name)) is None or entry.verdict == NOT_AVAILABLE)


def _of_results(pair: _Pair, factors: Mapping[str, float]) -> Iterator[HeldFigure]:
    now, was = pair.now.result, pair.was.result
    if now is None or was is None:
        return
    for output in now.outputs:
        shares = _shares(now, was, output)
        if shares is not None:
            allowed = max(factors["max_abs_diff"] * max(shares[0], _SMALL_SHARE), shares[0] + _SMALL_CHANGE)
            yield _figure(pair, "max_abs_diff", shares, allowed, about=output)
    counts = _mismatches(was)
    for about, (count, of) in _mismatches(now).items():
        if about in counts:
            count_before, of_before = counts[about]
            # No difference in N decisions does not prove that none ever differs, so it counts as one.
            allowed = factors["mismatch_rate"] * max(count_before, 1) / of_before
            yield _figure(pair, "mismatch_rate", (count_before / of_before, count / of), allowed, about=about)
    for name, gold in now.gold.items():
        before = was.gold.get(name)
        if before is not None and before.candidate is not None and gold.candidate is not None:
            # A part of a value that is not above 0 would be more.
            least = before.candidate / factors["gold"] if before.candidate > 0 else before.candidate
            yield _figure(pair, "gold", (before.candidate, gold.candidate), least, about=name)


def _figure(pair: _Pair, figure: str, values: tuple[float, float], allowed: float, *, about: str = "") -> HeldFigure:
    """Return a figure; `values` are those of the release and of the run."""
    was, now = values
    is_worse = now < allowed if FIGURES[figure].is_more_better else now > allowed
    return HeldFigure(
        variant=pair.variant, figure=figure, about=about, was=was, now=now, allowed=allowed, is_worse=is_worse
    )


def _shares(now: ComparisonResult, was: ComparisonResult, output: str) -> tuple[float, float] | None:
    """Return the largest difference of an output then and now, as a part of its limit; None if one is unknown.

    Where the limits differ, both are parts of the earlier limit, because a looser limit improves nothing.
    """
    new, old = ({check.name: check for check in side.checks if check.output == output} for side in (now, was))
    for name in sorted(_LARGEST & new.keys() & old.keys()):
        measured, limit = new[name].measured, new[name].limit
        before, limit_before = old[name].measured, old[name].limit
        if None in {measured, limit, before, limit_before}:
            continue
        if now.limit_rule != was.limit_rule:
            # The check names the value nearest to its limit; another rule may name another value.
            measured, before = now.outputs[output].max_abs_diff, was.outputs[output].max_abs_diff
        if now.limit_rule != was.limit_rule or now.tolerance != was.tolerance:
            limit = limit_before
        if measured is None or before is None or not limit or not limit_before:
            # A limit of 0 has no parts.
            continue
        return before / limit_before, measured / limit
    return None


def _mismatches(result: ComparisonResult) -> dict[str, tuple[int, int]]:
    """Return how many decisions differ, of how many, by output or name of detections; only those that have any."""
    by_output = {name: (item.mismatches, item.decisions) for name, item in result.decisions.items()}
    for name, output in result.outputs.items():
        if name not in by_output and output.mismatches is not None:
            by_output[name] = (output.mismatches, output.compared)
    for name, match in result.matches.items():
        by_output[name] = (match.missing + match.extra, match.expected)
    return {name: counts for name, counts in by_output.items() if counts[1]}


def _size(run: RunFolder, pair: _Pair, bytes_before: int, factors: Mapping[str, float]) -> HeldFigure:
    was, now = bytes_before / _MEGABYTE, run.artifact(pair.variant).size_bytes / _MEGABYTE
    return _figure(pair, "size_mb", (was, now), factors["size_mb"] * was)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Speeds:
    """Hold the compared latencies, why others are left out, and the exit code of those that cannot be trusted."""

    figures: tuple[HeldFigure, ...] = ()
    left_out: tuple[str, ...] = ()
    exit_code: int = int(ExitCode.PASS)


def _speeds(
    run: RunFolder, released: ReleaseDetails, pairs: list[_Pair], factors: Mapping[str, float], *, is_declared: bool
) -> _Speeds:
    """Return the latencies at the load by which variants are chosen now.

    Untrusted timings show nothing, so a declared factor is then not measured.
    """
    new, old = run.benchmark(), released_benchmark(released)
    if new is None or old is None:
        side = "the run" if new is None else f"version {released.version}"
        return _Speeds(left_out=(f"{_LATENCY}: {side} has no benchmark",) if pairs else ())
    load = (new.batch_sizes[0], new.concurrency[0])
    figures, left_out, is_untrusted = [], [], False
    for pair in pairs:
        now, was = timed(pair.now, new, load), timed(pair.was, old, load)
        why = why_not_comparable(now, was)
        if not why and now is not None and was is not None and now.p50_ms is not None and was.p50_ms is not None:
            allowed = factors[_LATENCY] * was.p50_ms
            why = why_not_trusted(now, was, allowed)
            is_untrusted = is_untrusted or bool(why)
            if not why:
                figures.append(_figure(pair, _LATENCY, (was.p50_ms, now.p50_ms), allowed))
        if why:
            left_out.append(f"{pair.variant}: {_LATENCY}: {why}")
    code = ExitCode.NOT_MEASURED if is_untrusted and is_declared else ExitCode.PASS
    return _Speeds(figures=tuple(figures), left_out=tuple(left_out), exit_code=int(code))


def _notes(pair: _Pair) -> Iterator[str]:
    now, was = pair.now.result, pair.was.result
    if now is None or was is None:
        return
    if now.samples_digest != was.samples_digest:
        yield "the samples are others than then"
    if now.limit_rule != was.limit_rule:
        yield "limits were made by another rule then: the largest differences themselves are compared"
    elif now.tolerance != was.tolerance:
        yield f"{pair.variant} had other limits then, so each difference is compared as a share of its own limit"
    for what in ("outputs", "decisions", "gold", "matches"):
        dropped = sorted(getattr(was, what).keys() - getattr(now, what).keys())
        if dropped:
            yield f"{pair.variant} was held to {what} then that it is not held to now: {', '.join(dropped)}"
