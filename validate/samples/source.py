"""The source of samples, and the error of a file that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from paritygate.errors import InputFileError
from paritygate.text import first_line, in_full
from paritygate.validate.samples.pictures import PictureRules
from paritygate.validate.samples.random_rows import RandomRows
from paritygate.validate.samples.split import SampleSplit

DEFAULT_BATCH_SIZE = 16


class SampleSource(Struct, frozen=True, kw_only=True):
    """The source of samples, as JSON data may describe it.

    `text` is a path, or `module:callable` with `(path: str | None) -> Iterator[Batch]`, which gets `path`. Relative
    paths and user modules are in `folder`. `batch_size` applies where the file has no batches. `pad` fills shorter
    lists of a table up, by input; samples that come padded are padded with it. `split` selects rows for calibration;
    None for all. `images` prepares a folder of pictures. `columns` maps inputs of a table to one or more columns; empty
    where every column is an input. `cast` gives dtypes by input. `random` generates rows. `key` is the part of the spec
    that names the samples, for hints; empty for the command line.
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
    def options(self) -> list[str]:
        """Return the options of the command line that name these samples."""
        sized = ["--batch-size", str(self.batch_size)] if self.batch_size != DEFAULT_BATCH_SIZE else []
        pairs = (
            *(("--columns", name, ",".join(value)) for name, value in self.columns.items()),
            *(("--cast", name, value) for name, value in self.cast.items()),
            *(("--pad", name, in_full(value)) for name, value in self.pad.items()),
        )
        return ["--samples", self.text, *sized, *(word for at, *pair in pairs for word in (at, "=".join(pair)))]

    @property
    def fill(self) -> dict[str, tuple[float, ...]]:
        """Return the padding of each input, for `digests_of_rows`."""
        return {name: (value,) for name, value in self.pad.items()}

    def inputs_of(self, column: str) -> list[str]:
        """Return the inputs that are a column of a table alone, or the column itself where it is none."""
        return [name for name, parts in self.columns.items() if parts == (column,)] or [column]

    def pad_of(self, column: str) -> float | None:
        """Return the padding of a column, which is that of its inputs; None if they have none, or differ in it."""
        pads = {self.pad.get(name) for name in self.inputs_of(column)}
        return pads.pop() if len(pads) == 1 else None

    @property
    def pad_option(self) -> str:
        """Return the key of the spec, or the option, that sets `pad`."""
        return f"{self.key}.pad" if self.key else "--pad"

    @property
    def columns_option(self) -> str:
        """Return the key of the spec, or the option, that sets `columns`."""
        return f"{self.key}.columns" if self.key else "--columns"


def no_rows(what: object) -> InputFileError:
    """Return the error of samples without a row: nothing would be measured, so nothing could pass."""
    return InputFileError(f"samples {what} hold no rows", hint="give at least one row")


def unreadable(path: Path, err: BaseException) -> InputFileError:
    """Return the error of samples that cannot be read, with the first line of the reason."""
    reason = first_line(err)
    return InputFileError(f"samples {path} cannot be read: {reason}", hint="check the file, or write it again")
