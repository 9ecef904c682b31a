"""The commands on a repository in an object store: as on disk, and no file of this machine but the view is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import make_desk

from paritygate.api import Repository
from paritygate.pipelines.release.stores import objects
from paritygate.pipelines.release.views.places import StorePlace
from paritygate.pipelines.serving.place import Place
from paritygate.roots import Address

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_ROOT = "s3://models/team-a"
_SECRET = "secret-of-this-test"  # noqa: S105 - a value to look for


@pytest.fixture(scope="module")
def _released_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Yield a desk with two releases in a store in memory, the run of the first promoted by a command of its own."""
    client = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    desk = make_desk(tmp_path_factory.mktemp("address"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "bucket_client", lambda _: client)
        patch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
        patch.setenv("PARITYGATE_RELEASES", str(desk.folder / "copies"))
        objects.object_store.cache_clear()
        assert desk.call("run", "spec.yaml", "--no-promote", "--quiet").code == 0
        promoted = desk.json("promote", "--run", "latest", "--to", _ROOT)
        assert (promoted.code, promoted.data["version"]) == (0, 1), str(promoted)
        assert promoted.data["folder"] == f"{_ROOT}/store/tiny/1"
        desk.onnx(fill=1.0)
        desk.spec(promote={"to": _ROOT})
        ran = desk.json("run", "spec.yaml")
        assert ran.code == 0, str(ran)
        assert ran.data["runs"][0]["release"]["version"] == 2
        yield desk
        objects.object_store.cache_clear()


@pytest.fixture
def released(_released_once: Desk) -> Desk:
    """Return the desk, which the tests share: none of them makes a release."""
    return _released_once


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("list",), 0),
        (("show", "tiny", "prod"), 0),
        (("history", "tiny"), 0),
        (("verify", "tiny", "1"), 0),
        (("diff", "tiny@1", "prod"), 0),
        (("gc", "--keep", "1", "--dry-run"), 0),
        (("alias", "tiny", "canary", "1", "--if-current", "0"), 0),
        (("rollback", "tiny", "--if-current", "1"), 5),
        (("views",), 0),
        (("show", "tiny", "9"), 2),
        (("list", "--repository", "s3://models/other"), 2),
    ],
)
def test_commands_read_and_write_an_address(released: Desk, command: tuple[str, ...], code: int) -> None:
    where = () if "--repository" in command else ("--repository", _ROOT)

    called = released.json(*command, *where)

    assert called.code == code, str(called)
    assert _SECRET not in str(called)
    if code == 0:
        assert called.data["schema_version"] == 1


def test_a_view_and_a_comparison_take_their_files_from_a_local_copy(released: Desk) -> None:
    written = released.json("triton", "tiny", "1", "--out", "models", "--repository", _ROOT)
    followed = released.json("triton", "tiny", "prod", "--out", "others", "--repository", _ROOT)
    compared = released.json(
        *("compare", "tiny@1", "tiny@2", "--repository", _ROOT, "--samples", "inputs.npz", "--probes", "none")
    )

    assert (written.code, followed.code, compared.code) == (0, 0, 1), f"{written}{followed}{compared}"
    release = Repository(_ROOT).release("tiny", 1)
    graph = (released.folder / "models/tiny/1/model.onnx").read_bytes()
    assert release.path("onnx-fp32").read_bytes() == graph
    assert (written.data["follows"], followed.data["follows"]) == (None, "prod")
    assert release.load().version == 1


def test_views_follow_an_alias_alike_on_disk_and_in_an_object_store(released: Desk) -> None:
    where, serving = ("--repository", _ROOT), Address("s3://models/serving")
    assert released.call("alias", "tiny", "served", "2", *where).code == 0
    for out in (serving, "served"):
        written = released.json("triton", "tiny", "served", "--out", out, "--samples", "inputs.npz", *where)
        assert (written.code, written.data["version"], written.data["follows"]) == (0, 2, "served")
    of_2 = StorePlace(serving).digests("tiny/2")
    assert of_2 == Place(released.folder / "served").digests("tiny/2")
    (released.folder / "inputs.npz").rename(released.folder / "elsewhere.npz")

    moved = released.json("alias", "tiny", "served", "1", *where)

    (released.folder / "elsewhere.npz").rename(released.folder / "inputs.npz")
    assert moved.code == 0, str(moved)
    updates = {view["place"]: (view["version"], view["is_changed"], view["error"]) for view in moved.data["views"]}
    assert updates == {f"{serving}/tiny": (1, True, None), str(released.folder / "served/tiny"): (1, True, None)}
    assert StorePlace(serving).digests("tiny") == Place(released.folder / "served").digests("tiny")
    # What a server may still read never changes.
    assert StorePlace(serving).digests("tiny/2") == of_2
    states = released.json("views", "tiny", *where)
    assert {(view["shown"], view["is_behind"]) for view in states.data["views"] if view["is_there"]} >= {(1, False)}
    for out in (f"{serving}/tiny", "served/tiny"):
        assert released.call("views", "--forget", out, *where).code == 0
    assert released.json("alias", "tiny", "served", "2", *where).data["views"] == []


def test_a_view_that_was_interrupted_in_an_object_store_is_completed_and_a_changed_one_refused(released: Desk) -> None:
    root = Address("s3://models/interrupted")
    command = ("triton", "tiny", "2", "--out", root, "--samples", "inputs.npz", "--repository", _ROOT)
    assert released.call(*command).code == 0
    whole, place = StorePlace(root).digests("tiny"), StorePlace(root)
    store = objects.object_store(root)
    for left_out in whole:
        # The configuration is written last.
        store.remove("tiny/config.pbtxt")
        store.remove(f"tiny/{left_out}")
        assert released.call(*command).code == 0, left_out
        assert place.digests("tiny") == whole
    assert released.json(*command).data["is_changed"] is False

    store.replace("tiny/2/model.onnx", b"other bytes")
    assert released.call(*command, "--overwrite").code == 2
    store.replace("foreign/notes.txt", b"of somebody else")
    assert released.call(*command, "--name", "foreign").code == 2
    for name in ("1/model.onnx", "2/model.onnx", "2/weights.bin", "warmup/theirs/x"):
        store.replace(f"theirs/{name}", b"of somebody else")
        assert released.call(*command, "--name", "theirs").code == 2, name
        assert {*place.digests("theirs")} == {name}
        store.remove(f"theirs/{name}")


def test_no_file_and_no_run_holds_a_credential(released: Desk) -> None:
    names = [path for path in released.folder.rglob("*") if path.is_file()]

    assert [path for path in names if _SECRET.encode() in path.read_bytes()] == []
    assert not list(released.folder.glob("s3*"))
    (note,) = {path.read_text(encoding="utf-8") for path in released.folder.rglob("released-to.json")}
    assert json.loads(note) == {"repositories": [_ROOT]}


def test_clean_keeps_the_runs_that_were_released_there(released: Desk) -> None:
    listed = released.json("runs")

    assert {tuple(release["repository"] for release in run["releases"]) for run in listed.data["runs"]} == {(_ROOT,)}
    assert Path(released.folder / "artifacts/repository").exists() is False
