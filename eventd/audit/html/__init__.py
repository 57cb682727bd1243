"""The report as a page: one file that needs nothing else, to be read anywhere and sent to anybody."""

from __future__ import annotations

from eventd.audit.html.page import render

__all__ = ["render"]
