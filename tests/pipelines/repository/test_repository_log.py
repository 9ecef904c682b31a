from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.errors import RepositoryError, StorageError
from paritygate.pipelines.repository import Record, RecordKind, read_records, state_of
from paritygate.pipelines.repository.log import append_record
from paritygate.pipelines.repository.staging import staging_folder

_TIME = "2025-01-01T00:00:00.000000+00:00"


def _released(version: int, alias: str | None = None) -> Record:
    return Record(kind=RecordKind.RELEASED, time=_TIME, version=version, alias=alias, manifest=f"sha256:{version:064x}")


def _moved(alias: str | None, version: int) -> Record:
    return Record(kind=RecordKind.ALIAS_MOVED, time=_TIME, version=version, alias=alias)


def _rolled_back(alias: str | None, version: int) -> Record:
    return Record(kind=RecordKind.ROLLED_BACK, time=_TIME, version=version, alias=alias)


def _append(repository: Path, *records: Record) -> list[int]:
    with staging_folder(repository) as staging:
        return [append_record(repository, "m", record, staging) for record in records]


@st.composite
def _histories(draw: st.DrawFn) -> list[Record]:
    """Draw a history that can have happened: versions in any order, aliases only to what was released."""
    records: list[Record] = []
    aliases: set[str] = set()
    versions = draw(st.permutations(range(1, 6)))
    for version in versions[: draw(st.integers(0, 5))]:
        alias = draw(st.sampled_from([None, "prod", "canary"]))
        records.append(_released(version, alias))
        aliases |= {alias} - {None}  # type: ignore[arg-type]
        for _ in range(draw(st.integers(0, 2))):
            target = draw(st.sampled_from([r.version for r in records if r.kind is RecordKind.RELEASED]))
            is_rollback = draw(st.booleans())
            if aliases and is_rollback:
                records.append(_rolled_back(draw(st.sampled_from(sorted(aliases))), target))
            else:
                name = draw(st.sampled_from(["prod", "canary"]))
                records.append(_moved(name, target))
                aliases.add(name)
    return records


def _last_word(records: Sequence[Record], alias: str) -> int | None:
    """Return where `alias` points, found from the end of the history: a second way to the same answer."""
    return next((record.version for record in reversed(records) if record.alias == alias), None)


@given(_histories())
def test_the_state_is_what_the_records_add_up_to(records: list[Record]) -> None:
    state = state_of(records)

    assert list(state.releases) == [record.version for record in records if record.kind is RecordKind.RELEASED]
    for alias in ("prod", "canary"):
        assert state.aliases.get(alias) == _last_word(records, alias)
    assert state.history == tuple(records)


@given(_histories(), st.data())
def test_every_beginning_of_a_history_is_a_history_and_times_do_not_matter(
    records: list[Record], data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(records)))
    shuffled = [replace(record, time=f"{2030 - number}") for number, record in enumerate(records)]

    state = state_of(records[:length])

    assert dict(state.aliases) == dict(state_of(shuffled[:length]).aliases)
    assert {*state.releases} <= {*state_of(records).releases}


@given(_histories())
def test_a_record_survives_json(records: list[Record]) -> None:
    assert [Record.from_json(json.loads(json.dumps(record.to_json()))) for record in records] == records


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([_released(1), _released(1)], "record 2 of the log .released. .* version 1 was released before"),
        ([_released(0)], "version 0 is no version"),
        ([replace(_released(1), manifest=None)], "it names no manifest"),
        ([_released(1), _moved("prod", 2)], "version 2 was not released by then"),
        ([_released(1), _moved(None, 1)], "it names no alias"),
        ([_released(1), _rolled_back("prod", 1)], "alias 'prod' did not exist by then"),
    ],
)
def test_records_that_contradict_each_other_are_refused(records: list[Record], problem: str) -> None:
    with pytest.raises(RepositoryError, match=problem) as caught:
        state_of(records)
    assert "restore the log" in caught.value.hint


def test_records_are_read_back_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    records = [_released(version) for version in range(1, 12)] + [_moved("prod", 3), _rolled_back("prod", 1)]

    assert _append(tmp_path, *records) == list(range(1, 14))

    assert read_records(tmp_path, "m") == tuple(records)
    assert state_of(read_records(tmp_path, "m")).aliases == {"prod": 1}


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))
    before = (tmp_path / "log/m/000001.json").read_bytes()

    _append(tmp_path, _released(2))

    assert (tmp_path / "log/m/000001.json").read_bytes() == before


def test_a_record_that_contradicts_the_log_is_not_appended(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))

    with pytest.raises(RepositoryError, match="version 7 was not released by then"):
        _append(tmp_path, _moved("prod", 7))

    assert len(read_records(tmp_path, "m")) == 1


def test_a_number_taken_between_reading_and_linking_leads_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process appends after this one has read the log: its record is there, but not among those read.
    _append(tmp_path, _released(1), _released(2))
    stale = iter([read_records(tmp_path, "m")[:1]])
    monkeypatch.setattr(
        "paritygate.pipelines.repository.log.read_records", lambda *where: next(stale, None) or read_records(*where)
    )

    assert _append(tmp_path, _released(3)) == [3]


def test_a_model_without_log_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path, "m") == ()


def test_a_missing_record_is_found(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2), _released(3))
    (tmp_path / "log/m/000002.json").unlink()

    with pytest.raises(RepositoryError, match=r"record .*000002\.json is missing, though later ones are there"):
        read_records(tmp_path, "m")


def test_files_that_are_no_records_are_ignored(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))
    (tmp_path / "log/m/.nfs0001").write_text("x")
    (tmp_path / "log/m/2.json").write_text("x")

    assert len(read_records(tmp_path, "m")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        json.dumps(_released(1).to_json() | {"kind": "retired"}),
        json.dumps(_released(1).to_json() | {"schema": 2}),
        json.dumps(_released(1).to_json() | {"version": None}),
    ],
)
def test_a_record_that_is_damaged_or_from_a_later_version_is_refused(tmp_path: Path, text: str) -> None:
    _append(tmp_path, _released(1))
    path = tmp_path / "log/m/000001.json"
    path.unlink()
    path.write_text(text)

    with pytest.raises(RepositoryError, match=r"000001\.json is not a record that this version of paritygate can read"):
        read_records(tmp_path, "m")


def test_a_filesystem_without_hard_links_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path), None, str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)

    with pytest.raises(StorageError, match=r"000001\.json could not be created as a hard link") as caught:
        _append(tmp_path, _released(1))
    assert "needs a filesystem with hard links" in caught.value.hint
