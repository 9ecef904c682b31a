"""Define the precisions, and parse the names of variants.

A variant is a format and a precision, such as `onnx-fp16`, split at the last dash. Fixed dims follow:
`onnx-fp16@batch=1,sequence=128`.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.text import StrEnum, nearest_first

_EXAMPLE = "write for example onnx-fp32"
_STATIC_EXAMPLE = "write for example onnx-fp32@batch=1,sequence=128"
# A variant names a folder, so its dims have no characters with a meaning for a file system or shell.
_FORMAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_DIM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Allows more digits than any dim of a model has.
_SIZE = re.compile(r"[1-9][0-9]{0,17}")


class Precision(StrEnum):
    """Numeric precision of the computation inside a model."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    MIXED = "mixed"


def parse_precision(text: str) -> Precision:
    """Return the precision named by `text`; raise UsageError if there is none."""
    try:
        return Precision(text)
    except ValueError:
        allowed = ", ".join(nearest_first(text, Precision))
        msg = f"precision {text!r} is not known (allowed: {allowed})"
        raise UsageError(msg, hint="name one of the precisions above, for example --precision fp16") from None


class Variant(Struct, frozen=True, kw_only=True):
    """A format at a precision, such as `onnx-fp16`."""

    format: str
    precision: Precision
    static: tuple[tuple[str, int], ...] = ()  # each fixed dim and its size, in the order written

    def __post_init__(self) -> None:
        names = [name for name, _ in self.static]
        for name, size in self.static:
            if not _DIM_NAME.fullmatch(name):
                msg = f"dim {name!r} cannot be fixed: its name has other characters than letters, digits and _"
                raise UsageError(msg, hint="give the dim another name in model.inputs and model.outputs")
            if size < 1:
                raise UsageError(f"dim {name!r} cannot be fixed at {size} (allowed: 1 and above)", hint=_STATIC_EXAMPLE)
            if names.count(name) > 1:
                raise UsageError(f"dim {name!r} is fixed twice in target {str(self)!r}", hint="name each dim once")

    def __str__(self) -> str:
        dims = ",".join(f"{name}={size}" for name, size in self.static)
        return f"{self.format}-{self.precision}{'@' if dims else ''}{dims}"

    @property
    def dynamic(self) -> "Variant":
        """The variant with no dim fixed."""
        return replace(self, static=())

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Parse a variant, `FORMAT-PRECISION` or `FORMAT-PRECISION@DIM=SIZE,DIM=SIZE`; raise UsageError for others."""
        plain, at, dims = text.partition("@")
        form, dash, precision = plain.rpartition("-")
        if not dash or not _FORMAT.fullmatch(form):
            raise UsageError(f"target {text!r} is not of the form FORMAT-PRECISION", hint=_EXAMPLE)
        static = tuple(_parse_dim(text, part) for part in dims.split(",")) if at else ()
        try:
            numeric = Precision(precision)
        except ValueError:
            allowed = ", ".join(Precision)
            msg = f"target {text!r} ends in {precision!r}, which is not a precision (allowed: {allowed})"
            raise UsageError(msg, hint=_EXAMPLE) from None
        return cls(format=form, precision=numeric, static=static)


def _parse_dim(text: str, part: str) -> tuple[str, int]:
    name, _, size = part.partition("=")
    if not _DIM_NAME.fullmatch(name) or not _SIZE.fullmatch(size):
        raise UsageError(f"target {text!r} fixes {part!r}, which is not of the form DIM=SIZE", hint=_STATIC_EXAMPLE)
    return name, int(size)
