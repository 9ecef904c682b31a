"""Convert TorchScript to ONNX with PyTorch's legacy exporter.

It is deprecated. But the exporter on top of torch.export does not accept TorchScript, whose file has no Python code to
export instead. The legacy one also exports modules that the other refuses.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.convert.contract import notes_left_out
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.error_origin import one_line
from paritygate.convert.onnx.operators import unsupported_operators
from paritygate.convert.torch.onnx_file import finished, neutral_names
from paritygate.convert.torch.shape_check import check_all_sizes, module_call, onnx_call
from paritygate.convert.torch.torch_to_torchscript import traced
from paritygate.errors import ConversionError, ParitygateError
from paritygate.models.torch.archive import names_in_archive
from paritygate.models.torch.module import put_in_eval_mode, unused_outputs
from paritygate.models.torch.names import KnownNames, named_file
from paritygate.models.torch.torchscript_file import load_torchscript, notes_of, taking_its_names

if TYPE_CHECKING:
    import torch

    from paritygate.signature import Signature

_MAIN = "model.onnx"
_OPSET = 18


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.onnx`.

    The exporter names inputs and outputs only by order. So the model is wrapped into one that takes and returns exactly
    the tensors of the signature, and the written file is compared with it.
    """
    for backend in ("torch", "onnxscript", "onnxruntime"):
        require_backend(backend)
    source = job.source.path
    module = load_torchscript(source)
    eval_note = put_in_eval_mode(module)
    file_names = KnownNames(file=source, said=names_in_archive(source), declared=job.signature, rename=job.rename)
    named, signature = named_file(taking_its_names(module), file_names)
    # A Python wrapper around TorchScript cannot be exported, but traced, both are TorchScript.
    script, arrays, _ = traced(named, signature, job.rows, job.ties)
    path = job.folder / _MAIN
    export_script(script, arrays, signature, job.opset, path)
    notes = (*notes_of(module), eval_note, *notes_left_out(unused_outputs(named)))
    conversion = finished(path, signature, job.opset, notes)
    check_all_sizes(onnx_call(path, signature), signature, expected=module_call(named), rows=job.rows, ties=job.ties)
    return conversion


def export_script(
    script: Any,  # noqa: ANN401 - torch does not type a ScriptModule
    arrays: tuple[torch.Tensor, ...],
    signature: Signature,
    asked_opset: int | None,
    path: Path,
) -> None:
    """Write TorchScript to `path`, its inputs and outputs under neutral names.

    A module is traced with `arrays`. It takes and returns the tensors of the signature in its order; further outputs
    are left out.

    Raises:
        ConversionError: It cannot be exported; UnsupportedOperatorsError if an operator is the cause.
    """
    import torch

    opset = asked_opset or _OPSET
    inputs, outputs = neutral_names(signature)

    def export(module: Any) -> None:  # noqa: ANN401 - a ScriptModule
        with warnings.catch_warnings():
            # The module's docstring explains the deprecation.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                arrays,
                str(path),
                dynamo=False,
                input_names=inputs,
                output_names=outputs,
                dynamic_axes=dict(zip((*inputs, *outputs), _open_dims(signature), strict=True)),
                opset_version=opset,
            )

    try:
        try:
            export(script)
        except torch.onnx.errors.UnsupportedOperatorError:
            export(_with_plain_names(script))
    except ParitygateError:
        raise
    except torch.onnx.errors.UnsupportedOperatorError as err:
        row = (_operator(err), "(unnamed)", one_line(err), "write it with operators that ONNX has")
        raise unsupported_operators([row], target="ONNX") from err
    except Exception as err:
        raise _refused(err, opset) from err
    _leave_out_outputs_after(len(outputs), path)


def _leave_out_outputs_after(count: int, path: Path) -> None:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    if len(model.graph.output) > count:
        del model.graph.output[count:]
        path.write_bytes(model.SerializeToString())


def _refused(err: Exception, opset: int) -> ConversionError:
    if "opset" in str(err):
        msg = f"torch.onnx's legacy exporter cannot write opset {opset}: {one_line(err)}"
        return ConversionError(msg, hint=f"set opset {_OPSET}, or leave it out")
    msg = f"torch.onnx's legacy exporter cannot write the model: {type(err).__name__}: {one_line(err)}"
    hint = "remove model.exporter, because another may work; for a file, give its module as model.source"
    return ConversionError(msg, hint=hint)


def _operator(err: Exception) -> str:
    words = str(err).replace("'", " ").split()
    return next((word for word in words if "::" in word), "(unknown)")


def _with_plain_names(script: Any) -> Any:  # noqa: ANN401 - a ScriptModule
    """Return the module with one name for each operator, as PyTorch reads it from a file.

    Inside a traced module, an operator keeps its name in the code, such as `concat` for `cat`, but the exporter has
    only one.
    """
    import torch

    stream = io.BytesIO()
    torch.jit.save(script, stream)
    stream.seek(0)
    return torch.jit.load(stream)  # type: ignore[no-untyped-call]


def _open_dims(signature: Signature) -> Iterator[dict[int, str]]:
    for spec in (*signature.inputs, *signature.outputs):
        yield {axis: dim for axis, dim in enumerate(spec.shape or ()) if isinstance(dim, str)}
