"""Whether a converted model answers at every size that its signature promises: a trace has seen only one of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.convert.causes import one_line
from paritygate.convert.torch_program import example_sizes, full_shape, torch_dtype
from paritygate.errors import ConversionError, ParitygateError
from paritygate.signature import Signature, TensorSpec
from paritygate.torch_module import device_of

if TYPE_CHECKING:
    import torch

__all__ = ["check_answers", "module_call", "onnx_call"]

# Finite differences are the gate's to judge, on real inputs: this is to tell another computation from the same one.
_LARGEST_DIFFERENCE = 1e-3
# For a dim whose sizes are not declared.
_OTHER_SIZES = (1, 17)
# Above so many values in the inputs a run takes long, and the memory of much more than them.
_MOST_VALUES = 1 << 23
# Where the exporter left its comparisons of sizes to go by, the far ends are the least of what is to be tried.
_MOST_VALUES_ELSEWHERE = 1 << 20
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """Sizes to run at: all as in the trace, but for one dim."""

    sizes: dict[str, int]
    dim: str | None
    is_declared: bool = True
    # Whether another large size would do as well.
    is_end: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items()) or "its fixed sizes"


_Call = Callable[[Sequence["torch.Tensor"]], Sequence["torch.Tensor"]]


def check_answers(
    candidate: _Call,
    signature: Signature,
    *,
    expected: _Call | None,
    is_other_runtime: bool = False,
    other_sizes: Mapping[str, Sequence[int]] | None = None,
) -> str | None:
    """Check that the model answers at the sizes of its trace, and at the ends of the range of each symbolic dim.

    The inputs are random, floats normal and integers 0 or 1, so that a branch which was traced one way shows. Where
    the inputs at an end would be very large, a smaller size is taken instead, and a note says so.

    Args:
        candidate: The converted model: tensors in, tensors out, both in the order of the signature.
        signature: What is promised.
        expected: What it was made from, called likewise; None to look at shapes and dtypes only.
        is_other_runtime: Whether the two are computed by different runtimes. Then what differs at the sizes of the
            trace already is the gate's to judge, on real inputs, and so are integers, which ties may turn.
        other_sizes: More sizes to run at, by dim.

    Returns:
        A note on what could not be looked at; None where there is nothing to say.

    Raises:
        ConversionError: It fails, or answers otherwise, at a size that is promised; the message names the dim.
    """
    notes: list[str] = []
    compares_values = True
    most_values = _MOST_VALUES_ELSEWHERE if is_other_runtime else _MOST_VALUES
    # A model of what was made is asked first: where that fails, the signature promises what it does not do.
    asked = expected or candidate
    for trial in _trials(signature, other_sizes or {}, most_values, notes):
        inputs, answers = _answers(asked, signature, trial)
        if isinstance(answers, Exception):
            if is_other_runtime and trial.dim is None:
                return f"it was not tried at other sizes: the module takes neither random inputs nor zeros at {trial}"
            if trial.is_declared:
                raise _fails_itself(inputs, trial, answers, is_source=expected is not None) from answers
            continue
        if not any(bool(tensor.any()) for tensor in inputs if tensor.numel()):
            notes.append("it was checked at other sizes with zeros only: the model takes no random inputs")
        if expected is not None:
            actual = _run(candidate, inputs, trial)
            if is_other_runtime and trial.dim is None and _differs(actual, answers):
                compares_values = False
                notes.append(f"at other sizes its values were not compared: on random inputs they differ at {trial}")
            _check_same(actual, answers, signature, trial, compares_values, is_other_runtime)
            answers = actual
        _check_contract(answers, signature, trial)
    return "; ".join(dict.fromkeys(notes)) or None


def _trials(
    signature: Signature, others: Mapping[str, Sequence[int]], most_values: int, notes: list[str]
) -> Iterator[_Trial]:
    """Yield what is to be run, of what is too large a smaller one; say in `notes` what was changed or left out."""
    usual = example_sizes(signature)
    for trial in _all_trials(signature, others):
        values = sum(math.prod(full_shape(spec, trial.sizes)) for spec in signature.inputs)
        most = most_values if trial.is_end else _MOST_VALUES
        if trial.dim is None or trial.sizes[trial.dim] <= usual[trial.dim] or values <= most:
            yield trial
            continue
        size = trial.sizes[trial.dim]
        smaller = size * most // values
        if not trial.is_end or smaller <= usual[trial.dim]:
            notes.append(f"it was not tried at {trial}, where its inputs are {values} values")
            continue
        notes.append(f"it was tried at {trial.dim}={smaller} and not at {size}, where its inputs are {values} values")
        yield replace(trial, sizes={**trial.sizes, trial.dim: smaller})


def _all_trials(signature: Signature, others: Mapping[str, Sequence[int]]) -> Iterator[_Trial]:
    usual = example_sizes(signature)
    fed = {dim for spec in signature.inputs for dim in spec.shape or () if isinstance(dim, str)}
    usual = {name: size for name, size in usual.items() if name in fed}
    least = {name: signature.dims[name].min if name in signature.dims else size for name, size in usual.items()}
    yield _Trial(sizes=usual, dim=None)
    for name in usual:
        if name in signature.dims and least[name] != usual[name]:
            yield _Trial(sizes={**usual, name: least[name]}, dim=name)
    for name in usual:
        for size in others.get(name, ()):
            yield _Trial(sizes={**usual, name: size}, dim=name, is_declared=name in signature.dims)
    for name in usual:
        if name not in signature.dims:
            yield from (_Trial(sizes={**usual, name: size}, dim=name, is_declared=False) for size in _OTHER_SIZES)
        elif signature.dims[name].max not in {usual[name], least[name]}:
            # The other dims at their smallest, which have been tried by now: large models at their largest take long.
            yield _Trial(sizes={**least, name: signature.dims[name].max}, dim=name, is_end=True)


def _answers(
    asked: _Call, signature: Signature, trial: _Trial
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor] | Exception]:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    inputs = [_random(spec, trial.sizes, generator) for spec in signature.inputs]
    with contextlib.suppress(Exception):
        return inputs, asked([tensor.clone() for tensor in inputs])
    # 1 may be no valid id, or random numbers not what the model takes; zeros are what it was traced with.
    inputs = [torch.zeros_like(tensor) for tensor in inputs]
    try:
        return inputs, asked([tensor.clone() for tensor in inputs])
    except Exception as err:  # noqa: BLE001 - whatever the user's module raises
        return inputs, err


def _random(spec: TensorSpec, sizes: dict[str, int], generator: torch.Generator) -> torch.Tensor:
    import torch

    shape, dtype = full_shape(spec, sizes), torch_dtype(spec)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def _run(candidate: _Call, inputs: Sequence[torch.Tensor], trial: _Trial) -> Sequence[torch.Tensor]:
    try:
        return candidate([tensor.clone() for tensor in inputs])
    except ParitygateError:
        raise
    except Exception as err:
        msg = f"the converted model fails at {trial}{_blame(trial)}: {type(err).__name__}: {one_line(err)}"
        raise ConversionError(msg, hint=_hint(trial)) from err


def _blame(trial: _Trial) -> str:
    return "" if trial.dim is None else f", so the size of {trial.dim!r} is baked in"


def _hint(trial: _Trial) -> str:
    if trial.dim is None:
        return "the module may be random, or branch on the values of its inputs: a trace holds one branch"
    return (
        f"take what depends on the size of {trial.dim!r} out of the module, or declare model.dims.{trial.dim} "
        "with the sizes it is for"
    )


def _fails_itself(
    inputs: Sequence[torch.Tensor], trial: _Trial, cause: Exception, *, is_source: bool
) -> ConversionError:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
    what = "the module itself" if is_source else "the model"
    where = f"at {trial}" + (f" (dim {trial.dim!r})" if trial.dim else "")
    why = f"{type(cause).__name__}: {one_line(cause)}"
    msg = f"{what} does not answer {where}, which the signature promises: zeros of shape {shapes}: {why}"
    hint = (
        f"declare model.dims.{trial.dim} with the sizes that the model takes"
        if trial.dim
        else "let the model take zeros, which it is traced with, and declare its inputs as they are"
    )
    return ConversionError(msg, hint=hint)


def _differs(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Return whether values of one shape differ more than rounding explains; integers do not count."""
    return any(
        there.shape == wanted.shape
        and wanted.is_floating_point()
        and _difference(there, wanted, only_finite=True) > _LARGEST_DIFFERENCE
        for there, wanted in zip(actual, expected, strict=True)
    )


