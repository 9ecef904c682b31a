"""Load a Keras 3 model safely, infer its names, and call it by the names of a signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paritygate.errors import InputFileError, UsageError
from paritygate.models.declaration import Answer
from paritygate.models.example import Example, signature_seen
from paritygate.models.named_call import (
    check_rename,
    default_output_names,
    is_default_output_name,
    outputs_by_name,
    select_outputs,
    source_names,
)
from paritygate.models.tensorflow.importing import import_keras
from paritygate.signature import Signature, TensorSpec, name_unknown_dims
from paritygate.text import a_or_an


def load_keras_file(path: Path) -> Any:  # noqa: ANN401 - a keras.Model, and Keras has no types
    """Return the model in a `.keras` file, not compiled for training; no code in it is run.

    Raises:
        InputFileError: The file is corrupt, or holds Python code or layers that are not Keras's own.
    """
    keras = import_keras()
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as err:
        text = " ".join(str(err).split())
        if "lambda" in text.lower():
            msg = f"{path} holds a Lambda layer or a Python lambda, whose code is not run"
            raise InputFileError(
                msg, hint="write it with keras.ops or a layer, or give the model as module:callable"
            ) from err
        msg = f"Keras {keras.__version__} does not load {path}: {type(err).__name__}: {text[:300]}"
        raise InputFileError(
            msg,
            hint="save it again with model.save('model.keras'); give a model with custom layers as module:callable",
        ) from err


def signature_of_keras(
    model: Any,  # noqa: ANN401 - a keras.Model
    rename: Mapping[str, str],
    example: Example | None = None,
) -> Signature:
    """Return the signature of a functional or sequential model under the names served.

    Names are the keys of a dict of inputs or outputs, else the inputs' tensors and the outputs' layers. Where layers do
    not distinguish them, outputs are `output_0`, `output_1`, ... Open dims get the names of `name_unknown_dims`.

    Args:
        model: The model.
        rename: The name served, by the source's name; `output_0`, `output_1`, ... are always accepted.
        example: Inputs to run a subclassed model on; None not to run it.

    Raises:
        UsageError: A subclassed model has no example, or `rename` names an unknown tensor.
    """
    structures = _structures(model)
    if structures is None and example is not None:
        rows = example.by_own_names(rename)
        args, kwargs = _arrange_for_call(model, tuple(rows))(*rows.values())
        return signature_seen(example, rows, model(*args, **kwargs, training=False), rename)
    if structures is None:
        msg = f"the inputs and outputs of the Keras model {type(model).__name__!r} are not known before it is called"
        raise UsageError(msg, hint="declare model.inputs and model.outputs, or wrap it: keras.Model(inputs, outputs)")
    inputs, outputs = _named_inputs(structures[0]), _named_outputs(model, structures)
    rename = _resolved(rename, tuple(outputs))
    unknown = [name for name in rename if name not in {*inputs, *outputs}]
    if unknown:
        msg = f"rename names {unknown[0]!r}, which the model does not have (it has: {', '.join((*inputs, *outputs))})"
        raise UsageError(msg, hint="write rename as {name in the source: name served}")
    return name_unknown_dims(
        [_spec(rename.get(name, name), tensor) for name, tensor in inputs.items()],
        [_spec(rename.get(name, name), tensor) for name, tensor in outputs.items()],
    )


def tensors_of_keras(model: Any) -> Answer:  # noqa: ANN401 - a keras.Model
    """Return a function that runs a subclassed model, and returns its inputs and outputs by name."""

    def answer(rows: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        args, kwargs = _arrange_for_call(model, tuple(rows))(*rows.values())
        outputs = outputs_by_name(model(*args, **kwargs, training=False))
        return rows, {name: item for name, item in outputs.items() if hasattr(item, "shape") and hasattr(item, "dtype")}

    return answer


def _structures(model: Any) -> tuple[Any, Any] | None:  # noqa: ANN401 - a keras.Model
    keras = import_keras()
    if isinstance(model, keras.Sequential):
        if not model.built or getattr(model, "inputs", None) is None:
            return None
        return model.inputs[0], model.outputs[0]
    # Keras exports the class of functional models under no public name.
    if any(cls.__name__ == "Functional" for cls in type(model).__mro__):
        return model.input, model.output
    return None


def _named_inputs(structure: Any) -> dict[str, Any]:  # noqa: ANN401 - KerasTensors, nested as the user chose
    if isinstance(structure, Mapping):
        named = _flat(structure)
    else:
        tensors = list(structure) if isinstance(structure, (list, tuple)) else [structure]
        named = _flat({getattr(tensor, "name", str(index)): tensor for index, tensor in enumerate(tensors)})
    for name, tensor in named.items():
        # Not checked for outputs, because Keras calls `tensor * 2` sparse, which is dense.
        if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
            msg = f"input {name!r} of the Keras model is sparse or ragged"
            raise UsageError(msg, hint="build the model with dense inputs")
    return named


def _named_outputs(model: Any, structures: tuple[Any, Any]) -> dict[str, Any]:  # noqa: ANN401 - a keras.Model, and its KerasTensors
    structure = structures[1]
    if isinstance(structure, Mapping):
        return _flat(structure)
    tensors = list(structure) if isinstance(structure, (list, tuple)) else [structure]
    layers = getattr(model, "output_names", None) or [model.layers[-1].name]
    inputs = _named_inputs(structures[0])
    # Two outputs of one layer, and an input that is passed on, have no name of their own.
    names = [
        default if layers.count(layer) > 1 or layer in inputs else str(layer)
        for layer, default in zip(layers, default_output_names(len(tensors)), strict=True)
    ]
    return _flat(dict(zip(names, tensors, strict=True)))


def _resolved(rename: Mapping[str, str], outputs: tuple[str, ...]) -> dict[str, str]:
    """Return `rename` with outputs under their own names, where it uses `output_N`, the only names of earlier versions.

    A name `output_N` of no output is left out, because the caller reports it.
    """
    by_order = dict(zip(default_output_names(len(outputs)), outputs, strict=True))
    resolved: dict[str, str] = {}
    for name, served in rename.items():
        own = name if name in outputs or by_order.get(name) in rename else by_order.get(name, name)
        if own == name == served and is_default_output_name(name) and name not in outputs:
            continue
        resolved[own] = served
    return resolved


def second_names(model: Any) -> dict[str, str]:  # noqa: ANN401 - a keras.Model
    """Return `output_N` by the name of each output that is named after its layer."""
    structures = _structures(model)
    if structures is None or isinstance(structures[1], Mapping):
        return {}
    outputs = tuple(_named_outputs(model, structures))
    return {own: name for own, name in zip(outputs, default_output_names(len(outputs)), strict=True) if own != name}


def notes_on_names(model: Any, signature: Signature, rename: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ANN401 - a keras.Model
    """Return notes on outputs that are served as `output_N`, which the next version does not support."""
    used = {*rename, *(spec.name for spec in signature.outputs)}
    return tuple(
        f"{name} is the output of layer {own!r}: the next version knows it as {own!r} only, so write that, or "
        f"model.rename: {{{own}: {rename.get(name, name)}}}"
        for own, name in second_names(model).items()
        if name in used and own not in rename
    )


def _flat(tensors: Mapping[str, Any]) -> dict[str, Any]:
    for name, tensor in tensors.items():
        if not hasattr(tensor, "shape"):
            msg = f"{name!r} of the Keras model is not a tensor but {a_or_an(type(tensor).__name__)}"
            raise UsageError(msg, hint="build the model with a flat dict or list of inputs and outputs")
    return dict(tensors)


def _spec(name: str, tensor: Any) -> TensorSpec:  # noqa: ANN401 - a KerasTensor
    return TensorSpec(name=name, dtype=str(tensor.dtype), shape=None if tensor.shape is None else tuple(tensor.shape))


class NamedKerasModel:
    """A Keras model that takes and returns exactly the tensors of a signature, in its order.

    `unused_outputs` are the source's names of the outputs that the last call left out.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        arrange: Callable[..., Any],
        signature: Signature,
        rename: Mapping[str, str],
        names: tuple[str, ...] = (),
    ) -> None:
        """Store a model and `arrange`, which returns its arguments for the tensors of the signature.

        `rename` has the name served by the source's name. `names` are the model's outputs in order, or empty where only
        a call shows them.
        """
        self._call = call
        self._arrange = arrange
        self._signature = signature
        self._rename = rename
        # Other names are declared ones for outputs in their order.
        self._names = names if set(source_names(signature.outputs, rename)) <= set(names) else ()
        self.unused_outputs: tuple[str, ...] = ()

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:  # noqa: ANN401 - tensors of TensorFlow, which has no types
        """Return the outputs in the order of the signature, computed in inference mode.

        Raises:
            UsageError: The outputs do not fit the signature.
        """
        args, kwargs = self._arrange(*tensors)
        result = self._call(*args, **kwargs, training=False)
        if self._names and not isinstance(result, Mapping):
            parts = list(result) if isinstance(result, (list, tuple)) else [result]
            result = dict(zip(self._names, parts, strict=True))
        outputs, self.unused_outputs = select_outputs(result, self._signature, self._rename)
        return outputs


