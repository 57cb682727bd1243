"""The report as one self-contained HTML file.

May import: audit.report, lake, text.
"""

from __future__ import annotations

from eventd.audit.report.html.page import render

__all__ = ["render"]
