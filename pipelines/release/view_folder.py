"""The folder that a view is written to: for one kind of server, and a view in it follows one alias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paritygate.errors import ChangedViewError
from paritygate.pipelines.release.kept_orders import kept_orders
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.kinds import check_kind
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.text import from_here

__all__ = ["check_folder"]


def check_folder(repository: Path, order: ViewOrder, *, overwrite: bool = False) -> None:
    """Check that a view may be written to its folder, which is left as it is.

    Args:
        repository: The root of the repository.
        order: What is asked for.
        overwrite: Whether a view that follows another alias may become this one.

    Raises:
        ChangedViewError: A view there follows another alias, and is not to be replaced.
        UsageError: The folder holds a view for a server of another kind.
    """
    beside = replace(order, root=Path(f"{order.root}-{order.command}"))
    check_kind(
        LocalPlace(order.root), order.command, root=from_here(order.root), elsewhere=beside.command_line(repository)
    )
    if overwrite or not order.place.is_dir():
        return
    for kept in kept_orders(repository):
        before = kept.order
        if before is not None and before.is_instead_of(order):
            msg = (
                f"the view {from_here(order.place)} follows {before.which} of {before.model}, "
                f"and would show {order.which} of {order.model} in its place"
            )
            own = order.command_of_its_own(repository)
            raise ChangedViewError(msg, hint=f"write it beside that one: {own}; or give --overwrite")
