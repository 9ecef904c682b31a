from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from paritygate.codec import to_data
from paritygate.errors import RepositoryError, StorageError
from paritygate.pipelines.release.repository.log import append_record, read_records
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.release.repository.state import ModelState, state_of
from paritygate.pipelines.release.stores.staging import staging_folder

_TIME = "2025-01-01T00:00:00.000000+00:00"


def _released(version: int) -> Record:
    return Record(kind=RecordKind.RELEASED, time=_TIME, version=version, manifest=f"sha256:{version:064x}")


def _moved(**aliases: int) -> Record:
    return Record(kind=RecordKind.ALIAS_MOVED, time=_TIME, aliases=aliases)


def _append(repository: Path, *records: Record) -> list[int | None]:
    with staging_folder(repository) as staging:
        return [append_record(repository, "m", lambda _, record=record: record, staging) for record in records]


def _log(repository: Path, number: int) -> Path:
    return repository / f"log/m/{number:06d}.json"


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("before", [None, _released(1).after(None)])
def test_a_record_survives_json(before: Record | None) -> None:
    record = replace(_moved(prod=1, canary=2), despite="urgent", reason="r", who="w", host="h").after(before)

    assert Record.from_json(json.loads(json.dumps(to_data(record)))) == record


def test_records_are_read_back_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    records = [_released(version) for version in range(1, 12)] + [_moved(prod=3), _moved(prod=1)]

    assert _append(tmp_path, *records) == list(range(1, 14))

    read = read_records(tmp_path, "m")
    assert [replace(record, predecessor=None, digest="") for record in read] == records
    assert state_of(read).aliases == {"prod": 1}


def test_each_record_holds_its_own_digest_and_that_of_the_one_before(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2), _moved(prod=1))

    stored = [json.loads(_log(tmp_path, number).read_bytes()) for number in (1, 2, 3)]

    assert [data["schema"] for data in stored] == [2, 2, 2]
    assert [data["predecessor"] for data in stored] == [None, stored[0]["digest"], stored[1]["digest"]]
    for data in stored:
        rest = {key: value for key, value in data.items() if key != "digest"}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        assert data["digest"] == _sha256(text.encode())


def test_what_is_recorded_is_decided_by_what_is_there_when_it_is_linked(
    tmp_path: Path,
) -> None:
    _append(tmp_path, _released(1), _released(2))
    seen: list[int] = []

    def record_of(state: ModelState) -> Record | None:
        seen.append(len(state.history))
        if len(seen) == 1:
            # Another process is faster.
            _append(tmp_path, _moved(prod=1))
        return _moved(prod=2) if "prod" not in state.aliases else None

    with staging_folder(tmp_path) as staging:
        assert append_record(tmp_path, "m", record_of, staging) is None

    assert seen == [2, 3]
    assert state_of(read_records(tmp_path, "m")).aliases == {"prod": 1}


def test_a_record_whose_number_was_taken_names_the_one_that_took_it(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))
    tries: list[Record] = []

    def record_of(state: ModelState) -> Record:
        del state
        if not tries:
            _append(tmp_path, _released(2))
        tries.append(_released(3))
        return tries[-1]

    with staging_folder(tmp_path) as staging:
        assert append_record(tmp_path, "m", record_of, staging) == 3

    first, second, third = read_records(tmp_path, "m")
    assert len(tries) == 2
    assert (second.predecessor, third.predecessor) == (first.digest, second.digest)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "alias_moved"),
        ("time", "2020-01-01T00:00:00.000000+00:00"),
        ("version", 3),
        ("aliases", {"prod": 1}),
        ("manifest", f"sha256:{7:064x}"),
        ("reason", "another"),
        ("despite", "nothing"),
        ("who", "somebody"),
        ("host", "elsewhere"),
        ("predecessor", f"sha256:{7:064x}"),
        ("digest", f"sha256:{7:064x}"),
        ("note", "a field of no record"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_an_edited_record_is_found(tmp_path: Path, number: int, field: str, value: object) -> None:
    _append(tmp_path, _released(1), _released(2))
    path = _log(tmp_path, number)
    _write(path, json.dumps({**json.loads(path.read_bytes()), field: value}).encode())

    with pytest.raises(
        RepositoryError, match=rf"record .*{path.name} was edited: its digest is sha256:\S+, but"
    ) as caught:
        read_records(tmp_path, "m")
    assert caught.value.hint == "restore it from a backup: records are never edited"


def test_a_record_edited_with_its_digest_does_not_fit_the_next_one(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2))
    edited = replace(read_records(tmp_path, "m")[0], reason="another").after(None)
    _write(_log(tmp_path, 1), json.dumps(to_data(edited)).encode())

    match = r"record .*000002\.json does not follow the record before it, which was edited, removed or moved"
    with pytest.raises(RepositoryError, match=match) as caught:
        read_records(tmp_path, "m")
    assert "never edited, removed or reordered" in caught.value.hint


