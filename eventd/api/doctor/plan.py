"""The remediation plan: the actions that warnings and failed checks ask for, in a stable order. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from eventd.api.doctor.report import DROP, NO_ACTION, RELEASE, Check, CheckStatus
from eventd.api.framework.moments import show_time
from eventd.groups.link_remedies import remedy_for
from eventd.runtime.clock import SECOND

SAFE, ASK = True, False

ACTIONS = {
    "failed-deliveries": ("retry-failed-deliveries", SAFE),
    "pending-deliveries": ("investigate-pending-deliveries", SAFE),
    "stale-ttl": ("force-repush-stale-ttl", SAFE),
    "delivery-lag": ("check-peer-connectivity", SAFE),
    "expected-delivery-no-endpoint": ("configure-peer-endpoint", ASK),
    "expected-delivery": ("investigate-missing-delivery-rows", SAFE),
    "subscription-runs": ("inspect-failed-subscription-runs", SAFE),
}
"""The name of an action and whether it is safe, by the code of a check. An unsafe one needs an operator's approval."""
HELD = ("link-blocked", "link-failed")
"""Codes of checks about links that only an operator can fix: the action depends on the link's reason, and always needs
approval."""


class Action(NamedTuple):
    """One action, sorted by its kind and its target. Unless `safe`, it needs an operator's approval."""

    action: str
    group: str
    peer: str
    resource: str
    reason: str
    safe: bool
    remedy: str = ""

    def show(self) -> dict[str, Any]:
        """Return the action as JSON; empty targets are left out."""
        targets = {"targetPeer": self.peer, "targetGroup": self.group, "targetResource": self.resource}
        named = {name: value for name, value in targets.items() if value}
        remedy = {"remedy": self.remedy} if self.remedy else {}
        return {
            "action": self.action,
            "reason": self.reason,
            **remedy,
            **named,
            "safe": self.safe,
            "requiresOperatorApproval": not self.safe,
        }


def plan_actions(checks: Iterable[Check]) -> list[Action]:
    """Return the actions that warnings and failed checks ask for, sorted by kind and target.

    Each kind and target has at most one, with the reason of the first check that asks for it.
    """
    found: dict[tuple[str, str, str, str], Action] = {}
    for check in checks:
        if check.status not in (CheckStatus.WARN, CheckStatus.FAIL):
            continue
        if check.code in HELD:
            name, safe, remedy = remedy_for(check.reason).action, ASK, check.remedy
        elif check.action == NO_ACTION:
            continue
        elif check.action in (DROP, RELEASE):
            name, safe, remedy = check.action, ASK, check.remedy
        elif check.code in ACTIONS:
            (name, safe), remedy = ACTIONS[check.code], ""
        else:
            continue
        key = (name, check.group, check.peer, check.resource)
        found.setdefault(key, Action(*key, f"{check.name}: {check.detail}", safe, remedy))
    return sorted(found.values())


def show_plan(actions: Iterable[Action], now: int) -> dict[str, Any]:
    """Return the plan as JSON, generated at `now` (microseconds; shown to the second)."""
    whole = now - now % SECOND
    return {"generatedAt": show_time(whole), "actions": [action.show() for action in actions]}
