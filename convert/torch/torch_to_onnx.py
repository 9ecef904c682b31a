"""Convert PyTorch to ONNX with the first of torch.onnx's exporters whose file gives the module's outputs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.backends import require_backend
from paritygate.convert.contract import as_promised, notes_left_out
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.rewrite import EXTERNAL_DATA_BYTES
from paritygate.convert.torch.branches import branching_sizes
from paritygate.convert.torch.export_errors import ModuleError, export_by_dynamo
from paritygate.convert.torch.exportable import plain_settings, plainly_computed, with_packed_outputs, without_fast_path
from paritygate.convert.torch.onnx_file import finished, neutral_names
from paritygate.convert.torch.program import check_ranges, declared_signature, example, refuse_script_module, tied_dims
from paritygate.convert.torch.shape_check import check_all_sizes, module_call, onnx_call
from paritygate.convert.torch.sizes import example_sizes
from paritygate.convert.torch.torch_to_torchscript import traced, tracing
from paritygate.convert.torch.torchscript_to_onnx import export_script
from paritygate.errors import ConversionError, UnsupportedOperatorsError
from paritygate.files import MARKER
from paritygate.models.torch.module import as_named_module, put_in_eval_mode, unused_outputs
from paritygate.signature import Signature

if TYPE_CHECKING:
    import torch

_MAIN = "model.onnx"
_ASIDE = ".aside"
_FAR = "its outputs differ from the module's, on real rows where there are any"
# The exporter writes it directly; any other opset needs a conversion that may fail silently.
_OPSET = 18
# No runtime here computes in it, either.
_NOT_IN_NUMPY = "bfloat16"
# A trace has no comparison of sizes, so it is tried at sizes where modules often branch.
_SIZES_OF_TRACES = (2, 3, 5)


def convert(job: ConversionJob) -> Conversion:
    """Write the module as `model.onnx`, its weights beside it only where one file cannot hold them.

    The exporters are tried in an expert's order. First comes the one on top of torch.export, then the same with
    attention of transformers written out (which rounds differently), then that of TorchScript. A file with very
    different outputs for real rows at its trace's sizes is only used if no other exporter does better. The gate decides
    whether that is rounding. The facts name the exporter of the file, and why earlier ones failed. The module is put
    into eval mode, with a note.
    """
    for backend in ("torch", "onnxscript", "onnxruntime"):
        require_backend(backend)
    signature = declared_signature(job)
    eval_note = put_in_eval_mode(job.model)
    module = _Module(job=job, signature=signature, named=as_named_module(job.model, signature, job.rename))
    failed: list[tuple[str, ConversionError]] = []
    far: tuple[str, Conversion] | None = None
    for exporter, attempt in _attempts(module):
        try:
            conversion, is_near = attempt()
        except ModuleError:
            raise
        except ConversionError as err:
            failed.append((exporter, err))
            _empty(job.folder)
            continue
        if is_near:
            _empty(job.folder / _ASIDE)
            return _with_attempts(conversion, exporter, failed, eval_note)
        failed.append((exporter, ConversionError(_FAR, hint="compare the file with the module")))
        if far is None:
            far = exporter, conversion
            _move(job.folder, job.folder / _ASIDE)
        _empty(job.folder)
    if far is None:
        raise _none_converts(failed)
    exporter, conversion = far
    _move(job.folder / _ASIDE, job.folder)
    return _with_attempts(conversion, exporter, [item for item in failed if item[0] != exporter], eval_note)


class _Module(Struct, kw_only=True):
    """The module to export, and sizes at which it may branch, which one attempt finds for the next."""

    job: ConversionJob
    signature: Signature
    named: torch.nn.Module  # of the tensors of the signature, in its order
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)


# A conversion, and whether it gives the module's outputs at the trace's sizes.
_Attempt = Callable[[], tuple[Conversion, bool]]


def _attempts(module: _Module) -> Iterator[tuple[str, _Attempt]]:
    if module.job.exporter in {None, "dynamo"}:
        yield "dynamo", partial(_by_dynamo, module)
        settings = plain_settings(module.job.model)
        if settings:
            settings_text = ", ".join(f'{name}="{value}"' for name, value in settings.items())
            yield f"dynamo with {settings_text}", partial(_by_dynamo, module, is_plain=True)
    if module.job.exporter in {None, "torchscript"}:
        yield "torchscript", partial(_by_torchscript, module)


def _by_dynamo(module: _Module, *, is_plain: bool = False) -> tuple[Conversion, bool]:
    job, signature = module.job, module.signature
    refuse_script_module(job.model)
    if is_plain:
        with plainly_computed(job.model):
            program = _export(module)
    else:
        program = _export(module)
    exported = program.exported_program
    usual = example_sizes(signature, job.ties)
    module.sizes |= branching_sizes(exported, signature.inputs, signature.dims, usual=usual)
    check_ranges(exported, signature.inputs, signature.dims, ties=job.ties)
    program.save(str(job.folder / _MAIN), external_data=_weight_bytes(job.model) >= EXTERNAL_DATA_BYTES)
    ties = {**tied_dims(exported, signature.inputs), **job.ties}
    # They hold a copy of the weights.
    del program, exported
    return _checked(module, (), ties)


def _by_torchscript(module: _Module) -> tuple[Conversion, bool]:
    job, signature = module.job, module.signature
    named = with_packed_outputs(module.named)
    with without_fast_path():
        script, arrays, traces = traced(named, signature, job.rows, job.ties)
        _export_traced(script, named, arrays, module)
    del script
    for name in signature.symbols:
        promised = signature.dims.get(name)
        more = (size for size in _SIZES_OF_TRACES if promised is None or promised.min <= size <= promised.max)
        module.sizes[name] = tuple(sorted({*module.sizes.get(name, ()), *more}))
    return _checked(module, (_fixed_note(traces),), job.ties)


def _export_traced(
    script: Any,  # noqa: ANN401 - torch does not type a ScriptModule
    named: torch.nn.Module,
    arrays: tuple[torch.Tensor, ...],
    module: _Module,
) -> None:
    """Write the trace; if the exporter does not accept it, let it trace the module itself."""
    import torch

    export = partial(export_script, path=module.job.folder / _MAIN)
    try:
        export(script, arrays, module.signature, module.job.opset)
    except ConversionError as err:
        if not isinstance(err.__cause__, torch.onnx.errors.SymbolicValueError):
            raise
        # A trace lacks ranks of inner values, which some operators need.
        with tracing():
            export(named, arrays, module.signature, module.job.opset)


def _checked(module: _Module, notes: Sequence[str | None], ties: Mapping[str, str]) -> tuple[Conversion, bool]:
    """Return the file's conversion, once it gives the outputs of the module itself, not of its trace."""
    job, signature = module.job, module.signature
    path = job.folder / _MAIN
    notes = (*notes_left_out(unused_outputs(module.named)), *notes)
    conversion = finished(path, signature, job.opset, notes, ties)
    # The file's dims first, because they show the cause, then the outputs.
    as_promised(job, conversion, conversion.signature, {}, keeps_names=True, ties=job.ties)
    # Exporters treat 1 like any other size, and trace one branch on a size.
    if not signature.symbols or _NOT_IN_NUMPY in {spec.dtype for spec in (*signature.inputs, *signature.outputs)}:
        return conversion, True
    answered = check_all_sizes(
        onnx_call(path, signature),
        signature,
        expected=module_call(module.named),
        is_other_runtime=True,
        is_module=True,
        other_sizes=module.sizes,
        rows=job.rows,
        ties=job.ties,
    )
    return replace(conversion, notes=(*conversion.notes, *answered.notes)), answered.is_near


