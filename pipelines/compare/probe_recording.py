"""Record the reference's outputs for the probes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import InputFileError, ParitygateError
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.probe_request import Graph, ProbeRequest
from paritygate.pipelines.process.child import Progress
from paritygate.signature import Signature
from paritygate.validate.measure.valid_positions import PaddingMask
from paritygate.validate.probes.catalogue import to_record
from paritygate.validate.probes.graph.activations import activation_floors
from paritygate.validate.probes.graph.uses import GraphUse, uses_of_inputs
from paritygate.validate.probes.input_stats import Surveyor
from paritygate.validate.probes.inputs.probe import ProbeContext
from paritygate.validate.probes.inputs.roles import InputRole
from paritygate.validate.probes.inputs.survey import StoredSurvey, Survey
from paritygate.validate.probes.probe_budget import Allowance, SamplesCost
from paritygate.validate.probes.record import ProbePlan, record_probes
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.probes.role_inference import infer_roles
from paritygate.validate.probes.undeclared_padding import padding_masks, unread_by
from paritygate.validate.reference.recorded import padding_of, positions_of
from paritygate.validate.runners.opening import open_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.reference.recording import Recording
    from paritygate.validate.runners.runner import Runner

# Rows of a probe: a share of the samples, within these bounds.
_LEAST_ROWS = 64
_MOST_ROWS = 512
_SHARE = 8


class Prober:
    """Watches the reference run on the samples, and then runs it on the probes."""

    def __init__(self, runner: Runner, request: ProbeRequest) -> None:
        self._runner = runner
        self._request = request
        self._uses = _uses(request.graph)
        # The padding id where no mask shows padding.
        pads = {name: use.equals for name, use in self._uses.items() if use.equals is not None}
        pads |= {name: role.pad for name, role in request.roles.items() if role.pad is not None}
        self._surveyor = Surveyor(runner.signature, seed=request.seed, pads=pads)
        self._seconds = 0.0

    def watch(self, batch: Batch, inputs: Mapping[str, NDArray[np.generic]], seconds: float) -> None:
        """Add one batch of the samples, and the reference's CPU seconds."""
        self._surveyor.add(batch, inputs)
        self._seconds += seconds

    def survey(self) -> StoredSurvey:
        """Return the survey of the samples, for a release."""
        return self._surveyor.finish().stored()

    def _inferred(self) -> tuple[Survey, dict[str, InputRole]]:
        """Return the survey of the samples, and the role of each input."""
        survey = self._surveyor.finish()
        return survey, infer_roles(self._runner.signature, survey, uses=self._uses, declared=self._request.roles)

    def padding(self, signatures: Sequence[Signature | None] = ()) -> dict[str, PaddingMask]:
        """Return undeclared masks of padding by output, after all samples; `signatures` also name dims of outputs."""
        is_declared = any(role.empty is False for role in self._request.roles.values())
        if not self._uses and not is_declared:
            return {}
        survey, roles = self._inferred()
        masks = padding_masks(self._runner.signature, survey, roles, self._uses, others=signatures)
        return unread_by(self._runner, survey, roles, masks) if masks else {}

    def activation_floors(self) -> dict[str, NDArray[np.float64]]:
        """Return by output how far implementations of its last operator differ, by the graph."""
        return {} if self._request.graph is None else floors_of_graph(self._request.graph)

    def record(self, recording: Recording, folder: Path, report: Progress) -> ProbesRecording:
        """Run the reference on the probes, and store its outputs in the new `folder`."""
        request = self._request
        survey, roles = self._inferred()
        folder.mkdir()
        context = ProbeContext(
            signature=self._runner.signature,
            dims=request.dims,
            roles=roles,
            survey=survey.widened(roles),
            seed=request.seed,
            max_rows=max(_LEAST_ROWS, min(_MOST_ROWS, survey.rows // _SHARE)),
        )
        with contextlib.ExitStack() as opened:
            plan = ProbePlan(
                context=context,
                profiles=recording.profiles,
                folder=folder,
                names=to_record(request.names),
                is_non_finite_declared=recording.settings.get("non_finite") == "match",
                positions=positions_of(recording),
                padding=padding_of(recording),
                hangs_on_batch=recording.hangs_on_batch,
                allowance=Allowance(
                    SamplesCost(
                        rows=survey.rows,
                        values=sum(seen.values for seen in survey.inputs.values()),
                        seconds=self._seconds,
                    )
                ),
                chooses=any(use.chooses for use in self._uses.values()),
                otherwise=functools.cache(lambda: tuple(_opened_otherwise(self._runner, opened))),
            )
            return record_probes(
                self._runner, plan, progress=lambda name, rows: report(f"running the reference: probe {name}", rows, 0)
            )


def _opened_otherwise(runner: Runner, opened: contextlib.ExitStack) -> Iterator[Runner]:
    """Yield the same model on one thread, and without graph optimisations, where it runs so."""
    one_thread = runner.on_one_thread()
    # Skip a model that cannot be loaded again.
    with contextlib.suppress(ParitygateError):
        if not isinstance(one_thread, str):
            yield opened.enter_context(one_thread)
    if runner.loaded.ref.kind is SourceKind.ONNX and runner.loaded.device == "cpu":
        with contextlib.suppress(ParitygateError):
            yield open_model(runner.loaded.ref, runner.loaded.device, is_optimised=False)


def floors_of_graph(graph: Graph) -> dict[str, NDArray[np.float64]]:
    """Return by served output how far implementations of its last operator differ."""
    from paritygate.models.onnx.file import read_onnx

    try:
        floors = activation_floors(read_onnx(graph.path))
    except InputFileError:
        # Without the graph, no output has more than its steps.
        return {}
    return {graph.rename.get(name, name): floor for name, floor in floors.items()}


def _uses(graph: Graph | None) -> dict[str, GraphUse]:
    if graph is None:
        return {}
    from paritygate.models.onnx.file import read_onnx

    try:
        uses = uses_of_inputs(read_onnx(graph.path))
    except InputFileError:
        # Without the graph, values and names of inputs show their roles.
        return {}
    return {graph.rename.get(name, name): use for name, use in uses.items()}
