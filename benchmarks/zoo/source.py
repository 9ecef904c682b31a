"""Runs the model of a case by hand: nothing of paritygate is used here, nor in what this imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from case import Arrays, Case

__all__ = ["answer", "declared"]


def answer(case: Case, model: Any, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return what the model answers, by name."""
    if case.is_keras:
        from keras import ops

        answered = model({name: ops.convert_to_tensor(array) for name, array in arrays.items()}, training=False)
        convert = ops.convert_to_numpy
    else:
        import torch

        with torch.no_grad():
            answered = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
        convert = _numpy_of_tensor
    if not isinstance(answered, Mapping):
        values = answered if isinstance(answered, tuple | list) else [answered]
        names = list(model.output_names) if case.is_keras else [f"output_{index}" for index in range(len(values))]
        answered = dict(zip(names, values, strict=True))
    found = {name: convert(value) for name, value in answered.items() if hasattr(value, "shape")}
    return {name: found[name] for name in case.outputs} if case.outputs else found


def _numpy_of_tensor(tensor: Any) -> NDArray[Any]:
    return tensor.numpy()


def declared(case: Case, model: Any) -> dict[str, dict[str, Any]]:
    """Return inputs and outputs as a spec declares them: dims of outputs have the names of inputs of their sizes."""
    seen = []
    random = np.random.default_rng(0)
    for index, rows in enumerate((3, 5, 6)):
        sizes = {"batch": rows}
        for place, (name, (least, most)) in enumerate(case.sizes.items()):
            sizes[name] = (most, least, (least + most) // 2 + place)[index]
        if "past" in sizes:
            sizes["total"] = sizes["past"] + sizes["new"]
        arrays = case.draw(random, sizes)
        seen.append((sizes, arrays, answer(case, model, arrays)))
    inputs = {
        name: {
            "dtype": str(seen[0][1][name].dtype),
            "shape": [int(d) if d.isdigit() else d for d in drawn.shape.split()],
        }
        for name, drawn in case.inputs.items()
    }
    outputs = {}
    for name, array in seen[0][2].items():
        shape: list[int | str] = []
        for axis in range(array.ndim):
            lengths = [answered[name].shape[axis] for _, _, answered in seen]
            named = [dim for dim in seen[0][0] if [sizes[dim] for sizes, _, _ in seen] == lengths]
            constant = len(set(lengths)) == 1
            shape.append(lengths[0] if constant else named[0] if named else f"{name}_{axis}")
        outputs[name] = {"dtype": str(array.dtype), "shape": shape}
    return {"inputs": inputs, "outputs": outputs}
