"""Plant one mutation after another and compare each with the reference, in the child process of a selftest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paritygate.codec import from_data
from paritygate.errors import BackendError, InputFileError
from paritygate.pipelines.compare.probes import recorded_probes
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.selftest import result as results
from paritygate.pipelines.selftest.effect import effects_of
from paritygate.pipelines.selftest.mutations.mutation import (
    MUTATIONS,
    Mutated,
    Mutation,
    MutationContext,
    NotApplicable,
    mutate_file,
)
from paritygate.pipelines.selftest.result import PlantResult, SelftestRequest, SelftestResult, why_missed
from paritygate.pipelines.selftest.trial import FaultTrial, open_mutated, try_file
from paritygate.validate.measure.check import Verdict
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.inputs.roles import InputRole, Role
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.samples import open_samples

# At most this many distinct ids are remembered, so the first unused row of a larger table is not found.
_IDS_KEPT = 1_000_000


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Plant every requested mutation, one at a time, and return the outcomes as JSON data."""
    started = time.monotonic()
    request = from_data(SelftestRequest, args)
    tester = _Tester(request, report)
    unchanged = tester.unchanged
    can_go_on = unchanged.verdict in {Verdict.PASS, Verdict.INCONCLUSIVE}
    count = len(request.mutations)
    plants = [
        tester.result_of(MUTATIONS[name], f"{at} of {count}, {name}")
        for at, name in enumerate(request.mutations if can_go_on else (), start=1)
    ]
    result = SelftestResult(
        model=request.job.reference.name,
        run=str(request.run),
        variant=request.job.candidate.name,
        precision=str(request.job.rules.precision),
        rows=unchanged.rows,
        probe_rows=dict(unchanged.probe_rows),
        probes_off=_probes_off(request),
        seed=request.seed,
        unchanged=str(unchanged.verdict),
        unchanged_findings=unchanged.no_passes,
        plants=plants,
        seconds=time.monotonic() - started,
    )
    return result.to_json()


class _Tester:
    """Tries the unchanged artifact, and then one mutated file after the other."""

    def __init__(self, request: SelftestRequest, report: Progress) -> None:
        self._request = request
        self._report = report
        self._source = request.job.candidate.path
        report("the unchanged artifact", 0, 0)
        self._runner = open_mutated(request.job, self._source)
        self.unchanged = try_file(self._runner, request.job, request.folder, report, "the unchanged artifact")
        self._facts = _facts(request)

    def result_of(self, mutation: Mutation, what: str) -> PlantResult:
        started = time.monotonic()
        self._report(what, 0, 0)
        target = self._request.folder / "mutated.onnx"
        random = np.random.default_rng([self._request.seed, *mutation.name.encode()])
        mutated = mutate_file(self._source, mutation.name, MutationContext(random=random, **self._facts), target)
        result = self._tried(mutation, mutated, target, what)
        for path in (target, Path(f"{target}.data")):
            path.unlink(missing_ok=True)
        return replace(result, seconds=time.monotonic() - started)

    def _tried(self, mutation: Mutation, mutated: Mutated | NotApplicable, target: Path, what: str) -> PlantResult:
        if isinstance(mutated, NotApplicable):
            return _result(mutation, results.NOT_APPLICABLE, mutated.reason)
        try:
            runner = open_mutated(self._request.job, target)
        except (BackendError, InputFileError) as err:
            return _result(mutation, results.NOT_APPLICABLE, f"ONNX Runtime does not accept the result: {err}")
        trial = try_file(runner, self._request.job, self._request.folder, self._report, what)
        outcome = _outcome(mutation, trial)
        if outcome != results.MISSED:
            return _result(mutation, outcome, mutated.what, trial)
        effects = effects_of(runner, self._runner, self._request.job, trial.limits)
        off = _probes_off(self._request)
        why = why_missed(effects, reached_by=mutated.reached_by, probes_off=off, at_edge=trial.at_edge)
        return _result(mutation, outcome, mutated.what, trial, effects=effects, why=why)


def _outcome(mutation: Mutation, trial: FaultTrial) -> str:
    by_samples, by_probes = bool(trial.by_samples), bool(trial.by_probes)
    if mutation.is_equivalent:
        return results.FALSE_ALARM if by_samples or by_probes else results.PASSED
    if by_samples and by_probes:
        return results.CAUGHT_BY_BOTH
    if by_samples:
        return results.CAUGHT_BY_SAMPLES
    return results.CAUGHT_BY_PROBES if by_probes else results.MISSED


def _result(
    mutation: Mutation,
    outcome: str,
    what: str,
    trial: FaultTrial | None = None,
    **found: Any,  # noqa: ANN401 - fields
) -> PlantResult:
    return PlantResult(
        name=mutation.name,
        title=mutation.title,
        is_innocent=mutation.is_equivalent,
        outcome=outcome,
        what=what,
        by_samples=[] if trial is None else trial.by_samples,
        by_probes=[] if trial is None else trial.by_probes,
        **found,
    )


def _probes_off(request: SelftestRequest) -> list[str]:
    return [name for name in PROBES if name not in request.job.rules.probes]


def _facts(request: SelftestRequest) -> dict[str, Any]:
    """Return facts about the model besides its graph: from samples, roles of probes and the reference."""
    outputs = request.job.reference.path
    recording, probes = Recording.load(outputs), recorded_probes(outputs)
    roles: Mapping[str, InputRole] = {} if probes is None else probes.roles
    ids = {name: role.high for name, role in roles.items() if role.role is Role.ID}
    seen: dict[str, set[int]] = {name: set() for name in ids}
    sizes: dict[str, tuple[int, ...]] = {}
    largest = 1
    for batch in open_samples(request.job.samples)():
        largest = max(largest, batch.rows)
        for name, array in batch.inputs.items():
            sizes.setdefault(name, array.shape)
            if name in seen and len(seen[name]) < _IDS_KEPT:
                seen[name].update(int(value) for value in np.unique(array))
    return {
        "masks": tuple(name for name, role in roles.items() if role.role is Role.MASK),
        "ids": ids,
        "seen_ids": {name: frozenset(values) for name, values in seen.items()},
        "sizes": sizes,
        "largest_batch": largest,
        "most_rows": request.most_rows,
        "scales": {
            name: float(profile.scale.min()) for name, profile in recording.profiles.items() if profile.is_float
        },
        "columns": {
            name: tuple(profile.own_spread.tolist())
            for name, profile in recording.profiles.items()
            if profile.is_float and profile.output_spread is not None
        },
    }
