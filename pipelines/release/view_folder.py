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
    check_folder_kind(repository, order)
    before = _in_the_place_of(repository, order)
    if before is not None and not overwrite:
        msg = (
            f"the view {from_here(order.place)} follows {before.which} of {before.model}, "
            f"and would show {order.which} of {order.model} in its place"
        )
        raise ChangedViewError(msg, hint=f"write it beside that one: {writing_command(repository, order)}")


def check_folder_kind(repository: Path, order: ViewOrder) -> None:
    """Check that the folder of a view holds none for a server of another kind.

    Raises:
        UsageError: It holds one.
    """
    beside = replace(order, root=Path(f"{order.root}-{order.command}"))
    check_kind(
        LocalPlace(order.root), order.command, root=from_here(order.root), elsewhere=beside.command_line(repository)
    )


def writing_command(repository: Path, order: ViewOrder) -> str:
    """Return the command that writes a view: beside the one in its place, where that follows another alias."""
    if _in_the_place_of(repository, order) is None:
        return order.command_line(repository)
    if order.command == "kserve":
        # A cluster has one service of a name, whichever folder it was applied from.
        return replace(order, name=f"{order.name}-{order.which}").command_line(repository)
    return replace(order, root=Path(f"{order.root}-{order.which}")).command_line(repository)


def _in_the_place_of(repository: Path, order: ViewOrder) -> ViewOrder | None:
    """Return what is kept of the view that is there and follows another alias; None where there is none."""
    kept = [each.order for each in kept_orders(repository) if each.order is not None]
    return next((each for each in kept if order.place.is_dir() and each.is_instead_of(order)), None)