def _with_attempts(
    conversion: Conversion, exporter: str, failed: Sequence[tuple[str, ConversionError]], eval_note: str | None
) -> Conversion:
    facts: dict[str, Any] = {**conversion.facts, "exporter": exporter}
    notes = [eval_note] if eval_note else []
    if failed:
        attempts = [{"exporter": name, "said": _said(err)} for name, err in failed]
        facts["attempts"] = [*attempts, {"exporter": exporter, "said": "converted"}]
        why = "; ".join(f"{attempt['exporter']} did not convert it: {attempt['said']}" for attempt in attempts)
        notes.append(f"exported by {exporter}; {why}")
    return replace(conversion, facts=facts, notes=(*notes, *conversion.notes))


def _said(err: ConversionError) -> str:
    """Return the first sentence of an exporter's message, without the folders of this machine."""
    sentence = re.split(r"(?<=[.!?]) ", " ".join(str(err).split()), maxsplit=1)[0]
    return re.sub(r"(?<![\w.])/(?:[^\s/:'\"]+/)+", "", sentence)


def _none_converts(failed: Sequence[tuple[str, ConversionError]]) -> ConversionError:
    """Return the error of the first exporter, the most informative, with the messages of the others."""
    (_, first), *others = failed
    if not others:
        return first
    msg = "; ".join([str(first), *(f"{exporter}: {' '.join(str(err).split())}" for exporter, err in others)])
    if isinstance(first, UnsupportedOperatorsError):
        return UnsupportedOperatorsError(msg, rows=first.rows, hint=first.hint)
    return ConversionError(msg, hint=first.hint)


def _fixed_note(traces: Sequence[str]) -> str | None:
    """Return the tracer's warnings, each `torch.jit.trace at FILE:LINE: ...`, in one line."""
    places = [note.removeprefix("torch.jit.trace at ").partition(": ")[0] for note in traces]
    return f"values that Python computes at {', '.join(places)} are constants of the trace" if places else None


def _empty(folder: Path) -> None:
    """Remove the files of an attempt, except those set aside; the folder itself if it is theirs."""
    if folder.name == _ASIDE:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and path.name != _ASIDE:
            shutil.rmtree(path)
        elif path.is_file() and path.name != MARKER:
            path.unlink()


def _move(folder: Path, to: Path) -> None:
    """Move the files of an attempt to another folder."""
    to.mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        if path.name not in {MARKER, _ASIDE}:
            path.rename(to / path.name)
    if folder.name == _ASIDE:
        folder.rmdir()


def _weight_bytes(module: torch.nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))


def _export(module: _Module) -> Any:  # noqa: ANN401 - an ONNXProgram, which is not public
    arrays, shapes = example(module.named, module.signature, module.job.ties)
    inputs, outputs = neutral_names(module.signature)
    names = {"input_names": inputs, "output_names": outputs, "opset_version": module.job.opset or _OPSET}
    return export_by_dynamo(module.named, arrays, dynamic_shapes=(shapes,), **names)
