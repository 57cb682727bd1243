"""What a report says beside its figures: the nodes, gaps, keys, refusals and receipts, and what limits the verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from eventd.audit.engine.assemble import Found
from eventd.audit.engine.link_figures import runs
from eventd.audit.engine.plan import histories
from eventd.audit.engine.silence import Silence, trouble_of
from eventd.audit.engine.small_ledgers import KeyUsed, Refused
from eventd.audit.report.findings import Finding, Kind, corrupt_segment, epoch_change
from eventd.audit.report.report import Gap, KeyUse, Node, Receipts, Refusal, Skew, Totals, Trouble
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey, TroubleKind
from eventd.runtime.clock import SECOND
from federation.event import format_time

_NOTES: Final = {
    "ed25519": (True, "Whoever has the public key can check it."),
    "hmac-sha256": (
        False,
        "Proves the delivery to the two who share the key, and to nobody else: either of them could have made it.",
    ),
    "": (False, "The older protocol gives no receipt: the peer's status code is all there is."),
}
MOST_SILENT: Final = 3
"""Nodes that the headline names."""
_UNKNOWN: Final = (False, "Not an algorithm that this program knows.")


def lake_findings(survey: Survey, unreadable: Mapping[str, str]) -> list[Finding]:
    """What is wrong with the lake itself: segments that cannot be trusted, and nodes with several histories."""
    segments = {one.place.name: one for one in survey.segments}
    nodes = {one.place.slug: one.manifest.node for one in survey.segments}
    found = []
    for name, message in sorted(unreadable.items()):
        place, manifest = segments[name]
        found.append(corrupt_segment(manifest.node, name, place.after, place.upto, message))
    for one in survey.troubles:
        node = nodes.get(one.node, one.node)
        if one.kind is TroubleKind.CORRUPT:
            found.append(corrupt_segment(node, one.name, one.after, one.upto, one.message))
        else:
            found.append(epoch_change(node, one.message))
    return found


def make_nodes(found: Found) -> list[Node]:
    """The nodes whose books are in the lake."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for segment in found.survey.segments:
        rows[segment.manifest.node][segment.place.book.value] += segment.manifest.rows
    nodes = {}
    for states in histories(found.survey):
        last = states[-1]
        nodes[last.node] = Node(
            name=last.node,
            epochs=tuple(state.epoch for state in states),
            as_of=format_time(last.as_of),
            complete_until=format_time(last.complete_until),
            head=last.head,
            states={f"{group.group}/{peer.peer}": peer.state for group in last.groups for peer in group.peers},
            closed_at=format_time(last.closed_at) if last.closed_at else None,
            skew=_skew_of(found, last.node),
        )
        if (silence := found.sight.silences.get(last.node)) and silence.kind == "silent":
            nodes[last.node].silent_since = format_time(silence.reported)
            nodes[last.node].silent_for = silence.age / SECOND
    for name in sorted(rows):
        node = nodes.setdefault(name, Node(name=name, epochs=()))
        node.rows = dict(sorted(rows[name].items()))
    return [nodes[name] for name in sorted(nodes)]


def _skew_of(found: Found, node: str) -> Skew | None:
    """How far the node's clock is ahead of the mean of its own and its peers'."""
    others = [hours[-1] for (sender, _), hours in sorted(found.plan.clocks.items()) if sender == node]
    if not others:
        return None
    mean = sum(one.middle for one in others) / (len(others) + 1)
    return Skew(ms=-mean / 1000, error_ms=max(one.error for one in others) / 1000)


def make_gaps(found: Found) -> list[Gap]:
    """Spans of time in which events are missing, and losses that nodes tell of themselves."""
    gaps = []
    for (kind, line), slots in found.open_slots.items():
        if kind is Kind.MISSING:
            for first, last, n in runs(slots):
                since, until = format_time(first * MINUTE), format_time((last + 1) * MINUTE)
                gaps.append(Gap(kind="missing", **line._asdict(), since=since, until=until, events=n))
    for keeper, each in found.facts.items():
        for gap in (gap for fact in each for gap in fact.gaps):
            at = format_time(gap.recorded_at)
            source = gap.peer or keeper.node
            peer = keeper.node if gap.peer else ""
            events = gap.upto - gap.after
            gaps.append(
                Gap(
                    kind="declared",
                    group=gap.group,
                    source=source,
                    peer=peer,
                    since=at,
                    until=at,
                    events=events,
                    reason=gap.reason,
                )
            )
    return sorted(gaps, key=lambda gap: (gap.since, gap.group, gap.source, gap.peer))


def make_keys(found: Found) -> list[KeyUse]:
    """The use of every key: as the node that signs tells it, or as its peers do where it keeps no books."""
    joined: dict[tuple[str, str, str, str], KeyUsed] = {}
    for keeper, each in found.facts.items():
        for used in (used for fact in each for used in fact.keys):
            if used.node != keeper.node and found.sight.keeps(used.node):
                continue
            key = (used.node, used.group, used.key_id, used.protocol)
            before = joined.get(key)
            joined[key] = used if before is None else _together(before, used)
    return [
        KeyUse(
            node=one.node,
            group=one.group,
            key_id=one.key_id,
            protocol=one.protocol,
            requests=one.requests,
            first=format_time(one.first),
            last=format_time(one.last),
        )
        for _, one in sorted(joined.items())
    ]


