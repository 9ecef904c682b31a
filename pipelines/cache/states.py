"""Compare what a job read with its current state: contents by digest, folders by their names, variables."""

from __future__ import annotations

import functools
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.files import digest_of_json
from paritygate.pipelines.cache.memory import OF_SOURCE, DigestCache
from paritygate.pipelines.process.child import environment_of_child
from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.sightings import source_of_bytecode
from paritygate.pipelines.process.file_access.states import (
    ALL_NAMES,
    KINDS_OF_NAMES,
    NAMES_BUT_REPORTS,
    NAMES_OF_MODULES,
    NAMES_OF_PACKAGES,
    attributes_of,
    ending_added,
    endings_of_module,
    identity_of,
    is_of_module,
    letters_of_modules,
    name_added,
    names_in,
    target_of,
)
from paritygate.text import from_here

_ABSENT = "absent"
_BYTECODE = "bytecode"
_CONTENT = "content"
_IMPORT = "import"
_BY_PATH = {"link": target_of, "attributes": attributes_of, _IMPORT: endings_of_module}
# Replaces the run folder in all cached data.
RUN = "@run@"
# These change between shells, and no result depends on them.
_OF_THE_SHELL = frozenset({
    "CLICOLOR", "CLICOLOR_FORCE", "COLORFGBG", "COLORTERM", "COLUMNS", "EDITOR", "FORCE_COLOR", "HISTCONTROL",
    "HISTFILE", "HISTFILESIZE", "HISTSIZE", "INVOCATION_ID", "LINES", "MAIL", "MANPAGER", "NO_COLOR", "OLDPWD", "PAGER",
    "PROMPT_COMMAND", "PS1", "PS2", "PS4", "PWD", "SHLVL", "TERM", "TERM_PROGRAM", "VISUAL", "WINDOWID",
    "XDG_SESSION_ID", "_",
})  # fmt: skip


class NotKept(Exception):  # noqa: N818 - it is not an error of the job
    """The reason why no other run can reuse the result of a job."""


class Dependencies(Struct, frozen=True, kw_only=True):
    """What a job read, by content. `@run@` replaces the run folder in paths.

    `bytecode` has `DigestCache.bytecode` of modules, whose sources need not be in `files`. `imports` has
    `endings_of_module` of modules that were searched in folders of `packages_in`. Four fields have digests of the names
    in folders. `folders` are listed ones of which JSON files were read too, and `without_reports` the other listed
    ones, without files of `--json`. `modules_in` are those that only Python listed, by possible names of modules: what
    these show is not in `links` and `absent`. `packages_in` are those with known searches, by names of installed
    packages.
    """

    files: dict[str, str] = field(default_factory=dict)  # digests
    bytecode: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    without_reports: dict[str, str] = field(default_factory=dict)
    modules_in: dict[str, str] = field(default_factory=dict)
    packages_in: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)  # bytes of what was not opened; None for no file
    links: dict[str, str | None] = field(default_factory=dict)  # targets; None for no link
    attributes: dict[str, str] = field(default_factory=dict)  # digests of extended attributes
    looked_at: dict[str, tuple[int, int]] = field(default_factory=dict)  # by user code: last change in ns, mode
    absent: dict[str, None] = field(default_factory=dict)  # missing when it was looked for
    variables: dict[str, str | None] = field(default_factory=dict)  # digests; None where unset
    all_variables: str | None = None  # digest, if all were read
    host_name: str | None = None  # digest, if it was read

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Dependencies:
        """Return it from JSON data of this module.

        Raises:
            ValueError: Another version wrote it.
        """
        if data.keys() != set(cls.__struct_fields__):
            raise ValueError("another version wrote it")
        looked_at = {path: tuple(state) for path, state in data["looked_at"].items()}
        return cls(**{**data, "looked_at": looked_at})


