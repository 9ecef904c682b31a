"""Write the Python module beside a spec that loads a folder of weights, as `save_pretrained` writes it."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.errors import InputFileError, MissingBackendError, UsageError
from paritygate.files import parse_json
from paritygate.pipelines.inspecting.image_processor import picture_rules_of
from paritygate.text import a_or_an
from paritygate.validate.samples.arrow_tables import DATASET_FILE
from paritygate.validate.samples.pictures import PictureRules, holds_pictures
from paritygate.validate.samples.samples import SampleSource
from paritygate.validate.samples.table_columns import ColumnKind, columns_of_table

_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"
_CLASS = re.compile(r"[A-Z][A-Za-z0-9_]*")
# Suffixes of files for a model or its tokenizer.
_SUFFIXES = frozenset({".json", ".model", ".safetensors", ".txt"})
_LARGEST_CONFIG = 1 << 22
_PAIRS = (
    *(("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2")),
    *(("question", "context"), ("query", "passage"), ("text", "text_pair")),
)
_TEXTS = ("text", "sentence", "content", "document", "review", "query", "question")
# Longer texts take long to compare, and show little more.
_LONGEST = 128

_LOAD = '''"""Loads a folder that save_pretrained wrote. Written by convert-and-validate init: change it as you need."""

import os
from pathlib import Path

# Nothing is downloaded, and no code of the folder runs.
os.environ["HF_HUB_OFFLINE"] = "1"
WEIGHTS = Path(__file__).parent / {path}


def load():
    """Return the model, which computes in FP32 whatever it was saved in."""
    from transformers import {kind}

    model = {kind}.from_pretrained(WEIGHTS, local_files_only=True, trust_remote_code=False, use_safetensors=True)
    if hasattr(model.config, "use_cache"):
        # A cache of earlier tokens is no output that is compared.
        model.config.use_cache = False
    return model.float()
'''
_ROWS = '''

def rows(path):
    """Yield the texts as tokens. Guess: texts are in {columns}, and are cut at {longest} tokens."""
    from transformers import AutoTokenizer

    from paritygate.batch import Batch
    from paritygate.validate.samples.samples import SampleSource, open_samples

    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, local_files_only=True, trust_remote_code=False)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    columns = {{name: (name,) for name in {columns}}}
    for batch in open_samples(SampleSource(text=path, folder=Path(), batch_size=8, columns=columns))():
        texts = [batch.inputs[name].tolist() for name in columns]
        tokens = tokenizer(*texts, padding=True, truncation=True, max_length={longest}, return_tensors="np")
        yield Batch(inputs=dict(tokens), ids=batch.ids)
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsModule:
    """A Python module that loads a folder of weights."""

    name: str
    text: str  # its code
    files: tuple[str, ...]  # read by the code, from the spec's folder
    columns: tuple[str, ...]  # of texts
    images: PictureRules | None = None  # None if the samples are no pictures, or it is unknown

    @property
    def note(self) -> str:
        """A sentence on the module for the user."""
        texts = f", and turns the texts in {' and '.join(self.columns)} into tokens" if self.columns else ""
        apart = "" if self.files else "; the weights are outside of the spec's folder, so no release contains them"
        done = f"{self.name}.py loads the weights in FP32, without downloads and without code of the folder"
        return f"{done}{texts}{apart}"


def holds_weights(path: Path) -> bool:
    """Return whether a path is a folder as `save_pretrained` writes it."""
    return (path / _CONFIG).is_file()


def module_of_weights(weights: Path, folder: Path, samples: Path | None) -> WeightsModule:
    """Return the module that loads a folder of weights from beside a spec in `folder`.

    `samples` is None if there are none, or a function makes them.

    Raises:
        UsageError: The weights need pickles or code of their author, or steps for pictures without keys. The hint has
            the Python that does it.
        InputFileError: The configuration or the samples cannot be read.
        MissingBackendError: The package transformers is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        msg = f"{weights} is a folder of Hugging Face, and the package transformers is not installed"
        raise MissingBackendError(msg, hint="install it: pip install transformers")
    place = Path(os.path.relpath(weights.resolve(), folder))
    is_below = place.parts[:1] != ("..",)
    # The module is copied with the source, and still finds absolute paths.
    place = place if is_below else weights.resolve()
    config = _read_config(weights / _CONFIG)
    kind = _class_of(weights, config)
    columns = _text_columns(samples)
    text = _LOAD.format(path=repr(place.as_posix()), kind=kind)
    if columns:
        text += _ROWS.format(columns=repr(list(columns)), longest=_longest(config))
    files = sorted(file.name for file in weights.iterdir() if file.is_file() and file.suffix in _SUFFIXES)
    stem = re.sub(r"\W", "_", weights.resolve().name, flags=re.ASCII)
    return WeightsModule(
        name=f"{stem if stem[:1].isalpha() else f'_{stem}'}_model",
        text=text,
        files=tuple((place / name).as_posix() for name in files) if is_below else (),
        columns=columns,
        images=_picture_rules(weights, samples),
    )


