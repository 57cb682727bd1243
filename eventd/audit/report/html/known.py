"""What is known of the findings: the comparison with an earlier report, and the acknowledgements of operators."""

from __future__ import annotations

from typing import Any

from eventd.audit.report.report import Report
from eventd.lake.address import shown

MOST_GONE = 100
"""Maximum number of findings that are gone on the page."""


def known(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section of known findings; None without a baseline and acknowledgements."""
    if report.baseline is None and not report.acknowledgements:
        return None
    base = report.baseline
    return {"base": base, "folder": shown(base.url) if base else "", "most": MOST_GONE}
