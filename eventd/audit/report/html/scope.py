"""The scope of the audit, how far the ledgers reach, and why deliveries are unproven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from eventd.audit.report.figures import natural, percent
from eventd.audit.report.pair_status import pair_name
from eventd.audit.report.report import NodeReport, Pair, Report
from eventd.text.plural import counted

MOST_NOTES = 12
"""Maximum number of notes on pairs."""
MOST_NAMES = 6
"""Maximum number of names, or pairs, in one sentence."""


class Doubt(NamedTuple):
    """A line of the section `Unproven`: the names of `pairs`, if any, followed by `words`."""

    words: str
    pairs: tuple[Pair, ...] = ()


def doubts(report: Report) -> dict[str, Any]:
    """Return the template's data for the section `Unproven`: what is not proven, and which evidence is weak."""
    return {"doubts": [*_of_totals(report), *_of_notes(report.pairs), *map(Doubt, _of_evidence(report))]}


def _of_totals(report: Report) -> Iterator[Doubt]:
    if not report.totals.expected:
        yield Doubt("Nothing is proven: the ledgers expect no delivery.")
    if report.totals.unproven:
        share = percent(report.totals.unproven, report.totals.expected, exact=True)
        pairs = counted(sum(1 for pair in report.pairs if pair.unproven), "pair")
        deliveries = counted(report.totals.unproven, "delivery", "deliveries")
        yield Doubt(
            f"Unproven: {deliveries} ({share} of the expected ones) on {pairs}; the ledgers do not reach far enough."
        )


def _of_notes(pairs: Iterable[Pair]) -> Iterator[Doubt]:
    """Yield each note once with its pairs, up to `MOST_NOTES`, and then a line with the number of other notes."""
    noted: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda one: (-one.unproven, pair_name(one))):
        for note in pair.notes:
            noted[note].append(pair)
    for note, its in list(noted.items())[:MOST_NOTES]:
        more = f" and {counted(len(its) - MOST_NAMES, 'more pair')}" if its[MOST_NAMES:] else ""
        yield Doubt(f"{more}: {note}", tuple(its[:MOST_NAMES]))
    if len(noted) > MOST_NOTES:
        yield Doubt(f"and {counted(len(noted) - MOST_NOTES, 'more note')}, see the pairs in report.json")


def _of_evidence(report: Report) -> Iterator[str]:
    known = {node.name for node in report.nodes} | {one.where for one in report.troubles}
    to_nodes = [pair for pair in report.pairs if pair.receiver == "node"]
    if missing := sorted({pair.peer for pair in to_nodes} - known, key=natural):
        ships, holds = ("ships", "it holds") if len(missing) == 1 else ("ship", "they hold")
        yield (
            f"{_list_names(missing)} {ships} no ledgers: what {holds} is known from the ledgers of its senders, and "
            "the receipts in them."
        )
    if declared := [gap.events for gap in report.gaps if gap.kind == "declared"]:
        yield (
            f"Nodes declared {counted(len(declared), 'loss', 'losses')} of up to "
            f"{counted(sum(declared), 'event')}: see the gaps below. Only events that a ledger shows as due and not "
            "delivered count as missing."
        )
    if claims := [pair for pair in to_nodes if pair.claimed]:
        claimed = counted(sum(pair.claimed for pair in claims), "delivery", "deliveries")
        yield f"The only evidence of {claimed} on {counted(len(claims), 'pair')} is the sender's claim."
    if callbacks := {pair.peer for pair in report.pairs if pair.receiver == "callback" and pair.delivered}:
        yield (
            f"{counted(len(callbacks), 'callback')}: that the endpoint answered 2xx, as the sender recorded, is all "
            "the proof of delivery there is."
        )
    if count := sum(one.count for one in report.receipts if not one.proves_to_others):
        yield f"{counted(count, 'receipt proves', 'receipts prove')} nothing to a third party: see Receipts below."


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES:,} more" if names[MOST_NAMES:] else "")


def scope(report: Report) -> dict[str, Any]:
    """Return the template's data for the section of the audited nodes and the ends of their ledgers."""
    nodes = sorted(report.nodes, key=lambda node: natural(node.name))
    return {"nodes": [{"node": node, "links": _links(node)} for node in nodes]}


def _links(node: NodeReport) -> str:
    stopped = (f"{name} {state}" for name, state in sorted(node.states.items()) if state != "running")
    return ", ".join(stopped) or ("all running" if node.states else "–")
