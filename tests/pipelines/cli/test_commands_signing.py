"""promote --sign, run --sign, verify --key and show: who signed a release, and what an init container sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paritygate as pg
from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.pipelines.release.signing.keys import read_signing_key, read_verifying_key
from paritygate.pipelines.release.stores import objects
from paritygate.roots import Address

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytest.importorskip("securesystemslib", reason="securesystemslib is not installed")

_STORE = "artifacts/repository/store/tiny"


def _write_key(folder: Path, name: str) -> str:
    """Write a pair of keys, and return the fingerprint."""
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    public = key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pem").write_bytes(private)
    (folder / f"{name}.pub").write_bytes(public)
    return read_verifying_key(folder / f"{name}.pub").fingerprint


def test_a_promoted_release_is_signed_and_shown_so(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    mine, other = _write_key(desk.folder, "mine"), _write_key(desk.folder, "other")
    unsigned = desk.json("verify", "tiny", "--key", "mine.pub")
    assert unsigned.data["signature"]["status"] == "missing"
    assert "promote --run RUN --sign KEY" in unsigned.out

    promoted = desk.call("promote", "--run", "latest", "--sign", "mine.pem")

    assert promoted.code == 0
    assert mine in promoted.out
    shown = desk.json("show", "tiny", "prod")
    assert (shown.data["version"], shown.data["manifest"]["signer"]) == (2, mine)
    assert mine in shown.out
    assert desk.json("verify", "tiny", "prod", "--key", "mine.pub").data["signature"]["status"] == "valid"
    refused = desk.json("verify", "tiny", "prod", "--key", "other.pub")
    assert refused.code == 5
    assert (refused.data["signature"]["signer"], refused.data["signature"]["key"]) == (mine, other)
    assert mine in refused.out
    assert other in refused.out
    assert desk.call("verify", "tiny", "prod").code == 0
    release = pg.Repository(desk.folder / "artifacts/repository").release("tiny", "prod")
    assert release.verify(key=desk.folder / "mine.pub").is_accepted
    with pytest.raises(ArtifactIntegrityError, match=other):
        release.verify(key=desk.folder / "other.pub")


def test_an_init_container_sees_a_screen_with_the_file_and_may_only_warn(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    for at in range(100):
        (desk.folder / _STORE / "1" / f"added-by-somebody-{at:03d}.bin").write_bytes(b"")
    path = desk.folder / _STORE / "1/evidence.json"
    path.unlink()

    called = desk.json("verify", "tiny", "prod", "--enforce")

    assert called.code == 5
    assert "evidence.json" in called.out
    lines = called.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert len(called.data["added"]) == 100
    warned = desk.call("verify", "tiny", "prod", "--warn")
    assert (warned.code, warned.out) == (0, called.out)


def test_an_init_container_checks_files_and_signature_in_an_object_store(
    finished: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    monkeypatch.setattr(objects, "bucket_client", lambda _: client)
    objects.object_store.cache_clear()
    desk, root = finished.copy(tmp_path), Address("s3://models/signed")
    mine, other = _write_key(desk.folder, "mine"), _write_key(desk.folder, "other")
    assert desk.call("promote", "--run", "latest", "--to", root, "--sign", "mine.pem").code == 0
    command = ("verify", "tiny", "prod", "--repository", root, "--key")

    checked = desk.json(*command, "mine.pub", "--enforce")
    refused = desk.json(*command, "other.pub", "--enforce")
    store = objects.object_store(root)
    store.replace("store/tiny/1/report.md", b"changed")
    for at in range(100):
        store.replace(f"store/tiny/1/added-by-somebody-{at:03d}.bin", b"")
    changed = desk.json(*command, "mine.pub", "--enforce")
    warned = desk.call(*command, "mine.pub", "--warn")
    objects.object_store.cache_clear()

    assert (checked.code, checked.data["signature"]["status"]) == (0, "valid")
    assert (refused.code, refused.data["signature"]["status"]) == (5, "other key")
    assert all(fingerprint in refused.out for fingerprint in (mine, other))
    assert (changed.code, changed.data["changed"], len(changed.data["added"])) == (5, ["report.md"], 100)
    assert "report.md" in changed.out
    for called in (checked, refused, changed):
        lines = called.out.splitlines()
        assert (len(lines) <= 24, max(map(len, lines)) <= 80) == (True, True)
    assert (warned.code, warned.out) == (0, changed.out)


def test_a_release_without_signature_after_a_signed_one_is_a_warning(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    _write_key(desk.folder, "key")
    assert desk.json("promote", "--run", "latest", "--sign", "key.pem").data["unsigned_after"] is None
    desk.onnx(fill=1.0)

    ran = desk.json("run", "spec.yaml")

    assert ran.data["runs"][0]["release"]["unsigned_after"] == 2
    assert "promote --run RUN --sign KEY" in " ".join(ran.out.split())
    assert desk.call("verify", "tiny", "prod", "--key", "key.pub").code == 5


def test_a_run_signs_what_it_releases_and_signs_anew_with_a_new_key(desk: Desk) -> None:
    first = _write_key(desk.folder, "key")
    assert desk.call("run", "spec.yaml", "--sign", "key.pem").code == 0
    assert desk.json("show", "tiny", "prod").data["manifest"]["signer"] == first
    second = _write_key(desk.folder, "key")

    assert desk.call("run", "spec.yaml", "--sign", "key.pem").code == 0

    assert desk.json("show", "tiny", "prod").data["manifest"]["signer"] == second


def test_the_command_that_makes_a_key_overwrites_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write_key(tmp_path, "key")
    (tmp_path / "no-key.txt").write_text("no key")

    def command(read: Callable[[Path], object], name: str) -> str:
        with pytest.raises(UsageError) as caught:
            read(Path(name))
        return caught.value.command

    assert not command(read_signing_key, "key.pub")
    assert command(read_signing_key, "no-key.txt").split()[-1] == "key-2.pem"
    assert command(read_verifying_key, "key.pem").split()[-1] == "key-2.pub"


def test_a_key_that_cannot_sign_ends_a_run_before_its_work(desk: Desk) -> None:
    (desk.folder / "key.pem").write_text("no key")

    assert desk.call("run", "spec.yaml", "--sign", "key.pem").code == 2
    assert not (desk.folder / "artifacts").exists()
