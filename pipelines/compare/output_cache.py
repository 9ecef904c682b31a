"""Cache the outputs of the models of a comparison, to judge them again by other limits without a model.

Limits change the verdict, not the outputs. So a comparison by other limits is the same job, which looks outputs up. An
input that is not in the cache is an error, and then the models run.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.errors import CacheMissError, MeasurementError
from paritygate.files import read_json, write_json_atomically
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.compare.sample_cache import SamplesKeeper, read_kept_samples
from paritygate.pipelines.process.child import ANSWERS_FILE, SAMPLES
from paritygate.signature import Signature
from paritygate.validate.reference.recording import ChunkWriter, read_chunks
from paritygate.validate.runners.runner import Runner, RuntimeFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.pipelines.compare.sample_cache import Dependencies

    Arrays = Mapping[str, NDArray[np.generic]]
    from paritygate.batch import Batch

    AskAfresh = Callable[[Mapping[str, Batch], Path], "AnsweredAfresh"]

# All of them are in memory during a lookup.
_MOST_BYTES = 256 << 20
_OTHER = "another-process"
# Rows that fail run again, to measure the reference's own noise.
_ASKED_OF_FAILING = "rows that are now beyond a limit must run again, but they did not"


class _Opened(Struct, frozen=True, kw_only=True):
    """Properties of an opened model."""

    rename: Mapping[str, str]  # served names, by its own
    kind: SourceKind
    digest: str | None
    signature: Signature
    second_names: Mapping[str, str]  # of outputs
    before: RuntimeFacts  # before any call
    after: RuntimeFacts  # since the first call


class _CachedModel(LoadedModel, frozen=True, kw_only=True):
    """A model that is not loaded, with the digest that it had."""

    known_digest: str | None = None

    @property
    def digest(self) -> str | None:
        """The digest that it had."""
        return self.known_digest


class AnsweredAfresh(Struct, frozen=True, kw_only=True):
    """Outputs of another process."""

    chunks: Mapping[str, str]  # digest of each file of outputs, relative to their folder
    refused: Mapping[str, str]  # the reason, by the case of the inputs


class OutputCache:
    """Runs every model, without any cache."""

    def opened(self, role: str, ref: ModelRef, open_it: Callable[[], Runner]) -> Runner:
        """Return a model that is ready to run; each model of the comparison has another role.

        Raises:
            CacheMissError: The cache has no such model, and none is to be opened.
            ParitygateError: As `open_it`.
        """
        del role, ref
        return open_it()

    def samples(self, open_them: Callable[[], Dependencies]) -> Dependencies:
        """Return the function that reads the samples; raises as `open_them`."""
        return open_them()

    def measured(self, name: str, seconds: float) -> float:
        """Return how long something took: now, or in the cached comparison."""
        del name
        return seconds

    def close(self) -> None:
        """Write the cache if it is complete."""

    def afresh(self, asked: Sequence[Batch], folder: Path, ask: AskAfresh) -> list[Arrays | str]:
        """Return another process's outputs for each of these batches, or why it refuses it, in their order.

        Args:
            asked: The batches.
            folder: For outputs that are not cached.
            ask: Runs batches by case, and writes outputs into an empty folder.

        Raises:
            CacheMissError: The cache has no such outputs, and no process is to run.
            ParitygateError: As `ask`.
        """
        folder.mkdir(exist_ok=True)
        by_case = _by_case(asked)
        return _in_order(by_case, folder, ask(by_case, folder))


def output_cache(folder: Path | None, *, is_judged_only: bool) -> OutputCache:
    """Return the cache of outputs in a folder, which runs no model if `is_judged_only`; none without a folder.

    Raises:
        CacheMissError: The outputs should be there, and are not.
    """
    if folder is None:
        return OutputCache()
    return _Known(folder) if is_judged_only else _RecordingRunner(folder)


class _Kept(Struct, kw_only=True):
    """The cache of one model: the digest of outputs by that of inputs."""

    runner: Runner
    ref: ModelRef
    before: RuntimeFacts
    writer: ChunkWriter
    after: RuntimeFacts | None = None
    answers: dict[str, str] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return its JSON data, all outputs written."""
        self.writer.flush()
        loaded = self.runner.loaded
        opened = _Opened(
            rename=self.ref.rename,
            kind=loaded.ref.kind,
            digest=loaded.digest,
            signature=self.runner.signature,
            second_names=self.runner.second_names,
            before=self.before,
            after=self.after or self.before,
        )
        return {"opened": to_data(opened), "chunks": self.writer.chunks}


