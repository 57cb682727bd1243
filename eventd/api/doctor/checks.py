"""The checks of deliveries and of subscription runs: each turns its input into one outcome. Pure.

Dashboards depend on their codes, names and limits: see docs/reference/doctor.md before changing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventd.api.doctor.facts import Deliveries, GroupFacts, PeerFacts, Runs, Thresholds
from eventd.api.doctor.report import DROP, NO_ACTION, RELEASE, Breach, Check, CheckStatus
from eventd.api.framework.moments import show_seconds, show_time
from eventd.runtime.clock import SECOND
from eventd.text.arguments import as_argument
from eventd.text.duration import format_duration
from eventd.text.plural import counted
from eventd.text.quoting import quoted

PENDING_WARN_SECONDS = 10
"""Seconds that an event may wait for a running link before the check warns: a batch under way is not a problem."""
LATE_SECONDS = 300
"""Seconds without a late delivery after which a lag is past."""
NAMED = 3
"""Maximum number of event ids that a check names; of the others, it gives only the number."""


def check_group(group: GroupFacts) -> Iterator[Check]:
    """Yield the checks of a group's deliveries, peer by peer, then one check of the runs of each subscription."""
    expected = False
    for peer in group.peers:
        yield from check_peer(peer, group.slo)
        if group.has_own or not peer.endpoint or peer.deliveries.events:
            expected = True
            if not peer.trouble:  # nothing is known of the deliveries
                yield check_expected(peer)
    if not expected:
        why = "this node emitted none of the newest live events" if group.peers else "the group has no EventPeer"
        yield Check(f"{group.name} expected peers", CheckStatus.SKIP, detail=why, group=group.name)
    for runs in group.runs:
        yield check_runs(group, runs)


def check_peer(peer: PeerFacts, slo: Thresholds) -> Iterator[Check]:
    """Yield five checks of the deliveries to one peer; only one if they are unreadable, or `events` is 0."""
    if peer.trouble:
        yield _of(peer, "delivery summary", CheckStatus.FAIL, detail=peer.trouble, remedy="fix the reported problem")
        return
    if not peer.deliveries.events:
        yield _of(
            peer, "delivery summary", CheckStatus.SKIP, detail="no live event that this peer should have was found"
        )
        return
    yield _failed(peer)
    yield _pending(peer, slo)
    yield _stale(peer)
    yield _lag(peer, slo)
    yield _expiry(peer, slo)


def _of(
    peer: PeerFacts,
    suffix: str,
    status: CheckStatus,
    code: str = "",
    *,
    detail: str,
    remedy: str = "",
    breach: Breach | None = None,
    action: str = "",
) -> Check:
    return Check(
        f"{peer.name} {suffix}",
        status,
        code,
        detail,
        remedy if status in (CheckStatus.WARN, CheckStatus.FAIL) else "",
        group=peer.group,
        peer=peer.node,
        breach=breach,
        action=action,
    )


def _failed(peer: PeerFacts) -> Check:
    found = peer.deliveries
    if not found.failed:
        return _of(peer, "failed deliveries", CheckStatus.PASS, "failed-deliveries", detail="no delivery has failed")
    parts = []
    remedies = []
    again = found.letters - found.refused_again
    if found.letters:
        parts.append(f"{counted(found.letters, 'event')} refused by the peer and kept as dead letters")
        remedies.append(f"see why: routerctl federation dead-letters list --group {peer.group} --peer {peer.node}")
    if found.refused_again:
        parts.append(f"{found.refused_again:,} of them are refused every time: a retry does not help")
        if found.taken_id:
            remedies.append(_release(peer, found.taken_id))
        remedies.append(
            f"drop those that are not needed: routerctl federation dead-letters drop --group {peer.group} NUMBER"
        )
    if found.refused_waiting:
        parts.append(_held(peer))
        remedies.append("fix the link (see its own check); the events are then sent automatically")
    return _of(
        peer,
        "failed deliveries",
        CheckStatus.FAIL,
        "failed-deliveries",
        detail="; ".join(parts),
        remedy="; ".join(remedies),
        breach=Breach("failedDeliveryCount=0", f"failedDeliveryCount={found.failed}"),
        # The backlog of a blocked link waits for the link, whose own check has an action.
        action="" if again else RELEASE if found.taken_id else DROP if found.refused_again else NO_ACTION,
    )


