"""Reads the state of a group's subscriptions for doctor: runs of their plugins, backlog and dead letters."""

from __future__ import annotations

from eventd.api.doctor.facts import LinkFacts, Runs
from eventd.egress.loop.collecting import LONGEST
from eventd.groups.subscriptions import SubscriptionStatus, read_subscription_statuses
from eventd.resources.plugin_configuration import subscriptions
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.store.rows.runs import RunStatus, count_events, read_runs

NEWEST_RUNS = 1000
"""How many runs of a subscription are looked at: each lists up to 1,024 events."""


def read_group_runs(conn: Connection, group: str, now: int) -> list[Runs]:
    """Return the run counts of each subscription of a group, sorted by name of the subscription."""
    stored = read_resources(conn)
    chosen = sorted((one for one in subscriptions(stored).values() if one.group == group), key=lambda one: one.name)
    return [_runs(conn, status, now) for status in read_subscription_statuses(conn, stored, chosen, now)]


def _runs(conn: Connection, status: SubscriptionStatus, now: int) -> Runs:
    """Return the run counts of a subscription. While it is blocked or failed, its backlog counts as failed."""
    name, group, link = status.subscription.name, status.subscription.group, _link(status)
    waiting = 0 if _is_gathering(status, link, now) else status.backlog.events
    succeeded, all_runs = count_events(conn, group, name, RunStatus.SUCCEEDED, NEWEST_RUNS)
    lost = read_runs(conn, subscription=name, group=group, statuses=[RunStatus.LOST], limit=1)
    return Runs(
        name,
        succeeded=succeeded,
        failed=status.dead_letters + (waiting if link.is_refused else 0),
        pending=0 if link.is_refused else waiting,
        in_full=status.backlog.exact and all_runs,
        waiting_for=max(0, status.backlog.lag(now) - _window(status)),
        link=link,
        lost_at=lost[0].started_at if lost else None,
    )


def _is_gathering(status: SubscriptionStatus, link: LinkFacts, now: int) -> bool:
    """Return whether a running subscription's backlog is not older than its window: it waits for the window to end."""
    if link.state != "running" or not link.registered:
        return False
    return status.backlog.lag(now) <= _window(status)


def _window(status: SubscriptionStatus) -> int:
    config = status.subscription
    return config.batch_window or (LONGEST if config.debounce else 0)


def _link(status: SubscriptionStatus) -> LinkFacts:
    cursor = status.cursor
    if cursor is None:
        return LinkFacts(registered=False, state=str(status.state))
    return LinkFacts(
        registered=True,
        state=str(status.state),
        reason=cursor.reason,
        last_error=cursor.last_error,
        retry_at=None if cursor.paused_at is not None else cursor.retry_at,
        paused_by=cursor.paused_by,
    )
