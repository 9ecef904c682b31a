"""`diagnose`: which operators make the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli.options import open_given_run, run_and_root_options, two_file_options
from paritygate.pipelines.cli.output import Output
from paritygate.pipelines.cli.places import OwnPath, WrittenPath, check_suffix

if TYPE_CHECKING:
    from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
    from paritygate.validate.samples.source import SampleSource


@click.command("diagnose")
@click.argument("reference", required=False)
@click.argument("candidate", required=False)
@click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="The inputs, as for `compare`. The batches that differ most are used.",
)
@run_and_root_options
@click.option("--variant", metavar="NAME", help="The variant of --run. It runs on the stored failing inputs.")
@click.option(
    "--export-minimal",
    "minimal",
    type=WrittenPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write two models of at most 10 nodes here that show only the first fault, for a converter's issue tracker.",
)
@click.option("--with-inputs", is_flag=True, help="Store real inputs with --export-minimal instead of random ones.")
@click.option(
    "--report",
    type=OwnPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML page with the places and the graphs of both models here.",
)
@click.option(
    "--node-data",
    type=OwnPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the error of each node of an ONNX candidate as JSON for Model Explorer.",
)
@two_file_options
def command(
    reference: str | None,
    candidate: str | None,
    *,
    samples: str | None,
    run_folder: Path | None,
    variant: str | None,
    minimal: Path | None,
    with_inputs: bool,
    report: Path | None,
    node_data: Path | None,
    read: Callable[[str], SampleSource],
    time_limit_s: float,
    output: Output,
) -> int:
    """Name the operators at which the model CANDIDATE parts from the model REFERENCE.

    Each is a model of ONNX, PyTorch, TensorFlow, OpenVINO or TFLite, or module:callable.
    Inner tensors are matched by their values, so names need not be equal. A place is proven if the outputs agree
    once the reference's values are put there. With --run and --variant, the models are those of a run: its source
    or FP32 export, and the variant. An engine is diagnosed by the ONNX file that it was built from.

    The exit code is 0 if the outputs agree, 1 if they differ, 5 if a model cannot run.

    \b
    Example:
      convert-and-validate diagnose model.onnx model-wrong.onnx \\
        --samples inputs.npz
      convert-and-validate diagnose net:load model.onnx --samples inputs.npz
      convert-and-validate diagnose --variant onnx-int8 \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
    """
    from paritygate.codec import to_data
    from paritygate.pipelines.diagnose.diagnose import diagnose, name_of, request_of
    from paritygate.pipelines.diagnose.explorer import explorer_command, write_node_data
    from paritygate.pipelines.report.divergence_page import write_divergence_page
    from paritygate.pipelines.report.terminal.divergence import print_divergence, print_minimal, print_node_data
    from paritygate.validate.divergence.result import EQUAL

    check_suffix("--report", report, "diagnosis.html")
    if run_folder is None and reference and candidate and samples and not variant:
        request = request_of(reference, candidate, read(samples))
    elif run_folder is not None and variant and not (reference or samples):
        request = _request_of_run(run_folder, variant)
    else:
        msg = "diagnose needs REFERENCE CANDIDATE --samples FILE, or --run DIR --variant NAME (expected one of them)"
        raise UsageError(msg, hint="see convert-and-validate diagnose --help")
    request = _checked(request, minimal, with_inputs=with_inputs, node_data=node_data)
    with output.progress("diagnose") as progress:
        divergence = diagnose(request, progress, time_limit_s=time_limit_s)
    if not output.to_stderr:
        print_divergence(divergence, is_verbose=output.is_verbose)
        print_minimal(divergence.minimal, minimal)
    files = {"reference": name_of(request.reference), "candidate": name_of(request.candidate)}
    if report is not None:
        write_divergence_page(divergence, report, **files)
    if node_data is not None:
        write_node_data(divergence, node_data)
        print_node_data(explorer_command(node_data, request.candidate.path), to_stderr=output.to_stderr)
    output.write({**files, **to_data(divergence)})
    return 0 if divergence.outcome == EQUAL else 1


def _checked(
    request: DiagnosisRequest, minimal: Path | None, *, with_inputs: bool, node_data: Path | None
) -> DiagnosisRequest:
    """Return the request with the folder for minimal models; raise a UsageError if the models or options do not fit."""
    from paritygate.models.source import SourceKind
    from paritygate.pipelines.diagnose.minimal_folder import folder_for_minimal

    # It may be a model that was meant to be read.
    check_suffix("--node-data", node_data, "nodes.json")
    if node_data is not None and request.candidate.kind is not SourceKind.ONNX:
        msg = f"--node-data needs an ONNX candidate, and {request.candidate.name} is not one"
        raise UsageError(msg, hint="name an ONNX file as the candidate")
    if minimal is not None:
        for side in (request.reference, request.candidate):
            if side.kind is not SourceKind.ONNX:
                msg = f"--export-minimal needs two ONNX files, and {side.name} is not one"
                raise UsageError(msg, hint="name the run's onnx-fp32 as the reference, or leave it out")
        return replace(request, minimal=folder_for_minimal(minimal), has_real_inputs=with_inputs)
    if with_inputs:
        raise UsageError("--with-inputs needs --export-minimal", hint="add --export-minimal DIR")
    return request


def _request_of_run(folder: Path, name: str) -> DiagnosisRequest:
    """Return the request for a variant of a run, and print which variants are compared."""
    from paritygate.pipelines.report.terminal.divergence import print_sides
    from paritygate.pipelines.run.diagnosis import FP32_EXPORT, variant_to_diagnose
    from paritygate.validate.measure.check import Verdict

    run = open_given_run(folder, "run")
    evidence = run.evidence()
    entries = {} if evidence is None else {entry.variant: entry for entry in evidence.variants}
    result = entries[name].result if name in entries else None
    export = entries.get(FP32_EXPORT)
    is_right = export is not None and export.verdict == Verdict.PASS
    found = variant_to_diagnose(run, name, result, is_export_right=is_right)
    print_sides(compared_with=found.compared_with, built_from=found.built_from)
    return found.request