def _release(peer: PeerFacts, event_id: str) -> str:
    """Return what gets an event to a peer at which another event has its id."""
    id = as_argument(event_id, "EVENT_ID")
    of = f"{id} --group {peer.group}"
    named = quoted(event_id) if id == "EVENT_ID" else id
    return (
        f"another event has the id {named} at {peer.node} (id_conflict): if this one has it by right, run `routerctl"
        f" prove {of} --out FILE` here, `routerctl federation event release {of} --proof FILE` at {peer.node}, and"
        f" `routerctl federation dead-letters retry --group {peer.group} NUMBER` here; otherwise emit it again with an"
        " id of its own"
    )


def _held(peer: PeerFacts) -> str:
    """Return in words how many events a blocked or failed link holds back, and the reason."""
    most = "" if peer.deliveries.ahead_in_full else "at most "
    why = f" ({peer.link.reason})" if peer.link.reason else ""
    return f"{most}{counted(peer.deliveries.refused_waiting, 'event')} held by a {peer.link.state} link{why}"


def _pending(peer: PeerFacts, slo: Thresholds) -> Check:
    found, suffix, code = peer.deliveries, "pending deliveries", "pending-deliveries"
    if not found.pending:
        held = f"no event can be sent now: {_held(peer)}" if found.refused_waiting else "no event is waiting"
        return _of(peer, suffix, CheckStatus.PASS, code, detail=held)
    detail = f"{'' if found.ahead_in_full else 'at most '}{counted(found.pending, 'event')} waiting"
    remedy = f"find the cause: routerctl federation links --group {peer.group} --peer {peer.node}"
    left = found.pending_expires_in
    if left is None or left >= slo.expires_soon * SECOND:
        waited, runs = found.waiting_for, peer.link.registered and peer.link.state == "running"
        if runs and waited is not None and waited < PENDING_WARN_SECONDS * SECOND:
            on_the_way = f"{detail}, for less than {PENDING_WARN_SECONDS}s on a link that runs"
            return _of(peer, suffix, CheckStatus.PASS, code, detail=on_the_way)
        return _of(peer, suffix, CheckStatus.WARN, code, detail=detail, remedy=remedy)
    breach = _soon(left, slo)
    return _of(
        peer,
        suffix,
        CheckStatus.FAIL,
        code,
        detail=f"{detail}; the first of them expires in {_span(left)}",
        remedy=remedy,
        breach=breach,
    )


def _soon(left: int, slo: Thresholds) -> Breach:
    return Breach(f"expiresSoonSeconds={slo.expires_soon}", f"minExpiresInSeconds={_seconds(left)}")


def _stale(peer: PeerFacts) -> Check:
    found, suffix, code = peer.deliveries, "stale TTL", "stale-ttl"
    if not found.stale:
        return _of(
            peer, suffix, CheckStatus.PASS, code, detail="every delivered event has its latest expiry at the peer"
        )
    # Only a complete count may say "all".
    status = CheckStatus.FAIL if found.stale == found.delivered and found.in_full else CheckStatus.WARN
    detail = f"{found.stale:,} of {counted(found.delivered, 'delivered event')} with an earlier expiry than here"
    remedy = "wait for the backlog, which holds the refresh; if the link does not run, fix it"
    return _of(peer, suffix, status, code, detail=detail, remedy=remedy)


