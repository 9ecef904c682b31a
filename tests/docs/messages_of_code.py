"""Every message and hint of the product, found in its code: what errors, `msg`, `hint` and `reason` hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.plain_english import banned_in, long_sentences, words_in

__all__ = ["Message", "messages_in", "vague_in"]

Message = tuple[int, str]
_NAMES = frozenset({"advice", "cause", "hint", "message", "msg", "note", "problem", "reason", "why"})
_PLACEHOLDER = "X"
_FEWEST_WORDS = 3
# Words that leave a reader to guess what is meant, with the words to write in their place.
_VAGUE = {
    r"(?:^|[;:,.(] )it (?!can)": "the noun",
    r"(?:^|[;:(] |[.] )(?:that|there|what)\b": "the noun, or 'the X has no Y'",
    r"\bwhat (?:is|are|was|were|it|they|has|stands)\b": "the noun",
    r", for (?:it|they|that|there|the \w+ (?:is|has|was))\b": "because",
    r"\bas (?:it|they|there|that) (?:is|are|was|were|has|have|does|do)\b": "because",
    r"\b(?:is|are) none\b": "is not, unknown",
    r"\b(?:is|are|was|were) asked\b": "requested, run",
    r"\banew\b": "again",
    r"\bnowhere\b": "not anywhere",
    r"\bhangs? together\b": "match",
    r"\bstands?\b": "is",
    r"\bheld to\b": "must",
    r"\bis to (?:be|have)\b": "must",
}


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(part.value if isinstance(part, ast.Constant) else _PLACEHOLDER for part in node.values)]  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (_texts(side) or [_PLACEHOLDER] for side in (node.left, node.right))
        return [first + second for first in left for second in right]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    return [text for value in node.values for text in _texts(value)] if isinstance(node, ast.BoolOp) else []


def _named(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id.strip("_").lower() in _NAMES for target in node.targets
    ):
        yield node.value
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name.endswith("Error"):
            yield from node.args
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _NAMES)


def messages_in(path: Path) -> Iterator[Message]:
    """Yield each message of a file once, with its line; a placeholder is one word."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for value in _named(node):
            for text in _texts(value):
                if words_in(text) >= _FEWEST_WORDS:
                    found.setdefault(text, value.lineno)
    yield from ((line, text) for text, line in found.items())


def vague_in(text: str) -> list[str]:
    """Return what is wrong with a message: long sentences, banned phrases, and words without a noun."""
    vague = (
        f"{match[0]!r} (write: {instead}): {text}"
        for pattern, instead in _VAGUE.items()
        for match in [re.search(pattern, text, re.IGNORECASE)]
        if match
    )
    return [*(f"too long: {sentence}" for sentence in long_sentences(text)), *banned_in(text), *vague]
