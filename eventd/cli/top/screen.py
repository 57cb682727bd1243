"""The screen of `routerctl top`: takes over the terminal for as long as it is open, and leaves it as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn

from eventd.cli.terminal.output import GAP
from eventd.cli.top.choices import Choices
from eventd.cli.top.views import Row, View
from eventd.text.invisible import printable

if TYPE_CHECKING:
    from rich.text import Text

_MOST_KEYS = 64
_LONGEST = 24
"""Maximum width of all columns but the last."""
_AROUND = 3
"""Lines above and below the rows: the title, the header and the help."""
_ENDS = (signal.SIGTERM, signal.SIGHUP)
_STYLES = {"running": "green", "backing-off": "yellow", "paused": "yellow", "blocked": "red", "failed": "red"}


class Screen(AbstractContextManager["Screen"]):
    """The alternate screen of the terminal, with keys that arrive at once and are not shown."""

    def __init__(self, *, colour: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(no_color=not colour, highlight=False, markup=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._keys = sys.stdin.fileno()
        self._held = ExitStack()

    def __enter__(self) -> Screen:
        with ExitStack() as stack:
            for number in _ENDS:
                if signal.getsignal(number) is signal.SIG_DFL:  # on an event loop, its handler ends the command
                    stack.callback(signal.signal, number, signal.signal(number, _end))
            stack.callback(signal.signal, signal.SIGTSTP, signal.signal(signal.SIGTSTP, signal.SIG_IGN))
            stack.callback(termios.tcsetattr, self._keys, termios.TCSADRAIN, termios.tcgetattr(self._keys))
            tty.setcbreak(self._keys)
            stack.enter_context(self._live)
            self._held = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def wait_for_keys(self, seconds: float) -> str:
        """Return the keys that are pressed within this number of seconds; empty if none is pressed."""
        if not select.select([self._keys], [], [], max(0.0, seconds))[0]:
            return ""
        pressed = os.read(self._keys, _MOST_KEYS)
        return pressed.decode(errors="ignore") if pressed else "q"  # the terminal is gone

    def show(self, choices: Choices, rows: list[Row], problem: str) -> None:
        """Draw the rows that fit, below a title, and above the keys or the problem."""
        from rich.console import Group
        from rich.text import Text

        arranged = choices.view.arrange(
            rows, sort=choices.sort, reverse=choices.reverse, failing=choices.failing, part=choices.part
        )
        room = max(1, self._console.height - _AROUND)
        title = Text(printable(choices.describe(min(len(arranged), room), len(rows))), style="bold")
        last = Text(printable(problem), style="red") if problem else Text(choices.help(), style="dim")
        lines = [title, *_table(choices.view, arranged[:room]), last]
        for line in lines:
            line.truncate(self._console.width, overflow="ellipsis")  # so that only the last column is cut
        self._live.update(Group(*lines), refresh=True)


def _table(view: View, rows: Sequence[Row]) -> list[Text]:
    """Return the header and the rows as lines; a name that is too long is cut."""
    from rich.text import Text

    cells = [[column.header for column in view.columns]]
    cells += [[_shortened(printable(column.cell(row))) for column in view.columns[:-1]] for row in rows]
    for line, row in zip(cells[1:], rows, strict=True):
        line.append(printable(view.columns[-1].cell(row)))
    widths = [max(len(line[at]) for line in cells) for at in range(len(view.columns) - 1)] + [0]
    return [
        Text(GAP).join(
            Text(cell.ljust(width), style="bold" if number == 0 else _STYLES.get(cell, ""))
            for cell, width in zip(line, widths, strict=True)
        )
        for number, line in enumerate(cells)
    ]


def _shortened(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else f"{cell[: _LONGEST - 1]}…"


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