class _RecordingRunner(OutputCache):
    """Keeps outputs, once for equal inputs, as long as they depend on nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, _Kept] = {}
        self._seconds: dict[str, float] = {}
        self._bytes = 0
        self._is_whole = True
        self._samples: SamplesKeeper | None = None
        self._afresh: AnsweredAfresh | None = None
        self._is_afresh_whole = True
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def opened(self, role: str, ref: ModelRef, open_it: Callable[[], Runner]) -> Runner:
        runner = open_it()
        place = self._folder / role
        place.mkdir()
        entry = _Kept(runner=runner, ref=ref, before=runner.facts, writer=ChunkWriter(place))
        self._kept[role] = entry
        return _Asked(runner, lambda inputs, answer: self._keep(entry, inputs, answer))

    def samples(self, open_them: Callable[[], Dependencies]) -> Dependencies:
        self._samples = SamplesKeeper(self._folder / SAMPLES)
        return self._samples.keeping(open_them())

    def measured(self, name: str, seconds: float) -> float:
        self._seconds[name] = seconds
        return seconds

    def afresh(self, asked: Sequence[Batch], folder: Path, ask: AskAfresh) -> list[Arrays | str]:
        del folder
        place, by_case = self._folder / _OTHER, _by_case(asked)
        place.mkdir()
        # A crash or refusal may have a passing cause.
        self._is_afresh_whole = False
        self._afresh = ask(by_case, place)
        size = self._bytes + sum(path.stat().st_size for path in place.iterdir())
        self._is_afresh_whole = not self._afresh.refused and size <= _MOST_BYTES
        return _in_order(by_case, place, self._afresh)

    def close(self) -> None:
        if self._is_whole and self._is_afresh_whole:
            models = {role: entry.described() for role, entry in self._kept.items()}
            samples = None if self._samples is None else self._samples.described()
            afresh = None if self._afresh is None else to_data(self._afresh)
            entry = {"seconds": self._seconds, "models": models, "afresh": afresh, SAMPLES: samples}
            write_json_atomically(self._folder / ANSWERS_FILE, entry)

    def _keep(self, kept: _Kept, inputs: Arrays, answer: Arrays | None) -> None:
        with self._lock:
            if not self._is_whole:
                return
            facts = kept.runner.facts
            kept.after = kept.after or facts
            # A refusal may have a passing cause, facts that change depend on the number of calls, and arrays in another
            # memory order may sum up differently.
            self._is_whole = (
                answer is not None
                and facts == kept.after
                and all(array.flags.c_contiguous for array in answer.values())
                and self._is_added(kept, _digest_of(inputs), answer)
            )

    def _is_added(self, kept: _Kept, asked: str, answer: Arrays) -> bool:
        """Keep outputs, and return whether they equal earlier ones of these inputs and there is room."""
        digest = _digest_of(answer)
        if asked in kept.answers:
            return kept.answers[asked] == digest
        kept.answers[asked] = digest
        self._bytes += sum(array.nbytes for array in answer.values())
        try:
            # The caller may write to its arrays.
            kept.writer.add({name: array.copy() for name, array in answer.items()}, rows=0, case=asked)
        except MeasurementError:
            return False
        return self._bytes <= _MOST_BYTES


class _Asked(Runner):
    """A model with a listener for each call, and for its outputs or failure."""

    def __init__(self, runner: Runner, tell: Callable[[Arrays, Arrays | None], None]) -> None:
        super().__init__(runner.signature, runner.facts)
        self.loaded, self.second_names = runner.loaded, runner.second_names
        self._runner = runner
        self._tell = tell

    @property
    def facts(self) -> RuntimeFacts:
        """The facts of the model's own runner."""
        return self._runner.facts

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        answer: Arrays | None = None
        try:
            answer = self._runner.run(feed)
        finally:
            self._tell(feed, answer)
        return [answer[spec.name] for spec in self.signature.outputs]


