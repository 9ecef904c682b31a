"""Which version of a model a server answers as: what was asked, what was released, and what it chose itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.validate.runners.endpoint.conftest import WEIGHTS, Server

import paritygate as pg

_X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)


def original(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"logits": np.tanh(inputs["x"] @ WEIGHTS)}


def _compare(reference: Any, url: str) -> pg.Comparison:  # noqa: ANN401 - a path or a function
    return pg.compare(reference, url, samples={"x": _X}, batch_size=16, probes=("batches",))


def _detail(result: pg.Comparison) -> list[tuple[str, str]]:
    return [(str(check.status), check.detail) for check in result.checks if check.name == "served_version"]


def _released(folder: Path, model: str, version: int) -> Path:
    """Return a file of the reference's answers where a release of the model would have it."""
    place = folder / "store" / model / str(version) / "onnx-fp32" / "answers.npz"
    place.parent.mkdir(parents=True)
    (place.parents[1] / "manifest.json").write_text("{}")
    np.savez(place, logits=np.tanh(_X @ WEIGHTS))
    return place


def test_the_version_that_a_server_chose_is_noted_with_how_to_ask_one(server: Server) -> None:
    server.answered_as = lambda _: "2"

    result = _compare(original, server.model)

    assert result.verdict == "pass", str(result)
    words = (
        "the server answered as version 2 of tiny, by its own choice: write /versions/N after the name to choose one"
    )
    assert f"candidate: {words}" in result.notes
    assert _detail(result) == []


def test_a_server_that_does_not_say_its_version_is_noted(server: Server) -> None:
    result = _compare(original, server.model)

    assert "candidate: the server does not report the version of the model that answered" in result.notes


def test_a_version_that_was_asked_for_is_noted_without_more(server: Server) -> None:
    server.versions, server.answered_as = ["1", "2"], lambda _: "1"

    result = _compare(original, f"{server.model}/versions/1")

    assert "candidate: the server answered as version 1 of tiny" in result.notes


def test_an_answer_of_another_version_than_was_asked_for_fails(server: Server) -> None:
    server.versions, server.answered_as = ["1", "2"], lambda _: "2"

    result = _compare(original, f"{server.model}/versions/1")

    assert result.verdict == "fail"
    assert "the server returned version 2 of tiny, but version 1 was requested" in str(result)


@pytest.mark.parametrize("status", [400, 503])
def test_a_version_that_the_server_lacks_is_said_with_those_that_it_has(server: Server, status: int) -> None:
    # Triton answers 503 of a version that it had, and unloaded.
    server.versions, server.of_no_version = ["1", "2"], status

    result = _compare(original, f"{server.model}/versions/9")

    assert result.error is not None
    assert result.error.message.startswith(f"the server at {server.url} has no version 9 of tiny (it has: 1, 2): ")
    assert "Request for unknown model" in result.error.message
    assert result.error.hint.startswith("write /versions/2 after the name")
    assert result.exit_code == 5


def test_a_server_that_changes_its_version_while_it_is_asked_is_a_warning(server: Server) -> None:
    server.answered_as = lambda number: "1" if number < 2 else "2"

    ((status, detail),) = _detail(_compare(original, server.model))

    assert status == "warning"
    assert "versions 1 and 2 of tiny " in detail


def test_another_version_than_the_released_one_is_a_warning(server: Server, tmp_path: Path) -> None:
    server.answered_as = lambda _: "1"

    result = _compare(_released(tmp_path, "tiny", 3), server.model)

    ((status, detail),) = _detail(result)
    assert (result.verdict, status) == ("pass", "warning"), str(result)
    assert "version 1 of tiny" in detail
    assert "/versions/3" in detail
    assert f"warning: served_version: {detail[:40]}" in str(result)


@pytest.mark.parametrize(("model", "found"), [("tiny", ["pass"]), ("other", [])])
def test_versions_are_those_of_releases_where_the_model_has_the_same_name(
    server: Server, tmp_path: Path, model: str, found: list[str]
) -> None:
    server.answered_as = lambda _: "3"

    result = _compare(_released(tmp_path, model, 3), server.model)

    assert [status for status, _ in _detail(result)] == found
