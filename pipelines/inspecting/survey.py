"""Collect the facts that a first spec is guessed from: the model, all rows of the samples, and its first outputs."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.errors import BackendError, InputFileError, MissingBackendError, UsageError, ZeroRowsError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import SourceKind
from paritygate.pipelines.compare.first_rows import HOW_TO_RENAME
from paritygate.pipelines.compare.independent_batch_dims import rows_apart
from paritygate.pipelines.inspecting.attempts import impossible_targets
from paritygate.pipelines.inspecting.choosing import InputChoice, choose_inputs, reading_only, with_misspelt
from paritygate.pipelines.inspecting.inspection import Inspection
from paritygate.pipelines.inspecting.labels import LabelsSeen
from paritygate.pipelines.inspecting.reading import INPUTS_AND_OUTPUTS, ModelFacts, inspection_of, read_model
from paritygate.pipelines.process.child import Progress
from paritygate.signature import BATCH, Dim, Signature, TensorSpec, is_float_dtype, rename_signature
from paritygate.validate.measure.robust_scale import bulk_of, repeated_fills
from paritygate.validate.probes.graph.uses import GraphUse, uses_of_inputs
from paritygate.validate.probes.input_stats import Surveyor
from paritygate.validate.probes.inputs.roles import InputRole, Role
from paritygate.validate.probes.inputs.survey import Survey
from paritygate.validate.probes.role_inference import infer_roles
from paritygate.validate.probes.undeclared_padding import padding_masks, unread_by
from paritygate.validate.reference.refused_rows import answers_of
from paritygate.validate.runners.opening import open_runner
from paritygate.validate.runners.runner import Runner
from paritygate.validate.samples.feeding import check_shapes, fit_inputs
from paritygate.validate.samples.label_column import possible_labels
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.random_rows import RANDOM, RandomInput, RandomRows
from paritygate.validate.samples.samples import SampleSource, open_samples

# Guesses for unknown dims: rows, sides of pictures, and others.
BATCH_DIM = Dim(min=1, opt=8, max=64)
_SIDE_DIM = Dim(min=64, opt=128, max=256)
_OTHER_DIM = Dim(min=8, opt=32, max=64)
_IMAGE_RANK = 4
_IDS_RANK = 2
_TABLE_RANK = 2
_RANDOM_ROWS = 128
# Rows that show what a generated input is for; their values do not matter yet.
_TRIAL_ROWS = 32
# The model runs on at least so many rows, if they exist, which shows what an output is.
_ROWS_ANSWERED = 256
# Shares of a whole sum up to 1, apart from rounding.
_SUM_SLACK = 1e-3
_HALF = 0.5
# Nobody writes limits for more columns.
_MOST_COLUMNS = 16


class InputFacts(Struct, frozen=True, kw_only=True):
    """The role of an input and the reason; a mask has the input whose positions it masks in `of`."""

    role: Role
    why: str
    of: str | None = None


class AnswerFacts(Struct, frozen=True, kw_only=True):
    """Facts on one float output."""

    low: float
    high: float
    is_shares: bool  # the last axis always has 0 to 1 and sums up to 1
    is_on_both_sides: bool  # of a half
    spreads: tuple[float, ...] = ()  # of each of a few columns, 0 where it hardly varies


class ModelSurvey(Struct, frozen=True, kw_only=True):
    """A model with facts from its samples."""

    inspection: Inspection
    signature: Signature  # under the names served
    is_said: bool  # the model declares it, so the spec need not
    rename: Mapping[str, str]  # the name served, by the model's own
    rows: int
    batch_size: int | None  # if the model fixes it
    pad: Mapping[str, float]  # for inputs of a table whose rows differ in length
    sizes: Mapping[str, tuple[int, int, int]]  # smallest, median and largest of named dims
    row_dims: tuple[str, ...]  # dims that are the number of rows
    inputs: Mapping[str, InputFacts]
    answers: Mapping[str, AnswerFacts]  # by output; empty if it did not run
    random: RandomRows | None  # how rows were generated
    argmax_of: Mapping[str, str] = field(default_factory=dict)  # the scores of integer outputs, always their argmax
    valid_where: Mapping[str, str] = field(default_factory=dict)  # the padding mask by output, of ONNX graphs
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by input, if not all are inputs
    cast: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # samples that are no input
    side_by_side: tuple[str, ...] = ()  # inputs made of columns with other names
    possible_labels: Mapping[str, list[str]] = field(default_factory=dict)  # columns among those, by input
    impossible: Mapping[str, str] = field(default_factory=dict)  # usual targets, with reasons
    half_precision: str | None = None  # float16 or bfloat16
    images: PictureRules | None = None
    pictures: str = ""  # why they are prepared so
    not_numbers: Mapping[str, str] = field(default_factory=dict)  # the first row with NaN, by input


def survey_model(loaded: LoadedModel, samples: SampleSource | None, report: Progress) -> ModelSurvey:
    """Return the facts for a spec of the model. Reads all samples, or generates some for None.

    Raises:
        UsageError: The model has no signature and there are no samples, or the samples do not fit it.
        InputFileError: The model or the samples cannot be read.
        BackendError: The model fails on the samples.
        ZeroRowsError: The samples are empty.
    """
    uses = _uses(loaded)
    report("reading the model", 0, 0)
    facts = read_model(loaded, None)
    report("reading the samples", 0, 0)
    choice = None if samples is None else choose_inputs(loaded, facts, samples)
    samples = None if choice is None else filled_up(choice.samples, uses)
    read = None if samples is None or choice is None else reading_only(open_samples(samples), choice.kept)
    if facts.signature is None and read is not None and choice is not None and samples is not None:
        facts = _read_with_samples(loaded, facts, replace(choice, samples=samples), read)
    signature, rename = _served(loaded, facts, read)
    if read is not None and loaded.ref.kind is SourceKind.SAVEDMODEL:
        signature = rows_apart(signature, read)
    uses = {rename.get(name, name): use for name, use in uses.items()}
    if samples is None:
        rows = _made_up(signature, uses)
        samples = SampleSource(text=RANDOM, folder=Path(), batch_size=BATCH_DIM.opt, random=rows)
    fixed = _fixed_rows(signature)
    samples = replace(samples, batch_size=samples.batch_size if fixed is None else fixed)
    # A declared signature is read again later; here only that of the samples is passed on.
    ref = replace(loaded.ref, rename=rename, signature=signature if facts.rows is not None else None)
    seen = _Seen(signature, {name: use.equals for name, use in uses.items() if use.equals is not None})
    runner = _opened(replace(loaded, ref=ref))
    for batch in _answered(runner, samples, seen):
        seen.add(batch)
        report("reading the samples", seen.rows, 0)
    if not seen.rows:
        raise ZeroRowsError("the samples hold no rows", hint="give at least one row, which shows the model's inputs")
    survey = seen.surveyor.finish()
    roles = infer_roles(signature, survey, uses=uses)
    return ModelSurvey(
        inspection=inspection_of(loaded, facts),
        signature=signature,
        is_said=facts.rows is None,
        rename=rename,
        rows=seen.rows,
        batch_size=fixed,
        pad=samples.pad,
        columns=samples.columns,
        cast=samples.cast,
        left_out=() if choice is None else choice.left_out,
        impossible=impossible_targets(loaded),
        half_precision=facts.half_precision,
        images=samples.images,
        pictures="" if choice is None else choice.pictures,
        side_by_side=() if choice is None else choice.guessed,
        possible_labels={
            name: possible_labels(samples, signature, samples.columns[name])
            for name in (() if choice is None else choice.guessed)
        },
        not_numbers=seen.not_numbers,
        sizes=seen.sizes(),
        row_dims=tuple(seen.row_dims),
        inputs={name: InputFacts(role=role.role, why=role.why, of=role.of) for name, role in roles.items()},
        answers={name: state.finish() for name, state in seen.answers.items()},
        random=samples.random,
        argmax_of=seen.labels.finish(),
        valid_where={} if runner is None else _valid_where(runner, survey, roles, uses),
    )


def _read_with_samples(
    loaded: LoadedModel, facts: ModelFacts, choice: InputChoice, read: Callable[[], Iterator[Batch]]
) -> ModelFacts:
    try:
        return read_model(loaded, read)
    except (BackendError, UsageError) as err:
        for name, like, renamed in with_misspelt(loaded, facts, choice):
            with contextlib.suppress(BackendError, InputFileError, UsageError):
                read_model(loaded, renamed)
                msg = f"the samples hold {name!r}, which is not an input of the model: did you mean {like!r}? {err}"
                break
        else:
            raise
    raise UsageError(msg, hint=f"name it {like!r} in the samples")


def _valid_where(
    runner: Runner, survey: Survey, roles: Mapping[str, InputRole], uses: Mapping[str, GraphUse]
) -> dict[str, str]:
    """Return the mask of each output that is padding by every test for an undeclared one.

    A mask of observed values may look alike, but a model that fills in the others has outputs where it is 0.
    """
    masks = padding_masks(runner.signature, survey, roles, uses)
    return {output: mask.input for output, mask in unread_by(runner, survey, roles, masks).items()}


def _uses(loaded: LoadedModel) -> dict[str, GraphUse]:
    from paritygate.models.onnx.file import read_onnx

    return dict(uses_of_inputs(read_onnx(loaded.ref.path))) if loaded.ref.kind is SourceKind.ONNX else {}


def filled_up(samples: SampleSource, uses: Mapping[str, GraphUse]) -> SampleSource:
    """Return the samples with padding values for the lists of a table that have shorter rows.

    It is the number that the model compares with, if any, else 0. For lists of zeros and ones, such as masks, it is 0,
    because padding is nothing observed.
    """
    first = next(iter(open_samples(replace(samples, batch_size=1))()), None)
    # Other kinds of samples have no lengths, and no lists to pad.
    lists = [] if first is None else [name for name in first.lengths if first.inputs[name].dtype.kind != "U"]
    pads: dict[str, float] = {}
    for name in lists:
        equals = uses[name].equals if name in uses else None
        pads[name] = 0 if equals is None else equals
    if not pads:
        return samples
    padded = replace(samples, pad=pads)
    is_ragged, is_binary = dict.fromkeys(pads, False), dict.fromkeys(pads, True)
    for batch in open_samples(padded)():
        for name in pads:
            lengths = batch.lengths.get(name, ())
            is_ragged[name] = is_ragged[name] or len(set(lengths)) > 1
            is_binary[name] = is_binary[name] and bool(np.isin(batch.inputs[name], (0, 1)).all())
    return replace(samples, pad={name: 0 if is_binary[name] else pads[name] for name in pads if is_ragged[name]})


def _served(
    loaded: LoadedModel, facts: ModelFacts, read: Callable[[], Iterator[Batch]] | None
) -> tuple[Signature, dict[str, str]]:
    """Return the signature under the names served, and the names that differ from the model's own.

    If one input has no array and one array is not an input, they are the same.

    Raises:
        InputFileError: A SavedModel lacks the chosen signature.
        UsageError: The model has no signature, and there are no samples.
    """
    if facts.signature is None:
        why = facts.unknown[INPUTS_AND_OUTPUTS]
        if facts.signatures:
            raise InputFileError(why, hint=f"name one of these: --signature {shlex.quote(facts.signatures[0])}")
        msg = f"the inputs and outputs of {loaded.ref.text} are unknown: {why}"
        raise UsageError(msg, hint="give rows that the model accepts, as an .npz or .jsonl file: --samples FILE")
    first = None if read is None else next(iter(read()), None)
    if first is None or facts.rows is not None:
        return facts.signature, {}
    names = [spec.name for spec in facts.signature.inputs]
    missing = [name for name in names if name not in first.inputs]
    unused = [name for name in first.inputs if name not in names]
    if len(missing) == len(unused) == 1 and unused[0] not in {spec.name for spec in facts.signature.outputs}:
        rename = {missing[0]: unused[0]}
        return rename_signature(facts.signature, rename), rename
    return facts.signature, {}


def _fixed_rows(signature: Signature) -> int | None:
    """Return how many rows a call takes, where every input fixes it."""
    first = [spec.shape[0] for spec in signature.inputs if spec.shape]
    return first[0] if first and isinstance(first[0], int) and all(dim == first[0] for dim in first) else None


def _made_up(signature: Signature, uses: Mapping[str, GraphUse]) -> RandomRows:
    """Return rules for generated rows that a model probably accepts, which follow from the role of each input."""
    shapes = {spec.name: _named_shape(spec) for spec in signature.inputs}
    dims: dict[str, Dim] = {}
    for shape in shapes.values():
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                dims.setdefault(dim, _within(signature.dims.get(dim), _usual(shape, axis)))
    inputs = {spec.name: RandomInput(dtype=spec.dtype, shape=shapes[spec.name]) for spec in signature.inputs}
    trial = RandomRows(inputs=inputs, rows=_TRIAL_ROWS, dims=dims)
    surveyor = Surveyor(signature, seed=0)
    source = SampleSource(text=RANDOM, folder=Path(), batch_size=BATCH_DIM.opt, random=trial)
    for batch in open_samples(source)():
        surveyor.add(batch, batch.inputs)
    roles = infer_roles(signature, surveyor.finish(), uses=uses)
    for name, role in roles.items():
        inputs[name] = _of_role(inputs[name], role)
        places = shapes[name][1] if len(shapes[name]) > 1 else 0
        if role.positions is not None and isinstance(places, str):
            dims[places] = _within(Dim(min=1, opt=role.positions, max=role.positions), dims[places])
    return RandomRows(inputs=inputs, rows=_RANDOM_ROWS, dims=dims)


def _named_shape(spec: TensorSpec) -> tuple[int | str, ...]:
    if spec.shape is None:
        msg = f"the shape of the input {spec.name!r} is unknown, so no rows can be generated"
        raise UsageError(msg, hint="give rows that the model accepts: --samples FILE")
    # For several inputs, such as ids and their mask, one common size is the likelier guess.
    is_sequence = len(spec.shape) == _IDS_RANK and not is_float_dtype(spec.dtype)
    others = ("sequence" if is_sequence else f"{spec.name}_dim{axis}" for axis in range(1, len(spec.shape)))
    named = (BATCH, *others)[: len(spec.shape)]
    return tuple(name if dim is None else dim for name, dim in zip(named, spec.shape, strict=True))


def _usual(shape: tuple[int | str, ...], axis: int) -> Dim:
    if axis == 0:
        return BATCH_DIM
    return _SIDE_DIM if len(shape) >= _IMAGE_RANK else _OTHER_DIM


def _within(allowed: Dim | None, usual: Dim) -> Dim:
    if allowed is None:
        return usual
    low, opt, high = (min(max(size, allowed.min), allowed.max) for size in (usual.min, usual.opt, usual.max))
    return Dim(min=low, opt=opt, max=high)


def _of_role(made: RandomInput, role: InputRole) -> RandomInput:
    if role.role is Role.MASK:
        return replace(made, mask=True)
    if role.role is Role.ID and role.is_table:
        return replace(made, low=role.low or 0, high=role.high or 0)
    if role.role is Role.LENGTH:
        return replace(made, low=1, high=1)
    if role.role is Role.NUMBER and is_float_dtype(made.dtype):
        return replace(made, low=-1.0)
    # Ids of an unknown table nearly always include the first two.
    return replace(made, high=255) if role.role is Role.IMAGE and made.dtype == "uint8" else made


def _opened(loaded: LoadedModel) -> Runner | None:
    """Return the model, loaded; None if its runtime is not installed."""
    try:
        return open_runner(loaded)
    except MissingBackendError:
        return None


def _answered(runner: Runner | None, samples: SampleSource, seen: _Seen) -> Iterator[Batch]:
    """Yield the batches, after the model ran on the first ones, if its runtime is installed."""
    for batch in open_samples(samples)():
        if batch.rows and runner is not None and seen.rows < _ROWS_ANSWERED:
            inputs = seen.fit(batch)
            try:
                seen.add_answers(answers_of(runner, batch, inputs, rows_before=seen.rows))
            except BackendError as err:
                if samples.random is None:
                    raise
                msg = f"the model failed on generated rows: {err}"
                raise UsageError(msg, hint="give rows that the model accepts: --samples FILE") from err
        yield batch


class _Seen:
    """Facts from the samples and outputs so far."""

    def __init__(self, signature: Signature, pads: Mapping[str, int]) -> None:
        self.signature = signature
        self.surveyor = Surveyor(signature, seed=0, pads=pads)
        self.rows = 0
        self.row_dims: dict[str, None] = {}
        self.answers: dict[str, _AnswerState] = {}
        self.labels = LabelsSeen()
        self.not_numbers: dict[str, str] = {}
        self._sizes: dict[str, Counter[int]] = {}

    def fit(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of a batch for the model; raise UsageError if they do not fit it."""
        inputs = fit_inputs(batch, self.signature, rename=HOW_TO_RENAME)
        check_shapes(batch, inputs, self.signature)
        return inputs

    def add(self, batch: Batch) -> None:
        """Add one batch of the samples; raise UsageError if it does not fit the model."""
        if not batch.rows:
            return
        inputs = self.fit(batch)
        self.rows += batch.rows
        self.surveyor.add(batch, inputs)
        self._add_not_numbers(batch, inputs)
        for spec in self.signature.inputs:
            for axis, dim in enumerate(spec.shape or ()):
                size = inputs[spec.name].shape[axis]
                if not isinstance(dim, str):
                    continue
                if axis == 0 and size == batch.rows:
                    self.row_dims[dim] = None
                    continue
                lengths = batch.lengths.get(spec.name, ()) if axis == 1 else ()
                self._sizes.setdefault(dim, Counter()).update(lengths or [size] * batch.rows)

    def _add_not_numbers(self, batch: Batch, inputs: Arrays) -> None:
        for name, array in inputs.items():
            if name not in self.not_numbers and array.dtype.kind == "f" and array.ndim and len(array) == batch.rows:
                rows = np.isnan(array.astype(np.float32)).reshape(batch.rows, -1).any(axis=1)
                if rows.any():
                    self.not_numbers[name] = batch.ids[int(rows.argmax())]

    def add_answers(self, outputs: Arrays) -> None:
        """Add the model's outputs for one batch."""
        self.labels.add(outputs)
        for name, array in outputs.items():
            if array.dtype.kind in "fV" and array.size:
                self.answers.setdefault(name, _AnswerState()).add(array.astype(np.float64))

    def sizes(self) -> dict[str, tuple[int, int, int]]:
        """Return the smallest, the median and the largest size of each named dim that is not the number of rows."""
        sizes_by_dim = {}
        for dim, counts in self._sizes.items():
            if dim not in self.row_dims:
                ordered = sorted(counts.elements())
                sizes_by_dim[dim] = (ordered[0], ordered[len(ordered) // 2], ordered[-1])
        return sizes_by_dim


class _AnswerState(Struct, kw_only=True):
    low: float = np.inf
    high: float = -np.inf
    is_shares: bool = True
    sides: set[bool] = field(default_factory=set)
    tables: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, array: NDArray[np.float64]) -> None:
        if array.ndim == _TABLE_RANK and 1 < array.shape[1] <= _MOST_COLUMNS:
            self.tables.append(array)
        finite = array[np.isfinite(array)]
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
            self.sides |= {bool(side) for side in np.unique(finite > _HALF)}
        has_classes = array.ndim > 1 and array.shape[-1] > 1 and finite.size == array.size
        self.is_shares = (
            self.is_shares
            and has_classes
            and float(array.min()) >= 0
            and bool((np.abs(array.sum(axis=-1) - 1) <= _SUM_SLACK).all())
        )

    def finish(self) -> AnswerFacts:
        has_values = self.low <= self.high
        return AnswerFacts(
            low=self.low if has_values else 0.0,
            high=self.high if has_values else 0.0,
            is_shares=self.is_shares,
            is_on_both_sides=len(self.sides) > 1,
            spreads=() if self.is_shares else self._spreads(),
        )

    def _spreads(self) -> tuple[float, ...]:
        if len({table.shape[1] for table in self.tables}) != 1:
            return ()
        columns = np.concatenate(self.tables).T
        return tuple(bulk_of(columns, repeated_fills(columns, ())).own_spread.tolist())
