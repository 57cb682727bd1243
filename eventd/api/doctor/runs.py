"""Reads the state of a group's subscriptions for doctor: runs of their plugins, backlog and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventd.api.admin.subscription_states import ListSubscriptions, read_states
from eventd.api.doctor.facts import LinkFacts, Runs
from eventd.api.framework.moments import read_moment
from eventd.egress.subscriptions.window import LONGEST
from eventd.groups.subscriptions import COUNTED
from eventd.resources.effective import SubscriptionConfig, subscriptions
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.store.rows.runs import RunStatus, count_events, read_runs


def read_group_runs(conn: Connection, group: str, now: int) -> list[Runs]:
    """Return the runs of each subscription of a group, sorted by its name."""
    known = subscriptions(read_resources(conn))
    states = read_states(conn, ListSubscriptions(group=group), now)
    return [_runs(conn, known[state["subscription"]], state, now) for state in states]


def _runs(conn: Connection, config: SubscriptionConfig, state: Mapping[str, Any], now: int) -> Runs:
    """Return the runs of one subscription. Its backlog counts as failed while it is blocked or failed, as a link's."""
    link = _link(state, now)
    waiting = 0 if _is_gathering(config, state, link) else int(state["waitingEvents"])
    lost = read_runs(conn, subscription=config.name, statuses=[RunStatus.LOST], limit=1)
    return Runs(
        config.name,
        succeeded=count_events(conn, config.name, RunStatus.SUCCEEDED),
        failed=int(state["deadLetters"]) + (waiting if link.is_refused else 0),
        pending=0 if link.is_refused else waiting,
        in_full=state["waitingEvents"] < COUNTED,
        link=link,
        lost_at=lost[0].started_at if lost else None,
    )


def _is_gathering(config: SubscriptionConfig, state: Mapping[str, Any], link: LinkFacts) -> bool:
    """Return whether the backlog only waits for the subscription's window to end."""
    if link.state != "running" or not link.registered:
        return False
    window = config.batch_window or (LONGEST if config.debounce else 0)
    return bool(state["waitingSeconds"] * SECOND <= window)


def _link(state: Mapping[str, Any], now: int) -> LinkFacts:
    new = state["reason"] == "new"
    return LinkFacts(
        registered=not new,
        state=state["state"],
        reason="" if new else state["reason"],
        last_error=state["lastError"],
        retry_at=read_moment("retryAt", state["retryAt"] or "", now),
        paused_by=state["pausedBy"],
    )
