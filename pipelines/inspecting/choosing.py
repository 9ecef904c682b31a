"""Choose the samples' inputs that a model takes: by name, or columns of a table side by side, and their dtypes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.pipelines.inspecting.picture_guess import guess_pictures
from paritygate.pipelines.inspecting.reading import ModelFacts
from paritygate.signature import Signature, TensorSpec, is_float_dtype
from paritygate.text import closest, first_line, first_of
from paritygate.validate.samples.arrow_tables import DATASET_FILE
from paritygate.validate.samples.label_column import without_label
from paritygate.validate.samples.pictures import holds_pictures
from paritygate.validate.samples.samples import SampleSource, open_samples
from paritygate.validate.samples.table_check import (
    check_inputs_named,
    check_points,
    check_table,
    hint_of_columns,
    is_row_of_numbers,
)
from paritygate.validate.samples.table_columns import (
    Column,
    ColumnKind,
    choices_of_numbers,
    columns_of_table,
    is_answer,
)

if TYPE_CHECKING:
    import inspect

    import numpy as np
    import torch
    from numpy.typing import NDArray

_SHOWN = 8


class InputChoice(Struct, frozen=True, kw_only=True):
    """The part of the samples that a model takes."""

    samples: SampleSource  # with the chosen columns and casts
    kept: tuple[str, ...] | None = None  # inputs of a model without a signature; None if unknown
    left_out: tuple[str, ...] = ()  # samples that are no input
    guessed: tuple[str, ...] = ()  # inputs that columns side by side were chosen for
    pictures: str = ""  # why pictures of a folder are prepared so


class _Wanted(Struct, frozen=True, kw_only=True):
    """The known inputs of a model: needed and optional ones."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    takes_any: bool = False
    specs: Mapping[str, TensorSpec] = field(default_factory=dict)
    signature: Signature | None = None


def choose_inputs(loaded: LoadedModel, facts: ModelFacts, samples: SampleSource) -> InputChoice:
    """Return the samples that the model takes. Reads the columns of a table, and the first rows.

    Columns that are already chosen stay.

    Raises:
        UsageError: Several columns could be its only input, and it takes none of the choices.
        InputFileError: The samples cannot be read.
    """
    wanted = _wanted(loaded, facts)
    path = samples.folder / samples.text
    if samples.images is not None:
        chosen = InputChoice(samples=samples, pictures="as preprocessor_config.json of the weights declares it")
    elif path.is_dir() and not (path / DATASET_FILE).is_file() and holds_pictures(path):
        guess = guess_pictures(loaded, facts, path, _one_needed(wanted))
        chosen = InputChoice(samples=replace(samples, images=guess.rules), pictures=guess.why)
    elif samples.columns:
        _check_named(wanted, samples)
        chosen = _choice(samples, columns_of_table(samples), samples.columns)
    elif wanted is None:
        chosen = InputChoice(samples=samples)
    elif columns := columns_of_table(samples):
        chosen = _of_table(loaded, wanted, samples, columns)
    else:
        chosen = _of_arrays(wanted, samples)
    return replace(chosen, samples=_with_casts(loaded, wanted, chosen.samples))


def _check_named(wanted: _Wanted | None, samples: SampleSource) -> None:
    """Check that columns are named for inputs of the model, and that the table's columns fit them."""
    specs = () if wanted is None else tuple(wanted.specs.values())
    if wanted is not None and not specs and not wanted.takes_any:
        check_inputs_named(samples, (*wanted.needed, *wanted.optional))
    check_table(samples, specs, signature=None if wanted is None else wanted.signature)


def reading_only(read: Callable[[], Iterator[Batch]], kept: Sequence[str] | None) -> Callable[[], Iterator[Batch]]:
    """Return a function that reads the same batches with these inputs alone; with all of them for None."""
    if kept is None:
        return read

    def read_kept() -> Iterator[Batch]:
        for batch in read():
            yield replace(batch, inputs={name: array for name, array in batch.inputs.items() if name in kept})

    return read_kept


def with_misspelt(
    loaded: LoadedModel, facts: ModelFacts, choice: InputChoice
) -> Iterator[tuple[str, str, Callable[[], Iterator[Batch]]]]:
    """Yield each unused name of the samples that is like an absent input, that input, and a reader that renames it."""
    wanted, samples = _wanted(loaded, facts), choice.samples
    used = {*samples.columns} or {*(choice.kept or ())}
    absent = [] if wanted is None else [name for name in (*wanted.needed, *wanted.optional) if name not in used]
    for name in choice.left_out:
        if like := closest(name, absent):
            columns = {**samples.columns, name: (name,)} if samples.columns else {}
            widened = replace(samples, columns=columns, pad={**samples.pad, name: 0})
            read = reading_only(open_samples(widened), (*used, name))
            yield name, like, _renaming(read, name, like)


