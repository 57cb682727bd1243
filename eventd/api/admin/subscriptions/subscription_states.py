"""The state of each subscription: its position in the log, backlog, dead letters, and last run."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eventd.api.admin.subscriptions.subscription_runs import QUALIFIED, show_run
from eventd.api.framework.moments import show_seconds, show_time
from eventd.api.framework.operations import Params
from eventd.errors import NotFound
from eventd.groups.lookup import find_group
from eventd.groups.subscriptions import SubscriptionStatus, read_subscription_statuses
from eventd.log.cursors.cursors import Cursor, LinkState
from eventd.resources.plugin_configuration import SubscriptionConfig, subscriptions
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.text.did_you_mean import did_you_mean


def find_subscription(conn: Connection, name: str, group: str = "") -> SubscriptionConfig:
    """Return the declared subscription that is called NAME or `EventSubscription/NAME`.

    Raises NotFound, also if `group` is given and is not its group.
    """
    known = subscriptions(read_resources(conn))
    name = name.removeprefix(QUALIFIED)
    found = known.get(name)
    if found is None or (group and found.group != group):
        where = f" in group {group}" if group else ""
        others = [other for other in known if other != name]
        hint = did_you_mean(name, others) or f"declared: {', '.join(sorted(known)) or 'none'}"
        if found is not None:
            hint = f"it is in group {found.group}"
        raise NotFound(f"EventSubscription {name} is not declared{where}", hint=hint)
    return found


class ListSubscriptions(Params):
    """The subscriptions of one group, or of all."""

    group: str = Field(default="", description="Only subscriptions of this EventGroup.")
    subscription: str = Field(default="", description="Only this subscription.")


def read_states(conn: Connection, params: ListSubscriptions, now: int) -> list[dict[str, Any]]:
    """Return subscriptions and their states as JSON, sorted by group and name. Raises NotFound for undeclared ones."""
    if params.group:
        find_group(conn, params.group)
    stored = read_resources(conn)
    known = subscriptions(stored)
    if params.subscription:
        one = find_subscription(conn, params.subscription, params.group)
        known = {one.name: one}
    chosen = sorted(
        (one for one in known.values() if params.group in ("", one.group)), key=lambda one: (one.group, one.name)
    )
    return [_show(status, now) for status in read_subscription_statuses(conn, stored, chosen, now)]


def _show(status: SubscriptionStatus, now: int) -> dict[str, Any]:
    return {
        "group": status.subscription.group,
        "subscription": status.subscription.name,
        "plugin": status.subscription.plugin,
        "phase": str(status.phase),
        **_link(status.cursor),
        "waitingEvents": status.backlog.events,
        "waitingSeconds": show_seconds(status.backlog.lag(now)),
        "deadLetters": status.dead_letters,
        "position": status.position,
        "head": status.head,
        "lastRun": show_run(status.last_run) if status.last_run else None,
        "backfills": [{"position": c.position, "until": c.until} for c in status.backfills],
    }


def _link(cursor: Cursor | None) -> dict[str, Any]:
    if cursor is None:
        state, reason = str(LinkState.RUNNING), "new"
        return {"state": state, "reason": reason, "attempts": 0, "retryAt": None, "lastError": "", "pausedBy": ""}
    return {
        "state": str(cursor.shown_state),
        "reason": cursor.reason,
        "attempts": cursor.attempts,
        "retryAt": None if cursor.paused_at is not None else show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "pausedBy": cursor.paused_by,
    }
