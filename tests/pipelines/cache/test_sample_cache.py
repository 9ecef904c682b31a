"""The samples that are kept beside the answers are those that were read, whatever a batch holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.pipelines.compare import sample_cache
from paritygate.pipelines.compare.sample_cache import SamplesKeeper, read_kept_samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

_BATCHES = (
    Batch(
        inputs={"ids": np.arange(6, dtype=np.int64).reshape(2, 3), "scale": np.asarray(0.5, dtype=np.float16)},
        ids=["a", "b"],
        gold=np.array([1.5, np.nan]),
        strata={"source": ["news", "web"]},
        lengths={"ids": [3, 2]},
    ),
    Batch(inputs={"ids": np.zeros((1, 2), dtype=np.int64), "scale": np.asarray(1, dtype=np.float16)}, ids=["é"]),
)


def _kept(place: Path, batches: tuple[Batch, ...], *, stop_after: int | None = None) -> object:
    keeper = SamplesKeeper(place / "samples")
    read = keeper.keeping(lambda: iter(batches))
    for at, _ in enumerate(read()):
        if at + 1 == stop_after:
            break
    # As it is written to a file.
    return json.loads(json.dumps(keeper.described()))


def _assert_same(found: Iterator[Batch], batches: tuple[Batch, ...]) -> None:
    for batch, wanted in zip(found, batches, strict=True):
        assert (list(batch.ids), batch.case) == (list(wanted.ids), wanted.case)
        assert {name: list(values) for name, values in batch.strata.items()} == dict(wanted.strata)
        assert {name: list(values) for name, values in batch.lengths.items()} == dict(wanted.lengths)
        assert (batch.gold is None) == (wanted.gold is None)
        pairs = [(batch.inputs[name], array) for name, array in wanted.inputs.items()]
        if wanted.gold is not None:
            assert batch.gold is not None
            pairs.append((batch.gold, wanted.gold))
        assert set(batch.inputs) == set(wanted.inputs)
        for one, other in pairs:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert one.tobytes() == other.tobytes()


def test_what_was_read_is_read_again(tmp_path: Path) -> None:
    kept = _kept(tmp_path, _BATCHES)

    assert isinstance(kept, dict)
    read = read_kept_samples(tmp_path / "samples", kept)
    # As often as it is asked for.
    _assert_same(read(), _BATCHES)
    _assert_same(read(), _BATCHES)


def test_texts_are_kept(tmp_path: Path) -> None:
    batches = (Batch(inputs={"text": np.array(["ja", "나무"])}, ids=["0", "1"]),)
    kept = _kept(tmp_path, batches)

    assert isinstance(kept, dict)
    _assert_same(read_kept_samples(tmp_path / "samples", kept)(), batches)


def test_an_input_called_gold_is_no_gold(tmp_path: Path) -> None:
    batches = (Batch(inputs={"gold": np.ones((1, 1), dtype=np.float32)}, ids=["0"]),)
    kept = _kept(tmp_path, batches)

    assert isinstance(kept, dict)
    _assert_same(read_kept_samples(tmp_path / "samples", kept)(), batches)


def test_what_was_not_read_to_its_end_is_not_kept(tmp_path: Path) -> None:
    assert _kept(tmp_path, _BATCHES, stop_after=1) is None


def test_a_look_at_the_first_batch_keeps_nothing_from_being_kept_later(tmp_path: Path) -> None:
    keeper = SamplesKeeper(tmp_path / "samples")
    read = keeper.keeping(lambda: iter(_BATCHES))
    next(read())
    list(read())

    found = keeper.described()
    assert found is not None
    _assert_same(read_kept_samples(tmp_path / "samples", found)(), _BATCHES)


def test_what_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_cache, "_MOST_BYTES", 16)

    assert _kept(tmp_path, _BATCHES) is None


def test_what_a_model_writes_into_its_inputs_is_not_kept(tmp_path: Path) -> None:
    array = np.ones((1, 2), dtype=np.float32)
    keeper = SamplesKeeper(tmp_path / "samples")
    for batch in keeper.keeping(lambda: iter([Batch(inputs={"x": array}, ids=["0"])]))():
        batch.inputs["x"][:] = 7

    found = keeper.described()
    assert found is not None
    (again,) = read_kept_samples(tmp_path / "samples", found)()
    assert again.inputs["x"].tolist() == [[1.0, 1.0]]
