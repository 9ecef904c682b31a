"""Evidence that came with a pack is no evidence of this machine: it is trusted by name, or made again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_OTHER = f"sha256:{'0' * 64}"


@dataclass(frozen=True, kw_only=True, slots=True)
class There:
    """A machine that a run was brought to, as a pack."""

    desk: Desk
    digest: str

    @property
    def run(self) -> Path:
        (found,) = self.desk.folder.glob("there/runs/tiny/*")
        return found

    def call(self, command: str, *options: str) -> Called:
        place = ("--repository", "repository") if command == "promote" else ()
        return self.desk.call(command, "--run", str(self.run), *place, *options)

    def edit(self, name: str, change: Callable[[Any], object]) -> None:
        path = self.run / name
        data = json.loads(path.read_bytes())
        change(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    @property
    def releases(self) -> list[Path]:
        return sorted(self.desk.folder.glob("repository/store/tiny/*"))

    def show(self) -> Called:
        return self.desk.json("show", "tiny", "--verbose", "--repository", "repository")


@pytest.fixture(scope="module")
def brought(finished: Desk, tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, str]:
    desk = finished.copy(tmp_path_factory.mktemp("brought"))
    assert desk.call("benchmark", "--run", str(desk.run_folder), "--quiet", "--rounds", "2").code == 0
    packed = desk.json("pack", "--run", str(desk.run_folder), "--output", "run.tar")
    unpacked = desk.json("unpack", "run.tar", "--root", "there")
    assert (packed.code, unpacked.code) == (0, 0), f"{packed}\n{unpacked}"
    digest = packed.data["digest"]
    assert unpacked.data["digest"] == digest
    for called in (packed, unpacked):
        assert f"digest: {digest}\n" in called.out
    return desk, digest


@pytest.fixture
def there(brought: tuple[Desk, str], tmp_path: Path) -> There:
    desk, digest = brought
    return There(desk=desk.copy(tmp_path / "machine"), digest=digest)


def test_evidence_that_came_with_a_pack_is_not_believed_unasked(there: There) -> None:
    called = there.call("promote")

    assert called.code == 2, str(called)
    assert "the cpu evidence comes from a pack, not from this machine" in called.err
    # Whoever made the pack says its digest: one that stands here to be copied would be asked for by nobody.
    assert "--trust DIGEST" in called.err
    assert there.digest not in called.err
    assert "promote --run" in called.err
    assert "--root" in called.err
    assert "convert-and-validate validate --run" in called.err
    assert there.releases == []


def test_a_wrong_digest_is_refused_and_both_are_named(there: There) -> None:
    called = there.call("promote", "--verbose", "--trust", _OTHER)

    assert called.code == 2, str(called)
    assert f"--trust {_OTHER} is not the digest of the pack that the run came in, which is {there.digest}" in called.err
    assert there.releases == []


def test_trust_is_recorded_in_log_manifest_show_and_report(there: There) -> None:
    called = there.call("promote", "--verbose", "--trust", there.digest)

    assert called.code == 0, str(called)
    words = f"evidence that came with a pack and was trusted: {there.digest}"
    assert words in called.out
    (release,) = there.releases
    manifest = json.loads((release / "manifest.json").read_bytes())
    assert (manifest["trust"], manifest["provenance"]["pack"]) == (there.digest, there.digest)
    shown = there.show()
    assert words in shown.out
    assert shown.data["record"]["trust"] == there.digest
    for name in ("report.html", "report.md"):
        assert there.digest in (release / name).read_text(encoding="utf-8")


def test_a_validation_here_takes_the_place_of_trust(there: There) -> None:
    assert there.call("validate", "--verbose").code == 0

    called = there.call("promote", "--verbose")

    assert called.code == 0, str(called)
    assert f"the run came in a pack, and its evidence was made here: {there.digest}" in called.out
    manifest = json.loads((there.releases[0] / "manifest.json").read_bytes())
    assert (manifest["trust"], manifest["provenance"]["pack"]) == ("", there.digest)
    # How fast it was elsewhere is evidence of the pack as well, and was not trusted.
    assert not (there.releases[0] / "benchmark.json").exists()


def test_a_benchmark_made_here_goes_with_the_release(there: There) -> None:
    assert there.call("validate", "--verbose").code == 0
    assert there.call("benchmark", "--quiet", "--rounds", "2").code == 0

    called = there.call("promote")

    assert called.code == 0, str(called)
    assert (there.releases[0] / "benchmark.json").is_file()
    unneeded = there.call("promote", "--verbose", "--trust", there.digest)
    assert unneeded.code == 2, str(unneeded)
    assert "is not needed, because all evidence for the release was measured here" in unneeded.err


def test_a_run_that_was_not_unpacked_needs_no_trust(finished: Desk) -> None:
    called = finished.call("promote", "--verbose", "--run", str(finished.run_folder), "--trust", _OTHER)

    assert called.code == 2, str(called)
    assert "was made here\nhint: leave --trust out" in called.err


def test_reports_are_made_again_and_never_copied(there: There) -> None:
    for name in ("report.html", "report.md"):
        (there.run / name).write_text("<script>alert(1)</script> all is well", encoding="utf-8")

    called = there.call("promote", "--verbose", "--trust", there.digest)

    assert called.code == 0, str(called)
    for name in ("report.html", "report.md"):
        text = (there.releases[0] / name).read_text(encoding="utf-8")
        assert "all is well" not in text
        assert "alert(1)" not in text
        assert "onnx-fp32" in text


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("evidence.json", lambda data: data["variants"][0]["result"].update(rows=10**6), "evidence.json was changed"),
        ("evidence.json", lambda data: data.update(others=[]), "evidence.json was changed"),
        ("benchmark.json", lambda data: data.update(seconds=0.5), "benchmark.json was changed"),
        ("onnx-fp32/artifact.json", lambda data: data["made_by"].update(by="me"), "artifact.json was changed"),
        ("unpacked/evidence.json", lambda data: data.update(run="mine"), "unpacked/evidence.json was changed"),
        ("unpacked/paritygate-pack.json", lambda data: data.update(model="mine"), "is corrupt"),
    ],
)
def test_an_edit_after_unpacking_is_found(there: There, name: str, edit: Callable[[Any], object], message: str) -> None:
    there.edit(name, edit)

    called = there.call("promote", "--verbose", "--trust", there.digest)

    assert called.code == 5, str(called)
    assert message in called.err
    assert "\nhint: " in called.err
    assert there.releases == []


def test_what_is_removed_from_a_pack_is_found(there: There) -> None:
    (there.run / "benchmark.json").unlink()
    removed = there.call("promote", "--verbose", "--trust", there.digest)

    assert removed.code == 5, str(removed)
    assert "benchmark.json is missing since it was unpacked" in removed.err


def test_evidence_of_another_unpacking_is_not_made_here(there: There) -> None:
    assert there.call("validate", "--verbose").code == 0
    packed = there.desk.json("pack", "--run", str(there.run), "--output", "again.tar")
    unpacked = there.desk.json("unpack", "again.tar", "--root", "elsewhere")
    run = unpacked.data["run"]

    refused = there.desk.call("promote", "--verbose", "--run", run, "--repository", "repository")
    named = there.desk.call(
        "promote", "--verbose", "--run", run, "--repository", "repository", "--trust", packed.data["digest"]
    )

    assert (refused.code, named.code) == (2, 0), f"{refused}\n{named}"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"mark": 3}', b"\xff", None])
def test_a_damaged_mark_is_no_way_round(there: There, content: bytes | None) -> None:
    path = there.run / "unpacked/mark.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    for command in ("promote", "validate"):
        called = there.call(command)
        assert called.code == 2, str(called)
        assert "unpacked is corrupt" in called.err
    assert there.releases == []


def _edit_bytes(chance: random.Random, content: bytes) -> bytes:
    """Change, drop or add some bytes."""
    at, size = chance.randrange(len(content)), chance.randint(1, 8)
    middle = chance.choice((b"", chance.randbytes(size), content[at : at + size] * 2))
    return content[:at] + middle + content[at + size :]


def _forged_digest(chance: random.Random, digest: str) -> str:
    at = chance.randrange(len("sha256:"), len(digest))
    other = chance.choice([letter for letter in "0123456789abcdef" if letter != digest[at]])
    return chance.choice(
        (digest[:at] + other + digest[at + 1 :], digest[:at], digest.upper(), digest + "0", chance.randbytes(9).hex())
    )


def _attack(there: There, count: int) -> tuple[str, list[str]]:
    """Edit what came with the pack, and forge digests; return the figures and what was released or not said."""
    chance = random.Random(12)  # noqa: S311 - a seed, so that a failure comes again
    said = ("evidence.json", "benchmark.json", "unpacked/paritygate-pack.json")
    wrong = []
    for _ in range(count):
        path = there.run / chance.choice((*said, "unpacked/evidence.json", "unpacked/mark.json"))
        content = path.read_bytes()
        changed = _edit_bytes(chance, content)
        path.write_bytes(changed)
        called = there.call("promote", "--verbose", *chance.choice(((), ("--trust", there.digest))))
        # What is written anew in the same words is the same; the mark is of use to what is made here alone.
        is_harmless = changed == content or (path.name == "mark.json" and called.code == 0)
        if "unexpected" in called.err or (called.code not in {2, 5} and not is_harmless):
            wrong.append(f"{path.name}: {called.code} {called.err[:200]}")
        path.write_bytes(content)
    for _ in range(count):
        digest = _forged_digest(chance, there.digest)
        called = there.call("promote", "--verbose", "--trust", digest)
        if called.code != 2 or there.digest not in called.err:
            wrong.append(f"{digest}: {called.code} {called.err[:200]}")
    return f"{count} edits after unpacking, {count} forged digests, {len(wrong)} released or unexpected", wrong


def test_no_edit_and_no_forged_digest_releases_a_pack(
    there: There, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _attack(there, 12)
    record_property("figures", figures)

    assert wrong == []


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_no_edit_of_many_and_no_forged_digest_releases_a_pack(
    there: There, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _attack(there, 100)
    record_property("figures", figures)

    assert wrong == []
