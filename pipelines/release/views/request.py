"""The request for the view of a release on a model server."""

from __future__ import annotations

from msgspec import Struct

from paritygate.pipelines.release.repository.commands import command_on
from paritygate.roots import Root
from paritygate.text import from_here

_ASK_FOR_MORE = ("--variant", "--samples", "--server")


class ViewRequest(Struct, frozen=True, kw_only=True):
    """Hold the arguments and options of a view."""

    command: str  # which names the kind of server
    model: str
    which: str  # an alias or a version
    root: Root  # where the server looks for models; absolute
    name: str  # on the server
    variant: str | None = None  # None for the first that is served
    samples: str | None = None  # of the warm-up rows, as written; None for no warm-up
    server: str | None = None  # the release of Triton; None if unknown
    base_path: str | None = None  # the root as the server sees it; None for `root`
    storage_uri: str | None = None  # the root as a cluster sees it; None without a cluster

    @property
    def place(self) -> Root:
        """The model's folder on the server."""
        return self.root / self.name

    @property
    def follows(self) -> bool:
        """Whether it names an alias: a version never moves."""
        return not self.which.isdecimal()

    @property
    def options(self) -> dict[str, str]:
        """The options that were given."""
        options = {
            "--variant": self.variant,
            "--samples": self.samples,
            "--server": self.server,
            "--base-path": self.base_path,
            "--storage-uri": self.storage_uri,
            "--name": self.name if self.name != self.model else None,
        }
        return {option: value for option, value in options.items() if value is not None}

    @property
    def head_options(self) -> dict[str, str]:
        """The options that ask for more: without one of them a view is checked less, warmed up less, or another."""
        return {option: value for option, value in self.options.items() if option in _ASK_FOR_MORE}

    def is_instead_of(self, other: ViewRequest) -> bool:
        """Return whether it is at the same place as another, and shows something else there."""
        same_place = (self.command, self.place) == (other.command, other.place)
        return same_place and (self.model, self.which) != (other.model, other.which)

    def command_line(self, repository: Root, *options: str) -> str:
        """Return the command that writes the view, with further options."""
        words = (word for option in self.options.items() for word in option)
        return command_on(
            repository, self.command, self.model, self.which, "--out", from_here(self.root), *words, *options
        )
