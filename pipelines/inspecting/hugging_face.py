"""Write the Python module beside a spec that loads a folder of weights, as `save_pretrained` writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.models.hugging_face import CONFIG, class_of_weights, read_config
from paritygate.pipelines.inspecting.image_processor import picture_rules_of
from paritygate.validate.samples.arrow_tables import DATASET_FILE
from paritygate.validate.samples.pictures import PictureRules, holds_pictures
from paritygate.validate.samples.samples import SampleSource
from paritygate.validate.samples.table_columns import ColumnKind, columns_of_table

_PROCESSOR = "preprocessor_config.json"
# Suffixes of files for a model or its tokenizer.
_SUFFIXES = frozenset({".json", ".model", ".safetensors", ".txt"})
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
        # A cache of earlier tokens is not an output that is compared.
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


class WeightsModule(Struct, frozen=True, kw_only=True):
    """A Python module that loads a folder of weights."""

    name: str
    text: str  # its code
    files: tuple[str, ...]  # read by the code, from the spec's folder
    columns: tuple[str, ...]  # of texts
    images: PictureRules | None = None  # None if the samples are not pictures, or it is unknown

    @property
    def note(self) -> str:
        """A sentence on the module for the user."""
        texts = f", and turns the texts in {' and '.join(self.columns)} into tokens" if self.columns else ""
        apart = "" if self.files else "; the weights are outside of the spec's folder, so no release contains them"
        done = f"{self.name}.py loads the weights in FP32, without downloads and without code of the folder"
        return f"{done}{texts}{apart}"


def module_of_weights(weights: Path, folder: Path, samples: Path | None) -> WeightsModule:
    """Return the module that loads a folder of weights from beside a spec in `folder`.

    `samples` is None if there are none, or a function makes them.

    Raises:
        UsageError: The weights need pickles or code of their author, or steps for pictures without keys. The hint has
            the Python that does it.
        InputFileError: The configuration or the samples cannot be read.
        MissingBackendError: The package transformers is not installed.
    """
    kind = class_of_weights(weights, command="convert-and-validate init model:load")
    place = Path(os.path.relpath(weights.resolve(), folder))
    is_below = place.parts[:1] != ("..",)
    # The module is copied with the source, and still finds absolute paths.
    place = place if is_below else weights.resolve()
    columns = _text_columns(samples)
    text = _LOAD.format(path=repr(place.as_posix()), kind=kind)
    if columns:
        text += _ROWS.format(columns=repr(list(columns)), longest=_longest(read_config(weights / CONFIG)))
    files = sorted(file.name for file in weights.iterdir() if file.is_file() and file.suffix in _SUFFIXES)
    stem = re.sub(r"\W", "_", weights.resolve().name, flags=re.ASCII)
    return WeightsModule(
        name=f"{stem if stem[:1].isalpha() else f'_{stem}'}_model",
        text=text,
        files=tuple((place / name).as_posix() for name in files) if is_below else (),
        columns=columns,
        images=_picture_rules(weights, samples),
    )


def _picture_rules(weights: Path, samples: Path | None) -> PictureRules | None:
    """Return the preparation of pictures, if they are the samples and the weights' folder has it."""
    if samples is None or not samples.is_dir() or (samples / DATASET_FILE).is_file() or not holds_pictures(samples):
        return None
    path = weights / _PROCESSOR
    return picture_rules_of(weights, read_config(path)) if path.is_file() else None


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
