"""Check that a converted model works at every size that its signature promises, because a trace shows only one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.convert.error_origin import one_line
from paritygate.convert.torch.export_errors import ModuleError
from paritygate.convert.torch.inputs import Rows, full_shape, input_draws
from paritygate.convert.torch.sizes import example_sizes, fitting_sizes, possible_dims
from paritygate.errors import ConversionError, ParitygateError
from paritygate.models.torch.module import device_of
from paritygate.models.torch.torchscript_file import reason_in_torchscript
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import torch

# Only large differences count here, which show another computation. The gate judges others on real inputs.
_LARGEST_DIFFERENCE = 1e-3
# For a dim whose sizes are not declared.
_OTHER_SIZES = (1, 17)
# With more values in the inputs a run takes long, and much more memory than they do.
_MOST_VALUES = 1 << 23
# With comparisons of sizes from the exporter, far ends matter less.
_MOST_VALUES_ELSEWHERE = 1 << 20
# The most multiples to try of a size that the module refuses.
_MOST_TIMES = 8


class _Trial(Struct, frozen=True, kw_only=True):
    """Sizes to run at: all as in the trace, except one dim."""

    sizes: dict[str, int]
    dim: str | None
    is_declared: bool = True
    # Another large size would do as well.
    is_end: bool = False
    # Nobody promised the size, so the module may refuse it.
    is_found: bool = False
    # Sizes to run at if the module refuses these.
    instead: tuple[dict[str, int], ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items()) or "its fixed sizes"


_Call = Callable[[Sequence["torch.Tensor"]], Sequence["torch.Tensor"]]


class Answered(Struct, frozen=True, kw_only=True):
    """The result of a passed check.

    `notes` list what could not be checked. `is_near` means equal within rounding to real rows, if any, at the trace's
    sizes. Otherwise another runtime rounds very differently, or the file is wrong, which the gate decides.
    """

    notes: tuple[str, ...]
    is_near: bool = True


def check_all_sizes(  # noqa: PLR0913 - what is compared, and how closely
    candidate: _Call,
    signature: Signature,
    *,
    expected: _Call | None,
    is_other_runtime: bool = False,
    is_module: bool = False,
    other_sizes: Mapping[str, Sequence[int]] | None = None,
    rows: Rows | None = None,
    ties: Mapping[str, str] | None = None,
) -> Answered:
    """Check that the model works at the sizes of its trace, and at the ends of the range of each symbolic dim.

    Inputs are real rows brought to these sizes, and generated ones: normal floats, integers 0 or 1, full masks. They
    reveal a branch that was traced one way. If inputs at an end are very large, a smaller size is tried, with a note.

    `candidate` and `expected`, its original, take and return tensors in the order of the signature. Without `expected`,
    only shapes and dtypes are checked. If `is_other_runtime`, differences at the trace's sizes are left to the gate,
    and so are integers, which ties may flip. If `is_module`, `expected` is the user's untraced module. Then other sizes
    that it refuses, or only takes with other dims, become a note. `other_sizes` are more sizes by dim. `ties` are sums
    that a dim equals in all samples, and at all sizes tried.

    Raises:
        ConversionError: It fails, or differs, at a promised size; the message names the dim.
    """
    notes: list[str] = []
    ties = ties or {}
    promised = signature.dims
    signature = replace(signature, dims=possible_dims(signature, ties))
    narrowed = [f"{name} from {dim.min} to {dim.max}" for name, dim in signature.dims.items() if dim != promised[name]]
    if narrowed:
        notes.append(f"it was tried with {', '.join(narrowed)} only, because {_tied(ties)} in all samples")
    most_values = _MOST_VALUES_ELSEWHERE if is_other_runtime else _MOST_VALUES
    pair = _Pair(
        candidate=candidate,
        # Without an original the model runs first, whose failure breaks the signature's promise.
        asked=expected or candidate,
        is_compared=expected is not None,
        is_other_runtime=is_other_runtime,
        signature=signature,
        rows=rows or {},
    )
    for trial in _trials(_Sizes(signature=signature, ties=ties), other_sizes or {}, most_values, notes):
        refusal = pair.try_at(trial)
        if refusal is None:
            continue
        if is_other_runtime and trial.dim is None:
            note = f"the module accepts neither random inputs nor zeros at {trial}, so other sizes were not tried"
            return Answered(notes=(note,))
        if not trial.is_declared:
            continue
        instead = _tried_instead(pair, trial, most_values) if is_module else None
        if instead is not None or (is_module and trial.is_found):
            notes.append(_refused_note(trial, instead))
        else:
            raise _fails_itself(refusal.inputs, trial, refusal.cause, is_source=expected is not None) from refusal.cause
    note = "; ".join(dict.fromkeys((*notes, *pair.notes)))
    # The first kind of inputs are real rows, if there are any.
    return Answered(notes=(note,) if note else (), is_near=0 not in pair.uncompared)


def _tried_instead(pair: _Pair, trial: _Trial, most_values: int) -> _Trial | None:
    """Run at other sizes than the refused ones; return the first that the module takes."""
    for sizes in trial.instead:
        other = replace(trial, sizes=sizes)
        if sizes != trial.sizes and _values(pair.signature, sizes) <= most_values and pair.try_at(other) is None:
            return other
    return None


def _refused_note(trial: _Trial, instead: _Trial | None) -> str:
    done = f"it was tried at {instead} instead" if instead is not None else "it was not tried there"
    return f"the module itself does not take {trial}: {done}"


class _Seen(Enum):
    """The comparison of values for one draw of inputs."""

    COMPARED = auto()
    # Some values are finite on neither or one side, or none on both.
    NOT_ALL_COMPARED = auto()
    # All expected values are finite.
    NOT_FINITE_ALONE = auto()


class _Refusal(Struct, frozen=True, kw_only=True):
    """The last inputs and error of a model that takes none of them."""

    inputs: Sequence[torch.Tensor]
    cause: Exception


class _Pair(Struct, kw_only=True):
    """A converted model and its original, tried at one size after the other."""

    candidate: _Call
    asked: _Call
    is_compared: bool
    is_other_runtime: bool
    signature: Signature
    rows: Rows
    notes: list[str] = field(default_factory=list)
    # Kinds of inputs whose values are not compared, because they already differ at the trace's sizes.
    uncompared: set[int] = field(default_factory=set)

    def try_at(self, trial: _Trial) -> _Refusal | None:
        """Run both at these sizes with each kind of inputs; return why if the original takes none of them."""
        kinds = input_draws(self.signature, trial.sizes, self.rows)
        refusals = [
            self._try_kind(trial, kind, draws, is_only_kind=len(kinds) == 1) for kind, draws in enumerate(kinds)
        ]
        return refusals[-1] if all(refusals) else None

    def _try_kind(
        self, trial: _Trial, kind: int, draws: Iterator[list[torch.Tensor]], *, is_only_kind: bool
    ) -> _Refusal | None:
        refusal: _Refusal | None = None
        seen: list[_Seen] = []
        for fed in draws:
            try:
                answers = self.asked([tensor.clone() for tensor in fed])
            except Exception as err:  # noqa: BLE001 - whatever the user's module raises
                refusal = _Refusal(inputs=fed, cause=err)
                continue
            is_zeros = not any(bool(tensor.any()) for tensor in fed if tensor.numel())
            # Zeros are for models that take nothing else, so they cannot revoke other results.
            if is_zeros and seen:
                continue
            if is_zeros and is_only_kind and any(tensor.numel() for tensor in fed):
                self.notes.append("it was checked at other sizes with zeros only: the model accepts no random inputs")
            seen.append(self._look(trial, kind, fed, answers))
            if seen[-1] is _Seen.COMPARED:
                break
        self._judge(trial, seen)
        return None if seen else refusal

    def _judge(self, trial: _Trial, seen: Sequence[_Seen]) -> None:
        if _Seen.NOT_FINITE_ALONE in seen:
            what = f"not finite at {trial}, where its source is"
            if _Seen.COMPARED not in seen:
                msg = f"the converted model is {what}"
                raise ConversionError(msg, hint="check where the module divides, takes a logarithm or masks values")
            self.notes.append(f"on some generated inputs it is {what}")
        elif seen and _Seen.COMPARED not in seen:
            self.notes.append(f"its values were not all compared at {trial}: on all inputs tried some are not finite")

    def _look(self, trial: _Trial, kind: int, fed: Sequence[torch.Tensor], answers: Sequence[torch.Tensor]) -> _Seen:
        if not self.is_compared:
            _check_contract(answers, self.signature, trial)
            return _Seen.COMPARED
        actual = _run(self.candidate, fed, trial)
        if self.is_other_runtime and trial.dim is None and _differs(actual, answers):
            self.uncompared.add(kind)
            self.notes.append(f"at other sizes its values were not compared: on random inputs they differ at {trial}")
        seen = _check_same(actual, answers, self.signature, trial, kind not in self.uncompared, self.is_other_runtime)
        _check_contract(actual, self.signature, trial)
        return seen


class _Sizes(Struct, frozen=True, kw_only=True):
    """The promised sizes, and sums that a dim always equals."""

    signature: Signature
    ties: Mapping[str, str]

    @property
    def usual(self) -> dict[str, int]:
        fed = {dim for spec in self.signature.inputs for dim in spec.shape or ()}
        return {name: size for name, size in example_sizes(self.signature, self.ties).items() if name in fed}

    def fit(self, trial: _Trial, **changed: int) -> _Trial | None:
        """Return the trial with sizes that fit each other; None where none do."""
        sizes = fitting_sizes({**trial.sizes, **changed}, self.signature, self.ties, kept=trial.dim)
        others = (fitting_sizes(other, self.signature, self.ties, kept=trial.dim) for other in trial.instead)
        instead = tuple(other for other in others if other is not None)
        return None if sizes is None else replace(trial, sizes=sizes, instead=instead)


def _trials(
    promised: _Sizes, others: Mapping[str, Sequence[int]], most_values: int, notes: list[str]
) -> Iterator[_Trial]:
    """Yield the trials, smaller for sizes that are too large; note the changed and omitted ones."""
    usual, signature = promised.usual, promised.signature
    for wanted in _all_trials(signature, others, usual):
        trial = wanted if wanted.dim is None else promised.fit(wanted)
        if trial is None:
            if not wanted.is_declared:
                continue
            notes.append(f"it was not tried at {wanted}: {_tied(promised.ties)} in all samples")
            continue
        values = _values(signature, trial.sizes)
        most = most_values if trial.is_end else _MOST_VALUES
        if trial.dim is None or trial.sizes[trial.dim] <= usual[trial.dim] or values <= most:
            yield trial
            continue
        size = trial.sizes[trial.dim]
        smaller = promised.fit(trial, **{trial.dim: max(size * most // values, 1)})
        if not trial.is_end or smaller is None or smaller.sizes[trial.dim] <= usual[trial.dim]:
            notes.append(f"it was not tried at {trial}, where its inputs are {values} values")
            continue
        tried = smaller.sizes[trial.dim]
        notes.append(f"it was tried at {trial.dim}={tried} and not at {size}, where its inputs are {values} values")
        yield smaller


def _tied(ties: Mapping[str, str]) -> str:
    return " and ".join(f"{whole} is {tie}" for whole, tie in ties.items())


def _values(signature: Signature, sizes: Mapping[str, int]) -> int:
    return sum(math.prod(full_shape(spec, sizes)) for spec in signature.inputs)


def _all_trials(signature: Signature, others: Mapping[str, Sequence[int]], usual: dict[str, int]) -> Iterator[_Trial]:
    least = {name: signature.dims[name].min if name in signature.dims else size for name, size in usual.items()}
    most = {name: signature.dims[name].max if name in signature.dims else size for name, size in usual.items()}
    yield _Trial(sizes=usual, dim=None)
    for name, size in usual.items():
        if name in signature.dims and least[name] != size:
            yield _Trial(sizes={**usual, name: least[name]}, dim=name, instead=(least,))
    for name in usual:
        for size in others.get(name, ()):
            end = signature.dims[name].max if name in signature.dims else 0
            times = [{**usual, name: size * count} for count in range(2, _MOST_TIMES + 1) if size * count <= end]
            is_declared = name in signature.dims
            yield _Trial(
                sizes={**usual, name: size}, dim=name, is_declared=is_declared, is_found=True, instead=tuple(times)
            )
    for name, usual_size in usual.items():
        if name not in signature.dims:
            yield from (_Trial(sizes={**usual, name: size}, dim=name, is_declared=False) for size in _OTHER_SIZES)
        elif signature.dims[name].max not in {usual_size, least[name]}:
            # Other dims are at their smallest, tried before, because large models at their largest take
            # long.
            yield _Trial(sizes={**least, name: signature.dims[name].max}, dim=name, is_end=True, instead=(most,))


def _run(candidate: _Call, inputs: Sequence[torch.Tensor], trial: _Trial) -> Sequence[torch.Tensor]:
    try:
        return candidate([tensor.clone() for tensor in inputs])
    except ParitygateError:
        raise
    except Exception as err:
        why = reason_in_torchscript(err) or f"{type(err).__name__}: {one_line(err)}"
        raise ConversionError(f"the converted model fails at {trial}{_blame(trial)}: {why}", hint=_hint(trial)) from err


def _blame(trial: _Trial) -> str:
    return "" if trial.dim is None else f", so the size of {trial.dim!r} is baked in"


def _hint(trial: _Trial) -> str:
    if trial.dim is None:
        return "the module may be random, or branch on the values of its inputs: a trace holds one branch"
    return (
        f"take what depends on the size of {trial.dim!r} out of the module, or declare model.dims.{trial.dim} "
        "with the sizes it is for"
    )


def _fails_itself(inputs: Sequence[torch.Tensor], trial: _Trial, cause: Exception, *, is_source: bool) -> ModuleError:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
    what = "the module itself" if is_source else "the model"
    where = f"at {trial}" + (f" (dim {trial.dim!r})" if trial.dim else "")
    why = f"{type(cause).__name__}: {one_line(cause)}"
    msg = f"{what} fails {where}, which its signature allows, on zeros of shape {shapes}: {why}"
    hint = (
        f"declare the sizes that the model accepts: model.dims.{trial.dim}"
        if trial.dim
        else "let the model accept zeros, because they trace it, and declare its inputs exactly"
    )
    return ModuleError(msg, hint=hint)


def _differs(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Return whether values of one shape differ more than rounding explains; integers do not count."""
    return any(
        there.shape == wanted.shape and wanted.is_floating_point() and _difference(there, wanted) > _LARGEST_DIFFERENCE
        for there, wanted in zip(actual, expected, strict=True)
    )


