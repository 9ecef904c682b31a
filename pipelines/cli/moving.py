"""Moving an alias by a command: the JSON is prepared before it moves, and what follows never fails the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from paritygate.codec import to_data
from paritygate.pipelines.cli.json_file import JsonFile
from paritygate.pipelines.release.afterwards import Afterwards
from paritygate.pipelines.release.repository.aliases import AliasMove
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.views.view_updates import ViewUpdate, update_views
from paritygate.pipelines.report.terminal.printing import print_errors
from paritygate.pipelines.report.terminal.serving import code_of_views, print_view_updates
from paritygate.roots import Root

_Moved = TypeVar("_Moved", StoredRelease, AliasMove)


def move_and_follow(  # noqa: PLR0913 - what three commands do otherwise
    repository: Root,
    work: Callable[[Commit[_Moved]], _Moved],
    *,
    show: Callable[[_Moved], None],
    show_last: Callable[[_Moved], None] | None = None,
    json_target: str | None,
    is_quiet: bool,
) -> int:
    """Move an alias, write the views that follow it, then the JSON, then print; return the exit code of the views.

    Args:
        repository: The root of the repository.
        work: Moves it.
        show: Prints what was moved.
        show_last: Prints what to do next.
        json_target: As of --json.
        is_quiet: Whether as little as possible is printed.

    Raises:
        ParitygateError: The alias was not moved.
    """
    after, written = Afterwards(), JsonFile(json_target)
    commit = Commit[_Moved](prepare=lambda moved: written.prepare(_data(moved, ())))
    try:
        moved = after.record(commit, lambda: work(commit))
        views: tuple[ViewUpdate, ...] = ()
        model, aliases = moved.model, moved.aliases
        views = after.do("write views", lambda: update_views(repository, model, *aliases), otherwise=views)
        after.do(written.words, lambda: written.write(_data(moved, views)), otherwise=None)

        def print_all() -> None:
            show(moved)
            print_view_updates(views, repository, is_quiet=is_quiet, to_stderr=json_target == "-")
            if show_last is not None:
                show_last(moved)

        after.do("print the result", print_all, otherwise=None)
    finally:
        written.discard()
    print_errors(*after.left_out)
    return code_of_views(views)


def _data(moved: StoredRelease | AliasMove, views: tuple[ViewUpdate, ...]) -> dict[str, Any]:
    return {"schema_version": 1, **to_data(moved), "views": [view.to_json() for view in views]}
