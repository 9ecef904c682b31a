"""Releases and repositories in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from paritygate.pipelines.release.after_command import AfterCommand
from paritygate.pipelines.release.repository.aliases import AliasMove, OtherMove
from paritygate.pipelines.release.repository.collection import Collection
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.inspect import ReleaseDetails, Verification, list_models
from paritygate.pipelines.release.repository.record import Record
from paritygate.pipelines.release.repository.release import StoredRelease, released_manifest
from paritygate.pipelines.release.repository.signature import SignatureStatus
from paritygate.pipelines.release.repository.store import repository_of_release
from paritygate.pipelines.repair.result import named_operators
from paritygate.pipelines.report.figures import number, size_words
from paritygate.pipelines.report.tables.parity import released_table
from paritygate.pipelines.report.tables.table import Row, Table, status, table_of, text
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_message, print_table
from paritygate.pipelines.report.terminal.screen import command_lines, screen_table, wrapped
from paritygate.roots import Root
from paritygate.text import counted, echo, from_here
from paritygate.validate.gate.declared_limits import DEFAULT_LIMIT, limits_of_result
from paritygate.validate.measure.bounds import upper_bound_text

# Versions listed one by one, and records on a screen.
_FEW = 5
_DIGEST_SHOWN = 19
# Verdicts of failed measurements, or of measurements that failed.
_NOT_PASSED = frozenset({"fail", "error", "inconclusive"})
_HISTORY_COLUMNS = (">record", "time (UTC)", "what", ">version", "aliases")


def print_release(release: StoredRelease, repository: Root, shown: Shown) -> None:
    """Print what was released, or that it was there already."""
    if shown.is_quiet:
        print_message(next(release_lines(release)), err=shown.to_stderr)
        return
    messages = release_lines(release)
    print_lines((line for each in messages for line in wrapped(each, width=shown.width)), err=shown.to_stderr)
    if shown.is_verbose:
        print_repositories([repository], to_stderr=shown.to_stderr)


def print_next_of_release(release: StoredRelease, repository: Root, shown: Shown) -> None:
    """Print the command that shows the release, as the last line."""
    if not shown.is_quiet:
        command = f"next: {show_command(release.model, release.alias, repository)}"
        print_lines(command_lines(command, width=shown.width), err=shown.to_stderr)


def print_after_command(ended: AfterCommand, again: str, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print how the command after a release ended, on standard error if it failed."""
    if ended.problem or not is_quiet:
        lines = (line for message in after_command_lines(ended, again) for line in wrapped(message))
        print_lines(lines, err=to_stderr or bool(ended.problem))


def after_command_lines(ended: AfterCommand, again: str) -> Iterator[str]:
    """Yield how the command after a release ended; if it failed, with its last lines, and `again`, which repeats it."""
    command = f"promote.after: {shlex.join(ended.command)}"
    if not ended.problem:
        yield f"{command} ended with exit code 0 after {ended.seconds:.1f} s"
        return
    shown = "".join(f"\n  | {line}" for line in ended.output.splitlines())
    yield f"error: {command} {ended.problem}; version {ended.version} stays released{shown}"
    yield f"hint: correct the command, and repeat it with: {again}"


def show_command(model: str, alias: str | None, repository: Root) -> str:
    """Return the command that shows a release."""
    return command_on(repository, "show", model, *((alias,) if alias else ()))


def release_lines(release: StoredRelease, *, in_run: bool = False) -> Iterator[str]:
    """Yield what was released and why, or that it was there, one message each; with `in_run` without findings."""
    if not release.is_new:
        yield _same(release)
        yield from _damage(release)
        yield from _unsigned(release)
        return
    alias = f", alias {release.alias}" if release.alias else ""
    # A preference is part of the sentence; other reasons get their own line.
    is_preferred = isinstance(release.choice.get("prefer"), str) and bool(release.choice["chosen"])
    because = f", because {release.reason}" if is_preferred else ""
    yield f"released {release.model} version {release.version}{alias}: {', '.join(release.variants)}{because}"
    if release.reason and not is_preferred:
        yield f"reason: {release.reason}"
    if release.despite:
        yield f"released despite: {release.despite}"
    yield from _damage(release)
    manifest = released_manifest(release)
    yield from _signer(manifest)
    yield from _unsigned(release)
    yield from concessions(manifest, with_findings=not in_run)


def _unsigned(release: StoredRelease) -> Iterator[str]:
    """Yield that a release has no signature, though the one before had, and the command to sign it."""
    if release.unsigned_after is not None:
        sign = sign_command(repository_of_release(release.folder))
        why = f"version {release.unsigned_after} before it is signed, so verify --key refuses this one"
        yield f"warning: version {release.version} is unsigned; {why}; sign it: {sign}"


