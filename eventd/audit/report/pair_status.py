"""The status of a pair, in words and as one of four states, for the page and the terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from eventd.audit.report.figures import moment, natural, percent, short_span
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Figures, Pair, Report, Work
from eventd.text.plural import counted

State = Literal["good", "bad", "open", "none"]
"""Delivered, wrong, pending or unknown."""

SIGNS: dict[State, str] = {"good": "✓", "bad": "✕", "open": "○", "none": "?"}
VERDICTS: dict[str, State] = {"complete": "good", "incomplete": "bad", "unproven": "none"}

NOTABLE_LAG = 60.0
"""Lag in seconds from which a pair counts as waiting; a stopped link with pending events always does."""

MEANINGS: dict[Kind, tuple[str, str]] = {
    Kind.MISSING: ("Missing", "Recorded at its source and due at the peer, which does not hold it."),
    Kind.ERASED: (
        "Erased rows",
        "A node recorded them, and no segment holds them: removed before they were shipped, or from the lake.",
    ),
    Kind.ALTERED: (
        "Altered events",
        "One id with two contents, a row that is not what its digest says, deliveries that name another batch or "
        "receipt than the receipt under their number, or a version of a link's selection with two texts.",
    ),
    Kind.REWRITTEN: (
        "Rewritten history",
        "Rows, hashes or checkpoints in the lake that are not what the node signed: they were changed later.",
    ),
    Kind.FORK: ("Forked history", "A node signed two trees of which neither continues the other."),
    Kind.DUPLICATE: ("Delivered twice", "Delivered more than once by one sender to one peer."),
    Kind.FORGED: (
        "Without an origin",
        "Held by the peer though its source never recorded it, or with a receipt that the peer never gave, that is "
        "there twice, or that is not what its digest, its row or its signature says.",
    ),
    Kind.SQUATTED: (
        "Ids of two sources",
        "Two sources signed an event with the same id, and a peer that had got one of them refused the other.",
    ),
    Kind.LOOP: ("In a loop", "Delivered to its own source, or to one peer by two senders."),
    Kind.DISAGREEMENT: (
        "Ledgers that disagree",
        "The ledger of one side has the delivery, the other's does not; the two have different receipts of a batch; a "
        "receipt counts fewer events than the sender has deliveries; other rows contradict the reason why the sender "
        "did not send an event; or a link delivered an event that its selection does not match.",
    ),
    Kind.CORRUPT: ("Corrupt segments", "The events in them are unproven, and never count as complete."),
    Kind.ROLLED_BACK: (
        "Ledgers rolled back",
        "The ledgers of a node end before a place that they had reached already, as an earlier audit, another node, or "
        "the node's own state or ledgers show; or a tree succeeds another one before its last checkpoint.",
    ),
    Kind.UNSEALED: (
        "Not in the history",
        "Own events of a node that no checkpoint covers, a minute after their record.",
    ),
    Kind.LAKE_REWRITTEN: (
        "Rewritten lake",
        "Manifests or states that are not what their node signed: they were changed, added or removed by another "
        "program.",
    ),
    Kind.EPOCH: ("Changes of epoch", "A node's log began a new epoch, or two nodes use one name."),
}
"""The heading of each kind of finding, and its meaning."""

SHORT: dict[Kind, str] = {
    Kind.MISSING: "missing",
    Kind.ERASED: "erased",
    Kind.ALTERED: "altered",
    Kind.REWRITTEN: "rewritten",
    Kind.FORK: "fork",
    Kind.DUPLICATE: "twice",
    Kind.FORGED: "forged",
    Kind.SQUATTED: "squatted",
    Kind.LOOP: "loop",
    Kind.DISAGREEMENT: "disputed",
    Kind.CORRUPT: "corrupt",
    Kind.ROLLED_BACK: "rolled back",
    Kind.UNSEALED: "unsealed",
    Kind.LAKE_REWRITTEN: "rewritten lake",
    Kind.EPOCH: "epoch",
}

_NOUNS = {
    Kind.REWRITTEN: "part",
    Kind.FORK: "case",
    Kind.FORGED: "case",
    Kind.CORRUPT: "segment",
    Kind.ROLLED_BACK: "node",
    Kind.LAKE_REWRITTEN: "file",
    Kind.EPOCH: "change",
}

PROOFS = {
    "books": "the peer's own ledger",
    "receipts": "the peer's receipts, verified with public keys",
    "claims": "the sender's claim alone",
    "callback": "the endpoint's answer 2xx, by the sender's claim: all the proof that a callback has",
    "": "nothing",
}
"""The evidence of deliveries, `Pair.proof`, in words. `books` is the value for ledgers; `callback` stands for `claims`
if the receiver is one."""

PairName = tuple[str, str, str]
"""Group, source and peer."""


class PairStatus(NamedTuple):
    """The status of a pair: state, delivered share, and a word beside it: the lag, the link's state or the problem."""

    state: State
    share: str
    word: str


