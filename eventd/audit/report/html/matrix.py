"""The matrix: rows are sources, columns are peers; a cell has the proven share and the lag."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from eventd.audit.report.figures import natural, span
from eventd.audit.report.report import Pair, Report
from eventd.audit.report.standing import SIGNS, Standing, due, groups, idle, share_of, standings

MOST_NODES = 40
"""Rows and columns of one matrix. Beyond them the nodes with trouble are shown."""
DENSE = 9
"""Nodes from which on the names of the columns are written upwards and the cells are small."""

Standings = dict[tuple[str, str], Standing]


class Cell(NamedTuple):
    """One cell: its class, its figure, a note below it, and the full sentence as its title."""

    class_: str
    figure: str = ""
    note: str = ""
    title: str = ""


def matrix(report: Report) -> dict[str, Any] | None:
    """The section with one matrix for each group; None where there is no pair."""
    return {"grids": [_grid(report, group) for group in groups(report)]} if report.pairs else None


def _grid(report: Report, group: str) -> dict[str, Any]:
    pairs = {(pair.source, pair.peer): pair for pair in report.pairs if pair.group == group}
    stands = standings(report, group)
    names = _names(stands)
    sources = [name for name in names if any(source == name for source, _ in stands)]
    peers = [name for name in names if any(peer == name for _, peer in stands)]
    return {
        "caption": f"Group {group}: {len(sources)} × {len(peers)} nodes",
        "dense": len(peers) >= DENSE,
        "peers": peers,
        "rows": [(source, [_cell(pairs, stands, source, peer) for peer in peers]) for source in sources],
        "left_out": len({name for at in stands for name in at}) - len(names),
    }


def _names(stands: Standings) -> list[str]:
    """The nodes to show, in the order of their names."""
    trouble: Counter[str] = Counter()
    for (source, peer), standing in stands.items():
        trouble.update({source: standing.state != "good", peer: standing.state != "good"})
    worst = sorted(trouble, key=lambda name: (-trouble[name], natural(name)))[:MOST_NODES]
    return sorted(worst, key=natural)


def _cell(pairs: dict[tuple[str, str], Pair], stands: Standings, source: str, peer: str) -> Cell:
    standing, pair = stands.get((source, peer)), pairs.get((source, peer))
    if standing is None:
        return Cell("self", "·") if source == peer else Cell("quiet")
    if pair is None:
        return Cell(standing.state, SIGNS[standing.state], standing.word)
    if idle(pair, standing):
        return Cell("quiet", "–", "none due", _in_full(pair))
    share = f" {standing.share.removesuffix(' %')}" if standing.share != "?" else ""
    return Cell(standing.state, f"{SIGNS[standing.state]}{share}", standing.word, _in_full(pair))


def _in_full(pair: Pair) -> str:
    """The cell in a sentence, shown when it is pointed at. The table of balances has the same figures."""
    parts = [f"{pair.source} → {pair.peer}: {pair.delivered:,} of {due(pair):,} ({share_of(pair, exact=True)})"]
    counts = {
        "missing": pair.missing,
        "disputed": pair.disputed,
        "still to come": pair.pending,
        "not proven": pair.unproven,
    }
    parts += [f"{count:,} {word}" for word, count in counts.items() if count]
    return ", ".join([*parts, f"lag {span(pair.lag)}"] if pair.lag else parts)