def test_a_record_removed_from_the_middle_is_found_even_if_the_numbers_are_closed_up(tmp_path: Path) -> None:
    _append(tmp_path, *(_released(version) for version in range(1, 5)))
    for number in (3, 4):
        _log(tmp_path, number).replace(_log(tmp_path, number - 1))

    with pytest.raises(RepositoryError, match=r"000002\.json does not follow the record before it"):
        read_records(tmp_path, "m")


def test_the_first_record_cannot_be_removed(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2))
    _log(tmp_path, 2).replace(_log(tmp_path, 1))

    with pytest.raises(RepositoryError, match=r"000001\.json does not follow .*: digest none, expected sha256"):
        read_records(tmp_path, "m")


def test_records_in_another_order_are_found(tmp_path: Path) -> None:
    _append(tmp_path, *(_released(version) for version in range(1, 5)))
    second, third = (_log(tmp_path, number).read_bytes() for number in (2, 3))
    _write(_log(tmp_path, 2), third)
    _write(_log(tmp_path, 3), second)

    with pytest.raises(RepositoryError, match=r"000002\.json does not follow the record before it"):
        read_records(tmp_path, "m")


def test_the_loss_of_the_newest_record_cannot_be_found(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2))
    _log(tmp_path, 2).unlink()

    assert len(read_records(tmp_path, "m")) == 1


def test_a_collected_release_is_read(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2), Record(kind=RecordKind.COLLECTED, time=_TIME, version=1))

    state = state_of(read_records(tmp_path, "m"))

    assert ([*state.releases], [*state.collected]) == ([2], [1])


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))
    before = (tmp_path / "log/m/000001.json").read_bytes()

    _append(tmp_path, _released(2))

    assert (tmp_path / "log/m/000001.json").read_bytes() == before


def test_a_record_that_contradicts_the_log_is_not_appended(tmp_path: Path) -> None:
    _append(tmp_path, _released(1))

    words = r"the new record of m \(alias_moved\) contradicts its log: version 7 was not released by then"
    with pytest.raises(RepositoryError, match=words) as caught:
        _append(tmp_path, _moved(prod=7))
    assert caught.value.hint == f"list its content with: convert-and-validate show m --repository {tmp_path}"

    assert len(read_records(tmp_path, "m")) == 1


def test_a_number_taken_between_reading_and_linking_leads_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process appends after this one has read the log: its record is there, but not among those read.
    _append(tmp_path, _released(1), _released(2))
    stale = iter([read_records(tmp_path, "m")[:1]])
    monkeypatch.setattr(
        "paritygate.pipelines.release.repository.log.read_records",
        lambda *where: next(stale, None) or read_records(*where),
    )

    assert _append(tmp_path, _released(3)) == [3]


def test_a_model_without_log_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path, "m") == ()


def test_a_missing_record_is_found(tmp_path: Path) -> None:
    _append(tmp_path, _released(1), _released(2), _released(3))
    (tmp_path / "log/m/000002.json").unlink()

    with pytest.raises(RepositoryError, match=r"record .*000002\.json is missing, although later ones exist"):
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
        json.dumps(to_data(_released(1)) | {"kind": "retired"}),
        json.dumps(to_data(_released(1)) | {"schema": 4}),
        json.dumps(to_data(_released(1)) | {"version": "1"}),
        json.dumps(to_data(_released(1)) | {"version": True}),
        json.dumps(to_data(_released(1)) | {"aliases": ["prod"]}),
        json.dumps(to_data(_released(1)) | {"aliases": {"prod": None}}),
        json.dumps({"schema": 1, "kind": "released", "version": 1, "alias": None}),
        "[" * 100_000,
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
