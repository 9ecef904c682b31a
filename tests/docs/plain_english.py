"""The rule of words as functions: sentences of a text, those that are too long, and phrases that no reader needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["BANNED", "LONGEST", "LONGEST_IN_REFERENCE", "banned_in", "long_sentences", "sentences", "words_in"]

LONGEST = 25
LONGEST_IN_REFERENCE = 30

# Each with the words to write in its place.
BANNED = {
    r"\b(?:hold|holds|held|holding) (?:\S+ ){0,6}against\b": "compare A with B",
    r"\b(?:take|takes|took|taken|taking) (?:\S+ )?over\b": "reuse, cached",
    r"\bask(?:s|ed|ing)? (?:the |a |both |every |no )?(?:model|reference|candidate|server)s?\b": "run, feed",
    r"\b(?:reference|candidate|model|server)s? (?:is|are|was|were) (?:not |never |also )?asked\b": "run, feed",
    r"\banswer(?:s|ed|ing)? (?:\S+ )?(?:otherwise|alike)\b": "differ, changed, flipped, agree",
    r"\b(?:other|no) answers than\b": "differ, changed, flipped",
    r"\bmade[- ]up\b": "generated",
    r"\bin words\b": "in the message",
    r"\bthat which\b": "the noun",
    r"\bwhat (?:came|comes|became|becomes) of\b": "the outcome",
    r"\b(?:says?|said|tells?) (?:so|why|that|what|which|how|whether|of)\b": "reports, prints, shows",
    r"\bby turns\b": "samples, rows",
    r"\bedge findings?\b": "out-of-sample finding",
    r"\bthe bytes are not\b": "corrupt: digest mismatch",
    r"\bnothing at all\b": "unchanged since, nothing to do",
    r"\bbelie(?:f|ve|ves|ved)\b": "trusted, untrusted",
    r"\bhangs? on\b": "depends on",
    r"\bnobody's business\b": "does not count",
    r"\b(?:but|save) for\b": "except",
    r"\bstands? (?:in|beside|below|above|at|for|there)\b": "is in, is next to",
    r"\bof (?:which|whom) (?:no|none|all|each|some|one|two|only)\b": "a sentence of its own",
}
# One search per sentence instead of one per phrase, as hardly any sentence holds one.
_ANY_BANNED = re.compile("|".join(BANNED), re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`\n]+(?:\n[^`\n]+)?`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*\[]*(?:[A-Z0-9]|paritygate\b))")


def _plain(text: str) -> str:
    # A piece of code is one word, and begins a sentence as well as a name does.
    return _LINK.sub(r"\1", _CODE.sub("Code", text))


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*_FENCE.sub("\n", text).splitlines(), ""]:
        begins = not line.strip() or line.lstrip().startswith(("#", "|", "> ")) or bool(_ITEM.match(line))
        if begins and lines:
            yield " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from (part.strip() for part in re.split(r"[|;]", line))
        elif line.startswith("#"):
            yield line.lstrip("# ")
        elif line.strip():
            lines.append(_ITEM.sub("", line).strip("> "))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown, or of a help text; cells, items and headings are their own."""
    for paragraph in _paragraphs(_plain(text)):
        yield from (part.strip() for part in _END.split(paragraph) if re.search(r"\w", part))


def words_in(text: str) -> int:
    """Count the words of a text: what holds a letter or a digit."""
    return len(re.findall(r"\w\S*", _LINK.sub(r"\1", _FENCE.sub("", text))))


def long_sentences(text: str, longest: int = LONGEST) -> list[str]:
    """Return the sentences with more words than are allowed."""
    return [found for found in sentences(text) if words_in(found) > longest]


def banned_in(text: str) -> list[str]:
    """Return each sentence that holds a banned phrase, with the words to write in its place."""
    return [
        f"{match[0]!r} (write: {instead}): {sentence}"
        for sentence in sentences(text)
        if _ANY_BANNED.search(sentence)
        for pattern, instead in BANNED.items()
        for match in [re.search(pattern, sentence, re.IGNORECASE)]
        if match
    ]
