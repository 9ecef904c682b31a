"""Messages and hints in the code are plain English: short sentences, a noun for each thing, one word per concept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.messages_of_code import messages_in, vague_in

_FOLDERS = ("src/paritygate", "convert", "validate", "pipelines")
# Fewer would mean that they are not found.
_FEWEST = 1_500


def test_every_message_is_plain_english(project_root: Path) -> None:
    paths = [path for folder in _FOLDERS for path in sorted((project_root / folder).rglob("*.py"))]
    messages = [(path, *message) for path in paths if not path.is_symlink() for message in messages_in(path)]
    found = [f"{path}:{line}: {problem}" for path, line, text in messages for problem in vague_in(text)]

    assert len(messages) > _FEWEST
    assert found == []


@pytest.mark.parametrize(
    "message",
    [
        "model.onnx is empty: it is not a model",
        "what the server returns is not JSON",
        "there is no repository at artifacts",
        "fp16 was asked for, and the results are taken over",
        "look at the log, " + "and at the next log, " * 8 + "and run this again",
    ],
)
def test_a_vague_message_is_found(message: str, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(f"msg = {message!r}\nraise UsageError(msg)\n", encoding="utf-8")

    assert [problem for _, text in messages_in(path) for problem in vague_in(text)]


def test_both_sides_of_a_choice_are_messages(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text('raise UsageError("no rows here" if rows else f"{name} has one row", hint="add " + "rows now")\n')

    assert [text for _, text in messages_in(path)] == ["no rows here", "X has one row", "add rows now"]
