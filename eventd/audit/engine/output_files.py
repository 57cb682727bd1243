"""Writes the files of a report to the output folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eventd.audit.engine.tables import write_tables
from eventd.audit.report.findings import Finding
from eventd.audit.report.html import render
from eventd.audit.report.report import Hour, Report, to_json
from eventd.lake.inventory import write_inventory
from eventd.lake.storage import Storage

REPORT: Final = "report.json"
PAGE: Final = "report.html"
INVENTORY: Final = "lake.sha256"
"""The inventory of the lake, as the audit read it."""


def write_output(
    out: Storage, report: Report, findings: Sequence[Finding], hours: Sequence[Hour], digests: Mapping[str, str]
) -> None:
    """Write all files of a report over those of an earlier run; `digests` are those of the survey.

    Raises LakeUnavailable.
    """
    write_tables(out, report, findings, hours)
    out.put(INVENTORY, write_inventory(digests))
    out.put(PAGE, render(report).encode())
    out.put(REPORT, to_json(report))  # written last: its presence means that the other files are complete
