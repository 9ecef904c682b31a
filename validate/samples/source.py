"""Where samples come from, and the error of a file that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paritygate.errors import InputFileError
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.random_rows import RandomRows
from paritygate.validate.samples.split import SampleSplit

DEFAULT_BATCH_SIZE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSource:
    """Where samples come from, as JSON data may say it.

    Attributes:
        text: A path, or `module:callable` with `(path: str | None) -> Iterator[Batch]`.
        folder: What relative paths and user modules are relative to.
        path: What a callable is given as its path.
        batch_size: Rows a batch, where the file does not say.
        pad: For ragged lists in tables: the value to pad each input with. Of samples that come filled up, what they
            are filled up with.
        split: Which of the rows are read, those for calibration; None for all.
        images: Of a folder of pictures: how they are prepared; None of anything else.
        columns: Of a table: by input, the column that it is, or several that stand side by side; no other column is
            read. Empty where every column is an input.
        cast: By input, the dtype that its values are cast to.
        random: How rows are generated, if there are no real ones.
        key: The part of the spec that names them, for hints; empty where the command line does.
    """

    text: str
    folder: Path
    path: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    pad: Mapping[str, float] = field(default_factory=dict)
    split: SampleSplit | None = None
    images: PictureRules | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cast: Mapping[str, str] = field(default_factory=dict)
    random: RandomRows | None = None
    key: str = ""

    @property
    def fill(self) -> dict[str, tuple[float, ...]]:
        """What rows are filled up with, as `digests_of_rows` takes it."""
        return {name: (value,) for name, value in self.pad.items()}

    @property
    def pad_option(self) -> str:
        """What gives `pad`: a key of the spec, or an option of the command line."""
        return f"{self.key}.pad" if self.key else "--pad"

    @property
    def columns_option(self) -> str:
        """What gives `columns`: a key of the spec, or an option of the command line."""
        return f"{self.key}.columns" if self.key else "--columns"


def no_rows(what: object) -> InputFileError:
    """Return the error of samples without a row: nothing would be measured, so nothing could pass."""
    return InputFileError(f"samples {what} hold no rows", hint="give at least one row")


def unreadable(path: Path, err: BaseException) -> InputFileError:
    """Return the error of a file of samples that cannot be read, with the first line of the reason."""
    reason = (str(err).strip() or type(err).__name__).splitlines()[0]
    return InputFileError(f"samples {path} cannot be read: {reason}", hint="check the file, or write it again")
