"""The findings and totals that a correct audit of generated ledgers reports."""

from __future__ import annotations

import msgspec

from eventd.audit.generate.settings import GeneratorSettings
from eventd.audit.report.findings import Finding


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, the findings to expect, in the order of a report, and the totals of the ledgers.

    `totals` uses the names of a report's totals where there is one, and `rows_LEDGER` for the rows of a ledger.
    """

    settings: GeneratorSettings
    totals: dict[str, int]
    findings: tuple[Finding, ...]

    def to_json(self) -> bytes:
        """Return the content of truth.json."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
