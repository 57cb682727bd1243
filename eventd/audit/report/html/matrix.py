"""The matrix: rows are sources, columns are peers; a cell shows the delivered share, and the lag or the problem."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from eventd.audit.report.figures import natural, span
from eventd.audit.report.pair_status import SIGNS, PairStatus, due, groups, is_idle, share_of, statuses
from eventd.audit.report.report import Pair, Report

MOST_NODES = 40
"""Maximum number of rows and columns of one matrix. Of more nodes, those with most problems are shown."""
DENSE = 9
"""Number of columns from which their names are vertical and the cells small."""

Statuses = dict[tuple[str, str], PairStatus]


class Cell(NamedTuple):
    """One cell: its CSS class, its sign and figure, a note below these, and its tooltip; empty for none."""

    class_: str
    figure: str = ""
    note: str = ""
    title: str = ""


def matrix(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section with one matrix per group; None without pairs."""
    return {"grids": [_grid(report, group) for group in groups(report)]} if report.pairs else None


def _grid(report: Report, group: str) -> dict[str, Any]:
    pairs = {(pair.source, pair.peer): pair for pair in report.pairs if pair.group == group}
    by_pair = statuses(report, group)
    names = _names(by_pair)
    sources = [name for name in names if any(source == name for source, _ in by_pair)]
    peers = [name for name in names if any(peer == name for _, peer in by_pair)]
    return {
        "caption": f"Group {group}: {len(sources)} × {len(peers)} nodes",
        "dense": len(peers) >= DENSE,
        "peers": peers,
        "rows": [(source, [_cell(pairs, by_pair, source, peer) for peer in peers]) for source in sources],
        "left_out": len({name for at in by_pair for name in at}) - len(names),
    }


def _names(by_pair: Statuses) -> list[str]:
    """Return the names of the nodes to show, sorted: the `MOST_NODES` in the most pairs whose state is not good."""
    problems: Counter[str] = Counter()
    for (source, peer), status in by_pair.items():
        problems.update({source: status.state != "good", peer: status.state != "good"})
    worst = sorted(problems, key=lambda name: (-problems[name], natural(name)))[:MOST_NODES]
    return sorted(worst, key=natural)


def _cell(pairs: dict[tuple[str, str], Pair], by_pair: Statuses, source: str, peer: str) -> Cell:
    status, pair = by_pair.get((source, peer)), pairs.get((source, peer))
    if status is None:
        return Cell("self", "·") if source == peer else Cell("quiet")
    if pair is None:
        return Cell(status.state, SIGNS[status.state], status.word)
    if is_idle(pair, status):
        return Cell("quiet", "–", "none due", _in_full(pair))
    share = f" {status.share.removesuffix(' %')}" if status.share != "?" else ""
    return Cell(status.state, f"{SIGNS[status.state]}{share}", status.word, _in_full(pair))


def _in_full(pair: Pair) -> str:
    """Return the tooltip of a cell: how many due events are delivered, the counts that are not 0, and the lag."""
    parts = [f"{pair.source} → {pair.peer}: {pair.delivered:,} of {due(pair):,} ({share_of(pair, exact=True)})"]
    counts = {
        "by the sender's claim alone": pair.claimed,
        "missing": pair.missing,
        "disputed": pair.disputed,
        "pending": pair.pending,
        "unproven": pair.unproven,
    }
    parts += [f"{count:,} {word}" for word, count in counts.items() if count]
    return ", ".join([*parts, f"lag {span(pair.lag)}"] if pair.lag else parts)
