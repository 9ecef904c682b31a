"""Fixing dims of an artifact, and checking what was written: the last step to a static variant."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast

from paritygate.backends import require_backend
from paritygate.convert.checked import _check_empty, _guarded
from paritygate.convert.conversion import CHECKS, Check, Conversion, ConversionJob
from paritygate.formats import FORMATS
from paritygate.models.fixed_shape import FixedShape, write_fixed_shape

__all__ = ["FIXERS", "Fixer", "fix_and_check"]

# The formats whose artifacts can have dims fixed.
FIXERS: Mapping[str, str] = {
    "onnx": "paritygate.convert.onnx.fixed_shape",
    "openvino": "paritygate.convert.openvino.fixed_shape",
}


class Fixer(Protocol):
    """What every module that fixes dims offers."""

    def fix(self, job: ConversionJob, rule: FixedShape) -> Conversion:
        """Write the artifact that is the job's source into `job.folder`, with the rule's dims and dtypes.

        Raises:
            ConversionError: The dims could not be fixed.
        """
        ...


def fix_and_check(job: ConversionJob, target_format: str, rule: FixedShape) -> Conversion:
    """Fix dims of an artifact, and return what was written once it has proved sound; the rule lies beside it.

    Args:
        job: Its source is an artifact of the format, its folder is empty but for our own marker.
        target_format: Format of the artifact and of what is made from it, one of `FIXERS`.
        rule: What is fixed, and how.

    Returns:
        The conversion, its signature with the fixed sizes and the dtypes of the rule.

    Raises:
        ConversionError: The dims could not be fixed, or the result is unsound.
        MissingBackendError: A package that is needed is not installed.
        StorageError: The folder is not empty, or cannot be written.
    """
    fixer = cast("Fixer", importlib.import_module(FIXERS[target_format]))
    checker = cast("Check", importlib.import_module(CHECKS[target_format]))
    require_backend(FORMATS[target_format].runtime)
    _check_empty(job)
    promised = replace(job, signature=rule.fixed_signature)
    conversion = _guarded(lambda: fixer.fix(promised, rule), job, f"fixing {rule} in the {target_format} model")
    checked = _guarded(lambda: checker.check(promised, conversion), job, f"checking the model with {rule} fixed")
    write_fixed_shape(rule, job.folder)
    return replace(checked, facts={**checked.facts, "fixed": dict(rule.dims)})
