"""What was audited, how far the books reach, and what could not be proven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from eventd.audit.report.figures import counted, micros, natural, percent
from eventd.audit.report.report import Node, Pair, Report
from eventd.audit.report.standing import name_of

MOST_NOTES = 12
"""Notes on pairs that are listed among the doubts."""
MOST_NAMES = 6
"""Names, or pairs, that one sentence holds."""


class Doubt(NamedTuple):
    """Something that could not be proven: a sentence, which may begin with the pairs it is about."""

    words: str
    pairs: tuple[Pair, ...] = ()


def doubts(report: Report) -> dict[str, Any]:
    """The section of what could not be proven, and why."""
    return {"doubts": [*_of_totals(report), *_of_notes(report.pairs), *map(Doubt, _of_evidence(report))]}


def _of_totals(report: Report) -> Iterator[Doubt]:
    if not report.totals.expected:
        yield Doubt("Nothing at all: the books that were read expect no delivery.")
    if report.totals.unproven:
        share = percent(report.totals.unproven, report.totals.expected, exact=True)
        pairs = counted(sum(1 for pair in report.pairs if pair.unproven), "pair")
        deliveries = counted(report.totals.unproven, "delivery", "deliveries")
        yield Doubt(f"{deliveries} ({share}) on {pairs} cannot be judged: the books do not reach far enough.")


def _of_notes(pairs: Iterable[Pair]) -> Iterator[Doubt]:
    """Each note once, with the pairs it was made of."""
    noted: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda one: (-one.unproven, name_of(one))):
        for note in pair.notes:
            noted[note].append(pair)
    for note, its in list(noted.items())[:MOST_NOTES]:
        more = f" and {counted(len(its) - MOST_NAMES, 'more pair')}" if its[MOST_NAMES:] else ""
        yield Doubt(f"{more}: {note}", tuple(its[:MOST_NAMES]))
    if len(noted) > MOST_NOTES:
        yield Doubt(f"and {counted(len(noted) - MOST_NOTES, 'more note')}, each at its pair in report.json")


def _of_evidence(report: Report) -> Iterator[str]:
    books = {node.name for node in report.nodes} | {one.where for one in report.troubles}
    if bookless := sorted({pair.peer for pair in report.pairs} - books, key=natural):
        ships, holds = ("ships", "it holds") if len(bookless) == 1 else ("ship", "they hold")
        yield f"{_few(bookless)} {ships} no books: what {holds} is known from receipts alone."
    if declared := [gap.events for gap in report.gaps if gap.kind == "declared"]:
        yield (
            f"Nodes told of {counted(len(declared), 'loss', 'losses')} themselves, of up to "
            f"{counted(sum(declared), 'event')}: see the gaps below. Only those that a book shows as due and not "
            "delivered are counted as missing."
        )
    if claims := [pair for pair in report.pairs if pair.proof == "claims" and pair.delivered]:
        yield f"On {counted(len(claims), 'pair')} there is nothing but the sender's word that what it sent arrived."
    if count := sum(one.count for one in report.receipts if not one.proves_to_others):
        proves = "proves" if count == 1 else "prove"
        yield f"{counted(count, 'receipt')} {proves} nothing to a third party: see Receipts below."


def _few(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES:,} more" if names[MOST_NAMES:] else "")


def scope(report: Report) -> dict[str, Any]:
    """The section of what was audited: the nodes, and where the books of each begin and end."""
    nodes = sorted(report.nodes, key=lambda node: natural(node.name))
    return {"nodes": [{"node": node, "links": _links(node)} for node in nodes]}


def _links(node: Node) -> str:
    stopped = (f"{name} {state}" for name, state in sorted(node.states.items()) if state != "running")
    return ", ".join(stopped) or ("all running" if node.states else "–")


def without_secrets(url: str) -> str:
    """The address of a lake without what may be a password: the user's part, the query and the fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def complete_until(report: Report) -> str | None:
    """The moment up to which the books of all nodes are complete; None where one of them does not say."""
    known = [node.complete_until for node in report.nodes]
    times = {at: text for text in known if (at := micros(text)) is not None}
    return times[min(times)] if times and all(known) else None