def _lag(peer: PeerFacts, slo: Thresholds) -> Check:
    suffix, code = "delivery lag", "delivery-lag"
    lag = peer.deliveries.max_lag
    if lag is None:
        only_repairs = peer.deliveries.delivered > 0
        why = (
            "no delivery counts as lag: each was a repair, or its refresh waits"
            if only_repairs
            else "none of the counted live events is delivered yet"
        )
        return _of(peer, suffix, CheckStatus.SKIP, code, detail=why)
    detail = f"at most {_span(lag)} from being ready to be sent to being acknowledged"
    for status, name, limit in (
        (CheckStatus.FAIL, "lagFailSeconds", slo.lag_fail),
        (CheckStatus.WARN, "lagWarnSeconds", slo.lag_warn),
    ):
        if lag >= limit * SECOND:
            breach = Breach(f"{name}={limit}", f"maxDeliveryLagSeconds={_seconds(lag)}")
            if (at := show_time(peer.deliveries.late_at)) is not None:
                detail += f"; the last late delivery ended at {at[:19]}Z"
                if (peer.deliveries.late_ago or 0) <= -SECOND:
                    detail += ", which is still to come: this node's clock was ahead then, or is behind now"
            remedy, action = "check the network to the peer, and whether the peer was down", ""
            if _has_ended(peer, slo):
                status, remedy = CheckStatus.WARN, "the lag has ended; find out whether the peer was down until then"
            if _is_past(peer.deliveries, slo):
                remedy, action = (
                    "nothing to do: no delivery was late since then; the check shows the lag until that event expires",
                    NO_ACTION,
                )
            return _of(peer, suffix, status, code, detail=detail, remedy=remedy, breach=breach, action=action)
    return _of(peer, suffix, CheckStatus.PASS, code, detail=detail)


def _has_ended(peer: PeerFacts, slo: Thresholds) -> bool:
    """Return whether no delivery is late any more: the link runs, or was not late for some minutes."""
    runs = peer.link.registered and peer.link.state == "running" and not _is_late(peer.deliveries, slo)
    return peer.deliveries.late_at is not None and (runs or _is_past(peer.deliveries, slo))


def _is_past(found: Deliveries, slo: Thresholds) -> bool:
    """Return whether no delivery was late for some minutes, and none is becoming late."""
    return found.late_ago is not None and found.late_ago >= LATE_SECONDS * SECOND and not _is_late(found, slo)


def _is_late(found: Deliveries, slo: Thresholds) -> bool:
    """Return whether an event has waited for so long that its delivery will be late."""
    return found.waiting_for is not None and found.waiting_for >= slo.lag_warn * SECOND


def _expiry(peer: PeerFacts, slo: Thresholds) -> Check:
    found, suffix, code = peer.deliveries, "event expiry", "event-expiry"
    left = found.expires_in
    if left is None:
        return _of(peer, suffix, CheckStatus.SKIP, code, detail="no event for this peer expires")
    if found.lost_in is not None and found.lost_in < slo.expires_soon * SECOND:
        detail = f"the first undelivered event expires in {_span(found.lost_in)}"
        return _of(
            peer,
            suffix,
            CheckStatus.FAIL,
            code,
            detail=detail,
            remedy="before that time, fix the link or retry the dead letter",
        )
    detail = f"the first event expires in {_span(left)}"
    if left >= slo.expires_soon * SECOND:
        return _of(peer, suffix, CheckStatus.PASS, code, detail=detail)
    detail += "; it is delivered"
    return _of(
        peer,
        suffix,
        CheckStatus.WARN,
        code,
        detail=detail,
        remedy="if what the event states will still hold then, emit it again at its source with a later expiry",
    )


def check_expected(peer: PeerFacts) -> Check:
    """Return a check that fails if the peer has no endpoint, or if an event meant for it is missing."""
    suffix, code = "expected delivery", "expected-delivery"
    if not peer.endpoint:
        return _of(
            peer,
            suffix,
            CheckStatus.FAIL,
            "expected-delivery-no-endpoint",
            detail="nothing can be sent to this peer: its EventPeer has no endpoint",
            remedy="give the EventPeer an endpoint: routerctl apply -f FILE",
        )
    found = peer.deliveries
    if found.missing:
        ids = _named(found.missing)
        return _of(
            peer,
            suffix,
            CheckStatus.FAIL,
            code,
            detail=f"{counted(len(found.missing), 'event')} neither delivered nor pending: {ids}",
            remedy=f"send them again: routerctl federation redeliver {peer.node} --group {peer.group} --id ID",
        )
    detail = _accounted(found)
    if peer.lost_before or peer.losses.times:
        losses = "lost events" if peer.lost_before else "gaps"
        detail += f"; events that retention removed before the peer had them are not counted here: see its {losses}"
    return _of(peer, suffix, CheckStatus.PASS, code, detail=detail)