def _renaming(read: Callable[[], Iterator[Batch]], name: str, like: str) -> Callable[[], Iterator[Batch]]:
    def read_renamed() -> Iterator[Batch]:
        for batch in read():
            renamed = {(like if key == name else key): array for key, array in batch.inputs.items()}
            yield replace(batch, inputs=renamed)

    return read_renamed


def _wanted(loaded: LoadedModel, facts: ModelFacts) -> _Wanted | None:
    if facts.signature is not None:
        specs = {spec.name: spec for spec in facts.signature.inputs}
        return _Wanted(needed=tuple(specs), specs=specs, signature=facts.signature)
    if loaded.ref.kind is SourceKind.TORCH:
        from paritygate.models.torch.module import parameters_of_forward

        return _of_parameters(parameters_of_forward(loaded.model).values())
    return _Wanted(needed=facts.parameters) if facts.parameters else None


def _of_parameters(parameters: Iterable[inspect.Parameter]) -> _Wanted | None:
    by_name = [item for item in parameters if item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY}]
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters)
    needed = tuple(item.name for item in by_name if item.default is item.empty)
    optional = tuple(item.name for item in by_name if item.default is not item.empty)
    return _Wanted(needed=needed, optional=optional, takes_any=takes_any) if by_name or takes_any else None


def _one_needed(wanted: _Wanted | None) -> str | None:
    """Return the parameter for pictures: `pixel_values` as in transformers, or the only needed one."""
    names = () if wanted is None else (*wanted.needed, *wanted.optional)
    if "pixel_values" in names:
        return "pixel_values"
    return wanted.needed[0] if wanted is not None and len(wanted.needed) == 1 else None


