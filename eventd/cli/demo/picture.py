"""The display of the demo: the live picture of three nodes and their links, tables and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.align import Align
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from eventd.cli.demo.nodes import NAMES, Contents, DemoLink, DemoNode

WIDTH = 80
BOX = 25
SIDE = 32
"""Columns of the whole picture, of one node in it, and of the links beside the first node."""
_COLOURS = {"running": "green", "backing-off": "yellow", "blocked": "red", "failed": "red", "paused": "cyan"}


class Picture:
    """A rich renderable that shows the nodes and links with their state at the moment it is drawn."""

    def __init__(self, nodes: Mapping[str, DemoNode]) -> None:
        self._nodes = nodes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, second, third = (self._nodes[name] for name in NAMES)
        sides = Table.grid()
        sides.add_column(width=SIDE, justify="right")
        sides.add_column(width=WIDTH - 2 * SIDE, justify="center")
        sides.add_column(width=SIDE)
        sides.add_row(_pair(first, second), Text("╱          ╲", style="dim"), _pair(first, third))
        base = Table.grid(expand=True)
        base.add_column(width=BOX)
        base.add_column(justify="center", vertical="middle", ratio=1)
        base.add_column(width=BOX)
        base.add_row(_node(second), _pair(second, third), _node(third))
        top = Align.center(_node(first), width=WIDTH)
        yield from console.render(Group("", top, sides, base), options.update(width=min(WIDTH, options.max_width)))


def _node(node: DemoNode) -> Panel:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    line.add_row(_life(node), Text(f"{node.seen.ids:,} events", style="bold" if node.running else "dim"))
    return Panel(line, title=Text(node.name, style="bold"), width=BOX, border_style="" if node.running else "red")


def _life(node: DemoNode) -> Text:
    if not node.running:
        return Text("✖ down", style="bold red")
    return Text("● up", style="green") if node.api else Text("○ starts", style="yellow")


def _pair(one: DemoNode, other: DemoNode) -> Text:
    lines = [_direction(one, other), _direction(other, one)]
    for line in lines:
        line.pad_right(max(map(len, lines)) - len(line))
    return Text("\n").join(lines)


def _direction(sender: DemoNode, receiver: DemoNode) -> Text:
    text = Text.assemble((f"{sender.name[-1]} → {receiver.name[-1]}  ", "dim"))
    link = sender.seen.links.get(receiver.name)
    if link is None or not sender.running:
        return text.append("·", style="dim")
    text.append(link.state, style=_COLOURS.get(link.state, "red"))
    return text.append(f"  {link.lag_events:,} wait", style="bold") if link.lag_events else text


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for title, justify in columns:
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def process_table(nodes: Sequence[DemoNode]) -> Table:
    """Return the table of nodes with their processes and addresses."""
    table = _table(("NODE", "left"), ("PROCESS", "right"), ("FOR PEERS", "left"), ("API", "left"))
    for node in nodes:
        table.add_row(node.name, str(node.pid), f"127.0.0.1:{node.port}", node.api)
    return table


def holding_table(nodes: Sequence[DemoNode], held: Mapping[str, Contents]) -> Table:
    """Return the table of the numbers of events, by node and source."""
    table = _table(("NODE", "left"), *((f"FROM {name.upper()}", "right") for name in NAMES), ("ALL", "right"))
    for node in nodes:
        if (has := held.get(node.name)) is not None:
            counts = [f"{has.by_source.get(name, 0):,}" for name in NAMES]
            table.add_row(node.name, *counts, f"{sum(has.by_source.values()):,}")
    return table


def link_table(nodes: Sequence[DemoNode]) -> Table:
    """Return the table of links as their senders report them; a stopped node reports nothing."""
    table = _table(("LINK", "left"), ("STATE", "left"), ("WAITING", "right"), ("FOR", "right"))
    table.add_column("WHY", no_wrap=True, max_width=24)
    for node in nodes:
        for peer, link in sorted(node.seen.links.items()) if node.running else ():
            state = Text(link.state, style=_COLOURS.get(link.state, "red"))
            table.add_row(f"{node.name} → {peer}", state, f"{link.lag_events:,}", _age(link), _why(link))
    return table


def _age(link: DemoLink) -> str:
    return f"{link.lag_seconds:.1f} s" if link.lag_events else "-"


def _why(link: DemoLink) -> str:
    return link.reason if link.state != "running" else "-"


def delivery_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of one event's deliveries."""
    table = _table(
        ("EVENT_ID", "left"), ("PEER", "left"), ("STATUS", "left"), ("ATTEMPTS", "right"), ("DELIVERED", "left")
    )
    for row in rows:
        status = Text(row["status"], style="green" if row["status"] == "delivered" else "red")
        table.add_row(row["eventId"], row["peer"], status, str(row["attempts"]), row["deliveredAt"])
    return table


