"""The parts of a report other than its figures.

These are nodes, gaps, keys, refusals, receipts, limitations, and the headline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

from msgspec.structs import astuple

from eventd.audit.assembly.assemble import HistoryUse, StageResults
from eventd.audit.coverage.rollbacks import DeletedRange
from eventd.audit.coverage.silence import Silence, limitation_of
from eventd.audit.report.figures import moment, nearest_time
from eventd.audit.report.file_names import HISTORY
from eventd.audit.report.findings import Finding, Kind, corrupt_segment, epoch_change
from eventd.audit.report.report import (
    KeyUse,
    Limitation,
    LostSpan,
    NodeReport,
    RefusedByReason,
    Skew,
    Totals,
)
from eventd.audit.segments.ledger_summaries import KeyRequests, RefusalCount
from eventd.audit.segments.plan import declared_gaps, states_by_node
from eventd.audit.verdicts.pair_figures import runs
from eventd.lake.layout import MINUTE, LedgerKey, slug
from eventd.lake.losses import parse_loss
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.receivers import is_callback
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted
from federation.event import format_time

MOST_SILENT: Final = 3
"""Maximum number of silent nodes that the headline names."""


def lake_findings(survey: Survey, unreadable: Mapping[str, str]) -> list[Finding]:
    """Return findings about the lake itself: corrupt or missing files, new epochs, and names that two nodes share."""
    segments = {one.place.name: one for one in survey.segments}
    nodes = survey.node_names
    results = []
    for name, message in sorted(unreadable.items()):
        place, manifest = segments[name]
        results.append(corrupt_segment(manifest.node, name, place.after, place.upto, message))
    for one in survey.troubles:
        node = nodes.get(one.node, one.node)
        if one.kind is TroubleKind.CORRUPT:
            results.append(corrupt_segment(node, one.name, one.after, one.upto, one.message))
        else:
            results.append(epoch_change(node, one.epoch, one.message))
    return results


def make_nodes(results: StageResults) -> list[NodeReport]:
    """Return the nodes that have a state or a segment in the lake, sorted by name."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for segment in results.survey.segments:
        rows[segment.manifest.node][segment.place.book.value] += segment.manifest.rows
    nodes = {}
    for states in states_by_node(results.survey):
        last = states[-1]
        nodes[last.node] = NodeReport(
            name=last.node,
            epochs=tuple(state.epoch for state in states),
            as_of=format_time(last.as_of),
            complete_until=format_time(last.complete_until),
            head=last.head,
            states={f"{group.group}/{peer.peer}": peer.state for group in last.groups for peer in group.peers},
            closed_at=format_time(last.closed_at) if last.closed_at else None,
            signed_at=format_time(last.as_of) if last.node in results.files.signed else None,
            skew=_skew_of(results, last.node),
        )
        if (silence := results.coverage.silences.get(last.node)) and silence.kind == "silent":
            nodes[last.node].silent_since = nearest_time(silence.reported)
            nodes[last.node].silent_for = silence.age / SECOND
    for name in sorted(rows):
        node = nodes.setdefault(name, NodeReport(name=name, epochs=()))
        node.rows = dict(sorted(rows[name].items()))
    return [nodes[name] for name in sorted(nodes)]


def _skew_of(results: StageResults, node: str) -> Skew | None:
    """Return how far the node's clock is ahead of the reference clock; None if unknown."""
    shift = results.coverage.shifts.get(node)
    return None if shift is None else Skew(ms=shift.ahead / 1000, error_ms=shift.error / 1000)


