"""list, show and verify: what a repository holds, and whether it is what was released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_STORE = "artifacts/repository/store/tiny/1"


def test_list_names_models_versions_and_aliases(finished: Desk) -> None:
    called = finished.json("list")

    assert called.code == 0
    (model,) = called.data["models"]
    assert (model["model"], model["versions"], model["aliases"]) == ("tiny", [1], {"prod": 1})
    (row,) = [line for line in called.out.splitlines() if "tiny" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == ["tiny", "1", "prod -> 1", model["changed"]]


def test_an_empty_repository_is_said_to_be_empty(desk: Desk) -> None:
    (desk.folder / "models").mkdir()

    called = desk.json("list", "--repository", "models")

    assert called.code == 0
    assert called.out == "Repository models holds no releases\n"
    assert called.data["models"] == []


@pytest.mark.parametrize("command", [("list",), ("show", "tiny"), ("verify", "tiny")])
def test_a_repository_that_is_not_there_is_wrong_usage(desk: Desk, command: tuple[str, ...]) -> None:
    called = desk.json(*command)

    assert called.code == 2
    assert called.err == (
        "error: there is no repository at artifacts/repository\nhint: name the folder that releases were promoted to\n"
    )
    assert not (desk.folder / "said.json").exists()


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("tinny",), 5, "has no release of model 'tinny' (models: tiny)"),
        (("tiny", "2"), 5, "model 'tiny' has no release '2' (versions: 1; aliases: prod)"),
        (("tiny", "canary"), 5, "model 'tiny' has no release 'canary' (versions: 1; aliases: prod)"),
        (("../tiny",), 2, "model name '../tiny' is not allowed"),
    ],
)
def test_what_the_repository_lacks_is_said_with_what_it_has(
    finished: Desk, command: str, args: tuple[str, ...], code: int, words: str
) -> None:
    called = finished.call(command, *args)

    assert called.code == code
    assert words in called.err
    assert "\nhint: " in called.err


@pytest.mark.parametrize("which", [(), ("1",), ("prod",)])
def test_show_prints_variants_evidence_and_history(finished: Desk, which: tuple[str, ...]) -> None:
    called = finished.json("show", "tiny", *which)

    assert called.code == 0
    assert called.out.startswith("tiny version 1, aliases: prod\nfolder: artifacts/repository/store/tiny/1\n")
    assert "verified on cpu by onnxruntime" in called.out
    assert "released" in called.out
    (variant,) = called.data["manifest"]["variants"]
    assert variant["digest"] == finished.evidence()["variants"][0]["artifact"]
    assert variant["digest"][:40] in called.out
    assert (called.data["version"], called.data["aliases"]) == (1, ["prod"])
    assert [record["kind"] for record in called.data["history"]] == ["released"]


def test_verify_reads_every_file(finished: Desk) -> None:
    called = finished.json("verify", "tiny", "prod")
    files = [path for path in (finished.folder / _STORE).rglob("*") if path.is_file()]

    assert called.code == 0
    assert called.out == f"tiny version 1 is intact: {len(files)} files match its manifest\n"
    assert called.data["is_intact"] is True
    assert called.data["files_checked"] == len(files)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("onnx-fp32/model.onnx", "changed"),
        ("evidence.json", "changed"),
        ("manifest.json", "changed"),
        ("report.html", "missing"),
        ("onnx-fp32/extra.bin", "added"),
    ],
)
def test_verify_names_what_is_not_what_was_released(finished: Desk, tmp_path: Path, name: str, how: str) -> None:
    desk = finished.copy(tmp_path)
    path = desk.folder / _STORE / name
    if how == "missing":
        path.unlink()
    else:
        content = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        path.write_bytes(content + b" ")

    called = desk.json("verify", "tiny")

    assert called.code == 5
    assert called.data["is_intact"] is False
    assert called.data[how] == [name]
    said = {"changed": "was changed", "missing": "is missing", "added": "was added"}[how]
    assert called.out == f"tiny version 1 is not what was released: {name} {said}\n"


def test_a_source_that_was_released_says_why(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}}, required=[])
    assert desk.call("run", "spec.yaml").code == 0

    called = desk.json("show", "tiny")

    assert "reason: fallback: source, because no converted variant passed" in called.out
    assert "source, not compared" in called.out
    assert called.data["manifest"]["variants"][0]["role"] == "source"
    assert desk.call("verify", "tiny").code == 0


@pytest.mark.parametrize("command", [("list",), ("show", "tiny"), ("verify", "tiny")])
def test_json_to_standard_output_has_nothing_beside_it(finished: Desk, command: tuple[str, ...]) -> None:
    called = finished.call(*command, "--json", "-")

    assert called.code == 0
    assert json.loads(called.out)["schema_version"] == 1
