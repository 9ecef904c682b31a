"""Releases and repositories in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paritygate.pipelines.console import print_table
from paritygate.pipelines.repository.inspect import ReleaseDetails, Verification, list_models
from paritygate.pipelines.repository.release import Release
from paritygate.printing import echo

__all__ = ["print_release", "print_release_details", "print_repositories", "print_verification"]


def print_release(release: Release, *, to_stderr: bool = False) -> None:
    """Print what was released."""
    alias = f", alias {release.alias}" if release.alias else ""
    # What was preferred is said in one breath; why it became the source, or is let in, has a line of its own.
    is_preferred = isinstance(release.choice.get("prefer"), str) and bool(release.choice["chosen"])
    because = f", because {release.reason}" if is_preferred else ""
    echo(
        f"released {release.model} version {release.version}{alias}: {', '.join(release.variants)}{because}",
        err=to_stderr,
    )
    if release.reason and not is_preferred:
        echo(f"reason: {release.reason}", err=to_stderr)


def print_repositories(repositories: Iterable[Path], *, to_stderr: bool = False) -> None:
    """Print what each repository holds."""
    for repository in repositories:
        rows = []
        for model in list_models(repository):
            aliases = ", ".join(f"{name} -> {version}" for name, version in sorted(model.aliases.items()))
            versions = ", ".join(map(str, model.versions))
            rows.append((model.model, versions, aliases or "-", model.changed))
        title = f"Repository {repository}"
        if not rows:
            echo(f"{title} holds no releases", err=to_stderr)
        elif to_stderr:
            for row in rows:
                echo(f"{title}: " + ", ".join(row), err=True)
        else:
            print_table(title, ("model", "versions", "aliases", "last change"), rows)


def print_release_details(details: ReleaseDetails) -> None:
    """Print one release with its history."""
    aliases = ", ".join(details.aliases) or "none"
    echo(f"{details.model} version {details.version}, aliases: {aliases}")
    echo(f"folder: {details.folder}")
    if details.record.reason:
        echo(f"reason: {details.record.reason}")
    variants = [
        (entry["name"], entry["digest"], _evidence_of(entry.get("evidence")))
        for entry in details.manifest.get("variants", ())
    ]
    print_table("Variants", ("variant", "digest", "evidence"), variants)
    for name, probes in details.manifest.get("provenance", {}).get("probes_not_asked", {}).items():
        echo(f"{name} was released without these probes: {', '.join(probes)}")
    history = [
        (str(number), record.time, str(record.kind.value), str(record.version), record.alias or "-", record.reason)
        for number, record in enumerate(details.history, start=1)
    ]
    print_table("History", ("record", "time", "what", "version", "alias", "reason"), history)


def _evidence_of(evidence: dict[str, Any] | None) -> str:
    if evidence is None:
        return "source, not compared"
    found = [_found(item) for item in (evidence, *evidence.get("also", ()))]
    # Releases from before it was recorded hold nothing that had never run.
    remark = "" if evidence.get("has_run", True) else "; it never ran itself"
    return "; ".join(found) + remark


def _found(evidence: dict[str, Any]) -> str:
    words = f"{evidence['kind']} on {evidence['device']} by {evidence['runtime']}: {evidence['verdict']}"
    if evidence["kind"] != "emulated":
        return words
    devices = ", ".join(evidence.get("devices", ()))
    return f"{words}, accepted for {devices}" if devices else words


def print_verification(verification: Verification, *, to_stderr: bool = False) -> None:
    """Print whether a release is what was released."""
    name = f"{verification.model} version {verification.version}"
    if verification.is_intact:
        echo(f"{name} is intact: {verification.files_checked} files match its manifest", err=to_stderr)
        return
    echo(f"{name} is not what was released: {verification.difference}", err=to_stderr)
