"""Word the reason of a choice, for the log, the manifest and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from paritygate.pipelines.benchmark.result import Speedup
from paritygate.pipelines.choice.by_speed import SpeedRanking
from paritygate.pipelines.choice.options import ChoiceRules, ReleaseOption, in_order_of
from paritygate.pipelines.spec.limits import CONSTRAINTS, UNMEASURED


def why_these(
    chosen: Sequence[ReleaseOption],
    candidates: Sequence[ReleaseOption],
    rules: ChoiceRules,
    by_speed: SpeedRanking | None,
    *,
    at: str,
) -> str:
    """Return why these are chosen, or an empty text for all that passed; `at` is text that follows a number."""
    parts = []
    others = [item for item in candidates if item.is_fit and item.name != chosen[0].name]
    if by_speed is not None and by_speed.undecided:
        parts.append(_undecided(by_speed, at))
    elif by_speed is not None:
        parts += [_fast(chosen[0], by_speed, at), *_ties(chosen[0], by_speed)]
    elif rules.prefer == "smallest":
        parts.append(_smallest(chosen[0], others))
    emulated = ", ".join(_accepted(candidate) for candidate in chosen if candidate.entry.evidence == "emulated")
    if emulated:
        parts.append(f"accepted on emulated evidence by the spec: {emulated}")
    if rules.limits:
        parts.append(f"within {_limits_in_words(rules.limits)}")
    left_out = [f"{item.name}: {_state(item, rules)}" for item in candidates if _is_left_out(item, rules)]
    if left_out:
        parts.append(f"left out: {'; '.join(left_out)}")
    return "; ".join(parts)


def _accepted(candidate: ReleaseOption) -> str:
    return candidate.name if candidate.has_run else f"{candidate.name} (never ran itself)"


def _is_left_out(candidate: ReleaseOption, rules: ChoiceRules) -> bool:
    """Return whether a variant passed but lost by its speed or size."""
    if candidate.why_not:
        return False
    is_unordered = isinstance(rules.prefer, str) and candidate.figure(rules.prefer) is None
    return bool(candidate.broken) or is_unordered


def _fast(chosen: ReleaseOption, by_speed: SpeedRanking, at: str) -> str:
    speedup, figures = chosen.figures.speedup, chosen.figures.by_name
    p50, p95 = figures["latency_p50_ms"], figures["latency_p95_ms"]
    words = [] if speedup is None else [f"{speedup.ratio:.3g}x the source ({speedup.low:.3g}-{speedup.high:.3g})"]
    # Speed is ordered by p50.
    words.append(f"p50 {p50:.3g} ms" if p95 is None else f"p50 {p50:.3g} ms, p95 {p95:.3g} ms")
    rank = "fastest" if chosen is by_speed.fastest else "among the fastest"
    text = f"{rank}: {', '.join(words)}{at}"
    if speedup is not None and speedup.low <= 1 <= speedup.high:
        text += ", not told apart from the source"
    elif speedup is not None and speedup.ratio < 1:
        text += ", slower than the source"
    return text


def _ties(chosen: ReleaseOption, by_speed: SpeedRanking) -> Iterator[str]:
    """Yield the ties with the chosen variant, with ratios to the fastest, and why it is chosen."""
    if not by_speed.ties:
        return
    if chosen is by_speed.fastest:
        yield f"ties with {_with_ratios(by_speed.ties, by_speed)}"
    else:
        rest = tuple(item for item in by_speed.ties if item is not chosen)
        do = "does" if len(rest) == 1 else "do"
        also = f", and so {do} {_with_ratios(rest, by_speed)}" if rest else ""
        yield f"ties with {by_speed.fastest.name} ({_ratio(by_speed.speeds[chosen.name])}){also}"
    yield f"released because {_most_accurate(by_speed)}"


def _most_accurate(by_speed: SpeedRanking) -> str:
    """Return why the chosen variant comes before its ties."""
    chosen = by_speed.chosen
    rivals = [item for item in (by_speed.fastest, *by_speed.ties) if item is not chosen]
    best = min(rival.accuracy for rival in rivals)
    if chosen.accuracy[0] < best[0]:
        return f"its difference is the {'smaller' if len(rivals) == 1 else 'smallest'}"
    equal = "how much they differ is not known" if chosen.difference is None else "no difference is smaller"
    if chosen.accuracy < best:
        return f"{equal}, and its precision is the highest"
    return f"{equal}, and it is the first of them in the spec"


def _with_ratios(items: Sequence[ReleaseOption], by_speed: SpeedRanking) -> str:
    return ", ".join(f"{item.name} ({_ratio(by_speed.speeds[item.name])})" for item in items)


def _ratio(speed: Speedup | None) -> str:
    return "ratio not known" if speed is None else f"ratio {speed.low:.3g}-{speed.high:.3g}"


def _undecided(by_speed: SpeedRanking, at: str) -> str:
    """Return why the timings do not show the fastest variant, and why the chosen one is taken."""
    tied = 1 + len(by_speed.ties)
    return (
        f"the timings do not show which variant is the fastest{at} ({_doubt(by_speed.undecided[0], by_speed)}); of the "
        f"{tied} tied variants the most accurate is released; {_most_accurate(by_speed)}"
    )


def _doubt(item: ReleaseOption, by_speed: SpeedRanking) -> str:
    fastest, speed = by_speed.fastest, by_speed.speeds[item.name]
    doubted = next((one for one in (item, fastest) if one.figures.distrust), None)
    if doubted is not None:
        return f"{doubted.name}: {doubted.figures.distrust}"
    if speed is None:
        return f"{item.name} was not timed in the same rounds as {fastest.name}, and in two at least"
    if not speed.is_undecided:
        return f"medians and throughput of {item.name} and {fastest.name} disagree, and other work ran on the machine"
    rounds = len(fastest.figures.rounds_ms)
    return f"{item.name} is {speed.low:.3g}-{speed.high:.3g} times as fast as {fastest.name} in {rounds} rounds"


def _smallest(chosen: ReleaseOption, others: Sequence[ReleaseOption]) -> str:
    text = f"smallest: {chosen.figure('smallest'):.3g} MB"
    behind = in_order_of(others, "smallest")
    return f"{text}, before {behind[0].name} with {behind[0].figure('smallest'):.3g} MB" if behind else text


def why_none(candidates: Sequence[ReleaseOption], rules: ChoiceRules, source_broken: Sequence[str]) -> str:
    """Return why nothing fits: each variant's reason, and whether the source itself meets the limits."""
    within = f" within {_limits_in_words(rules.limits)}" if rules.limits else ""
    by_state: dict[str, list[str]] = {}
    for candidate in candidates:
        by_state.setdefault(_state(candidate, rules), []).append(candidate.name)
    states = ", ".join(f"{' and '.join(names)}: {state}" for state, names in by_state.items())
    what = "no converted variant passed" if all(item.why_not for item in candidates) else "no variant fits"
    text = f"{what} for {', '.join(rules.devices)}{within} ({states})"
    # Unmeasured figures are reported with the variants.
    if not rules.limits or (source_broken and all(words.endswith(UNMEASURED) for words in source_broken)):
        return text
    return f"{text}; the source itself: {', '.join(source_broken) or 'within the limits'}"


def _state(candidate: ReleaseOption, rules: ChoiceRules) -> str:
    if candidate.why_not:
        return candidate.why_not
    if candidate.broken:
        is_unmeasured = any(words.endswith(UNMEASURED) for words in candidate.broken)
        why = f" ({candidate.figures.unmeasured})" if is_unmeasured and candidate.figures.unmeasured else ""
        return f"passed, but {' and '.join(candidate.broken)}{why}"
    if isinstance(rules.prefer, tuple):
        return "passed, and promote.prefer does not name it"
    what = "size is not known" if rules.prefer == "smallest" else "speed was not measured"
    return f"passed, but its {what} ({candidate.figures.unmeasured})"


def _limits_in_words(limits: Mapping[str, float]) -> str:
    signs = {name: ">=" if CONSTRAINTS[name].is_floor else "<=" for name in limits}
    return ", ".join(f"{name} {signs[name]} {limit:g}" for name, limit in limits.items())
