"""What was audited, how far the books reach, what could not be proven, and how the figures were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from urllib.parse import urlsplit

from eventd.audit.report.figures import counted, micros, moment, natural, percent, period, size, span
from eventd.audit.report.html.markup import Child, Markup, element
from eventd.audit.report.html.tables import (
    Column,
    definitions,
    identifier,
    number,
    paragraph,
    section,
    sign,
    table,
    way,
    wide,
)
from eventd.audit.report.report import Node, Pair, Report, to_json
from eventd.audit.report.standing import name_of, not_read_again

MOST_NOTES = 12
"""Notes on pairs that are listed among the doubts."""
MOST_NAMES = 6
"""Names, or pairs, that one sentence holds."""


def doubts(report: Report) -> Markup:
    """The section of what could not be proven, and why."""
    told = list(_doubts(report))
    content: list[Child] = [element("ul", (element("li", one) for one in told), class_="doubts") if told else None]
    if not told and not report.troubles:
        content = [paragraph(sign("good", "Nothing."), " Every pair could be judged.")]
    if report.troubles:
        columns = (Column("What"), Column("Where"), wide("Why it matters"), wide("What to do"))
        rows = [(one.kind, identifier(one.where), one.message, one.hint) for one in report.troubles]
        content.append(table("What limits what can be said", columns, rows, most=100, noun="limit"))
    return section("doubts", "What could not be proven", *content)


def _doubts(report: Report) -> Iterator[Child]:
    if not report.totals.expected:
        yield "Nothing at all: the books that were read expect no delivery."
    if report.totals.unproven:
        share = percent(report.totals.unproven, report.totals.expected, exact=True)
        pairs = sum(1 for pair in report.pairs if pair.unproven)
        deliveries = counted(report.totals.unproven, "delivery", "deliveries")
        yield f"{deliveries} ({share}) on {counted(pairs, 'pair')} cannot be judged: the books do not reach far enough."
    yield from _notes(report.pairs)
    books = {node.name for node in report.nodes}
    told = {one.where for one in report.troubles}
    if bookless := sorted({pair.peer for pair in report.pairs} - books - told, key=natural):
        yield (
            f"{_few(bookless)} {'ships' if len(bookless) == 1 else 'ship'} no books: what "
            f"{'it holds' if len(bookless) == 1 else 'they hold'} is known from receipts alone."
        )
    if declared := [gap.events for gap in report.gaps if gap.kind == "declared"]:
        yield (
            f"Nodes told of {counted(len(declared), 'loss', 'losses')} themselves, of up to "
            f"{counted(sum(declared), 'event')}: see the gaps below. Only those that a book shows as due and not "
            "delivered are counted as missing."
        )
    claims = [pair for pair in report.pairs if pair.proof == "claims" and pair.delivered]
    if claims:
        yield f"On {counted(len(claims), 'pair')} there is nothing but the sender's word that what it sent arrived."
    if any(one.count and not one.proves_to_others for one in report.receipts):
        count = sum(one.count for one in report.receipts if not one.proves_to_others)
        proves = "proves" if count == 1 else "prove"
        yield f"{counted(count, 'receipt')} {proves} nothing to a third party: see Receipts below."


def _notes(pairs: Iterable[Pair]) -> Iterator[Child]:
    """Each note once, with the pairs it was made of."""
    noted: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda one: (-one.unproven, name_of(one))):
        for note in pair.notes:
            noted[note].append(pair)
    for note, its in list(noted.items())[:MOST_NOTES]:
        more = f" and {counted(len(its) - MOST_NAMES, 'more pair')}" if its[MOST_NAMES:] else None
        ways = [(", " if place else None, way(pair.source, pair.peer)) for place, pair in enumerate(its[:MOST_NAMES])]
        yield ways, more, f": {note}"
    if noted and len(noted) > MOST_NOTES:
        yield f"and {counted(len(noted) - MOST_NOTES, 'more note')}, each at its pair in report.json"


def _few(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES:,} more" if names[MOST_NAMES:] else "")


def scope(report: Report) -> Markup:
    """The section of what was audited: the nodes, and where the books of each begin and end."""
    columns = (
        Column("Node"),
        Column("Books complete until"),
        Column("Last heard of"),
        *map(number, ("Events", "Deliveries", "Receipts", "Answers", "Clock ahead")),
        Column("Epochs"),
        wide("Links"),
    )
    rows = [_node(node) for node in sorted(report.nodes, key=lambda node: natural(node.name))]
    read = (
        f"{counted(report.lake.segments, 'segment')} of {counted(len(report.nodes), 'node')}, "
        f"{counted(report.lake.rows, 'row')} in {size(report.lake.bytes)}. Events observed from "
        f"{period(report.period.first, report.period.last)}."
    )
    return section(
        "scope",
        "What was audited",
        paragraph(read if report.lake.segments else "The lake holds no segment."),
        _window(report),
        table("Nodes, and where their books end", columns, rows, most=100, noun="node") if rows else None,
    )


def _window(report: Report) -> Markup | None:
    asked = report.settings
    if not asked.since and not asked.until:
        return None
    since = f"from {moment(asked.since)}" if asked.since else ""
    until = f"until {moment(asked.until)}" if asked.until else ""
    return paragraph(f"Only events {' '.join(filter(None, (since, until)))} were asked about.", class_="note")


def _node(node: Node) -> list[Child]:
    rows = [f"{node.rows.get(book, 0):,}" for book in ("events", "deliveries", "receipts", "inbound")]
    ahead = span(node.skew.ms / 1e3) if node.skew else "–"
    epochs = [element("div", identifier(epoch), class_="keep") for epoch in node.epochs]
    stopped = {name: state for name, state in node.states.items() if state != "running"}
    links = ", ".join(f"{name} {state}" for name, state in sorted(stopped.items())) or (
        "all running" if node.states else "–"
    )
    until = element("span", moment(node.complete_until), class_="keep")
    return [node.name, until, _heard(node), *rows, ahead, epochs, links]


def _heard(node: Node) -> Child:
    """When a node reported last; a silent node, and one that is out of service, are marked."""
    heard = element("span", moment(node.as_of), class_="keep")
    if node.silent_for is not None:
        return sign("none", heard, f" silent for {span(node.silent_for)}")
    return (heard, " out of service") if node.closed_at else heard


_METHOD = (
    "Every node ships its books to a lake: what entered its log, what it delivered with the receipts of its peers, "
    "what it accepted from others, the losses it told of and the requests it turned away. Each file has a manifest "
    "with its digest, and a file that does not match is not read.",
    "For every source and peer the events of the source that the peer's selection wants are summed minute by "
    "minute, by the events' own time, and compared with what the peer's books hold: counts, and the sum of a "
    "fingerprint of each event's exact bytes. Where a minute does not balance, every event of it is compared by id.",
    "An event counts as missing only if the books of both ends are complete beyond it, with the clocks' difference "
    "allowed for; otherwise it is still to come or not proven. Nothing is complete whose books cannot be read, or end "
    "too early.",
    "Percentiles come from histograms with bins at most an eighth wide, and are the upper ends of bins.",
    "What was lost before its source recorded it is in no book, and no audit of the books can find it.",
)


def method(report: Report) -> Markup:
    """The foot: settings, how it was made, and which report.json this page shows."""
    return section(
        "method",
        "Settings and method",
        definitions(_settings(report), "facts"),
        [paragraph(words) for words in _METHOD],
        paragraph(
            "This page holds the same as report.json, whose SHA-256 is ",
            identifier(sha256(to_json(report)).hexdigest()),
            ". It runs no script and loads nothing.",
        ),
    )


def _settings(report: Report) -> Iterator[tuple[str, Child]]:
    asked, work = report.settings, report.work
    yield "Made", moment(report.made_at)
    yield "Lake", identifier(without_secrets(report.lake.url))
    yield "Fails on", ", ".join(asked.fail_on) or "nothing"
    yield (
        "Read",
        (
            f"{counted(work.segments_read, 'segment')} now{not_read_again(work)}"
            if asked.incremental
            else f"all {work.segments_read:,} segments"
        ),
    )
    yield "Compared by id", counted(work.rows_compared, "row")
    yield "Took", (span(work.seconds), element("small", _stages(work.stages)))
    spark = f"Spark {work.spark}" if work.spark else asked.master
    yield "Made by", " · ".join(filter(None, (f"routerd-eventd {work.version}".strip(), spark)))


def _stages(stages: dict[str, float]) -> str:
    return ", ".join(f"{name} {span(seconds)}" for name, seconds in stages.items())


def without_secrets(url: str) -> str:
    """The address of a lake without what may be a password: the user's part, the query and the fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def reaches(report: Report) -> str | None:
    """The moment up to which the books of all nodes are complete; None where one of them does not say."""
    known = [node.complete_until for node in report.nodes]
    times = {at: text for text in known if (at := micros(text)) is not None}
    return times[min(times)] if times and len(times) and all(known) else None
