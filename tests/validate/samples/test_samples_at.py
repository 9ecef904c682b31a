"""Samples that are read from a batch on are the rest of those read from the start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paritygate.validate.samples.samples import digest_of_batch, open_samples, open_samples_at
from paritygate.validate.samples.source import SampleSource

_ROWS, _SIZE = 23, 4


def _write(path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((_ROWS, 3)).astype(np.float32)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, x=values)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file({"x": values}, str(path))
    elif path.suffix == ".csv":
        path.write_text("\n".join(["a,b", *(f"{row[0]},{row[1]}" for row in values)]), encoding="utf-8")
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        # Groups whose ends are not ends of batches.
        pq.write_table(pa.table({"x": values.tolist(), "y": values[:, 0]}), path, row_group_size=7)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "x.parquet"])
@pytest.mark.parametrize("first", [0, 1, 2, 5, 6, 9])
def test_the_rest_is_the_same(tmp_path: Path, name: str, first: int) -> None:
    _write(tmp_path / name)
    source = SampleSource(text=name, folder=tmp_path, batch_size=_SIZE)
    whole = [(batch.ids, digest_of_batch(batch)) for batch in open_samples(source)()]
    rest = [(batch.ids, digest_of_batch(batch)) for batch in open_samples_at(source, first)()]

    assert len(whole) == -(-_ROWS // _SIZE)
    assert rest == whole[first:]
