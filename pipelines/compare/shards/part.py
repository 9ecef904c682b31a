"""The file of a part: the figures of some batches, bound to models, samples and rules by digest."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import digest_of, from_data, read_sealed, sealed, to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError, ParitygateError, UsageError
from paritygate.files import write_bytes_atomically
from paritygate.pipelines.compare.result import ProbesResult, SideResult
from paritygate.pipelines.compare.shards.excuses import Excuse
from paritygate.text import one_or_many
from paritygate.validate.gold.columns import gold_column
from paritygate.validate.measure.check import Check

if TYPE_CHECKING:
    from paritygate.batch import Batch
    from paritygate.pipelines.compare.job import ComparisonJob
    from paritygate.validate.gate.rules import GateRules

FORMAT_VERSION = 2
_KIND = "paritygate part"
# A part has the figures of each channel, not of each row.
_MOST_BYTES = 128 << 20
_HEAD_BYTES = 200
MOST_SHARDS = 10**6
_MAKE = "convert-and-validate compare ... --shard {} --out FILE"
_AGAIN = f"make the part again: {_MAKE}"
# Fields of both models that decide the figures, besides their files.
_OF_MODELS = ("rename", "takes", "provider", "signature_key")
# Errors of values that do not fit together.
_BROKEN = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
_OF_SAMPLES = ("batch_size", "pad", "columns", "cast")


class Binding(Struct, frozen=True, kw_only=True):
    """The digests and numbers that all parts of one comparison share."""

    paritygate: str  # the version
    shards: int
    reference: str  # the digest of the recording
    candidate: str  # the digest of the model
    samples: str  # the digest of the samples that the reference was recorded on
    source: str  # the digest of the model that the reference was recorded from, empty without --source
    labels: str  # the digest of the gold and strata of all rows, empty where the rules read none
    rules: str  # the digest of the rules
    batches: int  # in all parts together


class CandidateFacts(Struct, frozen=True, kw_only=True):
    """Names and notes of a candidate, known before it runs."""

    output_names: frozenset[str]
    input_names: frozenset[str] | None
    classes: Mapping[str, list[int | str]]
    warnings: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]  # names and dtypes of the reference's inputs, then of its own


class Part(Struct, frozen=True, kw_only=True):
    """One shard of a comparison, from 1; `last` is the batch after its last one."""

    kind: str = _KIND
    binding: Binding
    shard: int
    first: int
    last: int
    rows: int
    reference: SideResult
    candidate: SideResult
    facts: CandidateFacts
    dtypes: dict[str, str]  # of the inputs in the samples
    measures: dict[str, Any]
    machine: dict[str, Any]
    pass_seconds: float
    seconds: float = 0.0
    excuses: dict[str, Excuse] = field(default_factory=dict)  # by kind
    unread: tuple[str, ...] = ()  # outputs that the candidate's signature lacks
    # The first shard alone has the comparison, the record of the reference, and the answers to probes.
    job: dict[str, Any] | None = None
    recording: dict[str, Any] | None = None
    probe_checks: list[Check] | None = None
    probes: ProbesResult | None = None


def rules_digest(job: ComparisonJob) -> str:
    """Return the digest of all that decides the figures, besides the files of the models and the samples."""
    models = [{name: getattr(model, name) for name in _OF_MODELS} for model in (job.reference, job.candidate)]
    samples = {name: getattr(job.samples, name) for name in _OF_SAMPLES}
    return digest_of([job.rules, models, samples, job.device, job.is_emulated])


def labels_digest(batches: Iterable[Batch], rules: GateRules) -> str:
    """Return the digest of the gold and strata that the rules read; without such rules, read no batch."""
    if not (rules.gold or rules.strata):
        return ""
    state = hashlib.sha256()
    for batch in batches:
        strata = [None if name not in batch.strata else list(map(str, batch.strata[name])) for name in rules.strata]
        state.update(json.dumps([batch.rows, strata]).encode())
        for rule in rules.gold:
            state.update(gold_column(rule, batch).tobytes())
    return f"sha256:{state.hexdigest()}"


def write_part(path: Path, part: Part) -> None:
    """Write a part; raise errors as `storage_errors`."""
    data = sealed(to_data(part), version=FORMAT_VERSION)
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    write_bytes_atomically(path, text.encode(), elsewhere="name another file with --out")


def is_part(path: Path) -> bool:
    """Return whether a file begins as a part does."""
    with path.open("rb") as stream:
        return _KIND.encode() in stream.read(_HEAD_BYTES)


def read_part(path: Path) -> Part:
    """Return the part in a file.

    Raises:
        InputFileError: There is no part, or it is of another format.
        ArtifactIntegrityError: It was changed after it was written.
    """
    if not path.is_file():
        state = "is not a file" if path.exists() else "does not exist"
        msg = f"part {path} {state}"
        raise InputFileError(msg, hint=_again())
    if not is_part(path):
        msg = f"{path} is not a part of a comparison"
        raise InputFileError(msg, hint=f"leave it out, or make a part: {_MAKE.format('I/N')}")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        msg = f"{path} is not a part, because it holds {size:,} bytes (allowed: {_MOST_BYTES:,})"
        raise InputFileError(msg, hint=_again())
    data = read_sealed(path, path.read_bytes(), version=FORMAT_VERSION, again=_again())
    with reading_part(path):
        part = from_data(Part, data)
    binding = part.binding
    if part.kind != _KIND or not (1 <= part.shard <= binding.shards <= MOST_SHARDS and 0 <= part.first <= part.last):
        msg = f"{path} is not a part of a comparison"
        raise InputFileError(msg, hint=_again())
    return part


def _again(part: Part | None = None) -> str:
    """Return the hint to make a part again; None for a part of an unknown shard."""
    return _AGAIN.format("I/N" if part is None else f"{part.shard}/{part.binding.shards}")


@contextlib.contextmanager
def reading_part(path: Path, part: Part | None = None) -> Iterator[None]:
    """Raise InputFileError in place of the error of a part that holds something else than a part does."""
    try:
        yield
    except ParitygateError:
        raise
    except _BROKEN as err:
        reason = (str(err).strip() or type(err).__name__).splitlines()[0]
        msg = f"{path} is corrupt: {reason}"
        raise InputFileError(msg, hint=_again(part)) from err


def part_there(path: Path, binding: Binding, shard: int) -> Part | None:
    """Return the part that was made before of the same shard; None if there is none.

    Raises:
        UsageError: The file is not a part, or another one, so it is not overwritten.
    """
    if not path.exists():
        return None
    if not path.is_file() or not is_part(path):
        msg = f"{path} exists and is not a part, so it is not overwritten"
        raise UsageError(msg, hint="name another file with --out")
    try:
        part = read_part(path)
    except (InputFileError, ArtifactIntegrityError):
        # It is made again.
        return None
    differ = [words for name, words in _WORDS.items() if getattr(part.binding, name) != getattr(binding, name)]
    if part.shard != shard:
        differ.append("shard")
    if differ:
        msg = f"{path} is a part with a different {', '.join(differ)}, so it is not overwritten"
        raise UsageError(msg, hint="name another file with --out")
    return part


def check_together(parts: Mapping[Path, Part]) -> list[Path]:
    """Return the files of all shards of one comparison in their order.

    Raises:
        UsageError: Parts are of several comparisons, missing, or there twice.
    """
    paths = list(parts)
    first = parts[paths[0]]
    for path in paths[1:]:
        _check_same(first, parts[path], paths[0], path)
    by_shard: dict[int, Path] = {}
    for path, part in parts.items():
        other = by_shard.setdefault(part.shard, path)
        if other != path:
            msg = f"{other} and {path} are both shard {part.shard} of {first.binding.shards}"
            raise UsageError(msg, hint="leave one of them out")
    shards = first.binding.shards
    missing = [number for number in range(1, shards + 1) if number not in by_shard]
    if missing:
        words = one_or_many(len(missing), "shard {} is missing", "shards {} are missing").format(_ranges(missing))
        msg = f"{len(by_shard)} of {shards} parts exist: {words}"
        which = one_or_many(len(missing), "make it", f"make each of them, here shard {missing[0]}")
        raise UsageError(msg, hint=f"{which}: {_MAKE.format(f'{missing[0]}/{shards}')}")
    order = [by_shard[number] for number in range(1, shards + 1)]
    ends = [0, *(parts[path].last for path in order)]
    for path, end in zip(order, ends, strict=False):
        if parts[path].first != end:
            msg = f"{path} begins at batch {parts[path].first}, but the part before ends at {end}"
            raise InputFileError(msg, hint=_again(parts[path]))
    if ends[-1] != first.binding.batches:
        msg = f"the parts hold {ends[-1]} of {first.binding.batches} batches"
        raise InputFileError(msg, hint=_again())
    return order


_WORDS = {
    "paritygate": "version of paritygate",
    "shards": "number of shards",
    "reference": "reference",
    "candidate": "candidate",
    "samples": "samples",
    "source": "--source",
    "labels": "gold or strata",
    "rules": "rules",
    "batches": "number of batches",
}


def _check_same(one: Part, other: Part, path: Path, other_path: Path) -> None:
    for name, words in _WORDS.items():
        values = getattr(one.binding, name), getattr(other.binding, name)
        if values[0] != values[1]:
            msg = f"{path} and {other_path} differ in the {words} ({values[0]} and {values[1]})"
            raise UsageError(msg, hint="merge only parts of one comparison, or make the others again")
    sides = [to_data(replace(part.candidate, notes=[], provider_warnings=[])) for part in (one, other)]
    differ = [name for name in sides[0] if sides[0][name] != sides[1][name]]
    if differ or one.facts != other.facts:
        what = ", ".join(differ) or "inputs and outputs"
        msg = f"{path} and {other_path} ran the candidate with a different {what}"
        raise UsageError(msg, hint="make all parts with the same runtime on the same kind of device")


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text, with ranges of neighbours, such as `2 and 5-7`."""
    texts: list[str] = []
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            low, high = numbers[start], numbers[at - 1]
            texts.append(str(low) if low == high else f"{low}-{high}")
            start = at
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
