"""Sentences as data: a key of the table, and the values in the sentence. Only `render` makes text of them.

So no code can depend on the wording. A value whose name is not in `_MAY_LEAVE` is hidden outside this machine.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from paritygate.text import HIDDEN, counted, one_or_many
from paritygate.validate.words.table import SENTENCES

# Values that are no user data: figures of a measurement, and names that a model or a spec declares.
_MAY_LEAVE = frozenset(
    {
        *("actual_dtype", "actual_shape", "allowed", "at_end", "at_floor", "band", "bar", "batches", "beyond", "bias"),
        *("bound", "candidate", "cap", "cause", "changed", "channel", "channels", "check", "classes", "coordinates"),
        *("count", "decisions", "digest", "difference", "each", "end_rows", "every", "expected_dtype"),
        *("expected_shape", "factor", "fills", "floor", "half", "high", "in_band", "in_rows", "input", "inputs", "iou"),
        *("kept", "largest", "least", "left_out", "limit", "low", "magnitude", "match", "matched", "mean", "measured"),
        *("missing", "extra", "mismatches", "model", "most", "name", "names", "near", "needed", "negative", "noise"),
        *("number", "other", "out_of_band", "output", "outputs", "over", "part", "passes", "positive", "precision"),
        *("probe", "probes", "quantile", "ratio", "reference", "released", "role", "rows", "rows_mismatched", "rule"),
        *("runtime", "score_floor", "share", "side", "spread", "steps", "substitutes", "times", "total", "values"),
        *("version", "versions", "without", "by", "what", "edge", "about", "lacks", "declared", "labels"),
        *("actual_names", "expected_names", "before", "after", "std", "min_iou"),
        *("base", "numbers", "operator", "operators", "other_operator", "other_operators", "verdict"),
    }
)


# Sentences that compare a measured number with its limit.
WITHIN = frozenset({"at_most", "at_least"})
AT_LEAST = frozenset({"at_least", "below_limit"})
PAIRS = WITHIN | AT_LEAST | {"above"}


class Sentence(Struct, frozen=True):
    """One sentence or a part of one: its key in the table, and its values, which are JSON data or sentences."""

    key: str
    values: Mapping[str, Any]


Words = tuple[Sentence, ...]


def say(key: str, **values: Any) -> Words:  # noqa: ANN401 - whatever a sentence names
    """Return the sentence with this key of the table and these values."""
    return (Sentence(key, {name: _plain(value) for name, value in values.items()}),)


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(value, Sentence | str | bool | int | None):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        # JSON holds no NaN and no infinity.
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    return value


def _formatted(value: Any, format_spec: str) -> str:  # noqa: ANN401 - a value of a sentence
    if format_spec.startswith("#"):
        return counted(value, format_spec[1:]) if isinstance(value, int) else f"{value} {format_spec[1:]}"
    if "|" in format_spec:
        one, many = format_spec.split("|")
        return one_or_many(value, one, many)
    if isinstance(value, str):
        return value
    if format_spec.endswith(" %"):
        return format(value, format_spec.replace(" %", "%")).replace("%", " %")
    return format(value, format_spec)


def _converted(value: Any, conversion: str | None) -> Any:  # noqa: ANN401 - a value of a sentence
    if value == HIDDEN or conversion is None:
        return value
    return [repr(item) for item in value] if isinstance(value, list) else repr(value)


def _shown(value: Any, format_spec: str) -> str:  # noqa: ANN401 - a value of a sentence
    """Return a value as text.

    `{rows:#row}` counts, `{count:is|are}` agrees, and `{share:.0 %}` has a space before the sign.
    """
    if _is_words(value):
        return render(value)
    if isinstance(value, list):
        return ", ".join(_shown(item, format_spec) for item in value)
    return _formatted(value, format_spec)


@functools.cache
def _parts(key: str) -> tuple[tuple[str, str | None, str | None, str | None], ...]:
    """Return the parts of a sentence of the table: a text, and the name, format and conversion of the value after."""
    return tuple(string.Formatter().parse(SENTENCES[key]))


_NO_WORDS = frozenset({str, int, float, bool, type(None)})
# Without the row, these have nothing more to show.
_OF_ONE_ROW = frozenset({"worst_row", "lowest_row", "worst_value", "fill_values.first", "fill_values.only"})
_HIDDEN_AS = {"in_rows": "in_rows.hidden"}


def _is_words(value: Any) -> bool:  # noqa: ANN401 - a value of a sentence
    # Nearly every value is one of these, and the rest takes long.
    if type(value) in _NO_WORDS:
        return False
    return isinstance(value, Sentence) or (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(item, Sentence) or _is_data(item) for item in value)
    )


def _is_data(value: Any) -> bool:  # noqa: ANN401 - a value of a sentence
    return isinstance(value, Mapping) and value.keys() == {"key", "values"}


def _sentences(words: Any) -> list[Sentence]:  # noqa: ANN401 - sentences, or their JSON data
    items = [words] if isinstance(words, Sentence) else words
    return [item if isinstance(item, Sentence) else _sentence_of(item) for item in items]


def _sentence_of(data: Any) -> Sentence:  # noqa: ANN401 - JSON data of a file, which anyone may have edited
    if not _is_data(data) or not isinstance(data["values"], Mapping):
        return Sentence("", {})
    return Sentence(str(data["key"]), data["values"])


def render(words: Any) -> str:  # noqa: ANN401 - sentences, or their JSON data
    """Return sentences as text. No other function does this."""
    return "".join(map(_written, _sentences(words)))


def _written(sentence: Sentence) -> str:
    try:
        return "".join(
            text if name is None else f"{text}{_shown(_converted(sentence.values[name], conversion), spec or '')}"
            for text, name, spec, conversion in _parts(sentence.key)
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # A file may be of another version, or forged.
        return "(a sentence of another version)"


def joined(parts: Iterable[Words], by: str = ", ") -> Words:
    """Return several sentences as one, separated by `by`."""
    sentences: Words = ()
    for part in parts:
        sentences += (say("between", by=by) if sentences else ()) + part
    return sentences


def first_line(words: Iterable[Sentence]) -> str:
    """Return sentences as text, without quoted lines of a log or a server."""
    return render([item for item in words if item.key != "below"])


def pair_of(words: Sequence[Sentence]) -> tuple[str, str]:
    """Return the key of a measured number with its limit, if sentences begin with one, and the rest as text."""
    is_pair = bool(words) and words[0].key in PAIRS
    return (words[0].key, first_line(words[1:])) if is_pair else ("", first_line(words))


def missing_words(words: Iterable[Sentence]) -> Words:
    """Return the reason why a probe does not apply."""
    return tuple(Sentence("missing", item.values) for item in words)


def without_inputs(words: Any) -> Words:  # noqa: ANN401 - sentences, or their JSON data
    """Return sentences in which every value that may be data of the user is hidden, and no part on one row alone."""
    return tuple(
        Sentence(
            _HIDDEN_AS.get(item.key, item.key), {name: _allowed(name, value) for name, value in item.values.items()}
        )
        for item in _sentences(words)
        if item.key not in _OF_ONE_ROW
    )


def _allowed(name: str, value: Any) -> Any:  # noqa: ANN401 - a value of a sentence
    if _is_words(value):
        return without_inputs(value)
    return value if name in _MAY_LEAVE else HIDDEN