class _Known(OutputCache):
    """Looks outputs up, and runs no model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not (folder / ANSWERS_FILE).is_file():
            _not_asked("none of its outputs were kept")
        data = read_json(folder / ANSWERS_FILE)
        self._models, self._seconds, self._samples = data["models"], data["seconds"], data[SAMPLES]
        self._afresh = data["afresh"]

    def opened(self, role: str, ref: ModelRef, open_it: Callable[[], Runner]) -> Runner:
        del open_it
        if role not in self._models:
            _not_asked(_ASKED_OF_FAILING if role == "reference" else f"the {role} was not asked")
        model = from_data(_Opened, self._models[role]["opened"])
        if dict(model.rename) != dict(ref.rename):
            _not_asked(f"the outputs of the {role} had other names")
        stored = read_chunks(self._folder / role, self._models[role]["chunks"])
        runner = _LookedUp(model, {batch.case or "": batch.outputs for batch in stored})
        runner.loaded = _CachedModel(ref=replace(ref, kind=model.kind), known_digest=model.digest)
        return runner

    def samples(self, open_them: Callable[[], Dependencies]) -> Dependencies:
        return open_them() if self._samples is None else read_kept_samples(self._folder / SAMPLES, self._samples)

    def measured(self, name: str, seconds: float) -> float:
        del seconds
        return float(self._seconds[name])

    def afresh(self, asked: Sequence[Batch], folder: Path, ask: AskAfresh) -> list[Arrays | str]:
        del folder, ask
        if self._afresh is None:
            _not_asked("no other process ran")
        return _in_order(_by_case(asked), self._folder / _OTHER, from_data(AnsweredAfresh, self._afresh))


class _LookedUp(Runner):
    """A model that is not loaded, with its earlier outputs."""

    def __init__(self, known: _Opened, answers: Mapping[str, Arrays]) -> None:
        super().__init__(known.signature, known.before)
        self.second_names = known.second_names
        self._after = known.after
        self._answers = answers

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        outputs = self._answers.get(_digest_of(feed))
        if outputs is None:
            _not_asked(_ASKED_OF_FAILING)
        self._facts = self._after
        return [outputs[spec.name].copy() for spec in self.signature.outputs]


def _by_case(asked: Sequence[Batch]) -> dict[str, Batch]:
    """Return batches by the digest of their inputs and its number of earlier occurrences."""
    cases: dict[str, Batch] = {}
    for batch in asked:
        digest, times = _digest_of(batch.inputs), 0
        while f"{digest}-{times}" in cases:
            times += 1
        cases[f"{digest}-{times}"] = batch
    return cases


def _in_order(cases: Iterable[str], folder: Path, answered: AnsweredAfresh) -> list[Arrays | str]:
    answers: dict[str, Arrays | str] = {**answered.refused}
    answers |= {str(batch.case): batch.outputs for batch in read_chunks(folder, answered.chunks)}
    if not answers.keys() >= set(cases):
        _not_asked("another process ran something else")
    return [answers[case] for case in cases]


def _not_asked(what: str) -> NoReturn:
    raise CacheMissError(f"{what} when this was compared before", hint="compare again")


def _digest_of(arrays: Arrays) -> str:
    """Return the digest of arrays by name: dtype, shape and values, bit for bit."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        if array.dtype.kind == "O":
            digest.update(repr(array.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