def _read_config(path: Path) -> dict[str, Any]:
    """Return a configuration that `save_pretrained` wrote; raise InputFileError if that fails."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_LARGEST_CONFIG + 1)
        if len(text) > _LARGEST_CONFIG:
            msg = f"larger than {_LARGEST_CONFIG} bytes"
            raise ValueError(msg)  # noqa: TRY301 - it is unreadable like the others
        config = parse_json(text)
    except (OSError, ValueError, RecursionError) as err:
        msg = f"{path} cannot be read: {err}"
        raise InputFileError(msg, hint="save the model again with save_pretrained") from err
    if not isinstance(config, dict):
        msg = f"{path} is no configuration of a model (got {a_or_an(type(config).__name__)}, expected an object)"
        raise InputFileError(msg, hint="save the model again with save_pretrained")
    return config


def _picture_rules(weights: Path, samples: Path | None) -> PictureRules | None:
    """Return the preparation of pictures, if they are the samples and the weights' folder has it."""
    if samples is None or not samples.is_dir() or (samples / DATASET_FILE).is_file() or not holds_pictures(samples):
        return None
    path = weights / _PROCESSOR
    return picture_rules_of(weights, _read_config(path)) if path.is_file() else None


def _class_of(weights: Path, config: dict[str, Any]) -> str:
    """Return the class of transformers that loads the folder.

    Raises:
        UsageError: It needs code of the folder's, or a pickle, or does not name its class.
    """
    named = config.get("architectures")
    kind = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    if "auto_map" in config:
        raise _needs_more(weights, "its config.json names Python code of its author (auto_map)", "AutoModel", code=True)
    if not _CLASS.fullmatch(kind):
        raise _needs_more(weights, "its config.json names no class in architectures", "AutoModel")
    if not any(weights.glob("*.safetensors")):
        seen = ", ".join(sorted(file.name for file in weights.iterdir() if file.suffix in {".bin", ".pt", ".h5"}))
        raise _needs_more(weights, f"it has no weights as safetensors (got {seen or 'none'})", kind)
    return kind


def _needs_more(weights: Path, why: str, kind: str, *, code: bool = False) -> UsageError:
    options = ", trust_remote_code=True" if code else ""
    line = f"from transformers import {kind}; load = lambda: {kind}.from_pretrained({str(weights)!r}{options})"
    msg = f"{weights} cannot be loaded directly because {why}"
    return UsageError(
        msg, hint=f"if you trust it, write model.py: {line}; then", command="convert-and-validate init model:load"
    )


def _text_columns(samples: Path | None) -> tuple[str, ...]:
    """Return the columns of texts to tokenize; none if the samples are tokens already."""
    if samples is None:
        return ()
    columns = columns_of_table(SampleSource(text=str(samples), folder=Path()))
    if any(column.name in {"input_ids", "pixel_values", "input_features"} for column in columns):
        return ()
    return _chosen([column.name for column in columns if column.kind is ColumnKind.TEXT])


def _chosen(texts: Sequence[str]) -> tuple[str, ...]:
    pair = next((pair for pair in _PAIRS if {*pair} <= {*texts}), None)
    if pair is not None:
        return pair
    name_of_text = next((name for name in _TEXTS if name in texts), None)
    return (name_of_text,) if name_of_text is not None else tuple(texts[:1])


def _longest(config: dict[str, Any]) -> int:
    most = config.get("max_position_embeddings")
    # Two less, because RoBERTa counts positions from 2 on.
    return min(_LONGEST, most - 2) if isinstance(most, int) and most > 2 else _LONGEST  # noqa: PLR2004 - the same 2
