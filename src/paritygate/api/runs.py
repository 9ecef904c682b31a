"""Run a spec in Python, and show beforehand what a run would do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from paritygate.api import TIME_LIMIT_S, Comparison, ParityError, as_public, of_known_arguments, silent, texts
from paritygate.errors import ExitCode
from paritygate.pipelines.planning.plan import Plan, plan_run
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.signing.keys import read_signing_key
from paritygate.pipelines.report.terminal.comparison import comparison_text
from paritygate.pipelines.rules.gate_rules import check_choice
from paritygate.pipelines.run.workspace import DEFAULT_ROOT, new_run
from paritygate.pipelines.run_spec import RunOptions, RunOutcome, check_options, run_spec, spec_to_run
from paritygate.pipelines.spec.limits import parse_constraints
from paritygate.pipelines.spec.schema import ResolvedSpec, Spec
from paritygate.validate.probes.catalogue import probes_named

__all__ = ["Outcome", "Plan", "Spec", "plan", "run"]


class Outcome(RunOutcome, frozen=True, kw_only=True):
    """The outcome of a run: exit code, verdicts, the comparison of every variant, the run folder, the release."""

    results: Mapping[str, Comparison]

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{name} {verdict}" for name, verdict in self.verdicts.items())
        return f"<Outcome of {self.run.resolved.name}: exit code {self.exit_code}; {verdicts}>"

    def __str__(self) -> str:
        lines = [f"{self.run.resolved.name}: exit code {self.exit_code}"]
        for name, verdict in self.verdicts.items():
            failure, result = self.failures.get(name), self.results.get(name)
            lines.append(f"{name}: {verdict}" + (f": {failure.message}" if failure and result is None else ""))
            if result is not None and verdict != "pass":
                lines.append(comparison_text(result))
        lines.append(f"not released: {self.not_released}" if self.release is None else f"released: {self.version}")
        return "\n".join((*lines, f"run: {self.folder}"))

    def assert_passed(self) -> None:
        """Raise ParityError unless the exit code is 0, which means that everything required passed."""
        __tracebackhide__ = True
        if self.exit_code != ExitCode.PASS:
            raise ParityError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON data, an entry of `runs` in the command's output."""
        return self.to_json()


@of_known_arguments
def run(  # noqa: PLR0913 - one argument an option of the command
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    *,
    targets: Sequence[str] = (),
    samples: str | os.PathLike[str] | None = None,
    probes: Sequence[str] | None = None,
    benchmark: bool | None = None,
    promote: bool = True,
    diagnose: bool = True,
    repository: str | os.PathLike[str] | None = None,
    alias: str | None = None,
    sign: str | os.PathLike[str] | None = None,
    cache: bool = True,
    constraints: Mapping[str, float] | None = None,
    root: str | os.PathLike[str] = DEFAULT_ROOT,
    device: str = "cpu",
    time_limit: float = TIME_LIMIT_S,
    progress: Progress | None = None,
) -> Outcome:
    """Run a spec, as the command `run` does: export, record, validate, benchmark, report, promote.

    - `spec`: a path, the name of a packaged spec, a `Spec` or such a mapping, both with paths relative to the current
      directory.
    - `targets`: the targets to make; none means all. A part of them is not released.
    - `samples`, `repository`, `alias`: in place of the spec's.
    - `probes`: the probes to run; None means the spec's, `none` or `()` none.
    - `benchmark`: whether to measure speed; None means if the spec, or its choice, needs it.
    - `promote`: release variants that passed.
    - `diagnose`: name the operators at which an ONNX variant that fails parts from the reference.
    - `sign`: the file of the private key that signs the release; `PARITYGATE_SIGNING_PASSWORD` has its password.
    - `cache`: reuse results of earlier runs whose inputs are unchanged.
    - `constraints`: limits on speed and size beside the spec's, such as `{"latency_p95_ms": 20}`.
    - `root`: the folder of runs and repository.
    - `device`: `cpu` or `cuda`.
    - `time_limit`: seconds for each conversion, recording or comparison.
    - `progress`: as of `compare`.

    Raises:
        ParitygateError: The spec, the source, the samples or the reference are wrong, which concerns all variants.
    """
    check_choice("device", device, ("cpu", "cuda"))
    options = RunOptions(
        time_limit_s=time_limit,
        device=device,
        is_benchmarking=benchmark,
        is_promoting=promote,
        is_diagnosing=diagnose,
        repository=None if repository is None else Path(repository),
        alias=alias,
        root=Path(root),
        limits=_limits(constraints),
        signer=None if sign is None else read_signing_key(Path(sign)),
    )
    samples_path = None if samples is None else os.fspath(samples)
    resolved = _to_run(spec, samples_path, targets, probes)
    check_options(resolved, options)
    outcome = run_spec(
        new_run(resolved, root=options.root, samples_path=samples_path, is_cached=cache), options, progress or silent
    )
    results = {name: as_public(Comparison, result) for name, result in outcome.results.items()}
    return as_public(Outcome, replace(outcome, results=results))


@of_known_arguments
def plan(  # noqa: PLR0913 - one argument an option of the command
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    *,
    targets: Sequence[str] = (),
    samples: str | os.PathLike[str] | None = None,
    probes: Sequence[str] | None = None,
    benchmark: bool | None = None,
    constraints: Mapping[str, float] | None = None,
    root: str | os.PathLike[str] = DEFAULT_ROOT,
    device: str = "cpu",
    time_limit: float = TIME_LIMIT_S,
) -> Plan:
    """Return the steps that `run` with the same arguments would reuse or do; nothing is done.

    Raises:
        ParitygateError: The run would not begin, or would end early.
    """
    check_choice("device", device, ("cpu", "cuda"))
    options = RunOptions(
        time_limit_s=time_limit, device=device, is_benchmarking=benchmark, root=Path(root), limits=_limits(constraints)
    )
    samples_path = None if samples is None else os.fspath(samples)
    return plan_run(_to_run(spec, samples_path, targets, probes), options, samples_path=samples_path)


def _limits(constraints: Mapping[str, float] | None) -> Mapping[str, float]:
    return parse_constraints(f"{name}={value!r}" for name, value in (constraints or {}).items())


def _to_run(
    spec: str | os.PathLike[str] | Spec | Mapping[str, Any],
    samples_path: str | None,
    targets: Sequence[str],
    probes: Sequence[str] | None,
) -> ResolvedSpec:
    return spec_to_run(
        os.fspath(spec) if isinstance(spec, os.PathLike) else spec,
        samples_path=samples_path,
        targets=texts(targets),
        probes=probes_named(probes),
    )
