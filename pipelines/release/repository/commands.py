"""Print commands on a repository for messages; each names the repository, unless it is the usual one."""

from __future__ import annotations

import shlex

from paritygate.pipelines.release import DEFAULT_REPOSITORY
from paritygate.roots import Root, absolute
from paritygate.text import from_here


def command_on(repository: Root, *words: str) -> str:
    """Return a command on a repository as it is typed here, with `--repository` where that is not the usual one.

    Args:
        repository: The root of the repository.
        words: The command, its arguments and its options, each as one word.
    """
    if absolute(repository) == DEFAULT_REPOSITORY.absolute():
        return shlex.join(["convert-and-validate", *words])
    return shlex.join(["convert-and-validate", *words, "--repository", from_here(repository)])
