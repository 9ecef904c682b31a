"""Fix dims of an OpenVINO model, for devices that compile a model for one shape."""

from __future__ import annotations

import shutil
from typing import Any

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.errors import ConversionError
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.openvino.model import (
    import_openvino,
    openvino_reason,
    openvino_version,
    partial_shape,
    read_openvino,
    served_name,
    settings_file,
    signature_of_openvino,
)

_MAIN = "model.xml"
_TYPES = {"int32": "i32", "float32": "f32"}


def fix(job: ConversionJob, rule: FixedShape) -> Conversion:
    """Write the model as `model.xml` and `model.bin` with the rule's dims fixed, and the settings of its base.

    An input in another dtype is cast back where it enters the graph.

    Raises:
        ConversionError: OpenVINO cannot give the model this shape.
    """
    openvino = import_openvino()
    source, path = job.source.path, job.folder / _MAIN
    model = read_openvino(source)
    ports = {served_name(port): port for port in model.inputs}
    try:
        model.reshape({ports[spec.name]: partial_shape(spec.shape) for spec in rule.fixed_signature.inputs})
        model, notes = _with_dtypes(model, rule)
    except RuntimeError as err:
        msg = f"OpenVINO {openvino_version()} cannot fix {rule}: {openvino_reason(err)}"
        raise ConversionError(msg, hint="fix sizes that the model is made for, or none") from err
    openvino.save_model(model, str(path), compress_to_fp16=False)
    if settings_file(source).is_file():
        shutil.copyfile(settings_file(source), settings_file(path))
    facts = {"openvino": openvino_version()}
    return Conversion(main=_MAIN, signature=signature_of_openvino(model), notes=notes, facts=facts)


def _with_dtypes(model: Any, rule: FixedShape) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401 - openvino.Model
    from openvino import Type
    from openvino.preprocess import PrePostProcessor

    own = {spec.name: spec.dtype for spec in rule.signature.inputs}
    changed = {name: dtype for name, dtype in rule.dtypes.items() if own[name] != dtype}
    if not changed:
        return model, ()
    processor = PrePostProcessor(model)
    for index, port in enumerate(model.inputs):
        name = served_name(port)
        if name in changed:
            processor.input(index).tensor().set_element_type(getattr(Type, _TYPES[changed[name]]))
    notes = (
        f"input {name} is given as {dtype} and cast to {own[name]} in the graph" for name, dtype in changed.items()
    )
    return processor.build(), tuple(notes)
