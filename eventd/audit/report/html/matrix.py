"""The matrix: who has what of whom. Rows are sources, columns are peers; a cell has the proven share and the lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eventd.audit.report.figures import natural, span
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.tables import paragraph, scrolling, section, sign
from eventd.audit.report.report import Pair, Report
from eventd.audit.report.standing import SIGNS, Standing, due, groups, idle, share_of, standings

MOST_NODES = 40
"""Rows and columns of one matrix. Beyond them the nodes with trouble are shown."""
DENSE = 9
"""Nodes from which on the names of the columns are written upwards and the cells are small."""

_LEGEND = (
    ("good", "all that is due is there"),
    ("bad", "something is wrong: what, and how often"),
    ("open", "something waits for longer than a minute, or the link is not running"),
    ("none", "cannot be proven, either way"),
)


def matrix(report: Report) -> Markup | None:
    """The section with one matrix for each group; None where there is no pair."""
    if not report.pairs:
        return None
    legend = element("ul", (element("li", sign(state), words) for state, words in _LEGEND), class_="legend")  # type: ignore[arg-type]
    return section(
        "matrix",
        "Who has what of whom",
        paragraph(
            "A row is the node that recorded the events, a column the node that should have them. The figure is the "
            "share of what is due, in percent, that is proven to be there, cut and never rounded up; below it is the "
            "age of the oldest event that is still to come."
        ),
        legend,
        [_group(report, group) for group in groups(report)],
    )


def _group(report: Report, group: str) -> Markup:
    pairs = {(pair.source, pair.peer): pair for pair in report.pairs if pair.group == group}
    stands = standings(report, group)
    names = _names(stands)
    sources = [name for name in names if any(source == name for source, _ in stands)]
    peers = [name for name in names if any(peer == name for _, peer in stands)]
    dense = len(peers) >= DENSE
    caption = f"Group {group}: {len(sources)} × {len(peers)} nodes"
    tall = "tall" if dense else None
    head = [
        element("th", element("span", "source ↓ peer →", class_="soft"), scope="col"),
        *(element("th", element("span", peer), scope="col", class_=tall, title=peer) for peer in peers),
    ]
    body = [_row(source, peers, pairs, stands) for source in sources]
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", body),
        class_="matrix dense" if dense else "matrix",
    )
    return join(scrolling(caption, table), _left_out(stands, names))


def _names(stands: dict[tuple[str, str], Standing]) -> list[str]:
    """The nodes to show, in the order of their names."""
    trouble: Counter[str] = Counter()
    for (source, peer), standing in stands.items():
        trouble.update({source: standing.state != "good", peer: standing.state != "good"})
    worst = sorted(trouble, key=lambda name: (-trouble[name], natural(name)))[:MOST_NODES]
    return sorted(worst, key=natural)


def _left_out(stands: dict[tuple[str, str], Standing], names: Sequence[str]) -> Markup | None:
    every = {name for at in stands for name in at}
    if len(every) == len(names):
        return None
    return paragraph(
        f"{len(every) - len(names):,} nodes with less to say about them are left out; report.json has all."
    )


def _row(
    source: str, peers: Sequence[str], pairs: dict[tuple[str, str], Pair], stands: dict[tuple[str, str], Standing]
) -> Markup:
    cells: list[Child] = [element("th", source, scope="row", title=source)]
    for peer in peers:
        if (standing := stands.get((source, peer))) is not None:
            cells.append(_cell(pairs.get((source, peer)), standing))
        else:
            same = source == peer
            cells.append(element("td", "·" if same else "", class_="self" if same else "quiet"))
    return element("tr", cells)


def _cell(pair: Pair | None, standing: Standing) -> Markup:
    if pair is None:
        return element(
            "td", element("b", SIGNS[standing.state]), element("small", standing.word), class_=standing.state
        )
    if idle(pair, standing):
        return element("td", "–", element("small", "none due"), class_="quiet", title=_told(pair))
    state = standing.state
    share = f"{SIGNS[state]} {standing.share.removesuffix(' %')}" if standing.share != "?" else SIGNS[state]
    return element("td", element("b", share), element("small", standing.word), class_=state, title=_told(pair))


def _told(pair: Pair) -> str:
    """What the cell says in full, for who points at it. The table of balances says it to everybody."""
    share = share_of(pair, exact=True)
    parts = [f"{pair.source} → {pair.peer}: {pair.delivered:,} of {due(pair):,} ({share})"]
    for count, word in (
        (pair.missing, "missing"),
        (pair.disputed, "disputed"),
        (pair.pending, "still to come"),
        (pair.unproven, "not proven"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    if pair.lag:
        parts.append(f"lag {span(pair.lag)}")
    return ", ".join(parts)
