"""A check with its outcome, and the report of all checks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eventd.api.doctor.facts import AREA, GroupFacts, Thresholds
from eventd.api.framework.moments import show_seconds

DROP, RELEASE, NO_ACTION = "drop-dead-letters", "release-taken-ids", "none"
"""Values of `Check.action`: the action is to drop dead letters, or there is no action. (An empty value: the action of
the code.)"""


class CheckStatus(StrEnum):
    """The outcome of a check."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Breach:
    """A violated limit of the group: the limit and the measured value, each as `name=number`."""

    threshold: str
    actual: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its outcome. `group`, `peer` and `resource` are the targets of a remedy.

    `reason`: why a link is blocked or failed, as a slug. `action`: replaces the action that belongs to the code, unless
    empty.
    """

    name: str
    status: CheckStatus
    code: str = ""
    detail: str = ""
    remedy: str = ""
    group: str = ""
    peer: str = ""
    resource: str = ""
    breach: Breach | None = None
    reason: str = ""
    action: str = ""
    area: str = AREA

    def show(self) -> dict[str, str]:
        """Return `area`, `name` and `status` as JSON, and the code, the texts and the targets that are not empty."""
        named = {"code": self.code, "detail": self.detail, "remedy": self.remedy}
        named |= {"group": self.group, "peer": self.peer, "resource": self.resource}
        shown = {"area": self.area, "code": "", "name": self.name, "status": str(self.status), **named}
        return {key: value for key, value in shown.items() if value or key not in named}


def count_by_status(checks: Iterable[Check]) -> dict[str, int]:
    """Return the number of checks with each outcome."""
    ended = [check.status for check in checks]
    return {str(status): ended.count(status) for status in CheckStatus}


def overall(counts: Mapping[str, int]) -> CheckStatus:
    """Return the worst outcome: fail, warn, or pass (also without checks); `skip` only if all checks were skipped."""
    for status in (CheckStatus.FAIL, CheckStatus.WARN):
        if counts[status]:
            return status
    return CheckStatus.PASS if counts[CheckStatus.PASS] or not counts[CheckStatus.SKIP] else CheckStatus.SKIP


def report(groups: Sequence[GroupFacts], checks: Sequence[Check]) -> dict[str, Any]:
    """Return the report as JSON, without a plan."""
    counts = count_by_status(checks)
    return {
        "summary": {"overall": str(overall(counts)), **counts},
        "checks": [check.show() for check in checks],
        "federation": _federation(groups, checks),
    }


def _federation(groups: Sequence[GroupFacts], checks: Sequence[Check]) -> dict[str, Any]:
    found = [peer.deliveries for group in groups for peer in group.peers]
    runs = [run for group in groups for run in group.runs]
    lags = [each.max_lag for each in found if each.max_lag is not None]
    nearest = [each.expires_in for each in found if each.expires_in is not None]
    unreached = {
        (check.group, check.peer) for check in checks if check.status is CheckStatus.FAIL and _about_expected(check)
    }
    return {
        "severityCounts": count_by_status(checks),
        "failedDeliveryCount": sum(each.failed for each in found),
        "staleTTLCount": sum(each.stale for each in found),
        "pendingDeliveryCount": sum(each.pending for each in found),
        "missingExpectedPeerCount": len(unreached),
        "maxDeliveryLagSeconds": show_seconds(max(lags, default=0)),
        "minExpiresInSeconds": show_seconds(min(nearest, default=0)),
        "totalEvents": sum(each.events for each in found),
        "totalDelivered": sum(each.delivered for each in found),
        "subscriptionRunsTotal": sum(run.total for run in runs),
        "subscriptionRunsSucceeded": sum(run.succeeded for run in runs),
        "subscriptionRunsFailed": sum(run.failed for run in runs),
        "subscriptionRunsPending": sum(run.pending for run in runs),
        "slo": {"groups": [_slo(group, checks) for group in groups]},
    }


def _about_expected(check: Check) -> bool:
    return check.code in ("expected-delivery", "expected-delivery-no-endpoint")


def _slo(group: GroupFacts, checks: Iterable[Check]) -> dict[str, Any]:
    return {
        "group": group.name,
        "defined": group.slo_defined,
        "thresholds": _thresholds(group.slo),
        "violations": [
            {
                "check": check.name,
                "threshold": check.breach.threshold,
                "actual": check.breach.actual,
                "severity": str(check.status),
            }
            for check in checks
            if check.breach is not None and check.group == group.name
        ],
    }


def _thresholds(slo: Thresholds) -> dict[str, Any]:
    return {
        "delivery": {
            "lagWarnSeconds": slo.lag_warn,
            "lagFailSeconds": slo.lag_fail,
            "expiresSoonSeconds": slo.expires_soon,
        },
        "subscription": {"maxPendingRuns": slo.max_pending_runs, "maxFailedRuns": slo.max_failed_runs},
    }
