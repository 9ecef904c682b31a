"""Reuse the jobs of a run that were done before with the same inputs; do the others, and keep them."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paritygate.errors import NotRunHereError, ParitygateError, StorageError, UsageError
from paritygate.files import digest_of_json, make_marked_folder, read_json
from paritygate.pipelines.cache.folder import DIGESTS, make_cache_folder
from paritygate.pipelines.cache.memory import DigestCache
from paritygate.pipelines.cache.request import difference_of_requests, placed, request_of, unplaced
from paritygate.pipelines.cache.states import (
    Dependencies,
    NotKept,
    first_difference,
    read_now,
    union,
    union_outside_run,
)
from paritygate.pipelines.cache.store import Entry, Store
from paritygate.pipelines.process.child import (
    ANSWERS_FILE,
    SAMPLES,
    ChildJob,
    ModelAnswers,
    Progress,
    do_job,
    run_child,
    run_here,
)
from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.states import identity_of
from paritygate.pipelines.process.file_access.system_calls import system_calls
from paritygate.sizes import SIZES_ALLOWED, bytes_of

_PLACE = "PARITYGATE_CACHE"
_SIZE = "PARITYGATE_CACHE_SIZE"
_OFF = "off"
_MOST_BYTES = 10_000_000_000
_JUDGED = "judged"
_FAILED = "it failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDone:
    """The outcome of a job."""

    job: str  # for messages
    taken_from: str  # the run whose result was reused; empty where it was done
    made_at: str  # in UTC
    why: str = ""  # why it was done although something similar was cached
    not_kept: str = ""  # why no other run can reuse its result
    is_found: bool = False  # no job of a child process, such as a benchmark
    is_judged_anew: bool = False  # only the models' outputs were reused, and judged by the current rules


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRequest:
    """A requested job: its key, the folders that it makes, and what may be cached of it."""

    job: ChildJob
    key: str
    folders: Mapping[str, Path]
    is_kept: Callable[[Any], bool]
    answers: ModelAnswers | None


@dataclass(kw_only=True, slots=True)
class Cache:
    """The jobs of one run."""

    run: Path
    store: Store | None = None  # None where nothing is cached
    done: list[JobDone] = field(default_factory=list)  # in their order
    _memory: DigestCache | None = None
    _holding: dict[str, dict[str, object]] = field(default_factory=dict)  # of `first_difference`
    # What the jobs so far read, as far as that is certain.
    _all_read: list[Dependencies] = field(default_factory=list)
    _used: list[Path] = field(default_factory=list)
    # Results besides those of jobs, which later runs can reuse.
    _found: set[str] = field(default_factory=set)
    _has_failed: bool = False

    def run_job(
        self,
        job: ChildJob,
        progress: Progress = lambda *_: None,
        *,
        makes: Sequence[Path] = (),
        is_kept: Callable[[Any], bool] = lambda _: True,
        answers: ModelAnswers | None = None,
    ) -> Any:  # noqa: ANN401 - the job's JSON
        """Return a job's result, with its files in place: reused, or done.

        The job writes files into the folders `makes`, below the run folder. `is_kept` decides whether later runs may
        reuse a result. `answers` are outputs of its models, which are reused even if other arguments changed.

        Raises:
            ParitygateError: As `run_child`.
        """
        if self.store is None:
            return do_job(job, progress)
        wanted = CacheRequest(
            job=job,
            key=self._key(job.name, job.args),
            folders={self._place(path): path for path in makes},
            is_kept=is_kept,
            answers=answers,
        )
        entry, why = self._taken(job.what, wanted.key, wanted.folders)
        if entry is not None:
            return self._value_of(entry, job.what)
        if answers is None:
            return self._do(wanted, why or self._why_again(wanted), progress)
        try:
            entry, difference = self._taken(
                job.what, self._key_of_answers(job, answers), {self._place(answers.folder): answers.folder}
            )
            if entry is None:
                return self._do(wanted, why or difference or self._why_again(wanted), progress)
            if entry.not_run_here is not None:
                return self._value_of(entry, job.what)
            return self._judge(wanted, entry, progress)
        finally:
            # They are in the cache, or of no use.
            shutil.rmtree(answers.folder, ignore_errors=True)

    def _value_of(self, entry: Entry, what: str) -> Any:  # noqa: ANN401 - the job's JSON
        """Return the reused result of a job, or raise it if that is a `NotRunHereError`."""
        self._all_read.append(entry.read)
        self.done.append(JobDone(job=what, taken_from=entry.made_in, made_at=entry.made_at))
        if entry.not_run_here is not None:
            message, hint = placed(entry.not_run_here, self.run)
            raise NotRunHereError(message, hint=hint)
        return placed(entry.value, self.run)

    def _taken(self, what: str, key: str, folders: Mapping[str, Path]) -> tuple[Entry | None, str]:
        """Return a reusable entry, its files in place; else None, and why, as far as that is known."""
        why = ""
        for entry in self._store.entries(key):
            difference = first_difference(entry.read, self.run, self.memory, self._holding)
            if not difference and self._restore(entry, folders):
                self._used.append(entry.folder)
                return entry, ""
            # An equal request for another model explains nothing.
            if entry.job == what:
                why = why or difference
        return None, why

    def _why_again(self, wanted: CacheRequest) -> str:
        """Return why a job without any entry is done again; empty the first time."""
        not_kept = self.memory.why_not_kept(wanted.key)
        if not_kept:
            return f"nothing of it was cached last time: {not_kept}"
        before = self._store.last_asked(wanted.job.what, but_in=self.run.name)
        if before is None:
            return ""
        difference = difference_of_requests(before, self._asked(wanted.job.name, wanted.job.args))
        # Without a difference that a user knows, what the job read then has changed. Nothing is restored.
        return difference or self._taken(wanted.job.what, _key_of(before), {})[1]

    def _judge(self, wanted: CacheRequest, known: Entry, progress: Progress) -> Any:  # noqa: ANN401 - the job's JSON
        """Return the job's result from cached outputs of its models; where one is missing, do the job."""
        answers = wanted.answers
        assert answers is not None  # noqa: S101 - it is what is known
        place = wanted.job.folder / _JUDGED
        args = {**wanted.job.args, "folder": str(place), "answers": str(answers.folder), "is_judged_only": True}
        make_marked_folder(place)
        job = replace(wanted.job, args=args, folder=place)
        # Without code of the user, this process is safe.
        is_here = not answers.needs_own_code and bool(read_json(answers.folder / ANSWERS_FILE)[SAMPLES])
        try:
            value, accesses = _judged_here(job, progress) if is_here else self._watched(job, wanted, progress)
            if isinstance(value, NotRunHereError):
                raise value
        except ParitygateError as err:
            # Whatever the error, the result with running models counts.
            for folder in (answers.folder, *wanted.folders.values()):
                _empty(folder)
            return self._do(wanted, str(err), progress)
        not_kept = _FAILED
        if wanted.is_kept(value):
            # A file that both read counts as when the models ran.
            not_kept = self._kept(wanted, value, lambda: union([self._read(accesses), known.read]), known.made_at)
        done = JobDone(
            job=wanted.job.what, taken_from=known.made_in, made_at=known.made_at, not_kept=not_kept, is_judged_anew=True
        )
        self.done.append(done)
        return value

    def found(self, what: str, asked: Mapping[str, Any]) -> tuple[Any, JobDone] | None:
        """Return a result besides those of jobs, and when it was made; None where there is none.

        `asked` has all its inputs as JSON data, besides what the jobs of this run read.
        """
        if self.store is None or not self._is_all_known:
            return None
        entry, _ = self._taken(what, self._key(what, asked), {})
        if entry is None:
            return None
        done = JobDone(job=what, taken_from=entry.made_in, made_at=entry.made_at, is_found=True)
        self.done.append(done)
        self._found.add(what)
        return placed(entry.value, self.run), done

    def keep(self, what: str, asked: Mapping[str, Any], value: Any) -> None:  # noqa: ANN401 - JSON data
        """Cache a result besides those of jobs, for `found`; nothing where what some job read is unknown."""
        if self.store is None or not self._is_all_known:
            return
        with contextlib.suppress(NotKept, OSError, StorageError):
            self.store.save(self._key(what, asked), self.entry_of_all(what, value), {})
            self._found.add(what)

    def entry_of_all(self, what: str, value: Any) -> Entry:  # noqa: ANN401 - JSON data
        """Return an entry of a result that depends on all that the jobs read outside of the run.

        Raises:
            NotKept: It changed between two of them.
        """
        return self._entry(what, _now(), union_outside_run(self._all_read), value)

    def knows_all(self, *found: str) -> bool:
        """Return whether later runs can reuse all jobs of this one, without failures, and these results of `keep`."""
        is_kept = self._is_all_known and not any(job.not_kept for job in self.done)
        return is_kept and not self._has_failed and self._found.issuperset(found)

    @property
    def _is_all_known(self) -> bool:
        return bool(self.done) and len(self._all_read) >= sum(not item.is_found for item in self.done)

    @property
    def _store(self) -> Store:
        assert self.store is not None  # noqa: S101 - asked only where there is one
        return self.store

    def _place(self, path: Path) -> str:
        return str(unplaced(str(path), self.run))

    def _key_of_answers(self, job: ChildJob, answers: ModelAnswers) -> str:
        return self._key(f"answers of {job.name}", answers.asked)

    def _key(self, name: str, args: Mapping[str, Any]) -> str:
        return _key_of(self._asked(name, args))

    def _asked(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return request_of(name, args, self.run)

    def _entry(self, job: str, made_at: str, read: Dependencies, value: Any) -> Entry:  # noqa: ANN401 - JSON data, or an error
        not_run = (str(value), value.hint) if isinstance(value, NotRunHereError) else None
        return Entry(
            folder=Path(),
            job=job,
            made_at=made_at,
            made_in=self.run.name,
            read=read,
            value=unplaced(value, self.run) if not_run is None else None,
            made=(),
            not_run_here=unplaced(not_run, self.run),
        )

    @property
    def memory(self) -> DigestCache:
        """The cached digests."""
        if self._memory is None:
            self._memory = DigestCache(self._store.folder / DIGESTS)
        return self._memory

    def forget(self) -> None:
        """Remove what this run reused and cached: its parts do not fit each other, so each must be done again."""
        while self._used:
            shutil.rmtree(self._used.pop(), ignore_errors=True)

    def close(self) -> None:
        """Save the digests for later runs; after an error they are computed again."""
        if self._memory is not None and self.store is not None:
            with contextlib.suppress(StorageError, OSError):
                # Without the marker, nothing would ever be cached there.
                make_cache_folder(self.store.folder)
                self._memory.save()

    def _restore(self, entry: Entry, folders: Mapping[str, Path]) -> bool:
        try:
            self._store.restore(entry, folders, self.memory)
        except (OSError, KeyError):
            # It may have been removed meanwhile, to make room. Then the job is done.
            for folder in folders.values():
                _empty(folder)
            return False
        return True

    def _do(self, wanted: CacheRequest, why: str, progress: Progress) -> Any:  # noqa: ANN401 - the job's JSON
        job, answers, made_at = wanted.job, wanted.answers, _now()
        watched = job if answers is None else replace(job, args={**job.args, "answers": str(answers.folder)})
        value, accesses = self._watched(watched, wanted, progress)
        not_kept = _FAILED
        read = functools.cache(lambda: self._read(accesses))
        does_not_run = isinstance(value, NotRunHereError)
        if does_not_run or wanted.is_kept(value):
            not_kept = self._kept(wanted, value, read, made_at)
        self.memory.note_not_kept(wanted.key, "" if not_kept == _FAILED else not_kept)
        if answers is not None and (does_not_run or (answers.folder / ANSWERS_FILE).is_file()):
            with contextlib.suppress(NotKept, OSError, StorageError):
                entry = self._entry(job.what, made_at, read(), value if does_not_run else None)
                folders = {self._place(answers.folder): answers.folder}
                self._used.append(self._store.save(self._key_of_answers(job, answers), entry, folders))
        self.done.append(JobDone(job=job.what, taken_from="", made_at=made_at, why=why, not_kept=not_kept))
        if isinstance(value, NotRunHereError):
            raise value
        return value

    def _watched(self, job: ChildJob, wanted: CacheRequest, progress: Progress) -> tuple[Any, FileAccesses]:
        """Return a job's result, or that it does not run on this machine, and what it read."""
        from paritygate.pipelines.process.file_access.listener import Listener

        own = [job.folder, *wanted.folders.values()]
        listener = Listener(own if wanted.answers is None else [*own, wanted.answers.folder])
        try:
            value = run_child(job, progress, listener=listener)
        except NotRunHereError as err:
            # As certain as any result, because the machine is a part of the request. Subclasses name a missing part.
            if type(err) is not NotRunHereError:
                self._has_failed = True
                raise
            value = err
        except BaseException:
            self._has_failed = True
            raise
        finally:
            accesses = listener.close()
            # The job may have changed what was checked before.
            self._holding.clear()
        return value, accesses

    def _read(self, accesses: FileAccesses) -> Dependencies:
        return read_now(accesses, self.run, self.memory)

    def _kept(self, wanted: CacheRequest, value: Any, read: Callable[[], Dependencies], made_at: str) -> str:  # noqa: ANN401 - JSON
        """Cache a job's result and files for later runs, and return why not; empty on success."""
        try:
            reads = read()
            entry = self._entry(wanted.job.what, made_at, reads, value)
            request = self._asked(wanted.job.name, wanted.job.args)
            self._used.append(self._store.save(wanted.key, entry, wanted.folders, request))
            self._all_read.append(reads)
        except (NotKept, OSError, StorageError) as err:
            return str(err)
        return ""


def _key_of(asked: Mapping[str, Any]) -> str:
    return digest_of_json(asked).removeprefix("sha256:")[:32]


def _judged_here(job: ChildJob, progress: Progress) -> tuple[Any, FileAccesses]:
    """Return the result of a job that runs no model, and the files of paritygate that it may depend on."""
    variables = dict(os.environ)
    try:
        with warnings.catch_warnings():
            # Those of a child are in its log.
            warnings.simplefilter("ignore")
            value = run_here(job, progress)
    finally:
        # Variables that a job sets would change the environment of later ones.
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == __name__.partition(".")[0]]
    files = [module.__file__ for module in ours if module.__file__]
    return value, FileAccesses(files={path: identity_of(os.stat(path)) for path in files})  # noqa: PTH116 - of a text


def _empty(folder: Path) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def cache_below(root: Path, run: Path) -> Cache:
    """Return the cache of a run, below `root` by default.

    The environment variable PARITYGATE_CACHE names another folder, or is `off`.

    Raises:
        UsageError: PARITYGATE_CACHE_SIZE is not a size.
    """
    folder = cache_folder(root)
    # Without a record of what a job reads, nothing can be cached.
    if folder is None or system_calls() is None:
        return Cache(run=run)
    return Cache(run=run, store=Store(folder, most_bytes=_most_bytes()))


def cache_folder(root: Path) -> Path | None:
    """Return the folder of the cache of the runs below `root`, existing or not; None where it is off."""
    place = os.environ.get(_PLACE, "")
    if place == _OFF:
        return None
    return Path(place).absolute() if place else (root / "cache").absolute()


def _most_bytes() -> int:
    text = os.environ.get(_SIZE, "")
    if not text:
        return _MOST_BYTES
    size = bytes_of(text)
    if size is None:
        msg = f"the environment variable {_SIZE} is {text!r}, which is not a size (allowed: {SIZES_ALLOWED})"
        raise UsageError(msg, hint=f"unset it, or write for example {_SIZE}=10GB")
    return size
