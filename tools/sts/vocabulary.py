"""The tokens of the sentence-pair model, written anew by `python -m tools.sts.vocabulary`.

The ids index the rows of a trained table, so the weights must be trained anew after that.
"""

from __future__ import annotations

from paritygate.fixtures.sts.vocabulary import SPECIAL_TOKENS, VOCABULARY_PATH

# What is left of Korean typography once NFKC has folded the compatibility forms.
_PUNCTUATION = "“”‘’·〈〉《》「」『』–—°₩€£¥※★☆♥♡○●□■△▲→←×÷~"
# Every jamo that Unicode has, old ones and tone marks too: with them any Hangul can be spelled.
_JAMO_RANGES = ((0x1100, 0x11FF), (0xA960, 0xA97C), (0xD7B0, 0xD7C6), (0xD7CB, 0xD7FB), (0x302E, 0x302F))
_SYLLABLE_RANGE = (0xAC00, 0xD7A3)
# The Korean character set standard encodes its common syllables in two bytes, all others as a sequence of jamo.
_COMMON_SYLLABLE_BYTES = 2


def vocabulary_tokens() -> list[str]:
    """Return all tokens in the order of their ids: special, ASCII, punctuation, jamo, syllables.

    The syllables are the 2,350 of KS X 1001; any other is spelled in jamo.

    Source: KS X 1001:1998, as Python's `euc_kr` codec implements it.
    """
    ascii_tokens = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
    punctuation = [character for character in _PUNCTUATION if character not in ascii_tokens]
    jamo = [chr(code) for first, last in _JAMO_RANGES for code in range(first, last + 1)]
    first, last = _SYLLABLE_RANGE
    syllables = [
        chr(code) for code in range(first, last + 1) if len(chr(code).encode("euc_kr")) == _COMMON_SYLLABLE_BYTES
    ]
    return [*SPECIAL_TOKENS, *ascii_tokens, *punctuation, *jamo, *syllables]


if __name__ == "__main__":
    VOCABULARY_PATH.write_text("\n".join(vocabulary_tokens()) + "\n", encoding="utf-8", newline="\n")
