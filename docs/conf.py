"""How Sphinx builds the site (`make docs`). It reads the repository, so a link works in a checkout and on the site."""

from __future__ import annotations

import os
import re
from importlib.metadata import version as version_of

from sphinx.application import Sphinx

project = "Headgate"
version = release = version_of("headgate")
html_title = f"Headgate {version}"
copyright = "Apache License 2.0"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "examples/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "compat", "dist", "scripts", "src", "tests"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4  # as a forge gives them
myst_links_external_new_tab = False
nitpicky = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["headgate.css"]
html_additional_pages = {"index": "to_index.html"}
templates_path = ["_templates"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}

#: A page in a list or a table of an index.
_LISTED = re.compile(r"^(?:- |\| )\[[^\]]*\]\(([^)#]+)\.md\)", re.MULTILINE)


def _add_contents(_app: Sphinx, page: str, text: list[str]) -> None:
    """Give an index the pages that it lists, in that order: sources need no table of contents of Sphinx's own."""
    if os.path.basename(page) == "index":
        pages = "\n".join(_LISTED.findall(text[0]))
        text[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
