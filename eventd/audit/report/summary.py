"""The report on a terminal: verdict, first findings, matrices, and reasons for doubt. report.html has more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eventd.audit.report.figures import NONE, natural, span
from eventd.audit.report.findings import Finding, Kind, is_of_tree
from eventd.audit.report.pair_status import (
    SIGNS,
    VERDICTS,
    PairStatus,
    State,
    due,
    groups,
    is_idle,
    noun,
    reused_segments,
    share_of,
    statuses,
)
from eventd.audit.report.report import Report
from eventd.audit.report.time_zone import in_zone, zone_of
from eventd.text.invisible import printable
from eventd.text.plural import counted

MOST_FINDINGS = 20
IDS_OF_FINDING = 3
MOST_DOUBTS = 8
MOST_NOTICES = 4
LONG_WAY = 40
"""Maximum width to which names of pairs are aligned."""
WIDE_NODES = 8
"""Maximum number of nodes of a matrix with figures; a larger one has signs, and numbers instead of names."""
MOST_NODES = 40

_STYLES: dict[State, str] = {"good": "green", "bad": "bold red", "open": "yellow", "none": "magenta"}


def summary(report: Report) -> RenderableType:
    """Render the report for a terminal of any width. Names of other nodes cannot control the terminal."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield _verdict(report)
    if report.findings:
        yield Padding(_findings(report.findings, zone_of(report)), (1, 0, 0, 2), expand=False)
    for group in groups(report):
        yield Padding(_matrix(report, group), (1, 0, 0, 2), expand=False)
    if doubts := list(_doubts(report)):
        lines = Text("\n").join(doubts)
        yield Padding(lines, (1, 0, 0, 2), expand=False)
    if report.notices:
        yield Padding(Text("\n").join(_notices(report)), (1, 0, 0, 2), expand=False)
    yield Padding(Text(in_zone(_figures(report), zone_of(report)), style="dim"), (1, 0, 0, 2), expand=False)


def _verdict(report: Report) -> Text:
    state = VERDICTS[report.verdict]
    first, *others = report.headline or (f"The audit is {report.verdict}.",)
    zone = zone_of(report)
    text = Text.assemble((f"{SIGNS[state]} {printable(in_zone(first, zone))}", _STYLES[state]))
    for line in others:
        text.append(f"\n  {printable(in_zone(line, zone))}")
    if report.failed:
        text.append(f"\n  Failed on: {printable(', '.join(report.failed))}.", style=_STYLES["bad"])
    return text


def _findings(found: Sequence[Finding], zone: tzinfo) -> Group:
    """Render the first `MOST_FINDINGS` findings, a line each, with the first ids below, one per line to be copied."""
    shown = found[:MOST_FINDINGS]
    ways = [printable(f"{one.source} → {one.peer}" if one.peer else one.source) for one in shown]
    width = min(max(map(len, ways)), LONG_WAY)
    lines: list[RenderableType] = []
    for one, way in zip(shown, ways, strict=True):
        line = Text.assemble((f"{one.kind.value:<12}", _STYLES["bad"]), f"  {way:<{width}}")
        lines.append(line.append(f"  {_range(one)}{counted(one.events, noun(one.kind))}{_marks(one)}", style="dim"))
        lines += [Padding(Text(words, overflow="fold"), (0, 0, 0, 4), expand=False) for words in _ids(one, zone)]
    if (more := len(found) - MOST_FINDINGS) > 0:
        lines.append(Text(f"and {counted(more, 'more finding')}, in report.html", style="dim"))
    return Group(*lines)


def _marks(one: Finding) -> str:
    """Return the marks of a finding: how many of its events are new, and how many are acknowledged."""
    new = f" · {'' if one.new == one.events else f'{one.new:,} '}new" if one.new else ""
    known = "" if one.acknowledged == one.events else f"{one.acknowledged:,} "
    return f"{new} · {known}acknowledged" if one.acknowledged else new


def _range(one: Finding) -> str:
    if not one.last:
        return ""
    rows = one.kind in (Kind.CORRUPT, Kind.ROLLED_BACK)
    word, words = ("leaf", "leaves") if is_of_tree(one) else ("ledger row", "ledger rows") if rows else ("seq", "seqs")
    return f"{word} {one.first:,} · " if one.first == one.last else f"{words} {one.first:,}-{one.last:,} · "


