"""The page of doctor: all checks of the node, the remedies of those that fail, and the fixes that are safe."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final
from urllib.parse import quote

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.targets import Target, target_of
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit

_MOST_ACTIONS: Final = 50
"""Maximum number of actions of the plan that the page lists."""
_STATUSES: Final = ("fail", "warn", "pass", "skip")
"""The outcomes of checks, those that need attention first."""
_EFFECTS: Final = {
    "retry-failed-deliveries": "send the dead letters that can be retried again, and try the link at once",
    "force-repush-stale-ttl": "try the link at once, or send the newest refreshes before the backlog",
    "check-peer-connectivity": "try the link at once, unless it is paused or runs already",
}
"""What each safe action changes. All other actions require an operator."""
_SHOWN: Final = ("action", "targetGroup", "targetPeer", "targetResource")
"""The members by which actions of the plan are distinguished."""


async def show_doctor(visit: Visit) -> ShownPage:
    """Show the checks of the node, or of `group` in the query, and those of one `status`."""
    groups = await visit.group_names()
    group = visit.asked("group") or (groups[0] if len(groups) == 1 and not visit.view.sees("") else "")
    data: dict[str, Any] = {"groups": groups, "group": group, "statuses": _STATUSES, "checks": [], "all": 0}
    if not group and not visit.view.sees(""):
        return ShownPage("Doctor", "doctor.html", data | {"summary": None, "actions_asked": []})
    found = await visit.view.call("doctor.examine", group=group, remediation_plan=True)
    status = visit.chosen("status", _STATUSES)
    planned = [_planned(action) for action in found["remediationPlan"]["actions"]]
    rows = [{**row, "target": target_of(visit, row)} for row in _rows(found["checks"])]
    chosen = [row for row in rows if status in ("", row["status"])]
    data |= {
        "checks": chosen[:MOST_ROWS],
        "chosen": len(chosen),
        "all": len(rows),
        "summary": found["summary"],
        "actions_asked": [{**action, "target": _target(visit, action)} for action in planned[:_MOST_ACTIONS]],
        "planned": len(planned),
        "fixable": any(action["effect"] for action in planned),
    }
    return ShownPage("Doctor", "doctor.html", data)


def _rows(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the checks, those that need attention first, each with an `id` that stays the same."""
    seen: dict[str, int] = {}
    rows = []
    for check in sorted(checks, key=lambda one: _STATUSES.index(one["status"])):
        name = quote(f"check-{check['name']}", safe="")
        seen[name] = seen.get(name, 0) + 1
        own = name if seen[name] == 1 else f"{name}-{seen[name]}"
        empty = {"detail": "", "remedy": "", "code": "", "group": ""}
        rows.append({**empty, **check, "id": own})
    return rows


def _planned(action: dict[str, Any]) -> dict[str, Any]:
    """Return an action of the plan with all members, and with its `effect`, empty if it changes nothing itself."""
    empty = {"remedy": "", "reason": "", "targetGroup": "", "targetPeer": "", "targetResource": ""}
    effect = _EFFECTS.get(action["action"], "") if action["safe"] else ""
    return {**empty, **action, "effect": effect}


def _target(visit: Visit, action: dict[str, Any]) -> Target:
    """Return the path of the page of an action's target."""
    about = {"group": action["targetGroup"], "peer": action["targetPeer"], "resource": action["targetResource"]}
    return target_of(visit, about)


async def ask_fix(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before the safe actions of the plan are executed, and name each.

    `seen` of the parameters is a digest of the actions that the visitor was shown: if they have changed, the new ones
    are shown first.
    """
    group, seen = params.get("group", ""), params.pop("seen", "")
    found = await visit.view.call("doctor.examine", group=group, remediation_plan=True)
    planned = [_planned(action) for action in found["remediationPlan"]["actions"]]
    effective = [action for action in planned if action["effect"]]
    left = len(planned) - len(effective)
    lines = [
        f"{' '.join(filter(None, (action['targetGroup'], action['targetPeer'])))}: {action['effect']}."
        for action in effective[:20]
    ]
    if len(effective) > 20:
        lines.append(f"And {len(effective) - 20:,} more.")
    if not effective:
        lines.append("Nothing can be fixed without an operator: no safe action would change anything.")
    if left:
        lines.append(f"{left:,} more need an operator and are not done.")
    if not effective:
        return Question("Apply the safe fixes?", tuple(lines), ready=False, button="Check again")
    shown = [[action[member] for member in _SHOWN] for action in effective]
    params["seen"] = hashlib.sha256(json.dumps(sorted(shown)).encode()).hexdigest()
    return Question("Apply the safe fixes?", tuple(lines), count=len(effective), ready=seen == params["seen"])


def _fixed(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    return {name: value for name, value in form.items() if name != "seen"}


ACTIONS: Final = {
    "doctor.fix": PageAction(
        "Apply safe fixes",
        "The safe fixes were applied: the page shows what is left.",
        ask_fix,
        prepare=_fixed,
        bound="seen",
    ),
}
