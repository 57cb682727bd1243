"""The part of a report that compares its findings with an earlier report, and with what operators have acknowledged."""

from __future__ import annotations

import msgspec

from eventd.audit.report.findings import Finding


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison with an earlier report: how many events in findings are `new`, `known` in both, and `gone`.

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
    """The findings of the earlier report that this report does not have, or the part of each that it does not have."""


class AcknowledgementUse(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledgement of findings: its id, by whom, why and when, and how many events it covers in this report."""

    id: str
    by: str
    reason: str
    at: str
    ids: int = 0
