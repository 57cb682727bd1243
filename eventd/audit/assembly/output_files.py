"""Writes the files of a report to the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from eventd.audit.assembly.delta_tables import TableFormat, write_delta_tables
from eventd.audit.assembly.tables import make_tables, write_tables
from eventd.audit.report.file_names import INVENTORY, PAGE, REPORT, SIGNATURE
from eventd.audit.report.findings import Finding
from eventd.audit.report.html import render
from eventd.audit.report.report import Hour, Report, to_json
from eventd.audit.report.signature import sign_report
from eventd.lake.inventory import write_inventory
from eventd.lake.storage import Storage
from federation.keys import Key


def write_output(
    out: Storage,
    report: Report,
    findings: Sequence[Finding],
    hours: Sequence[Hour],
    digests: Mapping[str, str],
    *,
    key: Key | None = None,
    table_format: TableFormat = TableFormat.PARQUET,
) -> None:
    """Write all files of a report instead of those of an earlier run, and sign them with `key`, but not Delta tables.

    `digests` are those of the survey. Raises LakeUnavailable, and MissingExtra for Delta tables.
    """
    tables = make_tables(report, findings, hours)
    text = to_json(report)
    others = {INVENTORY: write_inventory(digests), PAGE: render(report).encode()}
    if table_format is TableFormat.DELTA:
        write_delta_tables(out, tables)
    # No report.json lies beside the files of another run: it is deleted first, and written last.
    out.delete([SIGNATURE, REPORT])
    signed = write_tables(out, tables)
    for name, content in others.items():
        out.put(name, content)
    if key is not None:
        signed |= {name: hashlib.sha256(content).hexdigest() for name, content in {**others, REPORT: text}.items()}
        out.put(SIGNATURE, sign_report(key, signed))
    out.put(REPORT, text)