def _ids(one: Finding, zone: tzinfo) -> Iterator[str]:
    shown = one.ids[:IDS_OF_FINDING]
    yield from map(printable, shown)
    if (more := one.events - len(shown)) > 0 and shown:
        yield f"and {more:,} more"
    if one.detail:
        yield printable(in_zone(one.detail, zone))


def _matrix(report: Report, group: str) -> RenderableType:
    pairs = {(pair.source, pair.peer): pair for pair in report.pairs if pair.group == group}
    by_pair = {
        at: None if at in pairs and is_idle(pairs[at], status) else status
        for at, status in statuses(report, group).items()
    }
    names = sorted({name for at in by_pair for name in at}, key=natural)
    shown = names[:MOST_NODES]
    wide = len(names) <= WIDE_NODES
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim" if not wide else "")
    table.add_column(Text("source ↓  peer →", style="dim"), justify="right", overflow="ellipsis", no_wrap=True)
    for number, name in enumerate(shown, start=1):
        header = printable(name) if wide else str(number)
        table.add_column(Text(header), justify="center", no_wrap=True, overflow="ellipsis")
    callbacks = {pair.peer for pair in pairs.values() if pair.receiver == "callback"}
    for number, source in enumerate(shown, start=1):
        if source in callbacks:
            continue  # it emits no events
        row = printable(source) if wide else f"{printable(source)} {number}"
        table.add_row(Text(row), *(_cell(by_pair.get((source, peer)), wide=wide) for peer in shown))
    title = Text(f"group {printable(group)}: a figure is the delivered share of due events, in percent", style="dim")
    left_out = [Text(f"and {len(names) - MOST_NODES:,} more nodes", style="dim")] if names[MOST_NODES:] else []
    return Group(title, table, *left_out, _legend())


def _cell(status: PairStatus | None, *, wide: bool) -> Text:
    if status is None:
        return Text("·", style="dim")
    sign = SIGNS[status.state]
    figure = f" {status.share.removesuffix(' %')}" if wide and status.share not in ("?", NONE) else ""
    return Text(f"{sign}{figure}", style=_STYLES[status.state])


def _legend() -> Text:
    words: tuple[tuple[State, str], ...] = (
        ("good", "delivered"),
        ("bad", "problem"),
        ("open", "pending"),
        ("none", "unproven"),
    )
    legend = Text(style="dim")
    for state, word in words:
        legend.append(SIGNS[state], style=_STYLES[state]).append(f" {word}   ")
    return legend


def _doubts(report: Report) -> Iterator[Text]:
    """Yield a line for each limitation of the verdict and each note on pairs, up to `MOST_DOUBTS`.

    A last line has the number of the others, if any.
    """
    lines = [f"{one.where}: {one.message}" for one in report.troubles]
    notes: dict[str, list[str]] = {}
    for pair in report.pairs:
        for note in pair.notes:
            notes.setdefault(note, []).append(f"{pair.source} → {pair.peer}")
    lines += [f"{ways[0]}{f' and {len(ways) - 1:,} more' if ways[1:] else ''}: {note}" for note, ways in notes.items()]
    for line in lines[:MOST_DOUBTS]:
        yield Text.assemble((f"{SIGNS['none']} ", _STYLES["none"]), printable(in_zone(line, zone_of(report))))
    if more := len(lines[MOST_DOUBTS:]):
        yield Text(f"  and {counted(more, 'more reason')} why deliveries are unproven, in report.json", style="dim")


def _notices(report: Report) -> Iterator[Text]:
    """Yield a line for each notice, up to `MOST_NOTICES`, and one with the number of the others, if any."""
    for one in report.notices[:MOST_NOTICES]:
        words = [one.kind, " → ".join(filter(None, (one.source, one.peer))), in_zone(one.message, zone_of(report))]
        yield Text(printable(": ".join(filter(None, words))), style="dim")
    if (more := len(report.notices) - MOST_NOTICES) > 0:
        yield Text(f"and {counted(more, 'more notice')}, in report.html", style="dim")


def _figures(report: Report) -> str:
    totals, work = report.totals, report.work
    share = share_of(totals, exact=True)
    of_those = " of those due" if totals.pending else ""
    return (
        f"{counted(len(report.nodes), 'node')}, {counted(totals.events, 'event')}, {totals.delivered:,} of "
        f"{due(totals):,} delivered ({share}{of_those}); "
        f"{counted(work.segments_read, 'segment')} read in {span(work.seconds)}{reused_segments(work)}"
    )
