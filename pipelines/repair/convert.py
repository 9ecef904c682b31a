"""Convert an FP32 ONNX artifact to mixed precision: search, convert, prove, and record why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import NotAvailableError, UnrepairedError, UsageError
from paritygate.files import MARKER, temporary_folder
from paritygate.formats import FORMATS
from paritygate.models.digest import files_of_model
from paritygate.models.onnx.file import read_onnx
from paritygate.models.source import ModelRef
from paritygate.pipelines.calibration.calibration import OpenCalibration
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.lowering import LoweredModel, open_fp16, open_int8
from paritygate.pipelines.repair.mixer import MixedRequest, Mixer
from paritygate.pipelines.repair.result import named_operators
from paritygate.pipelines.repair.rows import divided, halves
from paritygate.precision import Precision
from paritygate.text import counted

if TYPE_CHECKING:
    from paritygate.pipelines.repair.result import Repair

_HINT = "serve the FP32 variant, or declare a limit that your service accepts"


def convert_mixed(
    job: ConversionJob, target_format: str, request: MixedRequest, opened: OpenCalibration, report: Progress
) -> Conversion:
    """Write the mixed model and `repair.json` into the job's folder, and return the conversion.

    The search and the check of its result use the rows of `opened`, none of which the variant is compared on.

    Raises:
        UnrepairedError: No set of operators is within the limits and saves anything.
        ConversionError: The model cannot be converted to the lower precision.
    """
    if opened.rows is None or job.source.signature is None:
        msg = "a search needs rows of the samples, but calibration.method dynamic uses none"
        raise UsageError(msg, hint="leave calibration.method out, or name another one")
    job = replace(job, lower=request.lower)
    searching, batches = _searching(job, list(opened.batches()))
    with temporary_folder("repair") as place:
        report("opening the switchable model", 0, 0)
        request = replace(request, judged_rows=opened.judged)
        mixer = Mixer(_open(searching, place), divided(batches), request, place, report)
        mixer.choose()
        conversion, file = _converted(job, mixer, target_format)
        while not mixer.proves(file):
            mixer.grow()
            _clear(job.folder)
            conversion, file = _converted(job, mixer, target_format)
        sizes = {"file_bytes": _bytes_of(file), "fp32_bytes": _bytes_of(job.source)}
        repair = mixer.repair(opened.rows, **sizes)
    if not repair.is_smaller_or_faster:
        msg = f"unrepaired: with {_kept(repair)} in fp32, the model is neither smaller nor faster than in fp32"
        raise UnrepairedError(msg, hint=_HINT)
    named = {node.name for node in read_onnx(job.source.path).graph.node}
    repair = replace(repair, names_in_file=named.issuperset(repair.nodes_to_exclude))
    repair.save(job.folder)
    rows = counted(repair.searched.rows + repair.checked.rows, "row")
    found = f"found in {counted(repair.runs, 'run')} on {rows}, by which it is not judged"
    note = f"{_kept(repair)} of {repair.switches} kept in fp32 ({named_operators(to_data(repair.kept))}), {found}"
    facts = {**conversion.facts, "repair": {**to_data(repair), **repair.for_other_tools}}
    return replace(conversion, notes=(*conversion.notes, note), facts=facts)


def _searching(job: ConversionJob, batches: list[Batch]) -> tuple[ConversionJob, list[Batch]]:
    """Return the job and the rows of the search: for INT8, others than those that its ranges are chosen by.

    The final file has ranges of all these rows, so that fewer values of later ones are cut off.
    """
    calibration = job.calibration
    if job.lower is not Precision.INT8 or calibration is None:
        return job, batches
    calibrating, others = halves(batches)
    half = replace(calibration, read=lambda: (batch.inputs for batch in calibrating))
    return replace(job, calibration=half), others


def _open(job: ConversionJob, place: Path) -> LoweredModel:
    signature = job.source.signature
    assert signature is not None  # noqa: S101 - checked before
    if job.lower is Precision.INT8:
        folder = place / "quantized"
        folder.mkdir()
        return open_int8(job, signature, folder)
    return open_fp16(job.source.path, signature)


def _converted(job: ConversionJob, mixer: Mixer, target_format: str) -> tuple[Conversion, ModelRef]:
    try:
        conversion = convert_and_check(replace(job, kept=mixer.reasons()), target_format)
    except NotAvailableError as err:
        if not mixer.kept:
            raise
        msg = f"unrepaired: {err}"
        raise UnrepairedError(msg, hint=_HINT) from err
    kind = FORMATS[target_format].kind
    return conversion, ModelRef(text=conversion.main, folder=job.folder, kind=kind, name=f"{target_format}-mixed")


def _bytes_of(model: ModelRef) -> int:
    return sum(path.stat().st_size for path in files_of_model(model).values())


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != MARKER:
            path.unlink()


def _kept(repair: Repair) -> str:
    return counted(len(repair.kept), "operator")
