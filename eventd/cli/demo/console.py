"""`routerd-eventd demo --console`: three nodes that keep emitting events, and one console in which to watch them.

A node that the reader kills stays down until Enter is pressed in the demo, which starts it again.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from eventd.cli.demo.demo import DOWN, console_of, playing, start_nodes
from eventd.cli.demo.examples import FILE, FOREIGN, NODE, add_example, write_examples
from eventd.cli.demo.nodes import DemoFailed, DemoNode, Stage
from eventd.cli.demo.picture import Narrator
from eventd.runtime.clock import SystemClock

_COLOURS: Final = {"site-a": "green", "site-b": "orange", "site-c": "blue"}
PAUSE_SECONDS: Final = 0.25
"""The time between two events of each node: a link to a node that was killed fails at the next one."""
_ROUNDS, _FIRST_EXAMPLES = 20, 6
"""Number of rounds of events between two examples, and the number of examples at the beginning."""
_MOST_INPUT: Final = 4096


def run() -> None:
    """Play the demo until Ctrl-C. Raises `DemoFailed` if a step fails; nothing of it is left behind."""
    narrator = Narrator(console_of())
    playing(lambda: _play(narrator))


async def _play(narrator: Narrator) -> None:
    demo = ConsoleDemo(narrator)
    async with demo.stage:
        await demo.play()
    narrator.note("The nodes, the console and their files are deleted.", gap=True)


class ConsoleDemo:
    """Plays the demo: starts three nodes and a console, and keeps them until the task is cancelled."""

    def __init__(self, narrator: Narrator) -> None:
        self.clock = SystemClock()
        self.stage = Stage(self.clock, self._tick, fixed=True)
        self._narrator = narrator
        self._nodes = list(self.stage.nodes.values())
        self._down: dict[str, bool] = {}
        """The nodes that were killed, each with whether it has been started again."""
        self._link_wanted = False
        self._port = ""

    async def play(self) -> None:
        """Run all steps in order, and then until the task is cancelled."""
        self._narrator.title("routerd-eventd", "Three nodes on this machine, and one console for all of them.")
        write_examples(self.stage)
        await start_nodes(self.stage, self._nodes, self._narrator, "without the examples.", [FILE])
        for number in range(_FIRST_EXAMPLES):
            await add_example(self.stage, self.stage.nodes[NODE], number)
        link = await self._open_console()
        self._port = link.removeprefix("http://").partition("/")[0].rpartition(":")[2]
        self._explain(link)
        task, number = asyncio.current_task(), 0
        with suppress(asyncio.CancelledError), _pressed_enter(self._start_again):
            # asked each time: a request whose own time-out comes with the cancellation reports the time-out alone
            while task is not None and not task.cancelling():
                number += 1
                await self._emit(number)
                if number % _ROUNDS == 0 and self.stage.nodes[NODE].running:
                    await add_example(self.stage, self.stage.nodes[NODE], number // _ROUNDS + _FIRST_EXAMPLES - 1)
                self._report()
                if self._link_wanted:
                    await self._print_link()
                await self.clock.sleep(PAUSE_SECONDS)

    async def _open_console(self) -> str:
        self._narrator.act("2", "A context for each, and one console")
        for node in self._nodes:  # one after the other: each writes the file of contexts
            arguments = ("context", "add", node.name, "--server", f"http://{node.api}", "--colour", _COLOURS[node.name])
            self._narrator.command(f"routerctl {shlex.join(arguments)}")
            await self.stage.routerctl("", *arguments, data_dir=False)
        self._narrator.command("routerctl console --all")
        return await self.stage.open_console()

    def _explain(self, link: str) -> None:
        self._narrator.act("→", "Your turn")
        self._narrator.note("Open this link in a browser of this machine; it works once:")
        self._narrator.paste(link)
        self._narrator.note(f"{NODE} has a dead letter, an event of {FOREIGN}: its page says why.", gap=True)
        self._narrator.note("Correct its resource (Resources, routes, Change), and retry the dead letter.")
        self._narrator.note(f"Kill {DOWN}: the map shows it within 2 seconds, and the others continue.", gap=True)
        self._narrator.paste(f"kill -9 {self.stage.nodes[DOWN].pid}")
        self._narrator.note("Press Enter here to start it again, and watch the map heal.", gap=True)
        self._narrator.note("While all nodes run, Enter prints a new link, for another browser.")
        self._narrator.note("The nodes and the console run until Ctrl-C.", gap=True)

    # --- while they run ---------------------------------------------------------------------------------------

    async def _emit(self, number: int) -> None:
        for node in self._nodes:
            if node.running and node.listens():
                event = {"type": "door.open" if number % 2 else "door.closed", "subject": f"{node.name}/gate"}
                await self.stage.emit(node, event)

    def _report(self) -> None:
        """Print which nodes have died since the last call, and which run again."""
        for node in self._nodes:
            if not node.running and node.name not in self._down:
                self._down[node.name] = False
                self._narrator.note(f"{node.name} was killed. Press Enter to start it again.", gap=True)
            elif self._down.get(node.name) and node.listens():
                del self._down[node.name]
                self._narrator.note(f"{node.name} runs again, as process {node.pid}.")

    def _start_again(self) -> None:
        down = [node for node in self._nodes if not node.running]
        self._link_wanted = not down
        for node in down:
            self._start_node(node)

    async def _print_link(self) -> None:
        self._link_wanted = False
        try:
            output = await self.stage.routerctl("", "console", "--link", "--port", self._port, data_dir=False)
        except DemoFailed:  # the system may have no socket for a path as long as that of its folder
            self._narrator.note("There is no new link: end the demo with Ctrl-C, and start it again.")
            return
        self._narrator.note("Open this link in a browser of this machine; it works once:", gap=True)
        self._narrator.paste(output.splitlines()[0])

    def _start_node(self, node: DemoNode) -> None:
        node.start()
        self._down[node.name] = True

    async def _tick(self) -> None:
        """Nothing on the screen moves during waits."""


@contextmanager
def _pressed_enter(act: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `act` for each line of standard input; never if standard input cannot be watched."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        data = os.read(number, _MOST_INPUT)
        if not data:
            loop.remove_reader(number)
        elif b"\n" in data:
            act()

    try:
        loop.add_reader(number, read)
    except OSError:  # a file, or /dev/null
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(number)