def _by_name(wanted: _Wanted, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns with names of inputs, without training targets unless they are needed."""
    names = [column.name for column in columns]
    if not (wanted.needed or wanted.optional):
        # A function of any keywords takes every column except texts and targets.
        kinds = {ColumnKind.NUMBER, ColumnKind.LIST}
        return tuple(item.name for item in columns if item.kind in kinds and not is_answer(item.name))
    optional = [name for name in wanted.optional if name in names and not is_answer(name)]
    return (*(name for name in wanted.needed if name in names), *optional)


def _of_arrays(wanted: _Wanted, samples: SampleSource) -> InputChoice:
    """Return the arrays of a file or function that are inputs, where the model has no signature."""
    if wanted.specs:
        return InputChoice(samples=samples)
    first = next(iter(open_samples(replace(samples, batch_size=1))()), None)
    columns = [
        Column(name=name, kind=ColumnKind.TEXT if array.dtype.kind == "U" else ColumnKind.LIST)
        for name, array in ({} if first is None else first.inputs).items()
    ]
    input_names = _by_name(wanted, columns)
    if not input_names or not {*wanted.needed} <= {*input_names}:
        # An array with another name is passed by position, and text is not a tensor.
        input_names = tuple(column.name for column in columns if column.kind is not ColumnKind.TEXT)
    left_out = tuple(column.name for column in columns if column.name not in input_names)
    return (
        InputChoice(samples=samples, kept=input_names, left_out=left_out) if left_out else InputChoice(samples=samples)
    )


def _of_table(loaded: LoadedModel, wanted: _Wanted, samples: SampleSource, columns: Sequence[Column]) -> InputChoice:
    named = _by_name(wanted, columns)
    missing = [name for name in wanted.needed if name not in named]
    unused = [column for column in columns if column.name not in named]
    if not missing:
        return (
            _choice(samples, columns, {name: (name,) for name in named})
            if unused and named
            else InputChoice(samples=samples)
        )
    choices = choices_of_numbers(unused)
    if len(missing) != 1 or len(unused) == 1:
        # A single one is renamed, and several missing ones are refused, with the names on both sides.
        return InputChoice(samples=samples)
    rest = {name: (name,) for name in named}
    lists = [column.name for column in unused if column.kind is ColumnKind.LIST]
    spec = wanted.specs.get(missing[0])
    if len(lists) == 1 and (spec is None or spec.dtype != "string"):
        return _choice(samples, columns, {**rest, missing[0]: (lists[0],)}, guessed=missing)
    if spec is not None and not is_row_of_numbers(spec):
        return InputChoice(samples=samples)
    check_points(samples, unused, choices, None if spec is None or spec.shape is None else spec.shape[1])
    if not choices:
        return InputChoice(samples=samples)
    if labelled := without_label(samples, wanted.signature, columns, choices[0]):
        # Last, because a name such as `churned` alone does not show that the model takes no such number.
        choices.append(labelled)
    fitting = _fitting(loaded, wanted, samples, missing[0], rest, choices)
    return _choice(samples, columns, {**rest, missing[0]: tuple(fitting)}, guessed=missing)


def _choice(
    samples: SampleSource,
    columns: Sequence[Column],
    chosen: Mapping[str, tuple[str, ...]],
    *,
    guessed: Sequence[str] = (),
) -> InputChoice:
    read = {name for names in chosen.values() for name in names}
    left_out = tuple(column.name for column in columns if column.name not in read)
    return InputChoice(samples=replace(samples, columns=dict(chosen)), left_out=left_out, guessed=tuple(guessed))


def _fitting(  # noqa: PLR0913, PLR0917 - the model, its inputs, and what they may be
    loaded: LoadedModel,
    wanted: _Wanted,
    samples: SampleSource,
    name: str,
    rest: Mapping[str, tuple[str, ...]],
    candidates: Sequence[Sequence[str]],
) -> Sequence[str]:
    """Return the first candidate with the declared width, or that the model accepts."""
    spec = wanted.specs.get(name)
    width = None if spec is None or spec.shape is None else spec.shape[1]
    if isinstance(width, int):
        chosen = next((columns for columns in candidates if len(columns) == width), None)
        reason = f"the input has {width} numbers a row"
    elif (spec is None and loaded.ref.kind is SourceKind.TORCH) or loaded.ref.kind is SourceKind.ONNX:
        chosen, reason = _answered(loaded, wanted, samples, name, rest, candidates)
    else:
        return candidates[0]
    if chosen is not None:
        return chosen
    listed = first_of(max(candidates, key=len), _SHOWN)
    counts = " or ".join(str(len(columns)) for columns in candidates)
    msg = f"the columns of {samples.text} do not fit the input {name!r}: {reason} (got {counts} columns: {listed})"
    raise UsageError(msg, hint=hint_of_columns(samples, name, candidates, width, wanted.signature))


def _answered(  # noqa: PLR0913, PLR0917 - as _fitting
    loaded: LoadedModel,
    wanted: _Wanted,
    samples: SampleSource,
    name: str,
    rest: Mapping[str, tuple[str, ...]],
    candidates: Sequence[Sequence[str]],
) -> tuple[Sequence[str] | None, str]:
    answer = _answering(loaded)
    reason = ""
    for columns in candidates:
        # Lists beside them may be of different lengths, which say nothing about the columns.
        read = replace(samples, batch_size=2, columns={**rest, name: tuple(columns)}, pad=dict.fromkeys(rest, 0))
        batch = next(iter(open_samples(_with_casts(loaded, wanted, read))()), None)
        if batch is None:
            return columns, ""
        try:
            answer(batch.inputs)
        except BackendError as err:
            reason = reason or str(err).splitlines()[0]
        except ParitygateError:
            raise
        except Exception as err:  # noqa: BLE001 - a module raises whatever it raises
            reason = reason or first_line(err)
        else:
            return columns, ""
    return None, reason


def _answering(loaded: LoadedModel) -> Callable[[Arrays], object]:
    if loaded.ref.kind is SourceKind.TORCH:
        from paritygate.models.torch.module import answer_of

        return functools.partial(answer_of, loaded.model)
    from paritygate.validate.runners.opening import open_runner

    return open_runner(loaded).run


def _with_casts(loaded: LoadedModel, wanted: _Wanted | None, samples: SampleSource) -> SampleSource:
    """Return the samples with a cast of each input whose numbers have another dtype than the model takes."""
    if wanted is None:
        return samples
    own = _dtype_of_parameters(loaded)
    first = next(iter(open_samples(replace(samples, batch_size=1))()), None)
    casts = {}
    for name, array in ({} if first is None else first.inputs).items():
        spec = wanted.specs.get(name)
        dtype = own if spec is None and not wanted.specs else "" if spec is None else spec.dtype
        is_side_by_side = len(samples.columns.get(name, ())) > 1
        if dtype and _is_cast(array, dtype, takes_integers=spec is not None or is_side_by_side):
            casts[name] = dtype
    return replace(samples, cast=casts) if casts else samples


def _is_cast(array: NDArray[np.generic], dtype: str, *, takes_integers: bool) -> bool:
    # A module's integers may be ids, but several columns side by side are not.
    is_number = array.dtype.kind == "f" or (takes_integers and array.dtype.kind in "iub")
    return is_number and is_float_dtype(dtype) and dtype not in {"bfloat16", array.dtype.name}


def _dtype_of_parameters(loaded: LoadedModel) -> str:
    """Return the only dtype of a PyTorch module's float parameters, or an empty text."""
    if loaded.ref.kind is not SourceKind.TORCH:
        return ""
    module: torch.nn.Module = loaded.model
    tensors: Iterable[Any] = itertools.chain(module.parameters(), module.buffers())
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else ""
