"""Where the cache lies and how large it may become is settable, and what is not a size is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate.errors import UsageError
from paritygate.pipelines.cache.cache import cache_below, cache_folder


def test_the_cache_lies_below_the_root_or_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    assert cache_folder(tmp_path) == tmp_path / "cache"

    monkeypatch.setenv("PARITYGATE_CACHE", str(tmp_path / "elsewhere"))
    assert cache_folder(tmp_path) == tmp_path / "elsewhere"

    monkeypatch.setenv("PARITYGATE_CACHE", "off")
    assert cache_folder(tmp_path) is None


@pytest.mark.parametrize("size", ["10", "much", "0GB", "-1GB", "GB"])
def test_what_is_no_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.setenv("PARITYGATE_CACHE_SIZE", size)

    with pytest.raises(UsageError, match="PARITYGATE_CACHE_SIZE") as caught:
        cache_below(tmp_path, tmp_path / "run")

    assert "PARITYGATE_CACHE_SIZE=10GB" in caught.value.hint


def test_a_size_has_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    monkeypatch.setenv("PARITYGATE_CACHE_SIZE", "1.5 GiB")

    assert cache_below(tmp_path, tmp_path / "run").store is not None