def _check_same(  # noqa: PLR0913, PLR0917 - what is compared, where, and how closely
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    signature: Signature,
    trial: _Trial,
    compares_values: bool,  # noqa: FBT001 - private, and named at the one call
    only_floats: bool,  # noqa: FBT001 - likewise
) -> None:
    for spec, there, wanted in zip(signature.outputs, actual, expected, strict=True):
        if there.shape != wanted.shape or there.dtype != wanted.dtype:
            seen, was = _described(there), _described(wanted)
            msg = f"output {spec.name!r} of the converted model is {seen} at {trial}, and was {was}{_blame(trial)}"
            raise ConversionError(msg, hint=_hint(trial))
        if not compares_values or (only_floats and not wanted.is_floating_point()):
            continue
        difference = _difference(there, wanted, only_finite=only_floats)
        if difference > _LARGEST_DIFFERENCE:
            msg = (
                f"output {spec.name!r} of the converted model is another at {trial}{_blame(trial)}: "
                f"it differs by {difference:.3g} of the largest value"
            )
            raise ConversionError(msg, hint=_hint(trial))


def _difference(actual: torch.Tensor, expected: torch.Tensor, *, only_finite: bool) -> float:
    """Return the largest difference, relative to the largest value or 1.

    Args:
        actual: The converted model's.
        expected: The source's, of the same shape.
        only_finite: Whether to leave out what is not finite on either side: what a row is that is masked altogether,
            as random masks have them, runtimes do not agree on. Else it is infinite where one is not finite alone.
    """
    import torch

    there, wanted = actual.detach().cpu().to(torch.float64), expected.detach().cpu().to(torch.float64)
    is_finite = torch.isfinite(wanted)
    if only_finite:
        is_finite &= torch.isfinite(there)
    elif not torch.equal(is_finite, torch.isfinite(there)):
        return float("inf")
    there, wanted = there[is_finite], wanted[is_finite]
    if not wanted.numel():
        return 0.0
    return float((there - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))


