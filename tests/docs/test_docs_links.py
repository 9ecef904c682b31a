"""Links between the pages lead somewhere, and the files and tables they name are there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.docs.conftest import Page

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:\.ci|\.github|src|convert|validate|pipelines|fixtures|tests|tools|benchmarks|docs)/[\w./-]*)`")
# Such as: `CONVERTERS` and `Converter` in `convert/conversion.py`.
NAMED_IN = re.compile(r"((?:`\w+`(?:, | and )?)+) (?:in|of) `([\w./]+\.py)`")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = sum(other.partition("#")[0] == anchor for other in found)
        found.add(f"{anchor}-{count}" if count else anchor)
    return found


def test_links_of_a_page_resolve(page: Page) -> None:
    for target in LINK.findall(page.prose):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.path.parent / name if name else page.path
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            there = anchors(
                re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            )
            assert anchor in there, f"{page.name} links to {target}; anchors are {sorted(there)}"


def test_every_page_is_reached_from_the_readme(pages: dict[str, Page]) -> None:
    linked = {target.partition("#")[0] for target in LINK.findall(pages["README.md"].prose)}

    # The site's index stands for those that its menu holds.
    assert "docs/index.md" in linked
    assert {name for name in pages if not name.startswith("docs/")} - linked == {"README.md"}
