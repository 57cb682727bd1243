"""What an audit of generated books has to find, and nothing else."""

from __future__ import annotations

import msgspec

from eventd.audit.generate.settings import Settings
from eventd.audit.report.findings import Finding


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The findings that were planted, listed as a report lists them, and what the books add up to.

    `totals` has the names of a report's totals where both count the same.
    """

    settings: Settings
    totals: dict[str, int]
    findings: tuple[Finding, ...]

    def to_json(self) -> bytes:
        """The text of truth.json."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
