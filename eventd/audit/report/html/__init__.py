"""The report as one self-contained HTML file.

May import: audit.report, text.
"""

from __future__ import annotations

from eventd.audit.report.html.page import render

__all__ = ["render"]