def _not_as_declared(spec: TensorSpec, answer: torch.Tensor, trial: _Trial) -> str | None:
    """Return the declared dim of an axis whose size in the module's output is another one."""
    shape = spec.shape if spec.shape is not None and len(spec.shape) == answer.ndim else ()
    return next(
        (
            dim
            for dim, size in zip(shape, answer.shape, strict=False)
            if isinstance(dim, str) and trial.sizes.get(dim, size) != size
        ),
        None,
    )


def _check_same(  # noqa: PLR0913, PLR0917 - what is compared, where, and how closely
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    signature: Signature,
    trial: _Trial,
    compares_values: bool,  # noqa: FBT001 - private, and named at the one call
    only_floats: bool,  # noqa: FBT001 - likewise
) -> _Seen:
    seen: list[_Seen] = []
    for spec, there, wanted in zip(signature.outputs, actual, expected, strict=True):
        if there.shape != wanted.shape or there.dtype != wanted.dtype:
            its_type, was = _described(there), _described(wanted)
            dim = _not_as_declared(spec, wanted, trial)
            if dim is not None:
                msg = (
                    f"output {spec.name!r} of the module is {was} at {trial}, but {its_type} was converted: its "
                    f"size depends on the values of the inputs, not on {dim!r}"
                )
                hint = f"make it as large as {dim!r} in the module; pad_packed_sequence does so with total_length"
                raise ConversionError(msg, hint=hint)
            msg = f"output {spec.name!r} of the converted model is {its_type} at {trial}, but was {was}{_blame(trial)}"
            raise ConversionError(msg, hint=_hint(trial))
        if not compares_values or (only_floats and not wanted.is_floating_point()):
            continue
        difference = _difference(there, wanted)
        if difference > _LARGEST_DIFFERENCE:
            msg = (
                f"output {spec.name!r} of the converted model differs by {difference:.3g} of the largest value "
                f"at {trial}{_blame(trial)}"
            )
            raise ConversionError(msg, hint=_hint(trial))
        seen.append(_how_compared(there, wanted, only_floats=only_floats))
    return max(seen, key=lambda item: item.value, default=_Seen.COMPARED)


