"""Further checks of a group, each reported only if it found something: links, keys, subscriptions, parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from eventd.api.doctor.checks import PENDING_WARN_SECONDS
from eventd.api.doctor.facts import GroupFacts, LinkFacts, PeerFacts, Runs, Thresholds
from eventd.api.doctor.report import Breach, Check, CheckStatus
from eventd.api.framework.moments import show_time
from eventd.groups.link_remedies import remedy_for
from eventd.log.core.id_conflicts import UNKNOWN
from eventd.log.delivery.acknowledgements import MOST_GAPS
from eventd.log.retention.waiting import CALLBACKS, PEERS
from eventd.runtime.clock import SECOND
from eventd.text.arguments import as_argument
from eventd.text.duration import format_duration
from eventd.text.plural import counted
from eventd.text.retention_waits import describe_remedies, describe_waits

MOST_CONFLICTS = 5
"""Maximum number of id conflicts of a group that are named: the most frequent ones, each between two emitters."""
MOST_LOST = 5
"""Maximum number of ranges of lost records of a group that are named, the newest ones."""
MOST_ASIDE = 5
"""Maximum number of ineffective parts of a group that are named."""


def check_links(group: GroupFacts) -> Iterator[Check]:
    """Yield the further checks of a group: links in both directions, keys, subscriptions, parts, event ids, lost
    records, retention."""
    for peer in group.peers:
        if not peer.trouble:
            yield from _link(peer)
            yield from _waiting(peer, group.slo)
            yield from _ledger_findings(peer)
    if group.keys_trouble:
        remedy = "fix the file, then send SIGHUP; the node keeps using the keys it has read"
        yield Check(
            f"{group.name} keys", CheckStatus.FAIL, "keys-unreadable", group.keys_trouble, remedy, group=group.name
        )
    if group.v1_requests:
        detail = f"verified v1 requests since the node started: {group.v1_requests:,}"
        yield Check(f"{group.name} protocol", CheckStatus.PASS, "protocol-v1-requests", detail, group=group.name)
    for runs in group.runs:
        yield from _subscription(group, runs)
    yield from _parts(group)
    yield from _conflicts(group)
    yield from _lost_records(group)
    yield from _retention(group)
    for gaps in group.gaps:
        code, detail, noun, remedy = _GAPS[gaps.reason]
        yield Check(
            f"{group.name}/{gaps.node} inbound",
            CheckStatus.WARN,
            code,
            f"{detail.format(counted(gaps.positions, 'event'))}: {counted(gaps.times, noun)}, most recently at"
            f" {_moment(gaps.last_at)}",
            f"{remedy}; routerctl federation gaps --group {group.name} --from {gaps.node}",
            group=group.name,
            peer=gaps.node,
        )


def _lost_records(group: GroupFacts) -> Iterator[Check]:
    """Yield a check if the log has lost records: a warning once all of them have been stored again, by new seqs."""
    if not group.lost:
        return
    events = sum(lost.records for lost in group.lost)
    named = [str(lost.first) if lost.records == 1 else f"{lost.first}-{lost.last}" for lost in group.lost[:MOST_LOST]]
    more = [f"{counted(len(group.lost) - MOST_LOST, 'more range')}"] if len(group.lost) > MOST_LOST else []
    seqs = f"seq {', '.join([*named, *more])}"
    stored = (
        f"{group.unstored:,} of them are not stored again" if group.unstored else "none of them is missing any more"
    )
    remedy = (
        f"on each node that sends to this one, routerctl verify --group {group.name} --peer NODE --repair with the name"
        " of this node sends what that node has; events of this node are only in a back-up, and at its peers"
    )
    yield Check(
        f"{group.name} log",
        CheckStatus.FAIL if group.unstored else CheckStatus.WARN,
        "records-lost",
        f"the log has lost {counted(events, 'event')}, which retention has not removed: {seqs}; {stored}",
        remedy if group.unstored else "find out which program or disk has damaged the database",
        group=group.name,
    )


def _retention(group: GroupFacts) -> Iterator[Check]:
    """Yield a check if retention keeps events over the limits: a warning unless what it waits for usually comes soon.

    That is a seal, or a link that runs and is not late.
    """
    if not group.waits:
        return
    late = PENDING_WARN_SECONDS * SECOND
    is_behind = any(
        peer.trouble or peer.link.state != "running" or (peer.deliveries.waiting_for or 0) >= late
        for peer in group.peers
    )
    waits_long = CALLBACKS in group.waits or (PEERS in group.waits and is_behind)
    yield Check(
        f"{group.name} retention",
        CheckStatus.WARN if waits_long else CheckStatus.PASS,
        "retention-waits",
        describe_waits(group.waits),
        describe_remedies(group.waits, group.name) if waits_long else "",
        group=group.name,
    )


def _conflicts(group: GroupFacts) -> Iterator[Check]:
    """Yield a check for each of the most frequent conflicts of event ids: whose event has the id, whose was refused."""
    for each in group.conflicts[:MOST_CONFLICTS]:
        same = (each.source, each.key_id) == (each.owner, each.owner_key) and UNKNOWN not in each
        other = "to an earlier one of the same emitter" if same else f"to one of {_side(each.owner, each.owner_key)}"
        detail = (
            f"{counted(each.times, 'time')} an event of {_side(each.source, each.key_id)} was not stored, because its"
            f" id belongs {other} with other content; most recently at {_moment(each.last_at)}, the id"
            f" {each.event_id!r}"
        )
        more = len(group.conflicts) - MOST_CONFLICTS
        if more > 0 and each is group.conflicts[MOST_CONFLICTS - 1]:
            detail += f"; and {counted(more, 'more kind')} of conflicts"
        change = (
            f"let the emitter of {each.source!r} use each id for one event only"
            if same
            else f"let the emitter of {each.source!r} use ids of its own"
        )
        if not same and UNKNOWN not in (each.owner, each.owner_key):
            change += f"; if {each.owner!r} takes ids on purpose, revoke its key"
        show = f"routerctl federation event list --group {group.name} --id ID --include-expired shows it on each node"
        remedy = f"{change}; {show}"
        yield Check(f"{group.name} event ids", CheckStatus.WARN, "id-conflict", detail, remedy, group=group.name)


def _side(source: str, key_id: str) -> str:
    if UNKNOWN in (source, key_id):
        return f"{source!r} (key not known)"
    return f"{source!r} (key {key_id!r})" if key_id else f"{source!r} (emitted here)"


_GAPS = {  # code, detail (a format with the number of positions, as events), what is counted, remedy
    "lost": (
        "inbound-gaps",
        "the sender lost at most {} before it could send them",
        "gap",
        "ask the sender's operator about the lost events",
    ),
    "taken_back": (
        "inbound-history",
        "the sender's log lost records that it had sent, because its database is an older copy",
        "time",
        "compare the events that were sent twice",
    ),
}


def _of(
    peer: PeerFacts, suffix: str, status: CheckStatus, code: str, detail: str, remedy: str = "", *, reason: str = ""
) -> Check:
    name = f"{peer.name} {suffix}"
    return Check(name, status, code, detail, remedy, group=peer.group, peer=peer.node, reason=reason)


def _link(peer: PeerFacts) -> Iterator[Check]:
    link = peer.link
    if not link.registered:
        remedy = "start the node: routerd-eventd serve"
        yield _of(peer, "link", CheckStatus.WARN, "link-new", "no node has registered this peer yet", remedy)
        return
    since = f"since {_moment(link.since)}"
    why, remedy, reason = _why(link), remedy_for(link.reason).words, link.reason
    if link.state == "blocked":
        yield _of(peer, "link", CheckStatus.FAIL, "link-blocked", f"blocked {since}: {why}", remedy, reason=reason)
    elif link.state == "failed":
        detail = f"this node cannot send {since}: {why}"
        yield _of(peer, "link", CheckStatus.FAIL, "link-failed", detail, remedy, reason=reason)
    elif link.state == "backing-off":
        again = f"; the next attempt is at {_moment(link.retry_at)}" if link.retry_at is not None else ""
        yield _of(peer, "link", CheckStatus.WARN, "link-down", f"backing off {since}: {why}{again}", remedy)
    elif link.state == "paused":
        detail = f"paused {since}{f' by {link.paused_by}' if link.paused_by else ''}"
        remedy = f"to resume it: routerctl federation resume {peer.node} --group {peer.group}"
        yield _of(peer, "link", CheckStatus.WARN, "link-paused", detail, remedy)
    if link.protocol == "v1":
        yield _of(peer, "protocol", CheckStatus.PASS, "protocol-v1", "v1 is used, without signed receipts")


def _subscription(group: GroupFacts, runs: Runs) -> Iterator[Check]:
    link, resource = runs.link, f"EventSubscription/{runs.subscription}"
    show = f"routerctl subscription runs {runs.subscription}"
    fix = "fix the reported problem; the node retries automatically"
    retry = f"{fix}, or at once: routerctl subscription retry {runs.subscription}"
    findings = {
        "blocked": (CheckStatus.FAIL, f"its plugin cannot be run: {_why(link)}", retry),
        "failed": (CheckStatus.FAIL, f"this node cannot run it: {_why(link)}", "fix the reported problem"),
        "backing-off": (CheckStatus.WARN, f"its plugin fails and is retried: {_why(link)}", f"see why: {show}"),
        "paused": (
            CheckStatus.WARN,
            f"paused{f' by {link.paused_by}' if link.paused_by else ''}",
            f"to resume it: routerctl subscription resume {runs.subscription}",
        ),
    }
    if link.state in findings:
        status, detail, remedy = findings[link.state]
        code = "subscription-held"
        yield Check(resource, status, code, detail, remedy, group=group.name, resource=resource)
    if runs.lost_at is not None:
        detail = f"retention removed events that the subscription had not reached; noticed at {_moment(runs.lost_at)}"
        code, remedy = "subscription-lost", "raise the group's retention above the longest delay of the plugin"
        yield Check(
            f"{resource} lost events", CheckStatus.WARN, code, detail, remedy, group=group.name, resource=resource
        )


def _parts(group: GroupFacts) -> Iterator[Check]:
    """Yield a check for each of the first ineffective parts, and one for the number of the others."""
    for source, reason in group.aside[:MOST_ASIDE]:
        remedy = f"show its content: routerctl dynamic describe {as_argument(source, 'SOURCE')}"
        owner = source.rpartition("/")[0]
        yield Check(
            f"DynamicConfigPart/{source}",
            CheckStatus.WARN,
            "part-set-aside",
            f"no effect: {reason}",
            remedy,
            group=group.name,
            resource=owner,
        )
    more = len(group.aside) - MOST_ASIDE
    if more > 0:
        detail = f"{counted(more, 'more part has', 'more parts have')} no effect"
        remedy = "see all: routerctl dynamic diff"
        yield Check(f"{group.name} parts", CheckStatus.WARN, "part-set-aside", detail, remedy, group=group.name)


def _why(link: LinkFacts) -> str:
    return ": ".join(part for part in (link.reason, link.last_error) if part) or "no reason is known"


def _waiting(peer: PeerFacts, slo: Thresholds) -> Iterator[Check]:
    waited = peer.deliveries.waiting_for
    if waited is None or not peer.link.registered or waited < slo.lag_warn * SECOND:
        return
    late = waited >= slo.lag_fail * SECOND and peer.link.state != "paused"
    limit = f"lagFailSeconds={slo.lag_fail}" if late else f"lagWarnSeconds={slo.lag_warn}"
    yield Check(
        f"{peer.name} waiting",
        CheckStatus.FAIL if late else CheckStatus.WARN,
        "waiting-lag",
        f"the oldest waiting event has been ready to be sent for {format_duration(round(waited, -6))}",
        f"find the cause: routerctl federation links --group {peer.group} --peer {peer.node}",
        group=peer.group,
        peer=peer.node,
        breach=Breach(limit, f"waitingSeconds={waited // SECOND}"),
    )


_V1_GAPS = "v1 reports no gaps"


def _ledger_findings(peer: PeerFacts) -> Iterator[Check]:
    found = peer.deliveries
    over_v1 = peer.link.protocol == "v1"
    if peer.lost_before:
        notice = (
            f"the peer is not notified, because {_V1_GAPS}" if over_v1 else "the next batch reports the gap to the peer"
        )
        lost = counted(peer.lost_before, "event")
        detail = f"retention removed at most {lost} that the link had not reached; {notice}"
        remedy = "to keep undelivered events, set retention.undelivered: keep"
        yield _of(peer, "lost events", CheckStatus.WARN, "events-lost", detail, remedy)
    if peer.losses.times:
        times, last = counted(peer.losses.times, "gap"), _moment(peer.losses.last_at)
        times = f"the newest {times}" if peer.losses.times >= MOST_GAPS else times
        detail = f"retention removed at most {counted(peer.losses.most, 'event')} before this peer had them: {times}"
        show = f"at {peer.node}, to see the positions: routerctl federation gaps --group {peer.group}"
        where = f"the peer is not notified, because {_V1_GAPS}" if over_v1 else show
        remedy = f"{where}; to keep undelivered events, set retention.undelivered: keep"
        yield _of(peer, "gaps", CheckStatus.WARN, "events-skipped", f"{detail}, most recently at {last}", remedy)
    if found.spent_letters:
        number = counted(found.spent_letters, "dead letter")
        detail = f"{number} cannot be retried: the event has expired or was evicted"
        remedy = f"list and drop them: routerctl federation dead-letters list --group {peer.group}"
        yield _of(peer, "dead letters", CheckStatus.WARN, "dead-letters-spent", detail, remedy)
    parts = []
    if not found.in_full:
        parts.append(
            f"of the events that the cursor has passed, only the newest {found.looked_at:,} were checked individually"
        )
    if not found.ahead_in_full:
        parts.append("the backlog was estimated from event types; the expiry of some of its events was not checked")
    if parts:
        yield _of(peer, "older events", CheckStatus.SKIP, "not-looked-at", "; ".join(parts))


def _moment(time: int | None) -> str:
    return (show_time(time) or "-")[:19] + "Z" if time is not None else "-"
