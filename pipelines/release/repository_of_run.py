"""The repository that a run is released to, and the command that does it."""

from __future__ import annotations

import shlex
from pathlib import Path

from paritygate.pipelines.run.workspace import DEFAULT_ROOT, RunFolder
from paritygate.roots import Root, absolute, is_address, root_of


def repository_of(run: RunFolder, root: Path) -> Root:
    """Return the repository that the spec names: below `root` if it begins with `artifacts/`, else beside the spec."""
    text = run.resolved.spec.promote.to
    if is_address(text):
        return root_of(text)
    to = Path(text)
    if to.parts[:1] == DEFAULT_ROOT.parts:
        return root.joinpath(*to.parts[1:])
    return run.resolved.folder / to


def promote_command(run: RunFolder, repository: Root | None, *options: str) -> str:
    """Return the command that releases a run, with `--repository` unless the command finds that one by itself."""
    usual = repository_of(run, DEFAULT_ROOT)
    is_usual = repository is None or absolute(repository) == absolute(usual)
    elsewhere = () if is_usual else ("--repository", str(repository))
    return shlex.join(["convert-and-validate", "promote", "--run", str(run.folder), *elsewhere, *options])
