"""A desk for probes: a reference, a candidate and ordinary samples go in, what each probe says comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.models.loading import LoadedModel
from paritygate.models.source import parse_source
from paritygate.precision import Precision
from paritygate.signature import Dim
from paritygate.validate.emulation.unclipped import answer_beyond_ranges, without_ranges
from paritygate.validate.gate.candidate import ModelCandidate
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.decisions import Decision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.probes.catalogue import PROBES
from paritygate.validate.probes.graph.uses import uses_of_inputs
from paritygate.validate.probes.input_stats import Surveyor
from paritygate.validate.probes.inputs.probe import ProbeContext
from paritygate.validate.probes.inputs.roles import DeclaredRole
from paritygate.validate.probes.record import ProbePlan, record_probes
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.probes.role_inference import infer_roles
from paritygate.validate.probes.run import ProbeOutcome, ProbeQuestion, run_probes
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.runners.opening import open_runner

if TYPE_CHECKING:
    import onnx

    from paritygate.validate.probes.probe_budget import Allowance
    from paritygate.validate.reference.recording import Recording
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.feeding import fit_inputs

Array = NDArray[Any]
Samples = list[dict[str, Array]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A reference with its probes."""

    runner: Runner
    recording: Recording
    probes: ProbesRecording
    context: ProbeContext
    samples: Samples

    @property
    def roles(self) -> dict[str, str]:
        """The role of each input, by name."""
        return {name: str(role.role) for name, role in self.context.roles.items()}

    @property
    def dropped(self) -> list[str]:
        """What is special about each batch that was dropped."""
        return [item.about for probe in self.probes.probes for item in probe.dropped]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What came of a candidate."""

    outcomes: tuple[ProbeOutcome, ...]
    gate: tuple[str, ...]

    @property
    def failed(self) -> dict[str, str]:
        """The detail of each probe that failed."""
        return {item.name: item.detail for item in self.outcomes if item.status is Status.FAIL}

    @property
    def found(self) -> dict[str, set[str]]:
        """By probe with out-of-sample findings, in which ways their rows are unlike the samples."""
        return {
            item.name: {str(edge.kind) for finding in item.findings for edge in finding.edges}
            for item in self.outcomes
            if item.findings
        }


class _Reader:
    def __init__(self, samples: Samples) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


class ProbeDesk:
    """Builds models, records references with their probes and asks candidates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def _next(self) -> Path:
        self._made += 1
        path = self._folder / str(self._made)
        path.mkdir()
        return path

    @staticmethod
    def parsed(text: str, weights: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the model of a graph in ONNX's own text form, with these initializers; nothing else is looked at."""
        from onnx import numpy_helper, parser

        model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g ' + text)
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()
        )
        return model

    @classmethod
    def model(cls, text: str, weights: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the same, once it is seen to be a model."""
        import onnx

        model = cls.parsed(text, weights)
        onnx.checker.check_model(model)
        return model

    def runner(self, model: onnx.ModelProto, *, is_optimised: bool = True) -> Runner:
        """Return the model, loaded."""
        import onnx

        folder = self._next()
        onnx.save(model, folder / "model.onnx")
        return open_runner(LoadedModel(ref=parse_source("model.onnx", folder), is_optimised=is_optimised))

    def quantized(self, model: onnx.ModelProto, samples: Samples) -> onnx.ModelProto:
        """Return the model in INT8, calibrated on samples: pairs of QuantizeLinear and DequantizeLinear."""
        import onnx
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        folder = self._next()
        onnx.save(model, folder / "float.onnx")
        quantize_static(
            folder / "float.onnx",
            folder / "int8.onnx",
            _Reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(folder / "int8.onnx")

    def _unclipped(self, model: onnx.ModelProto) -> Callable[[Batch], dict[str, Array] | None]:
        """Return what answers in place of an INT8 model as if its activations had no ranges."""
        import onnx

        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        if not without_ranges(changed):
            return lambda _: None
        runner = self.runner(changed)
        return lambda batch: answer_beyond_ranges(runner.run(fit_inputs(batch, runner.signature)))

    def ask(
        self,
        model: onnx.ModelProto,
        samples: Iterable[dict[str, Array]],
        *,
        dims: Mapping[str, Dim] | None = None,
        declared: Mapping[str, DeclaredRole] | None = None,
        names: Iterable[str] = tuple(PROBES),
        seed: int = 0,
        max_rows: int = 64,
        has_graph: bool = True,
        graph: onnx.ModelProto | None = None,
        allowance: Allowance | None = None,
        change: Callable[[Runner], None] = lambda _: None,
    ) -> Asked:
        """Record the reference on the samples, and its probes; another graph may be looked at than its own.

        `change` is called with the runner before it is asked anything.
        """
        runner, folder = self.runner(model), self._next()
        change(runner)
        (folder / "reference").mkdir()
        (folder / "probes").mkdir()
        samples = list(samples)
        uses = uses_of_inputs(graph or model) if has_graph else None
        pads = {name: use.equals for name, use in (uses or {}).items() if use.equals is not None}
        surveyor = Surveyor(runner.signature, seed=seed, pads=pads)
        recording = record_reference(
            runner,
            lambda: iter(_batches(samples)),
            RecordPlan(folder=folder / "reference", model={}, axes={}),
            watch=lambda batch, inputs, _: surveyor.add(batch, inputs),
        )
        survey = surveyor.finish()
        roles = infer_roles(runner.signature, survey, uses=uses, declared=declared)
        context = ProbeContext(
            signature=runner.signature,
            dims=dims or {},
            roles=roles,
            survey=survey.widened(roles),
            seed=seed,
            max_rows=max_rows,
        )
        plan = ProbePlan(
            context=context,
            profiles=recording.profiles,
            folder=folder / "probes",
            names=tuple(names),
            hangs_on_batch=recording.hangs_on_batch,
            allowance=allowance,
        )
        record_probes(runner, plan)
        probes = ProbesRecording.load(folder / "probes")
        return Asked(runner=runner, recording=recording, probes=probes, context=context, samples=samples)

    def answer(
        self,
        asked: Asked,
        candidate: onnx.ModelProto,
        *,
        precision: str = "fp32",
        decisions: tuple[Decision, ...] = (),
        argmax_of: Mapping[str, str] | None = None,
        runtime: str = "",
        edge: str = "fail",
    ) -> Answered:
        """Ask a candidate the probes, at the edge as well by default, and hold it to the plain samples."""
        kind = Precision(precision)
        is_int8 = kind is Precision.INT8
        question = ProbeQuestion(
            rules=GateRules(
                tolerance=parse_tolerance(kind, {}),
                decisions=decisions,
                argmax_of=argmax_of or {},
                edge=EdgeRule(edge),
            ),
            outputs=tuple(asked.recording.profiles),
            runtime=runtime,
            unclipped=self._unclipped(candidate) if is_int8 else lambda _: None,
        )
        # Without optimisations no integer operator computes an INT8 graph, so that every processor answers alike.
        model = ModelCandidate(self.runner(candidate, is_optimised=not is_int8))
        return Answered(outcomes=run_probes(model, asked.probes, question), gate=_gate(model, asked, question))


def _batches(samples: Samples) -> list[Batch]:
    found, done = [], 0
    for inputs in samples:
        rows = next((len(array) for array in inputs.values() if array.ndim), 1)
        found.append(Batch(inputs=inputs, ids=[str(row) for row in range(done, done + rows)]))
        done += rows
    return found


def _gate(candidate: ModelCandidate, asked: Asked, question: ProbeQuestion) -> tuple[str, ...]:
    profiles = asked.recording.profiles
    limits = {name: limits_for(question.rules.tolerance, profile) for name, profile in profiles.items()}
    plan = ComparisonPlan(profiles=profiles, limits=limits, argmax_of=question.rules.argmax_of)
    comparison = OutputComparison(plan)
    for batch, stored in zip(_batches(asked.samples), asked.recording.batches(), strict=True):
        comparison.add(batch, candidate.answer(batch), stored.outputs)
    comparison.end_pass()
    checks = judge(
        comparison.finish(),
        JudgePlan(
            rules=GateRules(tolerance=question.rules.tolerance, argmax_of=question.rules.argmax_of),
            limits=limits,
            profiles=profiles,
        ),
    )
    return tuple(f"{check.name}: {check.detail}" for check in checks if check.status is Status.FAIL)


@pytest.fixture(scope="session")
def desk_of() -> Callable[[Path], ProbeDesk]:
    """Return how a desk is made that keeps its files in a folder."""
    return ProbeDesk


@pytest.fixture
def desk(tmp_path: Path) -> ProbeDesk:
    """Return a desk that keeps its files in a folder of the test."""
    return ProbeDesk(tmp_path)