def sign_command(repository: Root) -> str:
    """Return the command that releases a run again with a signature."""
    return command_on(repository, "promote", "--run", "RUN", "--sign", "KEY")


def _signer(manifest: Mapping[str, Any]) -> Iterator[str]:
    if manifest.get("signer"):
        yield f"signed by {manifest['signer']}"


def _damage(release: StoredRelease) -> Iterator[str]:
    """Yield which equal version is corrupt, and the command to examine it."""
    if release.damaged:
        version = max(release.damaged)
        command = command_on(repository_of_release(release.folder), "verify", release.model, str(version))
        yield (
            f"warning: version {version} was made of the same files, but they changed since the release; "
            f"see the changes: {command}"
        )


def concessions(manifest: Mapping[str, Any], *, with_findings: bool = True) -> Iterator[str]:
    """Yield what a release did not check, checked with looser limits, or failed earlier, one line each."""
    provenance = manifest.get("provenance", {})
    failed = [item for item in manifest.get("choice", {}).get("candidates", ()) if item["verdict"] in _NOT_PASSED]
    if failed:
        words = ", ".join(f"{item['variant']} ({item['verdict']})" for item in failed)
        yield f"did not pass in the same run: {words}"
    released = [item["name"] for item in manifest.get("variants", ())]
    yield from _kept_in_fp32(manifest)
    yield from _concessions_of_variants(released, provenance)
    if with_findings:
        yield from _findings(provenance, released)
    if manifest.get("trust"):
        yield f"evidence that came with a pack and was trusted: {manifest['trust']}"
    elif provenance.get("pack"):
        yield f"the run came in a pack, and its evidence was made here: {provenance['pack']}"
    for name, reason in provenance.get("ignored_outputs", {}).items():
        yield f"not compared: {name}: {reason}"
    for name, reason in provenance.get("constant_decisions", {}).items():
        yield f"the decision on {name} never varied: {reason}"
    weaker = provenance.get("asked_less", ())
    for item in weaker:
        yield f"checked less of {item['variant']} than run {item['run']}, which failed: {'; '.join(item['asked_less'])}"
    if weaker:
        yield f"reason for checking less: {provenance['spec']['reason']}"


