"""Read zip archives of PyTorch: their kind, without loading them, and the names that paritygate writes into its own."""

from __future__ import annotations

import json
import pickletools
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError
from paritygate.files import parse_json
from paritygate.models.source import SourceKind
from paritygate.signature import Signature

# Neither TorchScript nor torch.export keeps names and ranges, but both archives may hold extra files.
NAMES_FILE = "paritygate.json"
_EXTRA_FOLDER = "extra"
# The earliest time in a zip, so that the same model always has the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
# Globals in pickles of tensors and their dicts. Any other one is a class whose code would run.
_TENSOR_PARTS = ("torch._utils ", "torch.storage ", "torch._tensor ", "collections OrderedDict", "torch ")
_SCRIPT_HINT = "give module:callable, a function that builds the module and loads its weights, or save TorchScript"


class SaidNames(Struct, frozen=True, kw_only=True):
    """Names of inputs and outputs inside a PyTorch file.

    Attributes:
        signature: Inputs in the model's order, outputs under the names served.
        is_in_order: The model takes and returns exactly these tensors in this order, as exported ones do. Copies of
            other files are called by their own names, if any.
        rename: The name served, by the model's own; empty if `is_in_order`.
    """

    signature: Signature
    is_in_order: bool = True
    rename: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the names as the text of a file, the same for the same names."""
        return json.dumps(to_data(self), indent=1)

    @classmethod
    def from_text(cls, text: bytes) -> SaidNames:
        """Return the names that `to_text` wrote; raise ValueError for another text."""
        return from_data(cls, parse_json(text))


def check_archive(path: Path, kind: SourceKind) -> None:
    """Check that the file is a sound archive of the kind TORCHSCRIPT or PT2, with every byte as it was written.

    Reads the whole file; nothing in it is unpickled or run.

    Raises:
        InputFileError: It is missing, corrupt or of another kind, which the message names.
    """
    names = _sound_names(path)
    its_kind = _kind_of(names)
    if its_kind == kind:
        return
    wanted = "TorchScript" if kind is SourceKind.TORCHSCRIPT else "a program of torch.export"
    if its_kind is SourceKind.TORCHSCRIPT:
        msg, hint = f"{path} is TorchScript, not {wanted}", "name it .pt"
    elif its_kind is SourceKind.PT2:
        msg, hint = f"{path} is a program of torch.export, not {wanted}", "name it .pt2"
    else:
        pickled = next((name for name in names if name.endswith("data.pkl")), None)
        what = "of no kind that PyTorch writes" if pickled is None else _pickled(path, pickled)
        msg, hint = f"{path} is {what}, not {wanted}", _SCRIPT_HINT
    raise InputFileError(msg, hint=hint)


def _sound_names(path: Path) -> list[str]:
    with _opened(path) as archive:
        # A truncated archive may end in an inner archive, and look like that one.
        is_whole = min(item.header_offset for item in archive.infolist()) == 0 if archive.infolist() else False
        damaged = archive.testzip()
        names = archive.namelist()
    if not is_whole:
        raise InputFileError(f"{path} is corrupt: truncated or empty", hint="save or copy the model again")
    if damaged is not None:
        raise InputFileError(f"{path} is corrupt: checksum mismatch of {damaged}", hint="save or copy the model again")
    return names


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as err:
        # zipfile raises RuntimeError for an encrypted entry, or, as NotImplementedError, for an unknown
        # compression.
        msg = f"{path} is corrupt or not a PyTorch archive: {err}"
        raise InputFileError(msg, hint="save or copy the model again") from err


def _kind_of(names: list[str]) -> SourceKind | None:
    inner = {name.partition("/")[2] for name in names}
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return SourceKind.TORCHSCRIPT
    is_program = any(name.startswith("models/") and name.endswith(".json") for name in inner)
    return SourceKind.PT2 if is_program or "serialized_exported_program.json" in names else None


def _pickled(path: Path, name: str) -> str:
    """Return a description of torch.save's output by the names in the pickle, which is not unpickled."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read(name)
    try:
        named = [str(argument) for code, argument, _ in pickletools.genops(content) if code.name == "GLOBAL"]
    except ValueError as err:
        return f"a pickle that is corrupt ({err})"
    classes = [item.replace(" ", ".") for item in named if not item.startswith(_TENSOR_PARTS)]
    if classes:
        return f"a pickled object of torch.save (class {classes[0]}), which is never unpickled because that runs code"
    return "weights without a model (a state dict of torch.save)"


def names_in_archive(path: Path) -> SaidNames | None:
    """Return the names that paritygate wrote into the file; None in files from elsewhere.

    Raises:
        InputFileError: It is missing or no archive, or the names in it are corrupt.
    """
    with _opened(path) as archive:
        if not archive.namelist() or _names_entry(archive) not in archive.namelist():
            return None
        text = archive.read(_names_entry(archive))
    try:
        return SaidNames.from_text(text)
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        msg = f"{path} has a corrupt list of names ({NAMES_FILE}): {type(err).__name__}: {err}"
        raise InputFileError(msg, hint="make it again with", command="convert-and-validate export") from err


def copy_archive(source: Path, target: Path, names: SaidNames) -> None:
    """Copy the archive, with the names in the copy."""
    if names_in_archive(source) == names:
        shutil.copyfile(source, target)
    else:
        write_archive(source, target, names)


def write_archive(source: Path, target: Path, names: SaidNames, *, left_out: str | None = None) -> None:
    """Write the archive `source` again with the names in it, without entries whose names end in `left_out`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        entry = _names_entry(old)
        for info in old.infolist():
            if info.filename != entry and not (left_out and info.filename.endswith(left_out)):
                new.writestr(info, old.read(info))
        new.writestr(zipfile.ZipInfo(entry, _NO_TIME), names.to_text())


def _names_entry(archive: zipfile.ZipFile) -> str:
    root = archive.namelist()[0].partition("/")[0]
    return f"{root}/{_EXTRA_FOLDER}/{NAMES_FILE}"
