"""The request for the view of a release on a model server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paritygate.pipelines.release.repository.commands import command_on
from paritygate.roots import Root
from paritygate.text import from_here

_ASK_FOR_MORE = ("--variant", "--samples", "--server")


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewRequest:
    """What is asked for of a view.

    Attributes:
        command: The command that writes it, which names the kind of server.
        model: The model's name in the repository.
        which: The alias that it shows, or a version.
        root: Where the server looks for models; absolute.
        name: The model's name on the server.
        variant: Which variant; None for the first that is served.
        samples: Where warm-up rows come from, as it was written; None for no warm-up.
        server: The release of Triton that reads it; None if nobody named it.
        base_path: The folder of all models as the server sees it; None for `root`.
        storage_uri: The same as a cluster sees it; None without a cluster.
    """

    command: str
    model: str
    which: str
    root: Path
    name: str
    variant: str | None = None
    samples: str | None = None
    server: str | None = None
    base_path: str | None = None
    storage_uri: str | None = None

    @property
    def place(self) -> Path:
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
        """Whether it is of the same place as another, and shows something else there."""
        same_place = (self.command, self.place) == (other.command, other.place)
        return same_place and (self.model, self.which) != (other.model, other.which)

    def command_line(self, repository: Root, *options: str) -> str:
        """Return the command that writes the view, with further options."""
        words = (word for option in self.options.items() for word in option)
        return command_on(
            repository, self.command, self.model, self.which, "--out", from_here(self.root), *words, *options
        )
