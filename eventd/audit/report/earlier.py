"""Reads the report.json of an earlier audit."""

from __future__ import annotations

import msgspec

from eventd.audit.report.findings import Finding
from eventd.audit.report.report import SCHEMA, Lake
from eventd.errors import Invalid


class EarlierReport(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a report.json that a later command needs. See `Report`."""

    schema: int
    made_at: str
    verdict: str
    lake: Lake
    findings: tuple[Finding, ...]


def read_report(text: bytes, where: str) -> EarlierReport:
    """Parse the content of a report.json; `where` names it in errors. Raises Invalid."""
    hint = "name the report.json of an audit, or its folder"
    try:
        found = msgspec.json.decode(text, type=EarlierReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{where} is not a report: {error}", hint=hint) from None
    if found.schema != SCHEMA:
        raise Invalid(f"{where} has schema {found.schema}, and this program knows {SCHEMA}", hint=hint)
    return found
