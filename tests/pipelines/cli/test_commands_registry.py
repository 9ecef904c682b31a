"""push and pull: a release goes to a registry and comes back, with the result as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.repository.oci.registries import small_registry

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


def test_a_release_of_a_run_is_pushed_pulled_and_verified(
    finished: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    desk = finished.copy(tmp_path)
    with small_registry() as registry:
        place = f"{registry.host}/team/tiny"

        pushed = desk.json("push", "tiny@prod", place)
        pulled = desk.json("pull", f"{place}:1", "--repository", "other")

        assert (pushed.code, pulled.code) == (0, 0)
        assert (pushed.data["tag"], pushed.data["is_new"], pushed.data["is_validated"]) == ("1", True, True)
        assert pushed.data["reference"] == pulled.data["reference"]
        assert pushed.data["reference"] in "".join(pushed.out.split())
        assert (pulled.data["model"], pulled.data["version"], pulled.data["is_new"]) == ("tiny", 1, True)
        assert "convert-and-validate verify tiny 1 --repository other" in pulled.out
        assert "verify" not in desk.call("pull", f"{place}:1", "--repository", "other", "--quiet").out
        moved = desk.json("push", "tiny@prod", f"{place}:prod")
        assert pushed.data["uploaded"]
        assert (moved.data["is_new"], moved.data["uploaded"]) == (True, 0)
        assert "pushed" not in moved.out
        again = desk.call("push", "tiny@prod", place)
        assert again.code == 0
        assert "validated" not in again.out
        missing = desk.call("pull", f"{place}:2")
        assert (missing.code, missing.out) == (2, "")
    # Without the registry.
    verified = desk.json("verify", "tiny", "1", "--repository", "other")
    assert verified.data["files_checked"] == pulled.data["files"]
    assert desk.call("show", "tiny", "--repository", "other").code == 0
    away = desk.call("push", "tiny@prod", place)
    assert away.code == 5
    assert "Connection refused" in away.err


@pytest.mark.parametrize("words", [("push", "tiny@prod/onnx-fp32", "r.example/x"), ("push", "tiny", "r.example/x")])
def test_only_a_whole_release_is_pushed(finished: Desk, words: tuple[str, ...]) -> None:
    assert finished.call(*words).code == 2
