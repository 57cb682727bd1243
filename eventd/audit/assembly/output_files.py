"""Writes the files of a report to the output folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from eventd.audit.assembly.delta_tables import TableFormat, write_delta_tables
from eventd.audit.assembly.tables import make_tables, table_path, write_tables
from eventd.audit.report.file_names import INVENTORY, PAGE, REPORT, SIGNATURE
from eventd.audit.report.findings import Finding
from eventd.audit.report.html import render
from eventd.audit.report.report import Hour, Report, to_json
from eventd.audit.report.signature import sign_report
from eventd.lake.inventory import write_inventory
from eventd.lake.layout import TEMPORARY
from eventd.lake.storage import Storage
from federation.keys import Key

_UNFINISHED: Final = re.compile(rf"\.(.+?)(?:\.\d+)?{re.escape(TEMPORARY)}")
"""Matches the name of an unfinished file: its own name and the number of the process, if Python writes it."""


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
    files = {SIGNATURE, REPORT, *others, *map(table_path, tables)}
    out.delete([SIGNATURE, REPORT, *_left_over(out, files)])
    signed = write_tables(out, tables)
    for name, content in others.items():
        out.put(name, content)
    if key is not None:
        signed |= {name: hashlib.sha256(content).hexdigest() for name, content in {**others, REPORT: text}.items()}
        out.put(SIGNATURE, sign_report(key, signed))
    out.put(REPORT, text)


def _left_over(out: Storage, files: Collection[str]) -> list[str]:
    """Return the unfinished versions of these files, which a killed audit has left.

    The caller holds the output's lock. Files of other names are not returned: they may belong to other programs.
    """
    folders = sorted({str(PurePosixPath(path).parent) for path in files})
    unfinished = {path for folder in folders for path in out.unfinished("" if folder == "." else folder)}
    return sorted(path for path in unfinished if _finished(PurePosixPath(path)) in files)


def _finished(path: PurePosixPath) -> str:
    """Return the path that an unfinished file would get; its own path for another file."""
    match = _UNFINISHED.fullmatch(path.name)
    return str(path.with_name(match[1]) if match else path)
