"""Checks that a batch is within the shapes that an engine was built for, before the engine runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paritygate.batch import Arrays
from paritygate.engine.record import EngineRecord
from paritygate.engine.settings import ProfileShapes
from paritygate.errors import BackendError
from paritygate.signature import Signature
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def check_profile(signature: Signature, profile: Mapping[str, ProfileShapes], inputs: Arrays) -> None:
    """Raise BackendError unless every input has a shape that the engine was built for.

    The batch has passed `check_inputs`. The message names every other input, its shape, and the smallest and largest
    allowed.
    """
    refused = [name for name, array in inputs.items() if not _is_within(profile[name], array.shape)]
    if not refused:
        return
    msg = "; ".join(_refusal(profile[name], name, inputs[name].shape) for name in refused)
    shapes = {name: inputs[name].shape for name in refused}
    raise BackendError(msg, hint=_hint(signature, profile, shapes))


def describe_profile(profile: Mapping[str, ProfileShapes]) -> str:
    """Return an engine's shapes in one line, such as `ids: [1, 8] to [64, 128], tuned for [8, 64]`."""
    return "; ".join(
        f"{name}: {list(shapes.min)}"
        + ("" if shapes.min == shapes.max else f" to {list(shapes.max)}, tuned for {list(shapes.opt)}")
        for name, shapes in profile.items()
    )


def _is_within(shapes: ProfileShapes, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(shapes.min) and all(
        least <= size <= most for least, size, most in zip(shapes.min, shape, shapes.max, strict=True)
    )


def _refusal(shapes: ProfileShapes, name: str, shape: tuple[int, ...]) -> str:
    return (
        f"input {name!r} has shape {list(shape)}, and the engine was built for shapes from {list(shapes.min)} "
        f"to {list(shapes.max)}"
    )


def _hint(signature: Signature, profile: Mapping[str, ProfileShapes], shapes: Mapping[str, tuple[int, ...]]) -> str:
    wider: dict[str, tuple[int, int, int]] = {}
    for spec in signature.inputs:
        if spec.name not in shapes:
            continue
        built = profile[spec.name]
        # Not strict: of another rank no dim can be widened.
        for dim, size, low, opt, high in zip(
            spec.shape or (), shapes[spec.name], built.min, built.opt, built.max, strict=False
        ):
            if isinstance(dim, str) and not low <= size <= high:
                least, _, most = wider.get(dim, (low, opt, high))
                wider[dim] = (min(least, size), opt, max(most, size))
    if not wider or any(0 in shape for shape in shapes.values()):
        return "give samples of the shapes above: an engine takes no others, and nothing of size 0"
    dims = ", ".join(f"{dim}: {{min: {low}, opt: {opt}, max: {high}}}" for dim, (low, opt, high) in wider.items())
    return f"declare wider model.dims, such as {{{dims}}}, and build the engine again: convert-and-validate build"


class WithinProfile(Runner):
    """A runner of an engine's ONNX file in the engine's place, which refuses shapes that the engine would refuse."""

    def __init__(self, runner: Runner, record: EngineRecord) -> None:
        super().__init__(record.signature, runner.facts)
        self._runner = runner
        self._profile = record.profile

    @property
    def facts(self) -> RuntimeFacts:
        """Return the facts about the file's runner."""
        return self._runner.facts

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        check_profile(self.signature, self._profile, feed)
        answers = self._runner.run(feed)
        return [answers[spec.name] for spec in self.signature.outputs]