def read_now(accesses: FileAccesses, run: Path, memory: DigestCache) -> Dependencies:
    """Return what a job read, which has just ended.

    Raises:
        NotKept: It is not certain what was read, or it changed meanwhile.
    """
    if accesses.why_unknown:
        raise NotKept(accesses.why_unknown)
    # A source that changes from here on is noticed with the other files.
    bytecode = {path: memory.bytecode(path) for path in sorted(accesses.bytecode)}
    compiled = {source_of_bytecode(path) for path, state in bytecode.items() if state != OF_SOURCE}
    files = {**dict(_digested(accesses, memory)), **accesses.contents}
    modules_in = {path: names for path, names in accesses.modules_in.items() if path not in accesses.searched}
    searched = [path for path, is_listed in accesses.searched.items() if is_listed]
    try:
        packages_in = {path: names_in(path, NAMES_OF_PACKAGES) for path in searched}
        # Their digest, compared below, also shows what is missing there and what is a link.
        modules = {path: letters_of_modules(path) for path in modules_in}
    except OSError as err:
        raise NotKept(f"{err.filename} was changed while the job ran") from err
    changed = (
        *(path for path, names in accesses.folders.items() if not _is_so(path, ALL_NAMES, names, memory)),
        *(path for path, names in accesses.modules_in.items() if not _is_so(path, NAMES_OF_MODULES, names, memory)),
        *(path for path, endings in accesses.imports.items() if not _is_so(path, _IMPORT, endings, memory)),
        *(path for path, target in accesses.links.items() if target_of(path) != target),
        *(path for path, state in accesses.looked_at.items() if not _is_so(path, "look", state, memory)),
        *(path for path, digest in accesses.contents.items() if not _is_so(path, _CONTENT, digest, memory)),
        *(path for path, digest in accesses.attributes.items() if not _is_so(path, "attributes", digest, memory)),
        *(path for path, size in accesses.sizes.items() if not _is_so(path, "size", size, memory)),
        *(path for path in accesses.absent if not _is_so(path, _ABSENT, None, memory)),
    )
    if changed:
        raise NotKept(f"{changed[0]} was changed while the job ran")
    variables = environment_of_child()
    # A job that reads JSON files by their names would read those of `--json` too.
    with_reports = {path.rpartition("/")[0] for path in files if path.endswith(".json")}
    return Dependencies(
        files={named: digest for path, digest in files.items() if (named := _named(path, run)) not in compiled},
        bytecode=bytecode,
        folders={_named(path, run): names for path, names in accesses.folders.items() if path in with_reports},
        without_reports={
            _named(path, run): names
            for path, names in accesses.without_reports.items()
            if path in accesses.folders and path not in with_reports
        },
        modules_in={_named(path, run): names for path, names in modules_in.items()},
        packages_in={_named(path, run): names for path, names in packages_in.items()},
        imports={_named(path, run): endings for path, endings in accesses.imports.items()},
        sizes={_named(path, run): size for path, size in accesses.sizes.items() if path not in accesses.files},
        links={
            path: target
            for path, target in accesses.links.items()
            if (target is not None or not _is_shown(path, modules, None, "f", "d"))
            and not _named(path, run).startswith(RUN)
        },
        attributes={_named(path, run): digest for path, digest in accesses.attributes.items()},
        looked_at={path: state for path, state in accesses.looked_at.items() if not _named(path, run).startswith(RUN)},
        absent={_named(path, run): None for path in sorted(accesses.absent) if not _is_shown(path, modules, None)},
        variables={
            name: _digest_of_variable(variables, name)
            for name in sorted(accesses.variables)
            if name in accesses.variables_of_user or not is_of_shell(name)
        },
        all_variables=_digest_of_all(variables) if accesses.reads_all_variables else None,
        host_name=_host_name() if accesses.reads_host_name else None,
    )


def _is_shown(path: str, modules: Mapping[str, Mapping[str, str]], *letters: str | None) -> bool:
    """Return whether the names of modules in its folder show if a path becomes of another kind than these."""
    folder, _, name = path.rpartition("/")
    return folder in modules and is_of_module(name) and modules[folder].get(name) in letters


def _digested(accesses: FileAccesses, memory: DigestCache) -> Iterator[tuple[str, str]]:
    for path, identity in accesses.files.items():
        try:
            state = os.stat(path)  # noqa: PTH116 - as it was written
            # Another name for the file sets the time of its last change, and such names are followed.
            is_named_only = path in accesses.contents and identity_of(state)[:-1] == identity[:-1]
            digest = memory.digest(path, state) if is_named_only or identity_of(state) == identity else ""
        except OSError:
            digest = ""
        if not digest:
            raise NotKept(f"{path} was changed while the job ran")
        yield path, digest


def union(reads: Iterable[Dependencies]) -> Dependencies:
    """Return all that several jobs of one run read."""
    merged, jobs = dict[str, Any](), (*reads, Dependencies())
    for name in Dependencies.__struct_fields__:
        values = [getattr(read, name) for read in jobs]
        is_by_path = isinstance(values[0], dict)
        merged[name] = (
            dict(itertools.chain(*map(dict.items, values))) if is_by_path else next(filter(None, values), None)
        )
    return Dependencies(**merged)


def union_outside_run(reads: Sequence[Dependencies]) -> Dependencies:
    """Return all that several jobs of one run read outside of its folder.

    Raises:
        NotKept: It changed between two of them.
    """
    merged, outside = union(reads), dict[str, Any]()
    for name, last in merged.to_json().items():
        if isinstance(last, dict) and name != "variables":
            changed = (path for read in reads for path, _ in getattr(read, name).items() - last.items())
            if path := next((path for path in changed if not path.startswith(RUN)), ""):
                raise NotKept(f"{path} was changed between two jobs")
            outside[name] = {path: state for path, state in last.items() if not path.startswith(RUN)}
    return replace(merged, **outside)


