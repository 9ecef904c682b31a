"""Packs that nobody should have written: every one is refused by name, and nothing of it is left."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paritygate.file_names import why_not_names
from paritygate.files import digest_of_json
from paritygate.pipelines.packing.manifest import END, MANIFEST_NAME, PackedFile, PackManifest, header_of, padding_of
from paritygate.pipelines.packing.read import read_manifest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk


class Lair(Struct, frozen=True, kw_only=True):
    """A good pack, and where forged ones are unpacked."""

    desk: Desk
    good: Path

    @property
    def content(self) -> bytes:
        return self.good.read_bytes()

    @property
    def manifest(self) -> PackManifest:
        return read_manifest(self.good)

    @property
    def files(self) -> dict[str, bytes]:
        found = {}
        with tarfile.open(self.good) as archive:
            for member in archive.getmembers()[1:]:
                stream = archive.extractfile(member)
                assert stream is not None
                found[member.name] = stream.read()
        return found

    def refused(self, content: bytes, message: str, *, code: int = 5) -> Called:
        """Unpack what is no good pack, and check that it is refused and that nothing of it is left."""
        forged = self.good.with_name("forged.tar")
        forged.write_bytes(content)
        before = sorted(self.desk.folder.rglob("*"))
        called = self.desk.call("unpack", str(forged), "--root", "there/deep")
        assert called.code == code, str(called)
        assert message in called.err, called.err
        assert "\nhint: " in called.err
        assert sorted(self.desk.folder.rglob("*")) == before
        return called

    def forged(self, files: Mapping[str, bytes], **changes: object) -> bytes:
        """Return a pack of other files whose manifest and digests fit them."""
        listed = tuple(_packed(name, content) for name, content in files.items())
        manifest = replace(self.manifest, **{"files": listed, **changes})  # type: ignore[arg-type]  # any field
        return _archive(manifest.to_bytes(), files.items())

    def with_spec(self, change: Callable[[dict[str, Any]], object]) -> bytes:
        """Return a pack whose `spec.json` says something else, and whose digests fit."""
        files = self.files
        data = json.loads(files["run/spec.json"])
        change(data)
        return self.forged({**files, "run/spec.json": json.dumps(data).encode()})


def _packed(name: str, content: bytes) -> PackedFile:
    return PackedFile(name=name, size=len(content), digest=f"sha256:{hashlib.sha256(content).hexdigest()}")


def _archive(manifest: bytes, members: Iterable[tuple[str, bytes]]) -> bytes:
    parts = [
        header_of(name, len(content)) + content + padding_of(len(content))
        for name, content in ((MANIFEST_NAME, manifest), *members)
    ]
    return b"".join((*parts, END))


@pytest.fixture(scope="module")
def lair(finished: Desk, tmp_path_factory: pytest.TempPathFactory) -> Lair:
    folder = tmp_path_factory.mktemp("lair")
    desk = finished.copy(folder)
    called = desk.call("pack", "--run", str(desk.run_folder), "--output", "good.tar")
    assert called.code == 0, str(called)
    return Lair(desk=desk, good=folder / "good.tar")


def test_what_the_forger_makes_of_the_good_files_is_the_good_pack(lair: Lair) -> None:
    assert lair.forged(lair.files) == lair.content


@pytest.mark.parametrize("name", ["run/onnx-fp32/model.onnx", "run/evidence.json", "inputs/model.onnx"])
def test_a_byte_changed_on_the_way_is_refused_by_name(lair: Lair, name: str) -> None:
    content = bytearray(lair.content)
    content[lair.content.index(lair.files[name]) + len(lair.files[name]) // 2] ^= 1

    lair.refused(bytes(content), f"forged.tar is corrupt: {name} was changed")


def test_no_byte_can_be_changed(lair: Lair) -> None:
    content = lair.content
    for at in range(0, len(content), max(1, len(content) // 300)):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        forged = lair.good.with_name("forged.tar")
        forged.write_bytes(changed)

        called = lair.desk.call("unpack", str(forged), "--root", "there", "--quiet")

        assert called.code in {2, 5}, f"byte {at}: {called}"
        assert called.err.startswith("error: "), called.err
        assert not (lair.desk.folder / "there").exists()


@pytest.mark.parametrize("share", [0.3, 0.9, 1])
def test_a_pack_that_is_cut_off_is_refused(lair: Lair, share: float) -> None:
    lair.refused(lair.content[: int(len(lair.content) * share) - 1], "it is cut off: ")


def test_a_manifest_that_is_cut_off_is_refused(lair: Lair) -> None:
    lair.refused(lair.content[:1000], f"{MANIFEST_NAME} is cut off")


def test_what_follows_the_end_is_refused(lair: Lair) -> None:
    lair.refused(lair.content + bytes(10240), "10,240 bytes follow after its end")


def test_an_end_that_is_none_is_refused(lair: Lair) -> None:
    lair.refused(lair.content[:-1] + b"x", "something else stands where it should end")


def test_what_hides_behind_a_file_is_refused(lair: Lair) -> None:
    name = next(name for name, content in lair.files.items() if len(content) % 512)
    content = bytearray(lair.content)
    content[lair.content.index(header_of(name, len(lair.files[name]))) + 512 + len(lair.files[name])] = 1

    lair.refused(bytes(content), f"something stands behind {name}")


@pytest.mark.parametrize(
    ("old", "new"), [('"size": 0', '"size": 1'), ('"model": "tiny"', '"model": "tiff"'), ("{", '{"x": 1,')]
)
def test_an_edited_manifest_is_refused(lair: Lair, old: str, new: str) -> None:
    text = lair.manifest.to_bytes().replace(old.encode(), new.encode(), 1)
    assert text != lair.manifest.to_bytes()

    lair.refused(_archive(text, lair.files.items()), f"{MANIFEST_NAME} was changed: it does not have the digest")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000, b'{"schema_version": 1}'])
def test_a_manifest_that_is_none_is_refused(lair: Lair, text: bytes) -> None:
    lair.refused(_archive(text, ()), f"its {MANIFEST_NAME} is not a manifest: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "../up"),
        ("run_id", ".."),
        ("run_id", "a/b"),
        ("model", None),
        ("files", 3),
        ("files", [{"name": "run/spec.json", "size": -1, "digest": "sha256:" + 64 * "0"}]),
        ("files", [{"name": "run/spec.json", "size": True, "digest": "sha256:" + 64 * "0"}]),
        ("files", [{"name": "run/spec.json", "size": 1, "digest": "md5:0"}]),
        ("files", [{"name": 1, "size": 1, "digest": "sha256:" + 64 * "0"}]),
    ],
)
def test_a_manifest_of_other_things_is_refused_though_its_digest_fits(lair: Lair, key: str, value: object) -> None:
    data = {**lair.manifest._content(), key: value}
    text = json.dumps({**data, "digest": digest_of_json(data)}, indent=1) + "\n"

    lair.refused(_archive(text.encode(), ()), f"its {MANIFEST_NAME} is not a manifest: ")


def test_a_pack_of_a_later_version_says_so(lair: Lair) -> None:
    data = {**lair.manifest._content(), "schema_version": 2}

    lair.refused(_archive(json.dumps(data).encode(), ()), "is a pack of version 2 (supported: 1)", code=2)


def test_a_manifest_larger_than_any_is_not_read(lair: Lair) -> None:
    lair.refused(header_of(MANIFEST_NAME, 1 << 40) + END, f"it begins with a file called {MANIFEST_NAME!r}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/etc/passwd", "is an absolute path"),
        ("run/../../up", "leaves its folder"),
        ("run//up", "is not a plain path"),
        ("run/./up", "is not a plain path"),
        ("run/a\\b", "holds a character that not every machine allows"),
        ("run/a\x00b", "holds a character that not every machine allows"),
        ("run/" + "a" * 256, "is too long"),
        ("run/" + "a/" * 600 + "a", "is too long"),
        ("run/SPEC.json", "only in case"),
        ("run/Onnx-fp32/x", "only in case"),
        ("run/spec.json/x", "is a file and a folder at once"),
        ("other/x", "is neither of the run nor one of its inputs"),
        ("run", "is a file and a folder at once"),
        ("inputs", "is a file and a folder at once"),
    ],
)
def test_a_name_that_may_not_be_restored_is_refused_though_all_digests_fit(lair: Lair, name: str, message: str) -> None:
    text = replace(
        lair.manifest, files=(*(_packed(key, value) for key, value in lair.files.items()), _packed(name, b"x"))
    ).to_bytes()

    lair.refused(_archive(text, lair.files.items()), message)


def test_a_file_that_stands_twice_is_refused(lair: Lair) -> None:
    files = [*lair.files.items(), ("run/spec.json", b"{}")]
    text = replace(lair.manifest, files=tuple(_packed(name, content) for name, content in files)).to_bytes()

    lair.refused(_archive(text, files), "the name 'run/spec.json' occurs twice")


def test_names_that_one_machine_takes_for_the_same_are_refused() -> None:
    assert why_not_names(["run/\u00e9", "run/e\u0301"]) is not None
    assert why_not_names(["run/\ud800"]) == ("run/\ud800", "holds a character that not every machine allows in a name")
    assert why_not_names(["run/a", "run/b/a", "inputs/a"]) is None


def test_a_pack_without_a_spec_is_refused(lair: Lair) -> None:
    files = {name: content for name, content in lair.files.items() if name != "run/spec.json"}

    lair.refused(lair.forged(files), "run/spec.json is missing")


def test_a_file_that_is_missing_or_was_added_is_refused(lair: Lair) -> None:
    files = list(lair.files.items())
    text = lair.manifest.to_bytes()

    lair.refused(_archive(text, files[:3] + files[4:]), "it is cut off: ")
    lair.refused(_archive(text, [*files, ("run/more", b"x")]), "bytes follow after its end")
    # As many bytes, in another order.
    lair.refused(_archive(text, reversed(files)), f"stands where {files[0][0]} should")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.DIRTYPE, "a folder"),
    ],
)
def test_what_is_no_plain_file_is_refused(lair: Lair, kind: bytes, words: str) -> None:
    name = "run/onnx-fp32/model.onnx"
    wanted = header_of(name, len(lair.files[name]))
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, "/etc/passwd", 0o777
    forged = info.tobuf(tarfile.GNU_FORMAT)
    assert len(forged) == len(wanted)

    lair.refused(lair.content.replace(wanted, forged), f"{words} called {name!r}")


@pytest.mark.parametrize("change", [{"mode": 0o4755}, {"uid": 1000}, {"uname": "root"}, {"mtime": 1.0}])
def test_a_mode_or_owner_is_refused(lair: Lair, change: Mapping[str, Any]) -> None:
    name = "run/spec.json"
    info = tarfile.TarInfo(name)
    info.size = len(lair.files[name])
    for key, value in {"mode": 0o644, **change}.items():
        setattr(info, key, value)
    forged = lair.content.replace(header_of(name, info.size), info.tobuf(tarfile.GNU_FORMAT))

    lair.refused(forged, f"stands where {name} should")


def test_a_size_that_is_not_there_is_refused_before_anything_is_written(lair: Lair) -> None:
    files = lair.files
    listed = [_packed(name, content) for name, content in files.items()]
    listed[0] = replace(listed[0], size=1 << 60)
    text = replace(lair.manifest, files=tuple(listed)).to_bytes()

    lair.refused(_archive(text, files.items()), "it is cut off: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(folder="/etc"), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(samples_path="/etc/passwd"), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(samples_path="inputs/../../x"), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(samples_path="inputs//etc/passwd"), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(samples_path="inputs/..\\x"), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(samples_path="inputs/a\0b"), "run/spec.json is not a spec that travels"),
        (lambda data: data["spec"].update(targets=["../../up-fp32"]), "run/spec.json is not a spec of a run"),
        (lambda data: data["spec"].update(targets=["/up-fp32"]), "run/spec.json is not a spec of a run"),
        (lambda data: data.update(samples_path=3), "run/spec.json is not a spec that travels"),
        (lambda data: data.clear(), "run/spec.json is not a spec that travels"),
        (lambda data: data.update(spec={}), "run/spec.json is not a spec of a run"),
        (
            lambda data: data["spec"]["model"].update(name="other"),
            "run/spec.json is of 'other', and the pack of 'tiny'",
        ),
    ],
)
def test_a_spec_that_does_not_travel_is_refused(
    lair: Lair, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    lair.refused(lair.with_spec(change), message)


def test_inputs_that_pose_as_files_of_the_run_are_refused(lair: Lair) -> None:
    lair.refused(lair.forged({**lair.files, "run/inputs/x": b"x"}), "run/inputs is not a part of a run")


def test_a_pack_that_says_where_its_run_came_from_is_refused(lair: Lair) -> None:
    forged = lair.forged({**lair.files, "run/unpacked/mark.json": b'{"mark": "mine"}'})

    lair.refused(forged, "run/unpacked is not a part of a run")


def _other_tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("other"))
    return stream.getvalue()


@pytest.mark.parametrize("content", [b"", b"text", bytes(2048), b"\xff" * 2048, _other_tar()])
def test_a_file_that_is_no_pack_is_wrong_usage(lair: Lair, content: bytes) -> None:
    lair.refused(content, f"forged.tar is not a pack: {MANIFEST_NAME} is not at its start", code=2)


def test_a_pack_that_is_not_there_is_wrong_usage(lair: Lair, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    absent = lair.desk.call("unpack", "absent.tar")
    folder = lair.desk.call("unpack", ".")
    pipe = lair.desk.call("unpack", str(tmp_path / "pipe"))

    assert (absent.code, folder.code, pipe.code) == (2, 2, 2)
    assert absent.err.startswith("error: pack absent.tar does not exist\nhint: ")
    assert folder.err.startswith("error: pack . is not a file\nhint: ")
    assert pipe.err.startswith(f"error: pack {tmp_path}/pipe is not a file\nhint: ")


def test_a_link_where_the_run_would_be_is_left_alone(lair: Lair, tmp_path: Path) -> None:
    place = tmp_path / "runs/tiny"
    place.mkdir(parents=True)
    (place / lair.desk.run_folder.name).symlink_to(tmp_path / "elsewhere")

    called = lair.desk.call("unpack", str(lair.good), "--root", str(tmp_path))

    assert called.code == 2
    assert "exists already, so it is not changed" in called.err
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_that_another_call_restored_meanwhile_is_left_alone(
    lair: Lair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "runs/tiny" / lair.desk.run_folder.name
    real = Path.rename

    def raced(self: Path, target: Path) -> Path:
        if Path(target) == final:
            final.mkdir(parents=True)
            (final / "theirs").touch()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", raced)

    called = lair.desk.call("unpack", str(lair.good), "--root", str(tmp_path))

    assert called.code == 2
    assert "exists already, so it is not changed" in called.err
    assert [path.name for path in final.parent.iterdir()] == [final.name]
    assert [path.name for path in final.iterdir()] == ["theirs"]


def test_a_pack_of_another_version_is_restored_and_that_is_said(lair: Lair, tmp_path: Path) -> None:
    (tmp_path / "p.tar").write_bytes(lair.forged(lair.files, paritygate="0.0.1"))

    called = lair.desk.call("unpack", str(tmp_path / "p.tar"), "--root", str(tmp_path))

    assert called.code == 0
    assert "packed by paritygate 0.0.1, and this is " in called.out


def test_a_pack_that_is_replaced_while_it_is_read_is_refused(lair: Lair, monkeypatch: pytest.MonkeyPatch) -> None:
    other = lair.forged({**lair.files, "run/more": b"x"})

    def replaced(pack: Path) -> PackManifest:
        manifest = read_manifest(pack)
        pack.write_bytes(other)
        return manifest

    monkeypatch.setattr("paritygate.pipelines.packing.restore.read_manifest", replaced)
    lair.refused(lair.content, "it was replaced while it was read")


def test_a_place_that_cannot_be_written_is_said(lair: Lair, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")

    called = lair.desk.call("unpack", str(lair.good), "--root", str(tmp_path))

    assert called.code == 5
    assert "could not be written" in called.err


@pytest.mark.parametrize(
    ("name", "size", "digest"),
    [
        ("run/spec.json", 3, "16b93ca406bcca32f865e552cecc72e362770473fb61273aabfd191078350f46"),
        ("run/" + "long/" * 40 + "name", 3, "fa70b0a97617915e5220f0481ca958f4a591ae7fb870b4cb690d7d519461868e"),
        ("run/\uad6d\uc5b4", 10 << 30, "2c665ddfcc54f2af1ce20ade04f83f8c17ce81f17ffba5da0def9bab09be4564"),
    ],
)
def test_the_form_of_headers_never_changes(name: str, size: int, digest: str) -> None:
    # Every version of Python has to make the same bytes, or packs of one could not be read by another.
    header = header_of(name, size)

    assert hashlib.sha256(header).hexdigest() == digest
    with tarfile.open(fileobj=io.BytesIO(header + bytes(512))) as archive:
        info = archive.next()
        assert info is not None
        assert (info.name, info.size, info.isreg()) == (name, size, True)
