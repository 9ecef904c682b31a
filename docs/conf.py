"""The site: Sphinx reads the pages of this folder as they are, links of GitHub included. `make docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parent.parent
# Pages that stand at the root, where GitHub looks for them: on the site they take the place of a page that links there.
_PAGES_OF_ROOT = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "readme": "README.md"}

project = "paritygate"
author = "The authors of paritygate"
project_copyright = author
(release,) = re.findall(r'^version = "(.+)"$', (_ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)

extensions = ["myst_parser", "sphinx_click"]
# Or the two dashes of an option become one long one.
smartquotes = False
# As GitHub makes the anchors of headings.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"paritygate {release}"
# Pages are read offline as well: nothing is asked of other servers.
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False


def _on_the_site(app: Sphinx, name: str, source: list[str]) -> None:
    """Take a page of the root where it stands, and let links lead to where the site has their target."""
    if name in _PAGES_OF_ROOT:
        # Or a change of it would not be seen.
        app.env.note_dependency(str(_ROOT / _PAGES_OF_ROOT[name]))
        text = (_ROOT / _PAGES_OF_ROOT[name]).read_text(encoding="utf-8").replace("](docs/", "](")
    else:
        text = source[0]
    up = "../" * name.count("/")
    for page, path in _PAGES_OF_ROOT.items():
        text = text.replace(f"]({path}", f"]({page}.md").replace(f"]({up}../{path}", f"]({up}{page}.md")
    source[0] = text


def setup(app: Sphinx) -> None:
    """Read pages as the site has them."""
    app.connect("source-read", _on_the_site)
