from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.files import MARKER
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.inspect import list_models, show, verify_release
from paritygate.pipelines.release.repository.release import promote

Make = Callable[..., ReleaseCandidate]


@pytest.fixture
def repository(tmp_path: Path, make_candidate: Make) -> Path:
    """Return a repository with two versions of one model and one of another."""
    root = tmp_path / "repository"
    promote(root, make_candidate(alias="prod"))
    promote(root, make_candidate(alias="canary", reason="retrained"))
    promote(root, make_candidate(model="face", alias=None))
    return root


def _replace(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def test_the_list_names_every_model_with_its_versions_and_aliases(repository: Path) -> None:
    face, klue = list_models(repository)

    assert (face.model, face.versions, face.aliases) == ("face", (1,), {})
    assert (klue.model, klue.versions, klue.aliases) == ("klue-sts", (1, 2), {"canary": 2, "prod": 1})
    assert klue.changed == show(repository, "klue-sts", 2).record.time


def test_an_empty_repository_lists_nothing(tmp_path: Path) -> None:
    assert list_models(tmp_path) == ()


def test_a_log_without_records_is_no_model(repository: Path) -> None:
    (repository / "log/begun").mkdir()

    assert [model.model for model in list_models(repository)] == ["face", "klue-sts"]


def test_a_repository_that_does_not_exist_is_an_input_error(tmp_path: Path) -> None:
    for look in (list_models, lambda root: show(root, "m"), lambda root: verify_release(root, "m")):
        with pytest.raises(InputFileError, match=r"no repository exists at .*none"):
            look(tmp_path / "none")


@pytest.mark.parametrize(("which", "version"), [(None, 2), (1, 1), ("1", 1), ("prod", 1), ("canary", 2)])
def test_a_release_is_found_by_version_alias_or_as_the_newest(
    repository: Path, which: int | str | None, version: int
) -> None:
    assert show(repository, "klue-sts", which).version == version
    assert verify_release(repository, "klue-sts", which).version == version


@pytest.mark.parametrize("which", [0, 3, -1, "3", "0", "staging", "", "../1"])
def test_a_release_that_does_not_exist_is_named_with_those_that_do(repository: Path, which: int | str) -> None:
    with pytest.raises(UsageError, match=r"has no release '.*' \(versions: 1, 2; aliases: canary, prod\)"):
        show(repository, "klue-sts", which)


def test_a_model_that_does_not_exist_is_named_with_those_that_do(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"has no release of model 'sts' \(models: face, klue-sts\)"):
        show(repository, "sts")


def test_a_model_name_cannot_leave_the_repository(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"model name '\.\./x' is not allowed"):
        show(repository, "../x")


def test_a_release_is_shown_with_its_aliases_record_manifest_and_history(repository: Path) -> None:
    details = show(repository, "klue-sts", "canary")

    assert details.aliases == ("canary",)
    assert details.record.reason == "retrained"
    assert details.folder == repository / "store/klue-sts/2"
    assert details.manifest["version"] == 2
    assert [record.version for record in details.history] == [1, 2]


def test_what_is_found_is_json_data(repository: Path) -> None:
    found = (show(repository, "klue-sts"), verify_release(repository, "klue-sts"))

    shown, verified = (json.loads(json.dumps(item.to_json(), allow_nan=False)) for item in found)

    assert [record["number"] for record in shown["history"]] == [1, 2]
    assert verified == {
        "model": "klue-sts",
        "version": 2,
        "is_intact": True,
        "files_checked": 6,
        "changed": [],
        "missing": [],
        "added": [],
        "signature": None,
    }


@pytest.mark.parametrize(
    "name",
    ["onnx-fp32/model.onnx", "onnx-fp32/artifact.json", "onnx-fp32/weights/0.bin", "evidence.json", "report.html"],
)
def test_verify_names_a_file_of_which_one_bit_was_flipped(repository: Path, name: str) -> None:
    path = repository / "store/klue-sts/1" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    _replace(path, bytes(content))

    verification = verify_release(repository, "klue-sts", 1)

    assert not verification.is_intact
    assert verification.difference.changed == (name,)
    assert verify_release(repository, "klue-sts", 2).is_intact


@pytest.mark.parametrize("name", ["extra.bin", "onnx-fp32/.hidden", "new/extra.bin", MARKER, f"onnx-fp32/{MARKER}"])
def test_verify_names_a_file_that_was_added(repository: Path, name: str) -> None:
    path = repository / "store/klue-sts/1" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")

    assert verify_release(repository, "klue-sts", 1).difference.added == (name,)


def test_verify_names_a_file_that_was_removed(repository: Path) -> None:
    (repository / "store/klue-sts/1/onnx-fp32/weights/0.bin").unlink()

    assert verify_release(repository, "klue-sts", 1).difference.missing == ("onnx-fp32/weights/0.bin",)


def test_verify_does_not_follow_links_even_to_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    folder = repository / "store/klue-sts/1"
    shutil.copy(folder / "report.html", tmp_path / "same.html")
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "same.html")
    (folder / "linked").symlink_to(tmp_path)

    difference = verify_release(repository, "klue-sts", 1).difference

    assert difference.changed == ("report.html",)
    assert difference.added == ("linked",)


def test_a_manifest_changed_to_fit_changed_files_is_found_by_the_log(repository: Path) -> None:
    path = repository / "store/klue-sts/1/manifest.json"
    _replace(path, path.read_bytes().replace(b"0.0001", b"1000.0"))

    verification = verify_release(repository, "klue-sts", 1)

    assert verification.difference.changed == ("manifest.json",)
    assert verification.files_checked == 1
    with pytest.raises(ArtifactIntegrityError, match=r"manifest\.json is corrupt"):
        show(repository, "klue-sts", 1)


def test_a_release_whose_folder_was_lost_is_not_intact(repository: Path) -> None:
    shutil.rmtree(repository / "store/klue-sts/1")

    assert verify_release(repository, "klue-sts", 1).difference.missing == ("manifest.json",)
    with pytest.raises(ArtifactIntegrityError, match=r"manifest\.json is missing when version 1 was released"):
        show(repository, "klue-sts", 1)


def test_a_difference_reads_as_one_line(repository: Path) -> None:
    folder = repository / "store/klue-sts/1"
    (folder / "report.html").unlink()
    (folder / "extra").write_bytes(b"")
    _replace(folder / "evidence.json", b"{}")

    difference = verify_release(repository, "klue-sts", 1).difference

    assert str(difference) == "evidence.json was changed, report.html is missing, extra was added"
