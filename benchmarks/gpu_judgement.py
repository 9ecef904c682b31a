"""What comes of one way to run a model on a GPU, and whether the emulated figures predicted it: no GPU is needed here.

An entry is never left out: what a machine lacks is an entry that says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

# A prediction that is off by more than this, up or down, is none.
FACTOR = 3.0
# Steps of float32 at the reference's largest magnitude: the gate has no smaller limit, and below it a difference is
# that of another order of summation, which nothing predicts.
NOISE_ULPS = 4
PREDICTED = ("max_abs_diff", "mean_abs_diff")
_FIGURES = (
    "max_abs_diff",
    "min_abs_diff",
    "mean_abs_diff",
    "std_abs_diff",
    "p99_abs_diff",
    "bias",
    "max_row_rel_diff",
    "non_finite",
)
_RAN = ("runtime", "version", "device", "provider", "precision_found", "tf32", "optimisation", "notes")
_MISSING = "MissingBackendError"
_MEASUREMENT_FAILED = 5


class State(str, Enum):
    """What came of an entry."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    NOT_RUN = "not run"


class Predicted(str, Enum):
    """Whether the emulated figures predicted the real ones."""

    WITHIN = "within the factor"
    BELOW_NOISE = "below the noise"
    OUTSIDE = "outside the factor"
    NOT_ASKED = "no emulation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A statistic as emulated and as it was, both not below the noise before one is divided by the other.

    `ratio` is real / emulated, None where a value is not finite.
    """

    emulated: float | None
    real: float | None
    ratio: float | None
    verdict: Predicted


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One way to run one model.

    Attributes:
        model: The model.
        runner: What runs it, such as `onnxruntime-cuda`.
        precision: The precision.
        state: What came of it.
        reason: Why it was not run or failed; empty if it passed.
        figures: The differences from the reference, by the names of the comparison's result.
        limits: What they were held against.
        decisions: Mismatches and rows of each decision.
        ran: What ran, read back from the runtime.
        emulated: The same figures with the precision emulated on a CPU; None where there is no emulation.
        ratios: By statistic, how the real figures are to the emulated ones.
        why_not_predicted: Why there are no ratios.
    """

    model: str
    runner: str
    precision: str
    state: State
    reason: str = ""
    figures: Mapping[str, Any] | None = None
    limits: Mapping[str, float] | None = None
    decisions: Mapping[str, Any] | None = None
    ran: Mapping[str, Any] | None = None
    emulated: Mapping[str, Any] | None = None
    ratios: Mapping[str, Ratio] | None = None
    why_not_predicted: str = ""

    @property
    def prediction(self) -> Predicted:
        """The worst of the ratios' verdicts."""
        found = [ratio.verdict for ratio in (self.ratios or {}).values()]
        for verdict in (Predicted.OUTSIDE, Predicted.WITHIN, Predicted.BELOW_NOISE):
            if verdict in found:
                return verdict
        return Predicted.NOT_ASKED

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON data."""
        return {**asdict(self), "prediction": self.prediction.value}


def not_run(model: str, runner: str, precision: str, reason: str) -> Entry:
    """Return the entry of what this machine cannot run."""
    return Entry(model=model, runner=runner, precision=precision, state=State.NOT_RUN, reason=reason)


def failed(model: str, runner: str, precision: str, reason: str) -> Entry:
    """Return the entry of what this machine should have run, and did not."""
    return Entry(model=model, runner=runner, precision=precision, state=State.ERROR, reason=reason)


def entry_of(model: str, runner: str, precision: str, comparison: Mapping[str, Any]) -> Entry:
    """Return the entry that a comparison's result comes to, without a prediction.

    Args:
        model: The model.
        runner: What ran it.
        precision: The precision.
        comparison: The JSON of `compare`, for a model with one output.

    Raises:
        ValueError: The comparison has several outputs.
    """
    error = comparison["error"]
    if error is not None:
        make = not_run if error["kind"] == _MISSING else failed
        return make(model, runner, precision, error["message"])
    if len(comparison["outputs"]) != 1:
        msg = f"{model} has outputs {', '.join(comparison['outputs']) or 'none'}: exactly one is compared here"
        raise ValueError(msg)
    (output,) = comparison["outputs"].values()
    bad = [check for check in comparison["checks"] if check["status"] not in ("pass", "warning")]
    return Entry(
        model=model,
        runner=runner,
        precision=precision,
        state=State(comparison["verdict"]),
        reason="; ".join(f"{check['name']}: {check['detail']}" for check in bad),
        figures={name: output[name] for name in _FIGURES},
        limits={name: limit["lowest"] for name, limit in output["limits"].items()},
        decisions={
            name: {"mismatches": decision["mismatches"], "rows": decision["rows"]}
            for name, decision in comparison["decisions"].items()
        },
        ran={name: comparison["candidate"].get(name) for name in _RAN},
    )


def ratios_of(emulated: Mapping[str, Any], real: Mapping[str, Any], *, noise: float) -> dict[str, Ratio]:
    """Return how the real figures are to the emulated ones.

    Args:
        emulated: The figures of the emulated row.
        real: Those of what ran.
        noise: What is at most this, in the unit of the output, is taken to be this.
    """
    return {name: _ratio(emulated[name], real[name], noise) for name in PREDICTED}


def _ratio(emulated: float | None, real: float | None, noise: float) -> Ratio:
    # None, NaN and infinity: an overflow that was foreseen is one that nobody releases, and no figure was predicted.
    if emulated is None or real is None or not math.isfinite(emulated) or not math.isfinite(real):
        return Ratio(emulated=emulated, real=real, ratio=None, verdict=Predicted.OUTSIDE)
    ratio = max(real, noise) / max(emulated, noise)
    if max(real, emulated) <= noise:
        verdict = Predicted.BELOW_NOISE
    elif 1 / FACTOR <= ratio <= FACTOR:
        verdict = Predicted.WITHIN
    else:
        verdict = Predicted.OUTSIDE
    return Ratio(emulated=emulated, real=real, ratio=ratio, verdict=verdict)


def exit_code(entries: Sequence[Entry], *, is_strict: bool) -> int:
    """Return 0 if all that ran passed and was predicted, 1 if something did not, 5 if something could not be measured.

    Args:
        entries: All entries.
        is_strict: Whether what was not run counts as not measured. Where nothing was run, it does in any case.
    """
    states = [entry.state for entry in entries]
    ran = [state for state in states if state is not State.NOT_RUN]
    if not ran or State.ERROR in ran or State.INCONCLUSIVE in ran or (is_strict and len(ran) < len(states)):
        return _MEASUREMENT_FAILED
    is_predicted = all(entry.prediction is not Predicted.OUTSIDE for entry in entries)
    return 0 if is_predicted and State.FAIL not in ran else 1


def report(entries: Sequence[Entry], *, machine: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return everything as the JSON data that is written."""
    return {
        "schema_version": 1,
        "benchmark": "gpu_parity",
        "device": device,
        # Without a GPU the script can be tried, and what it then says is of no GPU.
        "is_rehearsal": device == "cpu",
        "machine": dict(machine),
        "factor": FACTOR,
        "noise_ulps": NOISE_ULPS,
        "counts": {state.value: sum(entry.state is state for entry in entries) for state in State},
        "entries": [entry.to_json() for entry in entries],
    }


def lines(entries: Iterable[Entry]) -> list[str]:
    """Return one line an entry, for the terminal."""
    return [_line(entry) for entry in entries]


def _line(entry: Entry) -> str:
    name = f"{entry.model:14} {entry.runner:21} {entry.precision:5} {entry.state.value:12}"
    if entry.figures is None:
        return f"{name} {entry.reason}"
    shown = " ".join(f"{key.partition('_')[0]} {_number(entry.figures[key])}" for key in PREDICTED)
    ratios = ", ".join(f"{key.partition('_')[0]} {_number(ratio.ratio)}" for key, ratio in (entry.ratios or {}).items())
    seen = f"{entry.prediction.value} ({ratios})" if ratios else f"{entry.prediction.value}: {entry.why_not_predicted}"
    return f"{name} {shown} | {seen}" + (f" | {entry.reason}" if entry.reason else "")


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