def first_difference(read: Dependencies, run: Path, memory: DigestCache, holding: dict[str, dict[str, object]]) -> str:
    """Return the first change since a job; empty for none.

    `holding` has what was found to hold at this moment, by its kind, and gets more.
    """
    variables = environment_of_child()
    for name, value in read.variables.items():
        if _digest_of_variable(variables, name) != value:
            return f"the environment variable {name} changed"
    if read.host_name is not None and read.host_name != _host_name():
        return "the name of this machine changed"
    if read.all_variables is not None and read.all_variables != _digest_of_all(variables):
        return "an environment variable changed, and code of yours read all of them"
    wanted: Mapping[str, Mapping[str, object]] = {
        _CONTENT: read.files,
        ALL_NAMES: read.folders,
        NAMES_BUT_REPORTS: read.without_reports,
        NAMES_OF_MODULES: read.modules_in,
        NAMES_OF_PACKAGES: read.packages_in,
        _IMPORT: read.imports,
        "link": read.links,
        _BYTECODE: read.bytecode,
        "attributes": read.attributes,
        "look": read.looked_at,
        "size": read.sizes,
        _ABSENT: read.absent,
    }
    for kind, states in wanted.items():
        known = holding.setdefault(kind, {})
        # The jobs of a run read thousands of the same files.
        for named, state in itertools.filterfalse(known.items().__contains__, states.items()):
            path = _place(named, run)
            if not _is_so(path, kind, state, memory):
                return _difference(path, kind, state, run)
            if not named.startswith(RUN):
                # The run's own files are made meanwhile.
                known[named] = state
    return ""


def _difference(path: str, kind: str, before: object, run: Path) -> str:
    if kind == _ABSENT:
        return f"{_shown(path, run)} is there now"
    if kind == _IMPORT and (ending := ending_added(path, str(before))) is not None:
        return f"{_shown(f'{path}{ending}', run)} is there now"
    if kind not in KINDS_OF_NAMES:
        source = source_of_bytecode(path) if kind == _BYTECODE else None
        return f"{_shown(source or path, run)} changed"
    new = name_added(path, str(before), kind)
    if new is not None:
        return f"{_shown(os.path.join(path, new), run)} is there now"  # noqa: PTH118 - as it was written
    return f"another name was added to {_shown(path, run)}, or one removed"


def _shown(path: str, run: Path) -> str:
    """Return the user's name for a path: a plan restores files into a folder that is gone when the name is read."""
    if path == str(run):
        return "the run folder"
    named = _named(path, run)
    return f"{named[len(RUN) + 1 :]} in the run folder" if named.startswith(RUN) else from_here(path)


def _is_so(path: str, kind: str, value: object, memory: DigestCache) -> bool:
    if kind == _ABSENT:
        return not os.path.exists(path)  # noqa: PTH110 - as it was written
    try:
        if kind == _BYTECODE and value == OF_SOURCE:
            return memory.is_compiled_from_source(path)
        return bool(_state_now(path, kind, memory) == value)
    except OSError:
        return False


def _state_now(path: str, kind: str, memory: DigestCache) -> object:
    if kind in KINDS_OF_NAMES:
        return names_in(path, kind)
    if kind == _BYTECODE:
        return memory.bytecode(path)
    by_path = _BY_PATH.get(kind)
    if by_path is not None:
        return by_path(path)
    status = os.stat(path)  # noqa: PTH116 - as it was written
    if kind == _CONTENT:
        return memory.digest(path, status)
    if kind == "look":
        return status.st_mtime_ns, status.st_mode
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _named(path: str, run: Path) -> str:
    for place in _places_of(str(run)):
        if path.startswith(place) and path[len(place) : len(place) + 1] in {"", "/"}:
            return RUN + path[len(place) :]
    return path


@functools.lru_cache(maxsize=8)
def _places_of(run: str) -> tuple[str, str]:
    """Return how the paths of a run folder begin: it stays where it is as long as this process runs."""
    return run, os.path.realpath(run)


def _place(named: str, run: Path) -> str:
    return f"{run}{named[len(RUN) :]}" if named.startswith(RUN) else named


def _digest_of_variable(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else digest_of_json(value)


def _host_name() -> str:
    return digest_of_json(os.uname().nodename)


def _digest_of_all(given: Mapping[str, str]) -> str:
    return digest_of_json({name: value for name, value in given.items() if not is_of_shell(name)})


def is_of_shell(name: str) -> bool:
    """Return whether an environment variable is the shell's own, so that no result depends on it."""
    return name in _OF_THE_SHELL or name.startswith("SSH_")
