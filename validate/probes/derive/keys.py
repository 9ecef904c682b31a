"""Keys of lookup tables: real rows with each key of a vocabulary, since samples hardly ever hold all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.edge import of_no_table
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.survey import Rows
from paritygate.validate.probes.inputs.thresholds import Keys

_NAME = "keys"
# Keys named per batch.
_NAMED = 3
_NO_KEY = "?"


def of_keys(context: ProbeContext, *, rows: int) -> Iterator[ProbeBatch]:
    """Yield real rows with the keys of all lookup tables, unseen keys first, in about this many rows."""
    real = context.survey.groups[0]
    places = [
        _Place(context, real, name, keys)
        for name, role in context.roles.items()
        if name in real.with_rows and real.inputs[name].size
        for keys in role.keys
    ]
    for place in places:
        yield from place.unknown()
        yield from place.batches(max(1, rows // len(places)))


class _Place:
    """Real rows, in which one input gets other keys."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str, keys: Keys) -> None:
        self._rows = rows
        self._name = name
        self._keys = keys
        self._real: NDArray[Any] = rows.inputs[name]
        self._sizes = batch_sizes(context)
        self._random = context.random(f"{_NAME}/{name}")

    def batches(self, allowed: int) -> Iterator[ProbeBatch]:
        """Yield at most this many rows, one key per row."""
        keys = [key for key in map(self._in_dtype, self._keys.values) if key is not None]
        is_seen = np.isin(np.asarray(keys), self._real) if keys else np.zeros(0, dtype=bool)
        unseen = [key for key, seen in zip(keys, is_seen, strict=True) if not seen]
        wanted = [*unseen, *(key for key, seen in zip(keys, is_seen, strict=True) if seen)]
        if len(wanted) > allowed:
            # More keys than rows: take them from everywhere.
            among = unseen if len(unseen) >= allowed else wanted
            wanted = [among[int(at)] for at in np.linspace(0, len(among) - 1, allowed)]
        note = f"{len(wanted)} of {len(keys)} keys of {self._name} asked" if len(wanted) < len(keys) else ""
        size = max(self._sizes)
        for start in range(0, len(wanted), size):
            yield self._batch(wanted[start : start + size], note)

    def unknown(self) -> Iterator[ProbeBatch]:
        """Yield values that are not keys, each alone because the reference may refuse one or have a default for it."""
        keys = {key for key in map(self._in_dtype, self._keys.values) if key is not None}
        if not keys:
            return
        is_text = self._real.dtype.kind in "UO"
        # Values between the keys belong to the numeric probes.
        wanted = ["", _NO_KEY] if is_text else [-1, max(keys) + 1]
        real = self._real.reshape(len(self._real), -1)
        columns = [at % real.shape[1] for at in self._keys.columns or range(real.shape[1])]
        # If a sample holds a text that is not a key, the default occurs in practice.
        is_new = is_text and bool(np.isin(real[:, columns], list(keys)).all())
        for value in map(self._in_dtype, wanted):
            if value is not None and value not in keys:
                batch = self._batch([value], "", about="a value that is not a key")
                yield replace(batch, edges=(of_no_table(self._name, batch.rows),) if is_new else ())

    def _apart(self, keys: Sequence[Any], note: str) -> Iterator[ProbeBatch]:
        """Yield the two halves, so that a key that the model does not know here does not exclude the others."""
        half = len(keys) // 2
        yield from (self._batch(part, note) for part in (keys[:half], keys[half:]))

    def _in_dtype(self, key: str | float) -> Any:  # noqa: ANN401 - a text or a number, as the input holds them
        """Return the key in the input's dtype, or None where the dtype cannot hold it."""
        dtype = self._real.dtype
        if dtype.kind in "UO" or isinstance(key, str):
            return key if isinstance(key, str) and dtype.kind in "UO" else None
        if dtype.kind in "iu":
            limits = np.iinfo(str(dtype))
            return int(key) if float(key).is_integer() and limits.min <= key <= limits.max else None
        with np.errstate(over="ignore"):
            return float(key) if dtype.kind == "f" and float(np.asarray(key).astype(dtype)) == key else None

    def _batch(self, keys: Sequence[Any], note: str, *, about: str = "keys that the model looks up") -> ProbeBatch:
        count = max(min(self._sizes), len(keys))
        inputs = self._rows.take([int(row) for row in np.resize(self._random.permutation(len(self._rows.ids)), count)])
        real = inputs[self._name]
        # A text array of fixed length would cut a longer key.
        wide = np.result_type(real.dtype, np.asarray(keys).dtype) if real.dtype.kind == "U" else real.dtype
        changed = np.array(real, dtype=wide).reshape(count, -1)
        columns = self._keys.columns or tuple(range(changed.shape[1]))
        for row in range(count):
            changed[row, columns[int(self._random.integers(len(columns)))] % changed.shape[1]] = keys[row % len(keys)]
        inputs[self._name] = changed.reshape(real.shape)
        named = ", ".join(map(_shown, keys[:_NAMED])) + (" and more" if len(keys) > _NAMED else "")
        return ProbeBatch(
            inputs=inputs,
            rows=count,
            about=f"{self._name}: {about} ({named})",
            # Calibration on the samples may never have met this key.
            is_unlike_seen=True,
            note=note,
            apart=functools.partial(self._apart, keys, note) if len(keys) > 1 else None,
        )


def _shown(key: str | float) -> str:
    """Return a key as a message names it: in quotes if it is empty or has blanks at its ends."""
    return repr(key) if isinstance(key, str) and (not key or key != key.strip()) else str(key)
