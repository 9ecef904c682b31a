"""The job of one conversion, run in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.convert.checked import convert_and_check, fix_and_check
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.engine.settings import EngineSettings
from paritygate.errors import UsageError
from paritygate.formats import ENGINE_FORMATS
from paritygate.models.declaration import declaration_of
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.loading import load_model, naming_signatures
from paritygate.models.source import OF_TORCH, ModelRef, SourceKind, check_is_no_function
from paritygate.models.torch.module import tensors_of
from paritygate.pipelines.calibration.calibration import (
    CalibrationRequest,
    OpenCalibration,
    note_of_calibration,
    open_calibration,
)
from paritygate.pipelines.calibration.rows import keep_calibrated_rows
from paritygate.pipelines.compare.first_rows import (
    HOW_TO_RENAME,
    FirstRows,
    check_declared_outputs,
    first_rows,
    readable_batches,
)
from paritygate.pipelines.compare.independent_batch_dims import with_rows_apart
from paritygate.pipelines.jobs.dim_ties import SizesSeen
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.accepted import with_accepted_repair
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.table_check import check_table

if TYPE_CHECKING:
    import torch


def run(args: Mapping[str, Any], report: Progress) -> dict[str, Any]:
    """Convert, and return the description of the artifact as JSON data."""
    report("loading the source", 0, 0)
    source = from_data(ModelRef, args["source"])
    if args["samples"] is not None:
        source = with_rows_apart(source, lambda: readable_batches(from_data(SampleSource, args["samples"])))
    loaded = load_model(source)
    ref = loaded.ref
    check_is_no_function(ref)
    # Before it runs, as in the recording: a model may keep state in its buffers.
    digest = loaded.describe()["digest"]
    signature = ref.signature
    opened = None
    if args["calibration"] is not None and signature is not None:
        report("choosing the calibration rows", 0, 0)
        opened = open_calibration(from_data(CalibrationRequest, args["calibration"]), signature)
    first = FirstRows()
    if args["samples"] is not None:
        samples = from_data(SampleSource, args["samples"])
        known_signature = signature or loaded.signature_said()
        check_table(samples, () if known_signature is None else known_signature.inputs, signature=known_signature)
        first = first_rows(samples)
    ties: dict[str, str] = args["ties"]
    checked = None
    if not args["is_fit_known"]:
        checked = signature or loaded.signature_said()
        with naming_signatures(ref):
            ties = _check_fit(args, checked, report)
        if signature is not None and first.batch is not None and first.batch.rows:
            report("running the source on the first rows", 0, 0)
            check_declared_outputs(loaded, signature, first.batch)
    # Models converted from these kinds run next to them, at the declared sizes.
    is_tried = ref.kind in OF_TORCH
    if signature is None and ref.kind is SourceKind.TORCH:
        raise _undeclared(ref.text, _declaration(loaded.model, args))
    report(f"converting {ref.kind} to {args['format']}", 0, 0)
    job = ConversionJob(
        source=ref,
        model=loaded.model,
        folder=Path(args["folder"]),
        signature=signature,
        rename=ref.rename,
        opset=args["opset"],
        precision=Precision(args["precision"]),
        files=tuple(args["files"]),
        engine=from_data(EngineSettings, args["engine"]),
        calibration=opened.calibration if opened is not None else None,
        rows=first.inputs if is_tried else {},
        ties=ties if is_tried else {},
        exporter=args["exporter"],
    )
    conversion = _conversion(job, args, opened, report)
    if args["repair"] is not None:
        conversion = with_accepted_repair(job, conversion, args["repair"], source, first.inputs)
    if args["fixed_shape"] is not None or args["format"] in ENGINE_FORMATS:
        # The calibration rows of its base are its own.
        keep_calibrated_rows(ref.folder, job.folder)
    if opened is not None and opened.rows is not None:
        opened.rows.save(job.folder)
    note = note_of_calibration(conversion.facts)
    return {
        "main": conversion.main,
        "signature": to_data(_with_dims(conversion.signature, args["dims"])),
        "notes": [*conversion.notes, *(text for text in (note, first.note if is_tried else None) if text)],
        "facts": dict(conversion.facts),
        "source": {**loaded.describe(args["files"]), "digest": digest},
        "ties": ties,
        "checked": None if checked is None else to_data(checked),
    }


def _conversion(
    job: ConversionJob, args: Mapping[str, Any], opened: OpenCalibration | None, report: Progress
) -> Conversion:
    if args["mixed"] is not None and opened is not None:
        from paritygate.pipelines.repair.convert import convert_mixed
        from paritygate.pipelines.repair.mixer import MixedRequest

        return convert_mixed(job, args["format"], from_data(MixedRequest, args["mixed"]), opened, report)
    if args["fixed_shape"] is None:
        return convert_and_check(job, args["format"])
    return fix_and_check(job, args["format"], from_data(FixedShape, args["fixed_shape"]))


def _check_fit(args: Mapping[str, Any], signature: Signature | None, report: Progress) -> dict[str, str]:
    """Check that the source has the outputs in the spec and accepts all samples, and return ties of symbolic dims."""
    # A conversion of an artifact needs no spec, whose import takes half a second.
    from paritygate.pipelines.spec.checks import check_output_uses
    from paritygate.pipelines.spec.schema import ResolvedSpec, Spec

    resolved = ResolvedSpec(spec=Spec.model_validate(args["spec"]), folder=Path(args["place"]), origin=args["origin"])
    check_output_uses(resolved, signature)
    if signature is None:
        return {}
    takes = _with_dims(signature, args["dims"])
    seen = SizesSeen(takes)
    rows = 0
    for batch in readable_batches(from_data(SampleSource, args["samples"])):
        if batch.rows:
            check_shapes(batch, fit_inputs(batch, takes, rename=HOW_TO_RENAME), takes)
            seen.add(batch)
        rows += batch.rows
        report("reading the samples", rows, 0)
    return seen.ties()


def _declaration(model: torch.nn.Module, args: Mapping[str, Any]) -> str:
    samples = args["samples"]
    return declaration_of(
        tensors_of(model), () if samples is None else readable_batches(from_data(SampleSource, samples))
    )


def _undeclared(name: str, declaration: str) -> UsageError:
    msg = f"the inputs and outputs of {name}, a PyTorch module, are unknown"
    if not declaration:
        return UsageError(msg, hint="declare model.inputs and model.outputs in the spec")
    return UsageError(
        msg,
        hint=(
            "add this below model: in the spec, as in all rows of the samples. Name every dim that needs other "
            f"sizes too, such as sequence{declaration}"
        ),
    )


def _with_dims(signature: Signature, declared: Mapping[str, Mapping[str, int]]) -> Signature:
    tensors = (*signature.inputs, *signature.outputs)
    has_nameless = any(spec.shape is None or None in spec.shape for spec in tensors)
    for name in declared:
        if name not in signature.symbols and not has_nameless:
            msg = f"model.dims names {name!r}, which no input or output has"
            raise UsageError(msg, hint=f"symbolic dims are: {', '.join(signature.symbols) or 'none'}")
    dims = {name: Dim(**sizes) for name, sizes in declared.items() if name in signature.symbols}
    return replace(signature, dims={**signature.dims, **dims})
