"""Links between the pages lead somewhere, and the files and tables they name are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.docs.conftest import Page

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:\.ci|\.github|src|convert|validate|pipelines|fixtures|tests|benchmarks|docs)/[\w./-]*)`")
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

    assert set(pages) - linked == {"README.md"}


def test_paths_that_a_page_names_exist(page: Page, project_root: Path) -> None:
    missing = [path for path in PATH.findall(page.prose) if not (project_root / path).exists()]

    assert missing == []


def test_names_that_a_page_places_in_a_file_are_there(page: Page, project_root: Path) -> None:
    for names, path in NAMED_IN.findall(page.prose):
        code = (project_root / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"\b{name}\b", code), f"{page.name} says that {name} is in {path}"


def test_a_name_that_is_not_in_the_file_would_be_seen(project_root: Path) -> None:
    ((names, path),) = NAMED_IN.findall("see `NOWHERE` in `convert/conversion.py`")

    assert names == "`NOWHERE`"
    assert "NOWHERE" not in (project_root / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "anchor"), [("## The spec as a whole", "the-spec-as-a-whole"), ("## `samples`", "samples")]
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert anchors(heading) == {anchor}


def test_every_folder_of_the_product_is_named_on_the_page_of_its_architecture(
    pages: dict[str, Page], project_root: Path
) -> None:
    named = {path.rstrip("/") for path in PATH.findall(pages["docs/architecture.md"].prose)}
    named |= {
        f"{folder}/{inner}"
        for folder, inners in re.findall(r"^\| `([\w/]+)/` \|(.*)$", pages["docs/architecture.md"].prose, re.MULTILINE)
        for inner in re.findall(r"`(\w+)/`", inners)
    }
    places = ("convert", "validate", "pipelines", "src/paritygate/engine", "src/paritygate/models")
    folders = {
        str(init.parent.relative_to(project_root))
        for place in places
        for init in project_root.glob(f"{place}/**/__init__.py")
    }

    assert len(folders) > 30
    assert folders - named - {"pipelines", "validate"} == set()
