"""What a view that follows an alias shows, beside what its alias points to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.kserve import version_in_kserve
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.pipelines.serving.tensorflow_serving import version_in_models_file
from paritygate.pipelines.serving.triton.view import version_in_config

__all__ = ["ViewState", "state_of_view"]

_SHOWN = {"triton": version_in_config, "tfserving": version_in_models_file, "kserve": version_in_kserve}


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewState:
    """What a view shows.

    Attributes:
        is_there: Whether the model's folder is on this machine.
        shown: The version that it shows; None where its file is not there or cannot be read.
        released: The version that its alias points to; None where there is no such alias any more.
    """

    is_there: bool
    shown: int | None
    released: int | None

    @property
    def is_behind(self) -> bool:
        """Whether it is there and shows another version than its alias points to."""
        return self.is_there and self.shown != self.released

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**to_data(self), "is_behind": self.is_behind}


def state_of_view(repository: Path, order: ViewOrder) -> ViewState:
    """Return what a view shows now, by the file that its server reads.

    Raises:
        ParitygateError: The log of the model cannot be read.
    """
    return ViewState(
        is_there=order.place.is_dir(),
        shown=_SHOWN[order.command](LocalPlace(order.root), order.name),
        released=read_state(repository, order.model).aliases.get(order.which),
    )