def _accounted(found: Deliveries) -> str:
    """Return in words that no stored event is missing, with the numbers of expired, in-path, refused, unproven ones."""
    words = {
        "expired before the peer had them": found.expired,
        "came from or through the peer": found.in_path,
        "refused by the peer": found.refused,
        "without stored evidence of their delivery": found.unproven,
    }
    rest = ", ".join(f"{number:,} {outcome}" for outcome, number in words.items() if number)
    which = "no stored event" if found.in_full else f"none of the newest {found.looked_at:,} stored events"
    return f"{which} is missing: each is delivered or waits" + (f"; besides, {rest}" if rest else "")


def _named(ids: Sequence[str]) -> str:
    more = [f"+{len(ids) - NAMED} more"] if len(ids) > NAMED else []
    return ", ".join([*ids[:NAMED], *more])


def check_runs(group: GroupFacts, runs: Runs) -> Check:
    """Return the check of one subscription's runs against the limits of its group."""
    status, detail, remedy, breach = _judge_runs(runs, group.slo)
    resource = f"EventSubscription/{runs.subscription}"
    return Check(
        f"{resource} subscription runs",
        status,
        "subscription-runs",
        detail,
        remedy,
        group=group.name,
        resource=resource,
        breach=breach,
    )


def _judge_runs(runs: Runs, slo: Thresholds) -> tuple[CheckStatus, str, str, Breach | None]:
    if not runs.total:
        return CheckStatus.SKIP, "no run of the subscription is counted, and none is due", "", None
    detail = (
        f"runs of {counted(runs.total, 'event')}: {runs.succeeded:,} succeeded, {runs.failed:,} failed,"
        f" {runs.pending:,} pending"
    )
    detail += "" if runs.in_full else ", or more"
    if runs.failed > slo.max_failed_runs:
        breach = Breach(f"maxFailedRuns={slo.max_failed_runs}", f"failedRuns={runs.failed}")
        return CheckStatus.FAIL, detail, f"see why: routerctl subscription runs {runs.subscription}", breach
    if runs.pending > slo.max_pending_runs and not _just_begun(runs):
        breach = Breach(f"maxPendingRuns={slo.max_pending_runs}", f"pendingRuns={runs.pending}")
        return CheckStatus.WARN, detail, "check whether its plugin keeps up", breach
    if runs.pending > slo.max_pending_runs:
        return CheckStatus.PASS, f"{detail}, for less than {PENDING_WARN_SECONDS}s", "", None
    if runs.failed or runs.pending:
        allowed = f"at most {slo.max_failed_runs} failed and {slo.max_pending_runs} pending are tolerated"
        return CheckStatus.PASS, f"{detail}; {allowed}", "", None
    more = "" if runs.in_full else " or more"
    return CheckStatus.PASS, f"runs of {counted(runs.total, 'event')}{more}: all succeeded", "", None


def _just_begun(runs: Runs) -> bool:
    """Return whether the pending runs of a subscription that runs are too young to show that its plugin is slow."""
    is_young = runs.waiting_for is not None and runs.waiting_for < PENDING_WARN_SECONDS * SECOND
    return is_young and runs.link.registered and runs.link.state == "running"


def _span(duration: int) -> str:
    """Return a duration (microseconds) as text, rounded to the second, or below one second to the millisecond."""
    return format_duration(round(duration, -6 if duration >= SECOND else -3))


def _seconds(duration: int) -> str:
    return f"{show_seconds(duration):g}"