def _kept_in_fp32(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the operators that variants of mixed precision keep in FP32."""
    for item in manifest.get("variants", ()):
        kept = item.get("kept_in_fp32", ())
        if kept:
            yield f"{item['name']} keeps {counted(len(kept), 'operator')} in fp32: {named_operators(kept)}"


def _findings(provenance: Mapping[str, Any], released: Iterable[str]) -> Iterator[str]:
    """Yield a release's differences where no sample is."""
    for name in released:
        for finding in provenance.get("edge_findings", {}).get(name, ()):
            occurs = finding["if_it_occurs"] or "put such rows into the samples"
            yield (
                f"out-of-sample finding of {name}: {finding['edge']}, unlike every sample: outputs differ: "
                f"{finding['check']}: {finding['detail']}; if it can occur: {occurs}; "
                f"if it never can: {finding['if_it_never_occurs'] or 'nothing has to be declared'}"
            )
        for detail in provenance.get("padding_findings", {}).get(name, ()):
            yield f"padding finding of {name}: {detail}"


def _concessions_of_variants(released: Iterable[str], provenance: Mapping[str, Any]) -> Iterator[str]:
    names = list(released)
    repaired = [name for name in names if name in provenance.get("repairs", {})]
    for name in repaired:
        from paritygate.pipelines.repair.accepted import repair_text

        yield f"{name} comes from a repaired conversion: {repair_text(provenance['repairs'][name])}"
    for name in (name for name in names if name in provenance.get("emulated_not_passed", {})):
        yield f"{name} passed as it ran, but does not on {provenance['emulated_not_passed'][name]}"
    for name in (name for name in names if name in provenance.get("probes_not_asked", {})):
        yield f"did not run for {name}: the probes {', '.join(provenance['probes_not_asked'][name])}"
    for name in (name for name in names if name in provenance.get("edge_not_asked", ())):
        yield f"did not run for {name}: generated rows unlike every sample, because of edge: off"
    for name in (name for name in names if name in provenance.get("looser_tolerances", {})):
        tolerance, limits = provenance["tolerances"][name], provenance["looser_tolerances"][name]
        values = (f"{limit} {_limits(tolerance, limit)}" for limit in limits)
        yield f"looser than the defaults for {name}: {', '.join(values)}"


def _limits(tolerance: Mapping[str, Any], name: str) -> str:
    values = limits_of_result(tolerance, name)
    return ", ".join(DEFAULT_LIMIT if value is None else f"{value:g}" for value in values)


def _same(release: StoredRelease) -> str:
    message = f"{release.model} version {release.version} already holds exactly this: no new version was made"
    return message + alias_of_same(release)


def alias_of_same(release: StoredRelease) -> str:
    """Return how the alias of an earlier version was moved, after a semicolon; empty without an alias."""
    if not release.alias or release.record is None:
        return f"; alias {release.alias} is at {release.version}" if release.alias else ""
    back = "back " if release.is_older else ""
    since = "" if release.moved_from is None else f"from {release.moved_from} "
    return f"; alias {release.alias} was moved {back}{since}to {release.version}"


def print_alias_move(move: AliasMove, repository: Root, *, is_quiet: bool = False, to_stderr: bool = False) -> None:
    """Print where an alias points now; one line when quiet."""
    if move.previous is None:
        outcome = f"was set to version {move.version}"
    elif move.record is None:
        outcome = f"is at version {move.version} already"
    else:
        outcome = f"was moved {'back ' if move.is_rollback else ''}from version {move.previous} to {move.version}"
    print_message(f"{move.model}: alias {move.alias} {outcome}, whose files are intact", err=to_stderr)
    for other in move.also:
        print_message(
            f"{move.model}: alias {other.alias} is at version {other.version}, {_before(other)}", err=to_stderr
        )
    if move.is_rollback and not is_quiet:
        past = ", ".join(map(str, move.past)) or "none"
        print_message(f"versions before it, to which rollback goes next: {past}", err=to_stderr)
        back = command_on(repository, "alias", move.model, move.alias, str(move.previous))
        kept = f"run and promote do not move it to version {move.previous} again; to do so:"
        print_lines([kept, *command_lines(back, indent="  ")], err=to_stderr)


def _before(move: OtherMove) -> str:
    return "and is new" if move.previous is None else f"and was at version {move.previous}"


def print_history(model: str, records: Mapping[int, Record]) -> None:
    """Print records of a model by their numbers, oldest first."""
    rows = [_short_row(number, record) for number, record in records.items()]
    print_lines(screen_table(table_of(f"history of {model}", _HISTORY_COLUMNS, rows)))


def print_collection(collection: Collection, *, to_stderr: bool = False) -> None:
    """Print which releases of a model were deleted, or would be, and which stay."""
    gone = (*collection.leftovers, *collection.collected, *collection.abandoned)
    verb = "would delete" if collection.is_dry_run else "deleted"
    size = size_words(sum(release.size_bytes for release in gone))
    named = ", ".join(str(release.version) for release in gone)
    deleted = f"{verb} {counted(len(gone), 'version')} ({named}), {size}" if gone else "nothing to delete"
    versions = ", ".join(map(str, collection.kept)) or "none"
    print_lines(wrapped(f"{collection.model}: {deleted}; kept: {versions}"), err=to_stderr)


def print_repositories(repositories: Iterable[Root], *, to_stderr: bool = False) -> None:
    """Print the contents of each repository."""
    for repository in repositories:
        rows = []
        for model in list_models(repository):
            aliases = ", ".join(f"{name} -> {version}" for name, version in sorted(model.aliases.items()))
            rows.append((_minute_of(model.changed), model.model, _versions(model.versions), aliases or "-"))
        title = f"repository {from_here(repository)}"
        if not rows:
            print_lines(wrapped(f"{title} holds no releases"), err=to_stderr)
        else:
            table = table_of(title, ("changed (UTC)", "model", "versions", "aliases"), rows)
            print_lines(screen_table(table), err=to_stderr)


def _versions(versions: Sequence[int]) -> str:
    first, last = versions[0], versions[-1]
    if len(versions) > _FEW and last - first + 1 == len(versions):
        return f"{first} to {last}"
    return ", ".join(map(str, versions))


def _minute_of(time: str) -> str:
    """Return a time of the log, as `2026-11-25 03:45`."""
    return time[:16].replace("T", " ")


def print_release_details(details: ReleaseDetails, shown: Shown) -> None:
    """Print one release with its history; with `-v` every number, all digests, and the whole history."""
    aliases = ", ".join(details.aliases) or "none"
    head = (
        f"{details.model} version {details.version}, aliases: {aliases}",
        f"folder: {from_here(details.folder)}",
        *((f"reason: {details.record.reason}",) if details.record.reason else ()),
        *((f"released despite: {details.record.despite}",) if details.record.despite else ()),
        *_signer(details.manifest),
    )
    print_lines(line for words in head for line in wrapped(words, width=shown.width))
    if shown.is_verbose:
        _print_all(details)
        return
    if details.numbers:
        print_lines(screen_table(_numbers_table(details.numbers)))
    print_lines(screen_table(_variants_table(details.manifest.get("variants", ()))))
    print_lines(line for words in concessions(details.manifest) for line in wrapped(words))
    print_lines(screen_table(_history_table(details.history)))


def _print_all(details: ReleaseDetails) -> None:
    variants = [
        (entry["name"], entry["digest"], _evidence_of(entry.get("evidence")))
        for entry in details.manifest.get("variants", ())
    ]
    print_table(table_of("Variants", ("variant", "digest", "evidence"), variants))
    if details.numbers:
        print_table(released_table(details.numbers))
    for line in concessions(details.manifest):
        echo(line)
    history = [_history_row(at, record) for at, record in enumerate(details.history, start=1)]
    print_table(table_of("History", ("record", "time", "what", "version", "aliases", "reason"), history))


def _numbers_table(numbers: Iterable[Mapping[str, Any]]) -> Table:
    """Return the measurements, one row per output; a remark names other evidence or devices."""
    columns = ("verdict", "variant", "output", ">mismatches", ">95 % bound", ">max diff", ">mean diff")
    rows = []
    for item in numbers:
        is_plain = (item["evidence"], item["device"]) == ("verified", "cpu")
        remark = "" if is_plain else f"{item['evidence']} on {item['device'] or 'no device'}"
        bound = item["mismatch_rate_upper_95"]
        rows.append((
            status(item["verdict"]),
            text(item["variant"], remark=remark),
            item["output"],
            number(item["mismatches"], missing="-"),
            "-" if bound is None else f"< {upper_bound_text(bound)}",
            *(number(item[name], missing="-") for name in ("max_abs_diff", "mean_abs_diff")),
        ))  # fmt: skip
    return table_of("differences from the source", columns, rows)


def _variants_table(variants: Iterable[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (entry["digest"][:_DIGEST_SHOWN], text(entry["name"], remark=_evidence_of(entry.get("evidence"))))
        for entry in variants
    )
    return table_of("variants, and what they were judged by", ("digest", "variant"), rows)


def _history_table(history: Sequence[Record]) -> Table:
    caption = "history" if len(history) <= _FEW else f"history: the newest {_FEW} of {len(history)}; -v shows all"
    rows = tuple(_short_row(at, record) for at, record in list(enumerate(history, start=1))[-_FEW:])
    return table_of(caption, _HISTORY_COLUMNS, rows)


def _short_row(at: int, record: Record) -> Row:
    recorded, time, kind, version, aliases, reason = _history_row(at, record)
    words = (_minute_of(time), kind, version, text(aliases, remark=reason))
    return recorded, *words


def _history_row(at: int, record: Record) -> tuple[str, ...]:
    version = "-" if record.version is None else str(record.version)
    aliases = ", ".join(f"{alias} -> {pointed}" for alias, pointed in sorted(record.aliases.items())) or "-"
    despite = f"released despite: {record.despite}" if record.despite else ""
    trust = f"trusted pack: {record.trust}" if record.trust else ""
    reason = "; ".join(filter(None, (record.reason, despite, trust)))
    return str(at), record.time, str(record.kind).replace("_", " "), version, aliases, reason


def _evidence_of(evidence: dict[str, Any] | None) -> str:
    if evidence is None:
        return "source, not compared"
    parts = [_found(item) for item in (evidence, *evidence.get("also", ()))]
    # Older releases have no such record, and nothing that had never run.
    remark = "" if evidence.get("has_run", True) else "; it never ran itself"
    return "; ".join(parts) + remark


def _found(evidence: dict[str, Any]) -> str:
    words = f"{evidence['kind']} on {evidence['device']} by {evidence['runtime']}: {evidence['verdict']}"
    if evidence["kind"] != "emulated":
        return words
    devices = ", ".join(evidence.get("devices", ()))
    return f"{words}, accepted for {devices}" if devices else words


def print_verification(verification: Verification, repository: Root, *, to_stderr: bool = False) -> None:
    """Print whether a release is intact, and who signed it or how to sign it."""
    name, signature = f"{verification.model} version {verification.version}", verification.signature
    lines = [f"{name} is {verification.problem or f'intact: {verification.files_checked} files match its manifest'}"]
    if verification.is_accepted and signature is not None:
        lines.append(str(signature))
    if signature is not None and signature.status is SignatureStatus.MISSING:
        lines.append(f"release its run again, with a signature: {sign_command(repository)}")
    print_lines((line for words in lines for line in wrapped(words)), err=to_stderr)
