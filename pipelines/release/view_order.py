"""What was asked for when the view of a release was written, on whichever model server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paritygate.pipelines.release.repository.commands import command_on
from paritygate.text import from_here


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewOrder:
    """What was asked for when a view was written.

    Attributes:
        command: Which command writes it: `triton`, `tfserving` or `kserve`.
        model: The model's name in the repository.
        which: The alias that it shows, or a version.
        root: Where the server looks for models; absolute.
        name: The model's name on the server.
        variant: Which variant; None for the first that is served.
        samples: Where warm-up rows come from, as it was written; None for no warm-up.
        server: The release of Triton that reads it; None if it was not said.
        base_path: The folder of all models as TensorFlow Serving sees it; None for `root`.
        storage_uri: The same as KServe reads it; None of the others.
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
    def head_options(self) -> dict[str, str]:
        """The options that ask for more: without one of them a view is checked less, warmed up less, or another."""
        said = {"--variant": self.variant, "--samples": self.samples, "--server": self.server}
        return {option: value for option, value in said.items() if value is not None}

    def is_instead_of(self, other: ViewOrder) -> bool:
        """Whether it is of the same place as another, and shows something else there."""
        same_place = (self.command, self.place) == (other.command, other.place)
        return same_place and (self.model, self.which) != (other.model, other.which)

    def command_line(self, repository: Path, *options: str) -> str:
        """Return the command that writes the view, with further options."""
        said = {"--variant": self.variant, "--samples": self.samples, "--server": self.server}
        said |= {"--base-path": self.base_path, "--storage-uri": self.storage_uri}
        said |= {"--name": self.name if self.name != self.model else None}
        said_words = (word for option, value in said.items() if value is not None for word in (option, value))
        return command_on(
            repository, self.command, self.model, self.which, "--out", from_here(self.root), *said_words, *options
        )