def noun(kind: Kind) -> str:
    """Return the noun for the discrepancies of a finding of this kind."""
    return _NOUNS.get(kind, "event")


def due(figures: Figures) -> int:
    """Return the number of due deliveries, including unproven ones."""
    return figures.delivered + figures.missing + figures.disputed + figures.unproven


def share_of(figures: Figures, *, exact: bool = False) -> str:
    """Format the delivered share of due deliveries; `?` instead of 100 % or a dash if `completeness` is None."""
    share = percent(figures.delivered, due(figures), exact=exact)
    return "?" if figures.completeness is None and figures.delivered == due(figures) else share


def pair_name(pair: Pair) -> PairName:
    return (pair.group, pair.source, pair.peer)


def findings_by_pair(findings: Iterable[Finding]) -> dict[PairName, Counter[Kind]]:
    """Return the number of discrepancies of each pair, by kind."""
    found: dict[PairName, Counter[Kind]] = defaultdict(Counter)
    for finding in findings:
        found[finding.group, finding.source, finding.peer][finding.kind] += finding.events
    return found


def status_of(pair: Pair, found: Counter[Kind]) -> PairStatus:
    """Return the status of a pair; `found` has its discrepancies by kind, from `findings_by_pair`."""
    share = share_of(pair)
    wrong = found or Counter({Kind.MISSING: pair.missing, Kind.DISAGREEMENT: pair.disputed})
    if kind := next((kind for kind in Kind if wrong[kind]), None):
        return PairStatus("bad", share, f"{short_count(wrong[kind])} {SHORT[kind]}")
    if pair.completeness is None:
        return PairStatus("none", share, "unproven")
    if is_waiting(pair):
        return PairStatus("open", share, short_span(pair.lag) if pair.lag else pair.state)
    return PairStatus("good", share, short_span(pair.lag))


def statuses(report: Report, group: str) -> dict[tuple[str, str], PairStatus]:
    """Return the status of a group's pairs by (source, peer), including pairs that occur only in findings."""
    found = findings_by_pair(report.findings)
    by_pair = {
        (source, peer): status_of(Pair(group=group, source=source, peer=peer), kinds)
        for (of, source, peer), kinds in found.items()
        if of == group and peer
    }
    by_pair.update({(p.source, p.peer): status_of(p, found[pair_name(p)]) for p in report.pairs if p.group == group})
    return by_pair


def is_idle(pair: Pair, status: PairStatus) -> bool:
    """Return whether a pair is in order because no event was due or is pending."""
    return status.state == "good" and not due(pair) and not pair.pending


def is_waiting(pair: Pair) -> bool:
    """Return whether events have been pending for `NOTABLE_LAG`, or are pending on a link that is not running."""
    stopped = pair.state not in ("running", "")
    return pair.pending > 0 and (stopped or (pair.lag or 0) >= NOTABLE_LAG)


def reused_segments(work: Work) -> str:
    """Return the end of a sentence, from `; ` on, about the segments that an audit did not read again.

    It says how many, how many of them were checked, and since when all were read or checked; empty if there were none.
    """
    if not work.segments_known:
        return ""
    words = f"; {counted(work.segments_known, 'segment')} not read again"
    if work.segments_rechecked:
        words += f", {work.segments_rechecked:,} of them checked by digest"
    return f"{words}, each last read or checked at {moment(work.oldest_read)} or later" if work.oldest_read else words


def short_count(value: int) -> str:
    """Format a count with at most four characters: `999`, `1.2k`, `34k`, `5.6M`."""
    if value < 1000:
        return str(value)
    for limit, unit in ((1_000_000, "k"), (1_000_000_000, "M"), (1_000_000_000_000, "G")):
        if value < limit:
            scaled = value * 1000 / limit
            return f"{int(scaled * 10) / 10:g}{unit}" if scaled < 10 else f"{int(scaled)}{unit}"
    return "many"


def groups(report: Report) -> list[str]:
    """Return the groups that have pairs, sorted by name."""
    return sorted({pair.group for pair in report.pairs}, key=natural)


def worst_first(report: Report) -> list[Pair]:
    """Return all pairs: wrong ones first, then unproven, waiting and delivered ones, each by most missing events."""
    found = findings_by_pair(report.findings)
    rank = {"bad": 0, "none": 1, "open": 2, "good": 3}

    def key(pair: Pair) -> tuple[object, ...]:
        state = status_of(pair, found[pair_name(pair)]).state
        return (rank[state], -pair.missing, -pair.unproven, -(pair.lag or 0), *map(natural, pair_name(pair)))

    return sorted(report.pairs, key=key)