def _together(one: KeyUsed, other: KeyUsed) -> KeyUsed:
    requests = one.requests + other.requests
    first, last = min(one.first, other.first), max(one.last, other.last)
    return KeyUsed(one.node, one.group, one.key_id, one.protocol, requests, first, last)


def make_refusals(found: Found) -> list[Refusal]:
    """What every node turned away, by reason."""
    joined: dict[tuple[str, str, str, str], list[Refused]] = defaultdict(list)
    for keeper, each in found.facts.items():
        for one in (one for fact in each for one in fact.refused):
            joined[keeper.node, one.group, one.peer, one.reason].append(one)
    return [
        Refusal(
            node=node,
            group=group,
            peer=peer,
            reason=reason,
            count=sum(one.count for one in same),
            first=format_time(min(one.first for one in same)),
            last=format_time(max(one.last for one in same)),
        )
        for (node, group, peer, reason), same in sorted(joined.items())
    ]


def make_receipts(found: Found) -> list[Receipts]:
    """The receipts by how they were signed."""
    counted: Counter[str] = Counter()
    for each in found.facts.values():
        for fact in each:
            counted.update(fact.algorithms)
    made = []
    for algorithm, count in sorted(counted.items(), reverse=True):
        proves, note = _NOTES.get(algorithm, _UNKNOWN)
        made.append(Receipts(algorithm=algorithm, count=count, proves_to_others=proves, note=note))
    return made


def make_troubles(found: Found) -> list[Trouble]:
    """What limits the verdict and is no finding: what ends too early, and what there is no ledger of."""
    silent = [trouble_of(one) for _, one in sorted(found.sight.silences.items())]
    troubles = []
    for line in sorted(found.lines):
        for node, role in ((line.source, "states events"), (line.peer, "is a peer")):
            if node and not found.sight.keeps(node):
                troubles.append((node, role))
    return silent + [
        Trouble(
            kind="no books",
            where=node,
            message=f"{node} {role} and has no books in this lake: its side is known from others only",
            hint="let it ship its books to the lake, if it can",
        )
        for node, role in dict.fromkeys(troubles)
    ]


def rewritten(segments: Mapping[str, int]) -> list[Trouble]:
    """Segments that had another digest when an earlier run read them, and when that was noticed (microseconds)."""
    return [
        Trouble(
            kind="rewritten",
            where=name,
            message=f"found on {format_time(at)[:19]}Z not to be what an earlier audit read: segments never change",
            hint="find out who writes to the lake, then accept it as it is: run the audit once with --full",
        )
        for name, at in sorted(segments.items())
    ]


def headline(totals: Totals, findings: Sequence[Finding], *, sure: bool, doubts: Sequence[str] = ()) -> tuple[str, ...]:
    """The verdict in a few sentences, the figures first; `doubts` are what speaks against the whole lake."""
    due = totals.delivered + totals.missing + totals.disputed + totals.unproven
    if not (totals.expected or findings or sure):
        return ("There is nothing to judge: the lake holds no books of that time.", *doubts)
    first = f"{totals.delivered:,} of {due:,} deliveries proven"
    if totals.missing:
        first += f"; {totals.missing:,} missing: {_worst(findings)}"
    elif findings:
        first += f"; {len(findings):,} finding{'s' if len(findings) > 1 else ''}: {_kinds(totals)}"
    rest = list(doubts)
    if totals.missing and set(totals.by_kind) != {Kind.MISSING.value}:
        rest.append(f"Found: {_kinds(totals)}.")
    if not findings and sure:
        rest.append("Every book agrees with every other.")
    if totals.pending:
        rest.append(f"{totals.pending:,} are still to come.")
    if totals.unproven:
        rest.append(f"{totals.unproven:,} cannot be judged: the books do not reach far enough.")
    elif not sure and not doubts:
        rest.append("Some pairs cannot be judged: their books do not reach far enough.")
    if aside := totals.expired + totals.in_path + totals.dead_lettered:
        rest.append(
            f"{aside:,} were not to be delivered: {totals.expired:,} expired, {totals.in_path:,} had been there, "
            f"{totals.dead_lettered:,} refused by the peer."
        )
    return (f"{first}.", *rest)


def make_doubts(found: Found) -> list[str]:
    """What keeps the whole lake from being proven, in sentences: ledgers that end too early, and rewritten segments."""
    told = list(_silent(found.sight.silences))
    if n := len(found.rewritten):
        segments = "1 segment was" if n == 1 else f"{n:,} segments were"
        told.append(f"Not proven: {segments} rewritten after an audit had read {'it' if n == 1 else 'them'}.")
    return told


def _silent(silences: Mapping[str, Silence]) -> Iterator[str]:
    """Which nodes' ledgers end too early: nothing is known of what came afterwards."""
    named = [f"{one.node} is {one.words}" for one in silences.values()]
    yield from (f"Not proven: {words}." for words in named[:MOST_SILENT])
    if (more := len(named) - MOST_SILENT) > 0:
        yield f"The ledgers of {more:,} more nodes end too early."


def _worst(findings: Iterable[Finding]) -> str:
    """Where most are missing."""
    missing: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if finding.kind is Kind.MISSING:
            missing[finding.source, finding.peer] += finding.events
    shown = [f"{n:,} from {source} to {peer}" for (source, peer), n in missing.most_common(3)]
    more = len(missing) - len(shown)
    return ", ".join([*shown, *([f"and {more:,} more pairs"] if more > 0 else [])])


def _kinds(totals: Totals) -> str:
    return ", ".join(f"{n:,} {kind}" for kind, n in totals.by_kind.items())
