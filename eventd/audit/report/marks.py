"""The part of a report that compares its findings with an earlier report, and with what operators have acknowledged."""

from __future__ import annotations

import msgspec

from eventd.audit.report.findings import Finding


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison with an earlier report: the number of ids in findings of this report only, of both, of that only.

    `url` is the folder of the earlier report, `sha256` that of its report.json, `made_at` its time, and `lake_state`
    the state of its lake.
    """

    url: str
    sha256: str
    made_at: str
    lake_state: str
    new: int
    known: int
    gone: int
    gone_findings: tuple[Finding, ...] = ()
    """The findings of the earlier report whose ids this report does not have, without those that it has."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledgement of findings: its id, by whom, why and when, and how many ids in this report it covers."""

    id: str
    by: str
    reason: str
    at: str
    ids: int = 0
