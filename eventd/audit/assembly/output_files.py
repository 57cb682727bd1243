"""Writes the files of a report to the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from eventd.audit.assembly.delta_tables import TableFormat, write_delta_tables
from eventd.audit.assembly.tables import make_tables, write_tables
from eventd.audit.report.file_names import INVENTORY, PAGE, REPORT, SIGNATURE, TABLES
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
    """Write all files of a report over those of an earlier run, and sign them with `key`, but not Delta tables.

    `digests` are those of the survey. Raises LakeUnavailable, and MissingExtra for Delta tables.
    """
    out.delete([SIGNATURE])  # it is that of the earlier run
    tables = make_tables(report, findings, hours)
    write_tables(out, tables)
    if table_format is TableFormat.DELTA:
        write_delta_tables(out, tables)
    # report.json is last: its presence means that the other files are complete.
    contents = {INVENTORY: write_inventory(digests), PAGE: render(report).encode(), REPORT: to_json(report)}
    for name, content in contents.items():
        out.put(name, content)
    if key is not None:
        files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        out.put(SIGNATURE, sign_report(key, files | digests_of_tables(out)))


def digests_of_tables(out: Storage) -> dict[str, str]:
    """Return the SHA-256 (hex) of every file of the tables, by path. Raises LakeUnavailable."""
    return {file.path: hashlib.sha256(out.read(file.path)).hexdigest() for file in out.list(TABLES)}
