"""The job of searching changes of a converted file, run in a child process: a model may end the process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.convert.onnx.changes import change, read_to_change
from paritygate.convert.onnx.check_onnx import load_in_onnxruntime
from paritygate.convert.onnx.rewrite import save_onnx
from paritygate.errors import UsageError
from paritygate.models.onnx.file import external_files
from paritygate.pipelines.calibration.calibration import open_calibration
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.proposal_request import ProposalRequest
from paritygate.pipelines.repair.proposals import Proposer
from paritygate.validate.tensors.onnx_values import tensor_graph_of
from paritygate.validate.tensors.opening import open_graphs


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Search the changes, write the changed file and the digests of the rows, and return the proposal as JSON data."""
    request = from_data(ProposalRequest, args)
    signature = request.candidate.signature
    if signature is None:
        msg = f"the inputs of {request.candidate.text} are not known"
        raise UsageError(msg, hint="export it again", command="convert-and-validate run SPEC")
    report("choosing the rows of the search", 0, 0)
    opened = open_calibration(request.rows, signature)
    own = {served: name for name, served in request.rename.items()}
    feeds = [{own.get(name, name): array for name, array in batch.inputs.items()} for batch in opened.batches()]
    report("matching inner tensors", 0, 0)
    reference, _ = open_graphs(request.reference, request.candidate, feeds)
    path = request.candidate.path
    model = read_to_change(path)
    proposer = Proposer(model, tensor_graph_of(model, path, reference.meter), reference, feeds)
    proposal = proposer.propose(report)
    if len(proposal.changes):
        changed = read_to_change(path)
        change(changed, proposal.changes, proposer.origin)
        for name in external_files(changed):
            target = request.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path.parent / name, target)
        save_onnx(changed, request.folder / path.name)
        load_in_onnxruntime(request.folder / path.name)
    if opened.rows is not None:
        opened.rows.save(request.folder)
    return {**to_data(proposal), "rows": opened.calibration.facts}