def proof_table(nodes: Sequence[DemoNode], held: Mapping[str, Contents]) -> Table:
    """Return the table that compares the nodes; the digest covers every id and every content."""
    table = _table(
        ("NODE", "left"), ("EVENTS", "right"), ("STORED", "right"), ("SHA-256 OF ALL IDS AND CONTENTS", "left")
    )
    for node in nodes:
        has = held[node.name]
        table.add_row(node.name, f"{len(has.ids):,}", f"{node.seen.records:,}", has.digest[:40] + "…")
    return table


class Narrator:
    """Prints the text line by line. On a wide terminal the picture stays below it and is updated."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._gap = False

    @contextmanager
    def live(self, picture: Picture) -> Iterator[None]:
        """On a terminal that is wide enough, show the picture until the end of the block, then erase it."""
        console = self.console
        if not console.is_terminal or console.is_dumb_terminal or console.width < WIDTH:
            yield
            return
        with Live(picture, console=console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def refresh(self) -> bool:
        """Redraw the picture. Returns whether there is one."""
        if self._live is not None:
            self._live.refresh()
        return self._live is not None

    def title(self, name: str, words: str) -> None:
        """Print the title."""
        self._print(Text(name, style="bold"), gap=True)
        self._print(Text(words))

    def act(self, mark: str, title: str) -> None:
        """Print a heading."""
        self._print(Rule(Text(f"{mark}  {title}", style="bold"), align="left", style="dim"), gap=True)
        self.gap()

    def command(self, words: str) -> None:
        """Print a command that is run, on one line, so that it can be copied."""
        self._print(Text.assemble(("  $ ", "dim"), (words, "cyan")), soft_wrap=True)

    def paste(self, words: str) -> None:
        """Print a command for the reader to run."""
        self._print(Text(f"    {words}", style="cyan"), soft_wrap=True)

    def output(self, text: str) -> None:
        """Print the output of a command."""
        for line in text.rstrip().splitlines():
            self._print(Text(f"    {line}"), soft_wrap=True)

    def note(self, words: str, *, gap: bool = False) -> None:
        """Print a remark."""
        self._print(Padding(Text(words, style="dim"), (0, 0, 0, 2), expand=False), gap=gap)

    def show(self, thing: RenderableType) -> None:
        """Print a table."""
        self._print(Padding(thing, (0, 0, 0, 2), expand=False), gap=True)
        self.gap()

    def proven(self, words: str) -> None:
        """Print a line with a check mark: the sentence `words`, which the step has proven."""
        line = Table.grid(padding=(0, 1))
        line.add_column(width=3, justify="right")
        line.add_column(max_width=self.console.width - 8)
        line.add_row(Text("✔", style="green"), words)
        self._print(line, gap=True)

    def gap(self) -> None:
        """Print an empty line, unless the last line is empty."""
        if not self._gap:
            self.console.print()
        self._gap = True

    def _print(self, thing: RenderableType, *, gap: bool = False, soft_wrap: bool = False) -> None:
        if gap:
            self.gap()
        self.console.print(thing, soft_wrap=soft_wrap)
        self._gap = False
