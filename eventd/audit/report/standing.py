"""How a pair stands, in words and in one of four states; shared by the page and the terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from eventd.audit.report.figures import counted, moment, natural, percent, short_span
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Figures, Pair, Report, Work

State = Literal["good", "bad", "open", "none"]
"""Proven; wrong; still open; not known."""

SIGNS: dict[State, str] = {"good": "✓", "bad": "✕", "open": "○", "none": "?"}
VERDICTS: dict[str, State] = {"complete": "good", "incomplete": "bad", "unproven": "none"}

WORTH_SAYING = 60.0
"""Seconds. What waits for less is on its way; a link that is not running is worth saying at once."""

MEANINGS: dict[Kind, tuple[str, str]] = {
    Kind.MISSING: ("Missing", "Recorded at its source and meant for the peer, which does not hold it."),
    Kind.DUPLICATE: ("Delivered twice", "Delivered more than once by one sender to one peer."),
    Kind.FORGED: (
        "Without an origin",
        "Held by the peer though its source never recorded it, or proven by a receipt that the peer never gave.",
    ),
    Kind.LOOP: ("In a loop", "Delivered to its own source, or to one peer by two senders."),
    Kind.DISAGREEMENT: (
        "Books that disagree",
        "One side's books say that it was delivered, the other's that it was not.",
    ),
    Kind.CORRUPT: ("Segments not to be trusted", "What they cover is not judged, and never counted as complete."),
    Kind.EPOCH: ("Changes of epoch", "A node's log began a new history, or two nodes use one name."),
}
"""A heading for each kind of finding, and what it means."""

SHORT: dict[Kind, str] = {
    Kind.MISSING: "missing",
    Kind.DUPLICATE: "twice",
    Kind.FORGED: "forged",
    Kind.LOOP: "loop",
    Kind.DISAGREEMENT: "disputed",
    Kind.CORRUPT: "corrupt",
    Kind.EPOCH: "epoch",
}

_NOUNS = {Kind.FORGED: "case", Kind.CORRUPT: "segment", Kind.EPOCH: "change"}

PROOFS = {
    "books": "the peer's own books",
    "receipts": "the peer's receipts",
    "claims": "the sender's word alone",
    "": "nothing",
}
"""What a delivery rests on, in words."""

PairName = tuple[str, str, str]
"""Group, source and peer."""


class Standing(NamedTuple):
    """One pair: its state, the share that is proven, and the word beside it (its lag, or what is wrong)."""

    state: State
    share: str
    word: str


def noun(kind: Kind) -> str:
    """What a finding of that kind counts."""
    return _NOUNS.get(kind, "event")


def due(figures: Figures) -> int:
    """Events that should be there by now, or that nobody can tell of."""
    return figures.delivered + figures.missing + figures.disputed + figures.unproven


def share_of(figures: Figures, *, exact: bool = False) -> str:
    """The share of what is due that is proven. Of books that do not reach far enough nobody can say 100 %."""
    share = percent(figures.delivered, due(figures), exact=exact)
    return "?" if figures.completeness is None and figures.delivered == due(figures) else share


def name_of(pair: Pair) -> PairName:
    return (pair.group, pair.source, pair.peer)


def faults(findings: Iterable[Finding]) -> dict[PairName, Counter[Kind]]:
    """What was found of each pair, by kind."""
    found: dict[PairName, Counter[Kind]] = defaultdict(Counter)
    for finding in findings:
        found[finding.group, finding.source, finding.peer][finding.kind] += finding.events
    return found


def stand(pair: Pair, found: Counter[Kind]) -> Standing:
    """How a pair stands, given what was found of it."""
    share = share_of(pair)
    wrong = found or Counter({Kind.MISSING: pair.missing, Kind.DISAGREEMENT: pair.disputed})
    if kind := next((kind for kind in Kind if wrong[kind]), None):
        return Standing("bad", share, f"{short_count(wrong[kind])} {SHORT[kind]}")
    if pair.completeness is None:
        return Standing("none", share, "unproven")
    if waits(pair):
        return Standing("open", share, short_span(pair.lag) if pair.lag else pair.state)
    return Standing("good", share, short_span(pair.lag))


def standings(report: Report, group: str) -> dict[tuple[str, str], Standing]:
    """How everything stands between a source and a peer of a group, also where nothing was to go and something did."""
    found = faults(report.findings)
    stands = {
        (source, peer): stand(Pair(group=group, source=source, peer=peer), kinds)
        for (of, source, peer), kinds in found.items()
        if of == group and peer
    }
    stands.update({(p.source, p.peer): stand(p, found[name_of(p)]) for p in report.pairs if p.group == group})
    return stands


def idle(pair: Pair, standing: Standing) -> bool:
    """Whether nothing was due and nothing is to come, so that there is nothing to be proud of."""
    return standing.state == "good" and not due(pair) and not pair.pending


def waits(pair: Pair) -> bool:
    """Whether something is still to come, and longer than it takes to travel."""
    stopped = pair.state not in ("running", "")
    return pair.pending > 0 and (stopped or (pair.lag or 0) >= WORTH_SAYING)


def not_read_again(work: Work) -> str:
    """What an audit took from earlier ones: how much, how much of it was checked, and since when it was not."""
    if not work.segments_known:
        return ""
    told = f"; {counted(work.segments_known, 'segment')} not read again"
    if work.segments_rechecked:
        told += f", {work.segments_rechecked:,} of them checked by digest"
    return f"{told}, the oldest since {moment(work.oldest_read)}" if work.oldest_read else told


def short_count(value: int) -> str:
    """`999`, `1.2k`, `34k`, `5.6M`: for where there is room for four characters."""
    if value < 1000:
        return str(value)
    for limit, unit in ((1_000_000, "k"), (1_000_000_000, "M"), (1_000_000_000_000, "G")):
        if value < limit:
            scaled = value * 1000 / limit
            return f"{int(scaled * 10) / 10:g}{unit}" if scaled < 10 else f"{int(scaled)}{unit}"
    return "many"


def groups(report: Report) -> list[str]:
    """The groups that have pairs, in order."""
    return sorted({pair.group for pair in report.pairs}, key=natural)


def by_trouble(report: Report) -> list[Pair]:
    """All pairs, those with something to say about them first."""
    found = faults(report.findings)
    rank = {"bad": 0, "none": 1, "open": 2, "good": 3}

    def key(pair: Pair) -> tuple[object, ...]:
        state = stand(pair, found[name_of(pair)]).state
        return (rank[state], -pair.missing, -pair.unproven, -(pair.lag or 0), *map(natural, name_of(pair)))

    return sorted(report.pairs, key=key)