def _check_contract(answers: Sequence[torch.Tensor], signature: Signature, trial: _Trial) -> None:
    for spec, tensor in zip(signature.outputs, answers, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(trial.sizes.get(dim) if isinstance(dim, str) else dim for dim in spec.shape or ())
        fits = spec.shape is None or (
            len(shape) == tensor.ndim
            and all(dim is None or dim == size for dim, size in zip(shape, tensor.shape, strict=True))
        )
        if dtype != spec.dtype or not fits:
            msg = f"output {spec.name!r} of the model is {_described(tensor)} at {trial}, promised is {spec}"
            raise ConversionError(msg, hint="correct model.outputs, or the model itself")


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def module_call(named: torch.nn.Module) -> _Call:
    """Return a named module as `check_answers` calls it: tensors on the CPU, no gradients, no autocast."""

    def call(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        import torch

        device = device_of(named)
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            return [tensor.cpu() for tensor in named(*(tensor.to(device) for tensor in inputs))]

    return call


def onnx_call(path: Path, signature: Signature) -> _Call:
    """Return an ONNX file as `check_answers` calls it, in ONNX Runtime on the CPU.

    Raises:
        MissingBackendError: ONNX Runtime is not installed.
    """
    import onnxruntime

    from paritygate.convert.onnx_load import load_in_onnxruntime

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
