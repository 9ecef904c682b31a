"""The job of recording the reference, run in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.files import digest_of_file
from paritygate.models.example import example_of
from paritygate.models.loading import naming_signatures
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.compare.first_rows import HOW_TO_RENAME
from paritygate.pipelines.compare.independent_batch_dims import with_rows_apart
from paritygate.pipelines.compare.probe_recording import Prober
from paritygate.pipelines.compare.probe_request import ProbeRequest
from paritygate.pipelines.process.child import Progress
from paritygate.validate.measure.valid_positions import valid_positions
from paritygate.validate.probes.inputs.survey import SURVEY
from paritygate.validate.probes.recording import PROBES_FILE, PROBES_FOLDER
from paritygate.validate.reference.record import RecordPlan, record_reference
from paritygate.validate.runners.opening import open_model
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.table_check import check_table


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Record and return a summary as JSON data; the recording itself is in the folder."""
    report("loading the source", 0, 0)
    read = open_samples(from_data(SampleSource, args["samples"]))
    source = with_rows_apart(from_data(ModelRef, args["source"]), read)
    # A function does not declare its inputs and outputs.
    is_unknown = source.kind is SourceKind.CALLABLE and source.signature is None
    runner = open_model(source, args["device"], example=example_of(read, None) if is_unknown else None)
    check_table(from_data(SampleSource, args["samples"]), runner.signature.inputs, signature=runner.signature)
    model = {"name": args["name"], **runner.loaded.describe(args["files"])}
    folder = Path(args["folder"])
    probes = from_data(ProbeRequest, args["probes"])
    prober = Prober(runner, probes)
    with naming_signatures(runner.loaded.ref):
        recording = record_reference(
            runner,
            read,
            RecordPlan(
                folder=folder,
                model=model,
                axes=args["axes"],
                is_non_finite_declared=args["is_non_finite_declared"],
                ignored=args["ignored"],
                seed=args["seed"],
                # A recording without a spec renames nothing.
                rename=HOW_TO_RENAME if args["rules_digest"] is not None else "",
                dims=probes.dims,
                positions=valid_positions(args["valid_where"], [runner.signature]),
                activation_floors=prober.activation_floors(),
                padding=prober.padding,
            ),
            progress=lambda rows: report("running the reference", rows, 0),
            watch=prober.watch,
        )
    prober.record(recording, folder / PROBES_FOLDER, report)
    # Ties the probes to these outputs: a folder without them, or with others, is corrupt.
    digest = digest_of_file(folder / PROBES_FOLDER / PROBES_FILE)
    bound = {PROBES_FOLDER: digest, "rules_digest": args["rules_digest"]}
    inputs = {SURVEY: to_data(prober.survey())} if args["surveys_inputs"] else {}
    replace(recording, settings={**recording.settings, **bound, **inputs}).save()
    return {
        "rows": recording.rows,
        "samples_digest": recording.samples_digest,
        "health": [list(item) for item in recording.health],
    }
