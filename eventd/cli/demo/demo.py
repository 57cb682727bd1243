"""`routerd-eventd demo`: three nodes exchange events, one is killed and restarted, and nothing is lost.

The demo uses what a user has: `routerd-eventd serve` as processes, `routerctl` on their databases, and the API. It
waits for conditions, never for time, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from eventd.cli.demo.nodes import GROUP, NAMES, Contents, DemoFailed, DemoLink, DemoNode, Stage
from eventd.cli.demo.picture import (
    WIDTH,
    Narrator,
    Picture,
    delivery_table,
    holding_table,
    link_table,
    process_table,
    proof_table,
)
from eventd.cli.program.stopping import EndOnSignal
from eventd.runtime.clock import SystemClock

MANY = 300
"""Events that a node emits in one round."""
OFFLINE = 50
"""Events that routerctl writes into the database of the killed node."""
DOWN = "site-b"
OTHERS = tuple(name for name in NAMES if name != DOWN)

_EMIT = ("federation", "event", "emit")
_BY_HAND, _TRACED = "ups-1", "door-1"
_FIRST = (*_EMIT, "--id", _BY_HAND, "--type", "power.lost", "--subject", "hall")
_MEANWHILE = (*_EMIT, "--id", _TRACED, "--type", "door.open", "--subject", "gate")


def run(*, keep: bool = False) -> None:
    """Play the demo. With `keep` the nodes run until Ctrl-C. Raises `DemoFailed` if a step fails or is interrupted.

    Afterwards all processes of the demo have ended and its files are deleted.
    """
    console = console_of()
    playing(lambda: _play(console, keep=keep))


def console_of() -> Console:
    """Return the console of the demo, as wide as its picture or the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without the characters of the picture gets the text only
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def playing(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the demo that `play` returns. Raises `DemoFailed` if it fails or is interrupted."""
    try:
        with asyncio.Runner() as runner:
            runner.run(_until_signalled(play))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise DemoFailed("the demo was stopped before its end; its nodes and files are deleted") from None


async def _until_signalled(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with EndOnSignal():
        await play()


async def _play(console: Console, *, keep: bool) -> None:
    demo = Demo(Narrator(console))
    async with demo.stage:
        await demo.play()
        if keep:
            await demo.stay()
    if not keep:
        demo.say_goodbye()


async def start_nodes(
    stage: Stage, nodes: Sequence[DemoNode], narrator: Narrator, about: str = "", more: Sequence[str] = ()
) -> None:
    """Start the nodes as peers of each other, and wait until all are ready.

    `about`: a remark about the other nodes, to be printed. `more`: further files that the first node applies.
    """
    narrator.act("1", "Three nodes, each a peer of the others")
    key = stage.write_key()
    for node in nodes:
        stage.write_declaration(node.name, key)
        node.start()
    for node in nodes:
        await stage.until(f"{node.name} to start", node.listens)
    applied = {node.name: [f"{node.name}.yaml", *(more if node is nodes[0] else ())] for node in nodes}
    commands = {name: ("apply", *(word for file in files for word in ("-f", file))) for name, files in applied.items()}
    narrator.command(f"routerctl {shlex.join(commands[nodes[0].name])}")
    outputs = await stage.routerctl_each([(name, command, "") for name, command in commands.items()])
    narrator.output(outputs[0])
    narrator.note(f"and the same on site-b and site-c{f', {about}' if about else '.'}")
    for node in nodes:
        await stage.until(f"{node.name} to be ready", stage.is_ready, node)


class Demo:
    """Plays the demo: starts three nodes, kills one and restarts it, and describes each step."""

    def __init__(self, narrator: Narrator) -> None:
        self.clock = SystemClock()
        self.stage = Stage(self.clock, self._tick)
        self._narrator = narrator
        self._nodes = list(self.stage.nodes.values())
        self._emitted = 0

    async def play(self) -> None:
        """Run all steps in order."""
        began = self.clock.monotonic()
        self._narrator.title("routerd-eventd", "Three nodes on this machine, and no server between them.")
        with self._narrator.live(Picture(self.stage.nodes)):
            await self._start_nodes()
            await self._emit_events()
            await self._cut_one_off()
            await self._bring_it_back()
            await self._prove()
            await self._trace()
        self._narrator.note(f"The whole demo took {self.clock.monotonic() - began:.0f} seconds.", gap=True)

    # --- acts -------------------------------------------------------------------------------------------------

    async def _start_nodes(self) -> None:
        await start_nodes(self.stage, self._nodes, self._narrator, "each with the two others as its peers.")
        self._narrator.show(process_table(self._nodes))
        self._narrator.proven("One short file for each node, one key for all, applied to running nodes.")

    async def _emit_events(self) -> None:
        self._narrator.act("2", "Events spread")
        self._narrator.command(f"routerctl {shlex.join(_EMIT)} --stdin < seen.jsonl")
        self._narrator.note(f"{MANY} events on each node, and then a single one on {DOWN}:")
        await self._emit([_observed(name, MANY, 0) for name in NAMES])
        await self._all_in_step()
        self._narrator.command(f"routerctl {shlex.join(_FIRST)}")
        await self._emit([], (DOWN, _FIRST, ""))
        await self._all_in_step()
        self._narrator.show(holding_table(self._nodes, await self._read_all()))
        self._narrator.show(link_table(self._nodes))
        took = await self._time_of(DOWN, _BY_HAND)
        self._narrator.proven(
            f"Each node holds all {self._emitted:,} events. The single one took {took * 1000:,.0f} ms, from the moment"
            f" it was stored on {DOWN} until both others had confirmed it with a signed receipt."
        )

    async def _cut_one_off(self) -> None:
        self._narrator.act("3", "One is killed, the others continue")
        victim = self.stage.nodes[DOWN]
        self._narrator.command(f"kill -9 {victim.pid}")
        victim.kill()
        await self._emit([_observed(name, MANY, 1) for name in OTHERS])
        await self._show_waiting(MANY)
        self._narrator.command(f"routerctl {shlex.join(_MEANWHILE)}")
        rounds = [_observed(name, MANY, 2) for name in OTHERS]
        await self._emit([*rounds, _observed(DOWN, OFFLINE, 2)], (OTHERS[0], _MEANWHILE, ""))
        await self._show_waiting(2 * MANY)
        self._narrator.note(
            f"Events can still be emitted on {DOWN}: routerctl has just written {OFFLINE} into its log."
        )
        await self.stage.until(f"the links to {DOWN} to say why they wait", self._links_show_reasons)
        self._narrator.show(link_table(self._nodes))
        self._narrator.proven(
            f"Both links to {DOWN} show the reason, the backlog and its age. The links between the two"
            " others are not affected."
        )

    async def _show_waiting(self, least: int) -> None:
        await self.stage.until(f"{least} events to wait for {DOWN}", self._waiting, least)
        waiting = " and ".join(f"{self._link_to_down(name).lag_events:,} on {name}" for name in OTHERS)
        self._narrator.note(f"new events wait for {DOWN}: {waiting}")

    async def _bring_it_back(self) -> None:
        self._narrator.act("4", "It comes back")
        node = self.stage.nodes[DOWN]
        self._narrator.command(f"routerd-eventd serve --data-dir {DOWN}")
        began = self.clock.monotonic()
        node.start()
        await self.stage.until(f"{DOWN} to start", node.listens)
        await self.stage.until(f"{DOWN} to be ready", self.stage.is_ready, node)
        ready = self.clock.monotonic()
        await self._all_in_step()
        caught_up = self.clock.monotonic()
        self._narrator.show(link_table(self._nodes))
        self._narrator.proven(
            f"Ready after {ready - began:.1f} s, on the files the crash left behind. {caught_up - ready:.1f} s later"
            f" nothing waits any more, in either direction. Its first request showed the others that it is back."
        )

    async def _prove(self) -> None:
        self._narrator.act("5", "The proof")
        held = await self._read_all()
        await self.stage.look()
        self._narrator.show(proof_table(self._nodes, held))
        for node in self._nodes:
            if (has := held[node.name]) != held[NAMES[0]]:
                raise DemoFailed(f"{node.name} holds other events than {NAMES[0]}: {_difference(has, held[NAMES[0]])}")
            if not len(has.ids) == node.seen.records == self._emitted:
                counts = f"{len(has.ids)} ids in {node.seen.records} records, and {self._emitted} were emitted"
                raise DemoFailed(f"{node.name} does not hold every event once: {counts}")
        self._narrator.proven(
            f"{self._emitted:,} events were emitted. Every node holds {self._emitted:,}, each of them once, and the"
            " three digests are the same. Nothing lost, nothing duplicated."
        )

    async def _trace(self) -> None:
        self._narrator.act("6", "Where did this one go?")
        asked = ("federation", "event", "deliveries", "--event-id", _TRACED)
        self._narrator.command(f"routerctl {shlex.join(asked)}")
        self._narrator.show(delivery_table(json.loads(await self.stage.routerctl(OTHERS[0], *asked, "-o", "json"))))
        self._narrator.proven(
            f"Emitted on {OTHERS[0]} while {DOWN} was down, stored, retried, confirmed. Every event can be traced"
            " like this."
        )

    # --- emitting and waiting ---------------------------------------------------------------------------------

    async def _emit(self, many: Sequence[tuple[str, list[str]]], *others: tuple[str, Sequence[str], str]) -> None:
        """Emit, all at once, the JSON lines of each node in `many`, and one event with each call in `others`."""
        calls = [(name, (*_EMIT, "--stdin"), "".join(lines)) for name, lines in many]
        await self.stage.routerctl_each([*calls, *others])
        self._emitted += sum(len(lines) for _, lines in many) + len(others)

    async def _all_in_step(self) -> None:
        await self.stage.until("every node to hold every event, and no backlog", self._in_step)

    async def _in_step(self) -> bool:
        await self.stage.look()
        links = [link for node in self._nodes for link in node.seen.links.values()]
        idle = [link for link in links if link.state == "running" and not link.lag_events]
        return len(idle) == 6 and all(node.seen.ids == self._emitted for node in self._nodes)

    async def _waiting(self, least: int) -> bool:
        await self.stage.look()
        return all(self._link_to_down(name).lag_events >= least for name in OTHERS)

    async def _links_show_reasons(self) -> bool:
        """Return whether the links to the killed node back off, and those between the other nodes have no backlog."""
        await self.stage.look()
        links = [(peer, link) for name in OTHERS for peer, link in self.stage.nodes[name].seen.links.items()]
        return all(link.state == "backing-off" if peer == DOWN else not link.lag_events for peer, link in links)

    def _link_to_down(self, name: str) -> DemoLink:
        return self.stage.nodes[name].seen.links[DOWN]

    async def _read_all(self) -> dict[str, Contents]:
        return {node.name: await self.stage.holding(node) for node in self._nodes}

    async def _time_of(self, name: str, event_id: str) -> float:
        """Return the seconds from the storage of an event at a node until the last peer of that node confirmed it."""
        path = f"/api/v1/groups/{GROUP}/deliveries?eventId={event_id}"
        rows = (await self.stage.ask(self.stage.nodes[name], path))["deliveries"]
        spans = [datetime.fromisoformat(r["deliveredAt"]) - datetime.fromisoformat(r["recordedAt"]) for r in rows]
        return max(span.total_seconds() for span in spans)

    async def _tick(self) -> None:
        if self._narrator.refresh():
            await self.stage.look()

    # --- the end ----------------------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """Show the next steps for the user; the nodes of the demo and their files are deleted already."""
        self._narrator.act("→", "Your turn")
        self._narrator.note("The three nodes and their files are deleted. To keep them and try things:")
        self._narrator.paste(f"{_program('routerd-eventd')} demo --keep")
        self._narrator.note("All commands:")
        self._narrator.paste(f"{_program('routerctl')} --help")
        self._narrator.note("Two nodes of your own take five minutes: see README.md.")

    async def stay(self) -> None:
        """Show commands to paste into another terminal, and leave the nodes running until Ctrl-C."""
        self._narrator.act("→", "Your turn")
        for words, *commands in self._suggestions():
            self._narrator.note(words, gap=True)
            for command in commands:
                self._narrator.paste(command)
        self._narrator.note("The nodes run until Ctrl-C.", gap=True)
        with suppress(asyncio.CancelledError):
            while True:
                await self.clock.sleep(3600)
        self._narrator.note("The nodes and their files are deleted.")

    def _suggestions(self) -> Iterator[tuple[str, ...]]:
        daemon, control = _program("routerd-eventd"), _program("routerctl")
        on = {name: f"--data-dir {shlex.quote(str(node.home))}" for name, node in self.stage.nodes.items()}
        down, here, there = self.stage.nodes[DOWN], OTHERS[0], OTHERS[1]
        yield (
            f"Emit an event on {here}, and list it on {there}:",
            f"{control} {shlex.join(_EMIT)} --type hello --subject world --payload from=me {on[here]}",
            f"{control} federation event list --type hello {on[there]}",
        )
        yield (
            "Show every link, from the database or the running node:",
            f"{control} federation links {on[here]}",
            f"{control} federation links --server http://{self.stage.nodes[here].api}",
        )
        yield (
            f"Pause the link to {DOWN}, and resume it:",
            f"{control} federation pause {DOWN} {on[here]}",
            f"{control} federation resume {DOWN} {on[here]}",
        )
        yield (
            f"Kill {DOWN}, and bring it back:",
            f"kill -9 {down.pid}",
            f"{daemon} serve --api-listen 127.0.0.1:0 {on[DOWN]}",
        )


def _program(name: str) -> str:
    """Return the command that runs the program `name` from the present folder: its name, its path or `python -m`."""
    beside, found = Path(sys.argv[0]).absolute().with_name(name), shutil.which(name)
    if not beside.exists():
        return name if found else f"{shlex.quote(sys.executable)} -m eventd.cli.{name.replace('-', '_')}"
    if found and beside.samefile(found):
        return name
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _observed(name: str, count: int, round_: int) -> tuple[str, list[str]]:
    """Return the node's name and `count` JSON lines, events as an observer of its network would write them."""
    site = NAMES.index(name) + 1
    lines = []
    for at in range(count):
        high, low = divmod(at, 256)
        event = {
            "type": "routerd.client.ipv4.observed",
            "subject": f"10.{site}.{10 * round_ + high}.{low}/32",
            "payload": {"mac": f"02:00:0{site}:0{round_}:{high:02x}:{low:02x}", "interface": f"ge-0/0/{at % 8}"},
        }
        lines.append(json.dumps(event) + "\n")
    return name, lines


def _difference(one: Contents, other: Contents) -> str:
    extra, missing = len(one.ids - other.ids), len(other.ids - one.ids)
    return (
        f"{missing} are missing, {extra} are too many" if extra or missing else "the ids are equal, the contents differ"
    )
