"""A repository behaves alike on disk, in memory, in moto and in SeaweedFS; a server that lies is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.repository.conftest import SECRET

from paritygate.errors import ArtifactIntegrityError, InputFileError, RepositoryError, StorageError, UsageError
from paritygate.pipelines.release.repository import collection, release
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.collection import collect
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.record import digest_of_record
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.stores import client as clients
from paritygate.pipelines.release.stores import objects
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Address, Root

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"


def test_releases_and_aliases_are_alike_in_every_store(root: Root, make_candidate: Make) -> None:
    first, second = promote(root, make_candidate()), promote(root, make_candidate(alias=None))
    moved = point_alias(root, _MODEL, "prod", 2, also={"before": "prod"}, if_current=1)
    back = roll_back(root, _MODEL)

    assert (first.version, first.record, second.version, second.record) == (1, 1, 2, 2)
    assert (moved.previous, moved.version, moved.record, back.version, back.record) == (1, 2, 3, 1, 4)
    (model,) = list_models(root)
    assert (model.versions, model.aliases) == ((1, 2), {"before": 1, "prod": 1})
    details = show(root, _MODEL, "prod")
    assert str(details.folder) == f"{root}/store/{_MODEL}/1"
    assert [record.kind.value for record in details.history] == ["released", "released", "alias_moved", "rolled_back"]
    assert verify_release(root, _MODEL, 2).is_intact
    assert [name for name in store_of(root).names("") if name not in {"log", "staging"}] == ["store"]
    with pytest.raises(RepositoryError, match="is at version 1, so nothing was moved"):
        point_alias(root, _MODEL, "prod", 2, if_current=2)
    with pytest.raises(UsageError, match="has no release '3'"):
        show(root, _MODEL, 3)


def test_a_place_without_repository_is_wrong_usage(root: Root) -> None:
    with pytest.raises(InputFileError, match=f"no repository exists at {root}"):
        list_models(root)


def test_the_same_release_is_made_once(root: Root, make_candidate: Make, make_variant: Callable[..., Any]) -> None:
    candidate = make_candidate(variants=(make_variant(rules="sha256:0"),))

    releases = [promote(root, candidate) for _ in range(2)]

    assert [(release.version, release.is_new) for release in releases] == [(1, True), (1, False)]


def test_what_nothing_names_is_deleted_and_no_alias_moves_there(root: Root, make_candidate: Make) -> None:
    for _ in range(3):
        promote(root, make_candidate())

    found = collect(root, _MODEL, keep=1, note=Note(reason="disk space"))

    assert [(release.version, release.record) for release in found.collected] == [(1, 4), (2, 5)]
    assert all(release.size_bytes > 100 for release in found.collected)
    assert [store_of(root).size_bytes(f"store/{_MODEL}/{version}") > 0 for version in (1, 2, 3)] == [False, False, True]
    assert collect(root, _MODEL, keep=1, note=Note()).collected == ()
    with pytest.raises(UsageError, match="its files were collected on"):
        point_alias(root, _MODEL, "prod", 1)
    assert promote(root, make_candidate()).version == 4


def _promote_killed(root: Root, candidate: ReleaseCandidate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promote up to the moment at which a kill leaves what was stored without a record."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(release, "append_record", end)
        patch.setattr(release, "withdraw_unrecorded", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            promote(root, candidate)


def test_what_a_killed_promotion_stored_is_deleted_after_a_day(
    root: Root, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(root, make_candidate())
    _promote_killed(root, make_candidate(), monkeypatch)
    promote(root, make_candidate())
    assert collect(root, _MODEL, keep=9, note=Note()).abandoned == ()
    monkeypatch.setattr(collection, "_GRACE_S", -1.0)

    planned = collect(root, _MODEL, keep=9, note=Note(), is_dry_run=True)
    found = collect(root, _MODEL, keep=9, note=Note(reason="a kill"))

    assert [(item.version, item.record) for item in planned.abandoned] == [(2, None)]
    assert [(item.version, item.record) for item in found.abandoned] == [(2, 3)]
    assert (found.kept, found.collected) == ((1, 3), ())
    assert [store_of(root).size_bytes(f"store/{_MODEL}/{version}") > 0 for version in (1, 2, 3)] == [True, False, True]
    assert collect(root, _MODEL, keep=9, note=Note()).abandoned == ()
    assert all(verify_release(root, _MODEL, version).is_intact for version in (1, 3))
    assert promote(root, make_candidate()).version == 4
    collect(root, _MODEL, keep=1, note=Note())
    # Versions that know only released versions to be collected refuse the third record by its schema.
    assert [record.schema for record in read_records(root, _MODEL)] == [2, 2, 3, 2, 2, 2]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_number_that_gc_collects_meanwhile_is_not_taken(
    root: Root, make_candidate: Make, monkeypatch: pytest.MonkeyPatch, *, is_before: bool
) -> None:
    promote(root, make_candidate())
    _promote_killed(root, make_candidate(), monkeypatch)
    kind, numbers = type(store_of(root)), iter((True,))
    names = kind.names

    def names_while_gc_runs(store: Any, folder: str) -> tuple[str, ...]:  # noqa: ANN401 - of either kind
        listed = names(store, folder)
        if folder == f"store/{_MODEL}" and next(numbers, False):
            with monkeypatch.context() as patch:
                patch.setattr(collection, "_GRACE_S", -1.0)
                assert [item.version for item in collect(root, _MODEL, keep=9, note=Note()).abandoned] == [2]
            return names(store, folder) if is_before else listed
        return listed

    monkeypatch.setattr(kind, "names", names_while_gc_runs)

    assert promote(root, make_candidate()).version == 3
    assert list_models(root)[0].versions == (1, 3)
    assert verify_release(root, _MODEL, 3).is_intact


def test_a_promotion_that_lasts_longer_than_the_grace_of_gc_releases_nothing_half(
    root: Root, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(root, make_candidate())
    append = release.append_record

    def append_late(*args: Any) -> int | None:  # noqa: ANN401 - handed on
        with monkeypatch.context() as patch:
            patch.setattr(collection, "_GRACE_S", -1.0)
            assert [item.version for item in collect(root, _MODEL, keep=9, note=Note()).abandoned] == [2]
        return append(*args)

    with monkeypatch.context() as patch:
        patch.setattr(release, "append_record", append_late)
        with pytest.raises(RepositoryError, match=r"version 2 .* was deleted by gc"):
            promote(root, make_candidate())

    assert list_models(root)[0].versions == (1,)
    assert store_of(root).size_bytes(f"store/{_MODEL}/2") == 0
    assert promote(root, make_candidate()).version == 3


def _write(root: Root, name: str, content: bytes | None) -> None:
    """Change an object, or delete it for None, as somebody could who may write to the store."""
    if isinstance(root, Path):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.chmod(0o644)
            path.unlink()
        if content is not None:
            path.write_bytes(content)
        return
    store = objects.object_store(root)
    if content is None:
        store._client.delete(store._key(name))
    else:
        store._client.put(store._key(name), content)


_RELEASE = f"store/{_MODEL}/1"
_GRAPH = f"{_RELEASE}/onnx-fp32/model.onnx"


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        (_GRAPH, lambda content: content[:-1] + b"!", ("changed", "onnx-fp32/model.onnx")),
        (_GRAPH, lambda content: content + b"\0", ("changed", "onnx-fp32/model.onnx")),
        (_GRAPH, lambda content: content[:-1], ("changed", "onnx-fp32/model.onnx")),
        (_GRAPH, lambda _: b"", ("changed", "onnx-fp32/model.onnx")),
        (_GRAPH, lambda _: None, ("missing", "onnx-fp32/model.onnx")),
        (f"{_RELEASE}/onnx-fp32/weights/0.bin", lambda _: b"\1" * 100, ("changed", "onnx-fp32/weights/0.bin")),
        (f"{_RELEASE}/onnx-fp32/artifact.json", lambda content: content + b" ", ("changed", "onnx-fp32/artifact.json")),
        (f"{_RELEASE}/onnx-fp32/extra.bin", lambda _: b"", ("added", "onnx-fp32/extra.bin")),
        (f"{_RELEASE}/other/deep/file", lambda _: b"x", ("added", "other/deep/file")),
        (f"{_RELEASE}/evidence.json", lambda content: content.replace(b"519", b"520"), ("changed", "evidence.json")),
        (f"{_RELEASE}/report.html", lambda _: None, ("missing", "report.html")),
        (f"{_RELEASE}/manifest.json", lambda content: content + b" ", ("changed", "manifest.json")),
        (f"{_RELEASE}/manifest.json", lambda _: None, ("missing", "manifest.json")),
    ],
)
def test_verify_names_each_manipulation(
    root: Root,
    make_candidate: Make,
    name: str,
    change: Callable[[bytes], bytes | None],
    found: tuple[str, str],
) -> None:
    promote(root, make_candidate())
    try:
        content = next(store_of(root).read([name]))
    except FileNotFoundError:
        content = b""
    assert change(content) != content or not content

    _write(root, name, change(content))

    verification = verify_release(root, _MODEL, 1)
    assert not verification.is_intact
    kind, file = found
    assert getattr(verification.difference, kind) == (file,)
    with pytest.raises(ArtifactIntegrityError):
        point_alias(root, _MODEL, "canary", 1)


def test_verify_names_files_that_were_swapped_and_links(root: Root, make_candidate: Make) -> None:
    promote(root, make_candidate())
    names = [_GRAPH, f"{_RELEASE}/onnx-fp32/weights/0.bin"]
    for name, content in zip(names, [*store_of(root).read(names)][::-1], strict=True):
        _write(root, name, content)

    found = verify_release(root, _MODEL, 1).difference
    assert (found.changed, found.missing, found.added) == (("onnx-fp32/model.onnx", "onnx-fp32/weights/0.bin"), (), ())
    if isinstance(root, Path):
        (root / _RELEASE / "link").symlink_to(root / _GRAPH)
        assert verify_release(root, _MODEL, 1).difference.added == ("link",)


def _forged(record: bytes, **fields: object) -> bytes:
    """Return a record with other fields, and the digest of its own that it would have had."""
    data = {**json.loads(record), **fields}
    return json.dumps({**data, "digest": digest_of_record(data)}).encode()


# Of the log of three releases, of which the first was collected: what becomes of records, and which is named.
_LOG_CHANGES: dict[str, tuple[Callable[[list[bytes]], dict[int, bytes | None]], str]] = {
    "edited": (lambda log: {2: log[1].replace(b'"released"', b'"alias_moved"')}, "000002.json"),
    "edited with its digest": (lambda log: {2: _forged(log[1], reason="x")}, "000003.json"),
    "another manifest": (lambda log: {1: _forged(log[0], manifest="sha256:" + "0" * 64)}, "000002.json"),
    "the first removed": (lambda _: {1: None}, "000001.json"),
    "removed": (lambda _: {3: None}, "000003.json"),
    "renumbered": (lambda log: {2: log[2], 3: log[1]}, "000002.json"),
    "repeated": (lambda log: {5: log[3]}, "000005.json"),
    "moved up": (lambda log: {4: None, 5: log[3]}, "000004.json"),
    "empty": (lambda _: {2: b""}, "000002.json"),
    "no JSON": (lambda log: {4: log[3][:-9]}, "000004.json"),
    "an alias at a collected release": (
        lambda log: {
            5: _forged(
                log[3], kind="alias_moved", version=None, aliases={"prod": 1}, predecessor=json.loads(log[3])["digest"]
            )
        },
        "record 5",
    ),
    "collected while an alias is there": (
        lambda log: {5: _forged(log[3], version=3, predecessor=json.loads(log[3])["digest"])},
        "record 5",
    ),
}


@pytest.mark.parametrize("change", _LOG_CHANGES)
def test_a_changed_log_stops_every_reader_and_the_record_is_named(
    root: Root, make_candidate: Make, change: str
) -> None:
    for _ in range(3):
        promote(root, make_candidate())
    collect(root, _MODEL, keep=2, note=Note())
    log = [*store_of(root).read([f"log/{_MODEL}/{number:06d}.json" for number in range(1, 5)])]
    changed, named = _LOG_CHANGES[change]

    for number, content in changed(log).items():
        _write(root, f"log/{_MODEL}/{number:06d}.json", content)

    for act in (
        lambda: verify_release(root, _MODEL),
        lambda: list_models(root),
        lambda: promote(root, make_candidate()),
        lambda: roll_back(root, _MODEL),
        lambda: collect(root, _MODEL, keep=1, note=Note()),
    ):
        with pytest.raises(RepositoryError, match=named):
            act()


def test_threads_that_promote_at_the_same_time_lose_nothing(root: Root, make_candidate: Make) -> None:
    candidate = make_candidate()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                promote(root, candidate)
        except BaseException as err:  # noqa: BLE001 - reported below
            failures.append(err)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    (model,) = list_models(root)
    assert model.versions == tuple(range(1, 13))
    assert len(read_records(root, _MODEL)) == 12
    assert all(verify_release(root, _MODEL, version).is_intact for version in model.versions)


def test_a_release_is_opened_from_a_local_copy_that_is_verified_each_time(
    root: Root, make_candidate: Make, make_variant: Callable[..., VariantCandidate], tmp_path: Path
) -> None:
    odd = "weights/a b %2e #1 é.bin"
    promote(root, make_candidate(variants=(make_variant(files={"model.onnx": b"graph", odd: b"", "b": b"x" * 70000}),)))
    details = show(root, _MODEL, 1)

    folder = details.local_folder()

    assert (folder / "onnx-fp32/model.onnx").read_bytes() == b"graph"
    assert (folder / "onnx-fp32" / odd).read_bytes() == b""
    assert verify_release(root, _MODEL, 1).is_intact
    if not isinstance(root, Path):
        assert folder.is_relative_to(tmp_path / "copies")
        (folder / "onnx-fp32/model.onnx").write_bytes(b"grapg")
        assert (details.local_folder() / "onnx-fp32/model.onnx").read_bytes() == b"graph"
        _write(root, _GRAPH, b"grapg")
        (folder / "onnx-fp32/model.onnx").write_bytes(b"grapg")
        with pytest.raises(ArtifactIntegrityError, match=r"model\.onnx was changed"):
            details.local_folder()


class _Faulty:
    """A client of which some calls end in another way."""

    def __init__(self, client: Any, **calls: Callable[..., Any]) -> None:  # noqa: ANN401 - of a package without types
        self._client, self._calls = client, calls

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of a package without types
        return self._calls.get(name, getattr(self._client, name))


def _plant(monkeypatch: pytest.MonkeyPatch, client: Any, **calls: Callable[..., Any]) -> Address:  # noqa: ANN401
    monkeypatch.setattr(objects, "bucket_client", lambda _: _Faulty(client, **calls))
    objects.object_store.cache_clear()
    return Address("s3://models/releases")


@pytest.mark.parametrize("ignored", [("create",), ("match",), ("create", "match")])
def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(
    memory: Any,  # noqa: ANN401 - of a package without types
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
    ignored: tuple[str, ...],
) -> None:
    def put(key: str, content: object, **options: Any) -> object:  # noqa: ANN401 - handed on
        mode = options.pop("mode", "overwrite")
        is_ignored = ("create" if mode == "create" else "match") in ignored
        return memory.put(key, content, mode="overwrite" if is_ignored else mode)

    root = _plant(monkeypatch, memory, put=put)

    with pytest.raises(StorageError, match=r"cannot keep releases: it .* is ignored") as caught:
        promote(root, make_candidate())

    assert ("If-None-Match" in str(caught.value)) is ("create" in ignored)
    assert not any(memory.list("releases"))


@pytest.mark.parametrize("number", range(3))
def test_a_store_that_refuses_what_it_did_once_already_is_fit(
    memory: Any,  # noqa: ANN401 - of a package without types
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    def put(key: str, content: object, **options: Any) -> object:  # noqa: ANN401 - handed on
        done = memory.put(key, content, **options)
        contents.append(content)
        # An answer of 5xx, after which the request is repeated.
        return memory.put(key, content, **options) if len(contents) == number + 1 else done

    contents: list[object] = []
    root = _plant(monkeypatch, memory, put=put)

    with store_of(root).staging():
        pass

    assert {*contents} >= {b"1", b"3", b"5"}
    assert not any(memory.list("releases"))


@pytest.mark.parametrize("is_written", [True, False])
def test_an_answer_that_is_lost_leaves_the_old_or_the_new_state(
    memory: Any,  # noqa: ANN401 - of a package without types
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_written: bool,
) -> None:
    from obstore.exceptions import GenericError

    def put(key: str, content: object, **options: Any) -> object:  # noqa: ANN401 - handed on
        if "/log/" not in key or not lost:
            return memory.put(key, content, **options)
        lost.clear()
        if is_written:
            memory.put(key, content, **options)
        msg = f"operation timed out, key {SECRET}"
        raise GenericError(msg)

    lost = [True]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    root = _plant(monkeypatch, memory, put=put)

    with pytest.raises(StorageError, match="operation timed out") as caught:
        promote(root, make_candidate())

    assert SECRET not in f"{caught.value} {caught.value.hint}"
    store = objects.object_store(root)
    # Whether the record arrives later is not known, so its files stay.
    assert store.names(f"store/{_MODEL}") == ("1",)
    if is_written:
        assert show(root, _MODEL, "prod").version == 1
    again = promote(root, make_candidate())
    assert again.version == 2
    assert all(verify_release(root, _MODEL, version).is_intact for version in list_models(root)[0].versions)


def test_an_upload_that_arrives_changed_is_no_release(
    memory: Any,  # noqa: ANN401 - of a package without types
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def put(key: str, content: object, **options: Any) -> object:  # noqa: ANN401 - handed on
        return memory.put(key, b"grapg" if key.endswith("model.onnx") else content, **options)

    root = _plant(monkeypatch, memory, put=put)

    with pytest.raises(StorageError, match="differs from the files that were uploaded"):
        promote(root, make_candidate())

    assert not any(memory.list("releases"))


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"])
def test_credentials_of_the_environment_are_in_no_message(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, SECRET)

    assert clients.reason_of(RuntimeError(f"403: {SECRET} is wrong")) == "403: *** is wrong"


def test_a_forged_manifest_writes_no_file_elsewhere(
    memory: Any,  # noqa: ANN401 - of a package without types
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PARITYGATE_RELEASES", str(tmp_path / "copies"))
    root = _plant(monkeypatch, memory)
    promote(root, make_candidate())
    details = show(root, _MODEL, 1)
    forged = {**details.manifest, "files": {**details.manifest["files"], "../../../outside": "sha256:0"}}

    with pytest.raises(ArtifactIntegrityError, match="outside"):
        replace(details, manifest=forged).local_folder()

    assert not (tmp_path / "copies").exists()


def test_the_order_of_records_is_that_of_their_numbers_whatever_the_clock_says(
    root: Root, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(root, make_candidate())
    monkeypatch.setattr(release, "utc_now", lambda: "2001-01-01T00:00:00.000000+00:00")
    promote(root, make_candidate())

    assert [record.version for record in read_records(root, _MODEL)] == [1, 2]
    assert show(root, _MODEL, "prod").version == 2
    assert roll_back(root, _MODEL).version == 1


def test_a_log_that_loses_its_last_record_during_a_promotion_gets_no_gap(
    root: Root, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        promote(root, make_candidate())
    claim = release._claim_version

    def claim_while_a_backup_is_restored(*args: Any) -> Any:  # noqa: ANN401 - handed on
        found = claim(*args)
        _write(root, f"log/{_MODEL}/000002.json", None)
        return found

    monkeypatch.setattr(release, "_claim_version", claim_while_a_backup_is_restored)

    assert promote(root, make_candidate()).record == 2
    assert [record.version for record in read_records(root, _MODEL)] == [1, 3]


def test_a_record_of_a_newer_version_stops_readers_and_writers(root: Root, make_candidate: Make) -> None:
    promote(root, make_candidate())
    _write(root, f"log/{_MODEL}/000002.json", b'{"schema": 99, "kind": "signed"}')

    for act in (lambda: show(root, _MODEL), lambda: promote(root, make_candidate())):
        with pytest.raises(RepositoryError, match="its schema is 99, so a newer version of paritygate wrote it"):
            act()


def test_a_repository_of_an_earlier_version_is_read_and_continued(root: Root) -> None:
    # The one of 0.2.0 has three releases, a rollback from 3 to 2, and canary at 3.
    old = Path(__file__).with_name("of_0_2_0") / "repository"
    for path in sorted(path for path in old.rglob("*") if path.is_file()):
        _write(root, path.relative_to(old).as_posix(), path.read_bytes())
    before = list_models(root)[0].aliases["prod"]

    assert all(verify_release(root, "tiny", number).is_intact for number in (1, 2, 3))
    assert roll_back(root, "tiny").version == before - 1
    assert [record.schema for record in read_records(root, "tiny")] == [2] * 6


@pytest.mark.parametrize("at", ["model.onnx", "evidence.json", "manifest.json", "000002.json"])
@pytest.mark.parametrize("error", ["PermissionDeniedError", "GenericError"])
def test_a_write_that_fails_is_one_clear_error_and_leaves_the_state_as_it_was(
    memory: Any,  # noqa: ANN401 - of a package without types
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    error: str,
) -> None:
    from obstore import exceptions

    def put(key: str, content: object, **options: Any) -> object:  # noqa: ANN401 - handed on
        if key.endswith(at) and "/1/" not in key:
            msg = "connection reset by peer"
            raise getattr(exceptions, error)(msg)
        return memory.put(key, content, **options)

    promote(Address("s3://models/releases"), make_candidate())
    root = _plant(monkeypatch, memory, put=put)

    with pytest.raises(StorageError, match="could not be written: connection reset by peer") as caught:
        promote(root, make_candidate())

    assert caught.value.hint
    (model,) = list_models(root)
    assert (model.versions, model.aliases) == ((1,), {"prod": 1})
    # The record may still arrive, so only then the files stay.
    assert bool(store_of(root).size_bytes(f"store/{_MODEL}/2")) is (at == "000002.json")
