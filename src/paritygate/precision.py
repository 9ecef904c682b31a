"""The precisions a variant can have, and the words a variant is written with.

A variant is a format and a precision, written `onnx-fp16`: the format is all before the last dash.
"""

from dataclasses import dataclass
from enum import Enum

from paritygate.errors import UsageError

__all__ = ["Precision", "Variant", "parse_precision"]


class Precision(str, Enum):
    """Numeric precision of the computation inside a model."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    MIXED = "mixed"

    def __str__(self) -> str:
        return self.value


def parse_precision(text: str) -> Precision:
    """Return the precision named by `text`.

    Raises:
        UsageError: `text` names no precision.
    """
    try:
        return Precision(text)
    except ValueError:
        allowed = ", ".join(Precision)
        msg = f"precision {text!r} is not known (allowed: {allowed})"
        raise UsageError(msg, hint="name one of the precisions above, for example --precision fp16") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A format at a precision, such as `onnx-fp16`."""

    format: str
    precision: Precision

    def __str__(self) -> str:
        return f"{self.format}-{self.precision}"

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Return the variant written as `FORMAT-PRECISION`.

        Raises:
            UsageError: There is no dash, or what follows the last one is no precision.
        """
        form, dash, precision = text.rpartition("-")
        if not dash or not form:
            msg = f"target {text!r} is not of the form FORMAT-PRECISION"
            raise UsageError(msg, hint="write for example onnx-fp32")
        try:
            return cls(format=form, precision=Precision(precision))
        except ValueError:
            allowed = ", ".join(Precision)
            msg = f"target {text!r} ends in {precision!r}, which is no precision (allowed: {allowed})"
            raise UsageError(msg, hint="write for example onnx-fp32") from None
