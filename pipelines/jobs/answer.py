"""The job that runs a model in a new process on inputs it had before.

It imports little, because the parent judges the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritygate.batch import Batch
from paritygate.codec import from_data
from paritygate.models.source import ModelRef
from paritygate.pipelines.process.child import Progress
from paritygate.validate.gate.candidate import ModelCandidate, RefusedInputsError
from paritygate.validate.reference.recording import ChunkWriter, read_chunks
from paritygate.validate.runners.onnxruntime_providers import prepare_process
from paritygate.validate.runners.opening import open_model


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Run each batch, and return the digests of the output files and the reasons of refused batches, by case."""
    ref = from_data(ModelRef, args["model"])
    prepare_process(ref.provider)
    report("loading the candidate", 0, 0)
    candidate = ModelCandidate(open_model(ref, args["device"]))
    writer, refused = ChunkWriter(Path(args["answers"])), {}
    rows = 0
    # The smallest batch is the first call: some runtimes accept it only after others.
    for batch_of_file in sorted(read_chunks(Path(args["inputs"]), args["chunks"]), key=lambda batch: batch.rows):
        case = str(batch_of_file.case)
        try:
            answer = candidate.answer(
                Batch(inputs=batch_of_file.outputs, ids=[f"{case}/{row}" for row in range(batch_of_file.rows)])
            )
        except RefusedInputsError as err:
            refused[case] = str(err)
            continue
        outputs = {name: array for name, array in answer.items() if name in args["outputs"]}
        writer.add(outputs, rows=batch_of_file.rows, case=case)
        rows += batch_of_file.rows
        report("answering", rows, 0)
    writer.flush()
    return {"chunks": writer.chunks, "refused": refused}