def make_gaps(results: StageResults) -> list[LostSpan]:
    """Return the spans of time in which events are missing, and each declared loss, at the time of its recording.

    They are sorted by their begin.
    """
    gaps = []
    for (kind, pair), slots in results.open_slots.items():
        if kind is Kind.MISSING:
            for first, last, n in runs(slots):
                since, until = format_time(first * MINUTE), nearest_time((last + 1) * MINUTE)
                gaps.append(LostSpan(kind="missing", **pair._asdict(), since=since, until=until, events=n))
    for owner, gap in declared_gaps(results.survey, results.summaries):
        at = format_time(gap.recorded_at)
        source, peer = (gap.peer, owner.node) if gap.peer else (owner.node, "")
        loss = parse_loss(gap.reason)
        if (
            loss is not None and not loss.by_number
        ):  # the node evicted its own events; a peer is the one that should get them
            source, peer = owner.node, gap.peer
        events = gap.upto - gap.after
        gaps.append(
            LostSpan(
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


def make_keys(results: StageResults) -> list[KeyUse]:
    """Return the use of every key, from the ledgers of the signing node; if it has none, from those of its peers."""
    joined: dict[tuple[str, str, str, str], KeyRequests] = {}
    for owner, each in results.summaries.items():
        for used in (used for summary in each for used in summary.keys):
            if used.node != owner.node and results.coverage.has_ledgers(used.node):
                continue
            key = (used.node, used.group, used.key_id, used.protocol)
            before = joined.get(key)
            joined[key] = used if before is None else _add_up(before, used)
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


def _add_up(one: KeyRequests, other: KeyRequests) -> KeyRequests:
    requests = one.requests + other.requests
    first, last = min(one.first, other.first), max(one.last, other.last)
    return KeyRequests(one.node, one.group, one.key_id, one.protocol, requests, first, last)


def make_refusals(results: StageResults) -> list[RefusedByReason]:
    """Return how many requests each node refused, and when, by group, named peer and reason."""
    joined: dict[tuple[str, str, str, str], list[RefusalCount]] = defaultdict(list)
    for owner, each in results.summaries.items():
        for one in (one for summary in each for one in summary.refused):
            joined[owner.node, one.group, one.peer, one.reason].append(one)
    return [
        RefusedByReason(
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


def make_limitations(results: StageResults, lake: str) -> list[Limitation]:
    """Return the limitations of the verdict by silences, and by nodes of pairs that have no ledgers in the lake.

    `lake` is its address, of which no secret is shown. The endpoint of a callback keeps no ledger: the lake lacks none.
    """
    silent = [limitation_of(one, lake) for _, one in sorted(results.coverage.silences.items())]
    missing = []
    for pair in sorted({*results.figures, *results.without_ledgers}):
        for node, role in ((pair.source, "sends events"), (pair.peer, "is a peer")):
            if node and not (results.coverage.has_ledgers(node) or is_callback(node)):
                missing.append((node, role))
    return silent + [
        Limitation(
            kind="no books",
            where=node,
            message=f"{node} {role} and has no ledgers with a readable state in this lake: "
            "its side is known from other nodes only",
            hint=_hint_without_ledgers(results, node),
        )
        for node, role in dict.fromkeys(missing)
    ]


def _hint_without_ledgers(results: StageResults, node: str) -> str:
    hint = "let it ship its ledgers to the lake"
    if all(node != pair.source for pair in results.absent):
        return hint
    return f"{hint}; if it cannot, audit with --without-ledgers {quote(node)}"


def rewritten(segments: Mapping[str, int]) -> list[Limitation]:
    """Return a limitation for each segment whose rows differ from those that an earlier run read, in it or in the
    segments that it was made from.

    `segments`: by name of the segment, the time of discovery (microseconds).
    """
    return [
        Limitation(
            kind="rewritten",
            where=name,
            message="the segment was rewritten after an audit had read it; "
            f"this was found on {moment(format_time(at))}",
            hint="find out who writes to the lake, then accept the new content: run the audit once with --full, "
            "and without --from and --to",
        )
        for name, at in sorted(segments.items())
    ]


def deleted_rows(survey: Survey, ranges: Iterable[DeletedRange]) -> list[Limitation]:
    """Return a limitation for each range of rows that were deleted before retention may delete them."""
    names = {slug(state.node): state.node for state in survey.nodes}
    return [
        Limitation(
            kind="deleted",
            where=LedgerKey(names.get(ledger.slug, ledger.slug), ledger.epoch, ledger.book).key,
            message=f"rows {after + 1:,} to {upto:,} were deleted, and retention has not done that: it waits for a day "
            "after the state of the node last promised rows, and removes whole segments "
            f"(found on {moment(format_time(at))})",
            hint="find out who writes to the lake, then accept it as it is: run the audit once with --full, "
            "and without --from and --to",
        )
        for ledger, after, upto, at in map(astuple, ranges)
    ]


def history_limitations(use: HistoryUse) -> list[Limitation]:
    """Return a limitation if the history of earlier audits was lost, or discarded as requested."""
    if use.cleared:
        message = (
            "--full discarded what earlier audits had seen of the lake: "
            "this report does not show whether ledgers were taken back or rewritten since then"
        )
        hint = "compare the lake with the lake.sha256 of an earlier report, if you have kept one"
        return [Limitation(kind="history", where=HISTORY, message=message, hint=hint)]
    if not use.lost_at:
        return []
    message = (
        f"the record of what earlier audits had seen of the lake {use.lost}; this was found on "
        f"{moment(format_time(use.lost_at))}. Ledgers that were taken back or rewritten before that are not noticed"
    )
    hint = (
        "compare the lake with the lake.sha256 of an earlier report, if you have kept one; "
        "then accept the lake as it is: run the audit once with --full, and without --from and --to"
    )
    return [Limitation(kind="history", where=HISTORY, message=message, hint=hint)]


def strays(paths: Sequence[str]) -> list[Limitation]:
    """Return a limitation for the files that do not have a segment's name, such as those of a copied folder, if any."""
    if not paths:
        return []
    files = counted(len(paths), "file does not have", "files do not have")
    them = "it" if len(paths) == 1 else "them"
    return [
        Limitation(
            kind="stray",
            where=paths[0],
            message=f"{files} a segment's name for the folder; the audit did not read {them}",
            hint="find out who put it there; a copy of a folder belongs outside of the lake",
        )
    ]


def headline(
    totals: Totals, findings: Sequence[Finding], *, sure: bool, doubts: Sequence[str] = (), receipts: str = ""
) -> tuple[str, ...]:
    """Return the verdict in a few sentences, the figures first; `sure`: the completeness of the whole lake is known.

    `receipts`: a sentence about their verification.
    """
    due = totals.delivered + totals.missing + totals.disputed + totals.unproven
    if not (totals.expected or findings):
        return ("Nothing to reconcile: the ledgers in the lake expect no delivery in that period.", *doubts)
    first = f"{totals.delivered:,} of {due:,} delivered{_claimed(totals)}"
    if totals.missing:
        first += f"; {totals.missing:,} missing: {_pairs_missing_most(findings)}"
    elif findings:
        first += f"; {counted(len(findings), 'finding')}: {_kinds(totals)}"
    rest = list(doubts)
    if totals.missing and set(totals.by_kind) != {Kind.MISSING.value}:
        rest.append(f"Found: {_kinds(totals)}.")
    if not findings and sure:
        rest.append("All ledgers agree.")
    if totals.pending:
        rest.append(f"{counted(totals.pending, 'is', 'are')} pending: not due yet.")
    if totals.unproven:
        rest.append(f"{counted(totals.unproven, 'is', 'are')} unproven: the ledgers do not reach far enough.")
    elif not sure and not doubts:
        rest.append("Some pairs are unproven: their ledgers do not reach far enough.")
    if aside := totals.expired + totals.in_path + totals.dead_lettered:
        rest.append(
            f"{counted(aside, 'was', 'were')} not due: {totals.expired:,} expired, "
            f"{totals.in_path:,} had the peer in their path, {totals.dead_lettered:,} refused by the peer."
        )
    rest += [receipts] if receipts else []
    return (f"{first}.", *rest)


def make_doubts(results: StageResults) -> list[str]:
    """Return sentences about the reasons why the whole lake is unproven.

    These are silences, nodes without ledgers, rewritten segments, deleted rows, and a lost history.
    """
    doubts = [*_silent(results.coverage.silences), *_without_ledgers(results)]
    if n := len(results.rewritten):
        segments = counted(n, "segment was", "segments were")
        doubts.append(f"Not proven: {segments} rewritten after an audit had read {'it' if n == 1 else 'them'}.")
    if n := len({one.ledger for one in results.history.deleted}):
        doubts.append(f"Not proven: rows of {counted(n, 'ledger')} were deleted before retention may delete them.")
    if results.history.lost_at:
        doubts.append("Not proven: what earlier audits had seen of the lake is lost, and could show a rollback.")
    return doubts


def _without_ledgers(results: StageResults) -> Iterator[str]:
    """Yield a sentence that names nodes whose ledgers the lake lacks, up to `MOST_SILENT`; none without any."""
    names = sorted({pair.source for pair in results.absent})
    if not names:
        return
    more = [f"{len(names) - MOST_SILENT:,} more"] if len(names) > MOST_SILENT else []
    *first, last = [*names[:MOST_SILENT], *more]
    named = f"{', '.join(first)} and {last}" if first else last
    have, them = ("has", "it") if len(names) == 1 else ("have", "them")
    yield f"Not proven: {named} {have} no ledgers in this lake, and others have events or batches from {them}."


def _silent(silences: Mapping[str, Silence]) -> Iterator[str]:
    """Yield a sentence for each silence up to `MOST_SILENT`, and one with the number of the others."""
    named = [f"{one.node} is {one.words}" for one in silences.values()]
    yield from (f"Not proven: {words}." for words in named[:MOST_SILENT])
    if (more := len(named) - MOST_SILENT) > 0:
        yield f"Not proven: {counted(more, 'more node is', 'more nodes are')} silent, behind, or ahead with the clock."


def _pairs_missing_most(findings: Iterable[Finding]) -> str:
    """Return a text that names the three pairs (of all groups) with most missing events, and the number of other
    pairs."""
    missing: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if finding.kind is Kind.MISSING:
            missing[finding.source, finding.peer] += finding.events
    shown = [f"{n:,} from {source} to {peer}" for (source, peer), n in missing.most_common(3)]
    more = len(missing) - len(shown)
    return ", ".join([*shown, *([f"and {counted(more, 'more pair')}"] if more > 0 else [])])


def _claimed(totals: Totals) -> str:
    """Return how many deliveries are claims, as a part of a sentence; empty if none is."""
    if not totals.claimed:
        return ""
    number = "all" if totals.claimed == totals.delivered else f"{totals.claimed:,}"
    return f", {number} of them by the sender's claim alone"


def _kinds(totals: Totals) -> str:
    return ", ".join(f"{n:,} {kind}" for kind, n in totals.by_kind.items())