def as_named_function(
    model: Any,  # noqa: ANN401 - a keras.Model
    signature: Signature,
    rename: Mapping[str, str],
) -> NamedKerasModel:
    """Return the model as a function of the tensors of the signature, in its order.

    A functional model gets its inputs in the structure it was built with. A subclassed one gets keywords if `call` has
    parameters of these names, else one tensor or a dict. The model is not copied.

    Raises:
        UsageError: The signature does not fit the model's inputs.
    """
    structures = _structures(model)
    outputs: tuple[str, ...] = ()
    if structures is not None:
        outputs = tuple(_named_outputs(model, structures))
        rename = _resolved(rename, outputs)
    check_rename(signature, rename)
    names = source_names(signature.inputs, rename)
    if structures is None:
        return NamedKerasModel(model, _arrange_for_call(model, names), signature, rename)
    return NamedKerasModel(model, _arrange_as(structures[0], names), signature, rename, outputs)


def _arrange_as(structure: Any, names: tuple[str, ...]) -> Callable[..., Any]:  # noqa: ANN401 - as _named_inputs
    input_names = tuple(_named_inputs(structure))
    # A single input fits by any name, because Keras generates names such as keras_tensor_3.
    if len(names) == len(input_names) == 1:
        names = input_names
    if set(names) != set(input_names):
        fed, taken = ", ".join(map(repr, names)), ", ".join(map(repr, input_names))
        msg = f"the signature does not fit the Keras model's inputs (got {fed}, expected {taken})"
        raise UsageError(msg, hint="declare exactly the model's inputs, or rename: {name in the source: name served}")

    def arrange(*tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401 - tensors
        fed = dict(zip(names, tensors, strict=True))
        if isinstance(structure, Mapping):
            return ({name: fed[name] for name in input_names},), {}
        if isinstance(structure, (list, tuple)):
            return ([fed[name] for name in input_names],), {}
        return (fed[input_names[0]],), {}

    return arrange


def _arrange_for_call(model: Any, names: tuple[str, ...]) -> Callable[..., Any]:  # noqa: ANN401 - a keras.Model
    parameters = inspect.signature(model.call).parameters
    is_by_keyword = all(name in parameters for name in names)

    def arrange(*tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401 - tensors
        fed = dict(zip(names, tensors, strict=True))
        if is_by_keyword:
            return (), fed
        return (fed if len(fed) > 1 else tensors[0],), {}

    return arrange
