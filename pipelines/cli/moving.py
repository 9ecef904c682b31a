"""Move an alias by a command: the JSON is prepared before, and later failures do not fail the command."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, TypeVar

from paritygate.codec import to_data
from paritygate.machine import user_name
from paritygate.pipelines.cli.json_file import JsonFile
from paritygate.pipelines.cli.output import Output
from paritygate.pipelines.release.after_command import AfterCommand
from paritygate.pipelines.release.afterwards import Afterwards
from paritygate.pipelines.release.repository.aliases import AliasMove, Note
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.repository.rolled_back import RolledBackError
from paritygate.pipelines.release.views.view_updates import ViewUpdate, update_views
from paritygate.pipelines.report.terminal.printing import print_errors
from paritygate.pipelines.report.terminal.release import print_after_command, print_alias_move
from paritygate.pipelines.report.terminal.serving.views import code_of_views, print_view_updates
from paritygate.pipelines.run.workspace import worst_code
from paritygate.roots import Root

_Moved = TypeVar("_Moved", StoredRelease, AliasMove)


def move_and_follow(  # noqa: PLR0913 - what three commands do otherwise
    repository: Root,
    work: Callable[[Commit[_Moved]], _Moved],
    *,
    show: Callable[[_Moved], None],
    show_last: Callable[[_Moved], None] | None = None,
    follow: Callable[[_Moved], AfterCommand | None] | None = None,
    again: str = "",
    output: Output,
) -> int:
    """Move an alias by `work`, write its views and the JSON, then print, and return the exit code of what follows.

    `show` prints the move, and `show_last` the next step. `follow` runs the command of
    the spec, and `again` repeats it.

    Raises:
        ParitygateError: The alias was not moved.
    """
    after, written = Afterwards(), JsonFile(output.json_target)
    commit = Commit[_Moved](prepare=lambda moved: written.prepare(_data(moved, ())))
    try:
        try:
            moved = after.record(commit, lambda: work(commit))
        except RolledBackError as err:
            data = {"exit_code": int(err.exit_code), "rolled_back": err.rollback, "error": err.to_json()}
            written.write({"schema_version": 1, **data})
            raise
        views: tuple[ViewUpdate, ...] = ()
        model, aliases = moved.model, moved.aliases
        views = after.do("write views", lambda: update_views(repository, model, *aliases), otherwise=views)
        called: AfterCommand | None = None
        if follow is not None:
            called = after.do("run promote.after", lambda: follow(moved), otherwise=called)
        extra = {} if follow is None else {"after": None if called is None else to_data(called)}
        after.do(written.words, lambda: written.write({**_data(moved, views), **extra}), otherwise=None)

        def print_all() -> None:
            show(moved)
            print_view_updates(views, repository, is_quiet=output.is_quiet, to_stderr=output.to_stderr)
            if called is not None:
                print_after_command(called, again, is_quiet=output.is_quiet, to_stderr=output.to_stderr)
            if show_last is not None:
                show_last(moved)

        after.do("print the result", print_all, otherwise=None)
    finally:
        written.discard()
    print_errors(*after.left_out)
    return worst_code([code_of_views(views), *([] if called is None else [called.code])])


def move_alias(
    repository: Root,
    work: Callable[[Note, Commit[AliasMove]], AliasMove],
    *,
    reason: str,
    output: Output,
) -> int:
    """Move an alias to a release that exists; see `move_and_follow`."""
    note = Note(reason=reason, who=user_name(), host=platform.node())
    return move_and_follow(
        repository,
        lambda commit: work(note, commit),
        show=lambda move: print_alias_move(move, repository, is_quiet=output.is_quiet, to_stderr=output.to_stderr),
        output=output,
    )


def _data(moved: StoredRelease | AliasMove, views: tuple[ViewUpdate, ...]) -> dict[str, Any]:
    return {"schema_version": 1, **to_data(moved), "views": [view.to_json() for view in views]}