def _how_compared(actual: torch.Tensor, expected: torch.Tensor, *, only_floats: bool) -> _Seen:
    import torch

    there, wanted = torch.isfinite(actual), torch.isfinite(expected)
    if wanted.numel() and not bool((there & wanted).any()):
        return _Seen.NOT_FINITE_ALONE if bool(wanted.all()) and not only_floats else _Seen.NOT_ALL_COMPARED
    # Runtimes disagree on rows that are fully masked.
    if only_floats or torch.equal(there, wanted):
        return _Seen.COMPARED
    return _Seen.NOT_FINITE_ALONE if bool(wanted.all()) else _Seen.NOT_ALL_COMPARED


def _difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference of values that are finite on both sides, relative to the largest value or 1."""
    import torch

    there, wanted = actual.detach().cpu().to(torch.float64), expected.detach().cpu().to(torch.float64)
    is_finite = torch.isfinite(wanted) & torch.isfinite(there)
    if not bool(is_finite.any()):
        return 0.0
    apart, size = (torch.where(is_finite, values, 0.0).abs().max() for values in (there - wanted, wanted))
    return float(apart / size.clamp(min=1.0))


def _check_contract(answers: Sequence[torch.Tensor], signature: Signature, trial: _Trial) -> None:
    for spec, tensor in zip(signature.outputs, answers, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(trial.sizes.get(dim) if isinstance(dim, str) else dim for dim in spec.shape or ())
        fits = spec.shape is None or (
            len(shape) == tensor.ndim
            and all(dim is None or dim == size for dim, size in zip(shape, tensor.shape, strict=True))
        )
        if dtype != spec.dtype or not fits:
            msg = f"output {spec.name!r} of the model is {_described(tensor)} at {trial}, expected {spec}"
            raise ConversionError(msg, hint="correct model.outputs, or the model itself")


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def module_call(named: torch.nn.Module) -> _Call:
    """Return a named module as `check_all_sizes` calls it: tensors on the CPU, no gradients, no autocast."""

    def call(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        import torch

        device = device_of(named)
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            return [tensor.cpu() for tensor in named(*(tensor.to(device) for tensor in inputs))]

    return call


def onnx_call(path: Path, signature: Signature) -> _Call:
    """Return an ONNX file as `check_all_sizes` calls it, in ONNX Runtime on the CPU."""
    import onnxruntime

    from paritygate.convert.onnx.check_onnx import load_in_onnxruntime

    load_in_onnxruntime(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in signature.outputs]

    def call(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        import torch

        fed: Mapping[str, Any] = {
            spec.name: array.numpy() for spec, array in zip(signature.inputs, inputs, strict=True)
        }
        return [torch.from_numpy(array) for array in session.run(names, fed)]

    return call
