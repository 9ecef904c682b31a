"""Check that the files written have the promised inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.dim_expressions import are_equal
from paritygate.errors import ConversionError, InputFileError
from paritygate.signature import Dim, Signature, TensorSpec


class _Names(Struct, frozen=True, kw_only=True):
    """Meanings of dims' names: those of inputs mean themselves, others the first expression found for them."""

    dims: Mapping[str, Dim]
    fed: Collection[int | str | None]
    ties: Mapping[str, str]
    bound: dict[str, str] = field(default_factory=dict)


def notes_left_out(names: Sequence[str]) -> tuple[str, ...]:
    """Return the note on outputs that the signature does not name, if there are any."""
    return (f"outputs not in the signature were left out: {', '.join(names)}",) if names else ()


@contextmanager
def our_file() -> Iterator[None]:
    """Turn InputFileError into a converter's failure, because the file is not the user's."""
    try:
        yield
    except InputFileError as err:
        raise ConversionError(f"the converted model is unsound: {err}", hint=err.hint) from err


def as_promised(  # noqa: PLR0913 - what was asked for, what was found, and how strictly
    job: ConversionJob,
    conversion: Conversion,
    found: Signature,
    facts: Mapping[str, Any],
    *,
    keeps_names: bool,
    ties: Mapping[str, str] | None = None,
) -> Conversion:
    """Return the conversion with the promised signature and more facts; `found` was read back from the files.

    See `agreed_signature` for `keeps_names` and `ties`.
    """
    signature = found
    if job.signature is not None:
        signature = agreed_signature(found, job.signature, keeps_names=keeps_names, ties=ties)
    return replace(conversion, signature=signature, facts={**conversion.facts, **facts})


def agreed_signature(
    found: Signature, promised: Signature, *, keeps_names: bool, ties: Mapping[str, str] | None = None
) -> Signature:
    """Return the signature of the converted model, once the one found is the promised one.

    Where nothing was promised of a dim or rank, the found one counts. Ranges of dims are always the promised ones,
    because no format keeps them.

    Formats with `keeps_names`, such as ONNX, keep the order of tensors and the names of dims. In a SavedModel, a
    promised dim must only be open. An expression fits a dim that equals it at every promised size. The name of a dim
    that no input has means the first expression found for it. `ties` are expressions that a dim of the inputs always
    equals; only runs show whether the model itself requires them.

    Raises:
        ConversionError: They differ; the message names every difference.
    """
    differences = [
        *_differences("input", found.inputs, promised, keeps_names=keeps_names, ties=ties or {}),
        *_differences("output", found.outputs, promised, keeps_names=keeps_names, ties=ties or {}),
    ]
    if differences:
        msg = f"the converted model does not match its signature: {'; '.join(differences)}"
        raise ConversionError(msg, hint="correct model.inputs, model.outputs or model.dims, or the model itself")
    return Signature(
        inputs=tuple(_merged(spec, found.inputs) for spec in promised.inputs),
        outputs=tuple(_merged(spec, found.outputs) for spec in promised.outputs),
        dims=promised.dims,
    )


def _merged(promised: TensorSpec, specs: Sequence[TensorSpec]) -> TensorSpec:
    own = next(spec for spec in specs if spec.name == promised.name)
    if promised.shape is None or own.shape is None:
        return own if promised.shape is None else promised
    shape = tuple(
        there if wanted is None or isinstance(there, int) else wanted
        for there, wanted in zip(own.shape, promised.shape, strict=True)
    )
    return TensorSpec(name=promised.name, dtype=promised.dtype, shape=shape)


def _differences(
    side: str, specs: Sequence[TensorSpec], promised: Signature, *, keeps_names: bool, ties: Mapping[str, str]
) -> Iterator[str]:
    wanted = promised.inputs if side == "input" else promised.outputs
    by_name = {spec.name: spec for spec in specs}
    missing = [spec.name for spec in wanted if spec.name not in by_name]
    extra = [name for name in by_name if name not in {spec.name for spec in wanted}]
    if missing or extra:
        yield f"its {side}s are {_listed(by_name)}, expected {_listed(spec.name for spec in wanted)}"
        return
    if keeps_names and list(by_name) != [spec.name for spec in wanted]:
        yield f"its {side}s come in the order {_listed(by_name)}, expected {_listed(spec.name for spec in wanted)}"
    names = _Names(dims=promised.dims, fed={dim for spec in promised.inputs for dim in spec.shape or ()}, ties=ties)
    for spec in wanted:
        there = by_name[spec.name]
        if there.dtype != spec.dtype:
            yield f"{side} {spec.name!r} is {there.dtype}, expected {spec.dtype}"
        yield from _shape_differences(f"{side} {spec.name!r}", there, spec, names, keeps_names=keeps_names)


def _shape_differences(
    what: str, there: TensorSpec, wanted: TensorSpec, names: _Names, *, keeps_names: bool
) -> Iterator[str]:
    if wanted.shape is None or there.shape is None:
        if wanted.shape is not None and keeps_names:
            yield f"{what} has no shape, expected {wanted}"
        return
    if len(there.shape) != len(wanted.shape):
        yield f"{what} has rank {len(there.shape)}, expected rank {len(wanted.shape)}"
        return
    for axis, (size, promise) in enumerate(zip(there.shape, wanted.shape, strict=True)):
        if not _fits(size, promise, names, keeps_names=keeps_names):
            is_fixed = isinstance(size, int)
            yield f"dim {axis} of {what} is {'fixed at ' if is_fixed else ''}{size}, expected {promise}"


def _fits(size: int | str | None, promise: int | str | None, names: _Names, *, keeps_names: bool) -> bool:
    if isinstance(size, str) and isinstance(promise, str) and keeps_names:
        return _is_named(size, promise, names)
    if promise is None or size == promise:
        return True
    if not isinstance(size, int):
        return not keeps_names
    # A dim with only one allowed size may be fixed at it.
    only = names.dims.get(promise) if isinstance(promise, str) else None
    return only is not None and only.min == size == only.max


def _is_named(size: str, promise: str, names: _Names) -> bool:
    wanted = promise if promise in names.fed else names.bound.setdefault(promise, size)
    return size == wanted or are_equal(size, wanted, names.dims, names.ties)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
