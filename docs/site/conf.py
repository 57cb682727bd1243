"""How the documentation becomes a site: `make docs`. The pages are the Markdown files as they are, links included."""

from __future__ import annotations

import html
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

project = "routerd-eventd"
author = "the authors of routerd-eventd"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["README.md", "CHANGELOG.md", "docs/**.md", "deploy/**.md"]
exclude_patterns = ["build", ".*"]

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page may begin below the first level where it is part of another

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = ""
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"

PARTS = {
    "": ["../README", "tutorials"],
    "Concepts": ["concepts/*"],
    "How-to": ["how-to/*"],
    "Reference": ["reference/*"],
    "Operations": ["operations/*"],
    "Examples": ["examples/README"],
    "Decisions": ["decisions/README", "decisions/*"],
    "Project": ["security", "support", "contributing", "../CHANGELOG", "../deploy/**"],
}
"""The pages of the navigation by the name of its parts; a page is shown where it stands first."""


def _add_navigation(app: Any, docname: str, source: list[str]) -> None:
    """Append the navigation to the first page: in the files it would be noise for those who read them as they are."""
    if docname != root_doc:
        return
    for caption, entries in PARTS.items():
        heading = f":caption: {caption}\n" if caption else ""
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n" + heading + "\n" + "\n".join(entries) + "\n```\n"


def _begin_at_first_page(app: Any, error: Exception | None) -> None:
    """Let the address of the site itself lead to the first page."""
    if error is None and app.builder.format == "html":
        target = html.escape(app.builder.get_target_uri(root_doc))
        page = f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
        page += f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">{project}</a>\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    """Connect both to the build."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _begin_at_first_page)
