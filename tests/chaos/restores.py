"""`python -m tests.chaos restores --moments N`: two nodes send to each other, and are backed up at N moments. Then, for
each moment and each cell of a table, nodes come back from these copies: the sender, the receiver, both from one moment,
both from different ones; idle, with new events, or with new events before the peer is there; with a new epoch by the
command, with the file put back by hand, or with the whole directory put back.

At rest every event that a node holds is at its peer, or inside a gap that the peer reports.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from tests.chaos.client import ClientProcess
from tests.chaos.load import FAILED, Ledger
from tests.chaos.report import CampaignReport
from tests.chaos.run import say
from tests.support.declared import PLAIN_GROUP
from tests.support.option_values import read_count
from tests.support.processes import DAEMON, Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

Who = Literal["sender", "receiver", "both", "both, of other ages"]
Load = Literal["idle", "busy", "ahead"]
Way = Literal["command", "file", "directory"]
REST_SECONDS = 60.0
_SECONDS_TO_NOTICE = 20.0
_PAUSE = 0.05
_AHEAD = 20
"""Events beyond those that were lost, which a restored node takes before its peer is up."""


@dataclass(frozen=True)
class Cell:
    """One way to restore. `load`: whether events come in meanwhile, `ahead`: before the peer is up."""

    who: Who
    load: Load
    way: Way

    def __str__(self) -> str:
        return f"{self.who}; {self.load}; {self.way}"


def cells() -> list[Cell]:
    """Return the table."""
    return [Cell(*each) for each in itertools.product(get_args(Who), get_args(Load), get_args(Way))]


@dataclass
class Outcome:
    """What one cell of one moment showed."""

    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Bench:
    """Two nodes that send to each other, their copies, and their state when the load ended."""

    def __init__(self, directory: Path, spec: dict[str, Any], retain: int) -> None:
        self.directory = directory
        self._spec = spec
        self._retain = retain
        self.processes = Processes(directory / "nodes")
        (directory / "copies").mkdir()
        env = {"EVENTD_LOG_FORMAT": "json", "EVENTD_DRAIN_TIMEOUT": "2s"}
        self.nodes = {name: NodeProcess(self.processes, name, **env) for name in "ab"}
        self.ledger = Ledger()
        self.positions: dict[str, dict[str, int]] = {}
        """By node, the positions of its own events that do not expire soon, when the load ended."""
        self._rounds = itertools.count(1)

    def record(self, moments: int) -> None:
        """Let both nodes work, and copy them at each moment; then keep the end as well."""
        a, b = self.nodes.values()
        kept = {"retention": {"maxEvents": self._retain}} if self._retain else {}
        a.join(**self._spec, **kept), b.join(**self._spec)
        a.join(b, **self._spec, **kept), b.join(a, **self._spec)
        clients = [self.client(node) for node in (a, b)]
        try:
            for client in clients:
                client.begin(next(self._rounds))
            for moment in range(moments):
                time.sleep(0.25)
                for name, node in self.nodes.items():
                    self._copy(node, self.directory / "copies" / f"{name}-{moment}")
            time.sleep(1)
            for client in clients:
                client.halt()
        finally:
            for client in clients:
                client.close()
        a.wait_sent("b"), b.wait_sent("a")
        for node in (a, b):
            own = [row for row in _rows(node) if row["sourceNode"] == node.name and not self._is_short(row["id"])]
            self.positions[node.name] = {row["id"]: _position(node, row["id"]) for row in own}
        if self._retain:
            wait_for(lambda: a.ask("POST", "/groups/edge/prune", {})["removed"], "a to remove events")
        for node in (a, b):
            node.stop()
            shutil.copytree(node.data, self.directory / "copies" / f"{node.name}-end")

    def client(self, node: NodeProcess) -> ClientProcess:
        """Return a client that emits at the node."""
        return ClientProcess(node.name, [node.process.port_file], (), self.ledger, 1, _PAUSE)

    def _copy(self, node: NodeProcess, to: Path) -> None:
        """Copy the database as `routerctl db backup` does, and the file with the last position."""
        with closing(sqlite3.connect(node.file)) as source, closing(sqlite3.connect(to)) as copy:
            source.backup(copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(node.file.with_name("eventd.db.head"), to.with_suffix(".head"))

    def moment_of(self, cell: Cell, moment: int, name: str, moments: int) -> int | None:
        """Return the moment from which the node is restored; None if it is not."""
        match cell.who, name:
            case ("sender", "b") | ("receiver", "a"):
                return None
            case ("both, of other ages", "b"):
                return (moment + moments // 2) % moments
        return moment

    def restore(self, node: NodeProcess, moment: int, way: Way) -> None:
        """Put the copy of a moment where the node's database is."""
        copy = self.directory / "copies" / f"{node.name}-{moment}"
        if way == "command":
            env = self.processes.node_environment(node.name)
            done = self.processes.control("db", "restore", str(copy), "--yes", env=env)
            assert done.returncode == 0, done.stderr
            return
        for suffix in ("-wal", "-shm"):
            node.file.with_name(f"eventd.db{suffix}").unlink(missing_ok=True)
        shutil.copyfile(copy, node.file)
        if way == "directory":
            head = node.file.with_name("eventd.db.head")
            head.unlink(missing_ok=True)
            if copy.with_suffix(".head").exists():
                shutil.copyfile(copy.with_suffix(".head"), head)

    # --- one cell ---------------------------------------------------------------------------------------------

    def run(self, cell: Cell, moment: int, moments: int) -> Outcome:
        """Restore, start, wait for rest, and compare."""
        found = Outcome()
        for name, node in self.nodes.items():
            shutil.rmtree(node.data)
            shutil.copytree(self.directory / "copies" / f"{name}-end", node.data)
            if (its := self.moment_of(cell, moment, name, moments)) is not None:
                self.restore(node, its, cell.way)
                if not _count(node.file, "inbound_links"):
                    found.notes.append("copy without a mark")
        try:
            self._go(cell, found)
        except AssertionError as error:
            found.violations.append(str(error))
        for node in self.nodes.values():
            if node.process.running:
                node.kill9()
        return found

    def _go(self, cell: Cell, found: Outcome) -> None:
        a, b = self.nodes.values()
        first, second = (b, a) if cell.who == "receiver" else (a, b)
        acknowledged: dict[str, list[str]] = {"a": [], "b": []}
        first.start()
        if cell.load == "ahead":
            acknowledged[first.name] += self._emit(first, self._lost(first) + _AHEAD)
        second.start()
        if cell.load == "busy":
            for _ in range(4):
                for node in (a, b):
                    acknowledged[node.name] += self._emit(node, 5)
        end = time.monotonic() + _SECONDS_TO_NOTICE
        while True:
            self._rest(found)
            compared = self._compare(cell, acknowledged, found.notes)
            if not compared.violations or time.monotonic() > end:
                break
            time.sleep(0.2)  # an idle sender notices when the restored peer opens its own link
        found.violations += compared.violations
        found.notes = compared.notes

    def _is_short(self, event: str) -> bool:
        """Return whether the event expires so soon that a peer need not get it again."""
        return event in self.ledger.events and self.ledger.events[event].short

    def _is_repeated(self, event: str) -> bool:
        """Return whether the event was emitted more than once, so that it may be in the log at a later place."""
        return event in self.ledger.events and self.ledger.events[event].again

    def _lost(self, node: NodeProcess) -> int:
        """Return how many records the node had at the end of the load and has not now."""
        with closing(sqlite3.connect(self.directory / "copies" / f"{node.name}-end" / "eventd.db")) as end:
            ((before,),) = end.execute("SELECT next_position FROM log_heads")
        with closing(sqlite3.connect(node.file)) as now:
            ((position,),) = now.execute("SELECT next_position FROM log_heads")
        return max(0, int(before) - int(position))

    def _emit(self, node: NodeProcess, count: int) -> list[str]:
        number = next(self._rounds)
        ids = [f"{node.name}-after-{number}-{at:04}" for at in range(count)]
        for start in range(0, count, 500):
            node.emit(*ids[start : start + 500])
        return ids

    def _rest(self, found: Outcome) -> None:
        end = time.monotonic() + REST_SECONDS
        while unrest := [*self._unrest()]:
            blocked = [name for name, why in unrest if "impossible_mark" in why]
            if blocked and "new epoch by the operator" not in found.notes:
                found.notes.append("new epoch by the operator")
                self._new_epoch(self.nodes[blocked[0]])
            assert time.monotonic() < end, f"no rest within {REST_SECONDS:g} s: {[why for _, why in unrest]}"
            time.sleep(0.1)

    def _unrest(self) -> Iterator[tuple[str, str]]:
        for node, other in (("a", "b"), ("b", "a")):
            try:
                shown = self.nodes[node].link(other)
            except FAILED as error:
                yield node, f"{node}: {error!r}"
                continue
            if shown["state"] != "running" or shown["lagEvents"] or shown["repairs"]:
                kept = {name: shown[name] for name in ("state", "reason", "lastError", "lagEvents", "repairs")}
                yield node, f"{node}>{other}: {kept}"

    def _new_epoch(self, node: NodeProcess) -> None:
        node.kill9()
        env = self.processes.node_environment(node.name)
        done = self.processes.run([*DAEMON, "migrate", "--new-epoch"], env=env)
        assert done.returncode == 0, done.stderr
        node.start()

    def _begins(self, name: str, other: str) -> int:
        """Return the position after which the peer's mark begins. A peer whose copy is of a time before the first batch
        gets no gap for what retention has removed: it may never have been meant for it. 0 until the link is opened."""
        marks = self.nodes[other].ask("GET", "/groups/edge/links", peer=name)["inbound"]
        return max((int(mark["base"]) for mark in marks), default=0)

    def _compare(self, cell: Cell, acknowledged: dict[str, list[str]], notes: list[str]) -> Outcome:
        found = Outcome(notes=[*notes])
        rows = {name: _rows(node) for name, node in self.nodes.items()}
        ids = {name: [row["id"] for row in its] for name, its in rows.items()}
        gaps = {name: node.ask("GET", "/groups/edge/gaps", limit=1000)["gaps"] for name, node in self.nodes.items()}
        for name, other in (("a", "b"), ("b", "a")):
            if lost := sorted({*acknowledged[name]} - {*ids[name]}):
                found.violations.append(
                    f"V3 {name} lost {len(lost)} events that it acknowledged after its restore: {lost[:3]}"
                )
            if len({*ids[name]}) < len(ids[name]):
                found.violations.append(f"V5 {name} shows events twice")
            there = {*ids[other]}
            if name == "b" and self._retain:
                continue  # the retention of the other one removes these as well
            own = {row["id"] for row in rows[name] if row["sourceNode"] == name}
            known = self.positions[name] if (cell.who, name) == ("receiver", "a") else {}
            own |= known.keys()  # what retention has removed from its log is missing, too
            missing = [each for each in own if each not in there and not self._is_short(each)]
            at = {each: known.get(each) or _position(self.nodes[name], each) for each in missing}
            before = self._begins(name, other) if "copy without a mark" in found.notes else 0
            untold = [each for each in missing if at[each] > before and not _in_gap(name, at[each], gaps[other])]
            if untold:
                found.violations.append(f"V4 {other} misses {len(untold)} events of {name}, in no gap: {untold[:3]}")
            if missing:
                found.notes.append("events inside a gap")
            if gaps[name]:
                found.notes.append("gaps reported")
            plain = [each for each in ids[name] if each in there and not self._is_repeated(each)]
            place = {each: at for at, each in enumerate(plain)}
            order = [place[each] for each in ids[other] if each in place and each.startswith(f"{name}-")]
            if order != sorted(order):
                found.violations.append(f"V6 {other} holds events of {name} in another order")
        return found


def _rows(node: NodeProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = node.ask("GET", "/groups/edge/events", limit=1000, includeExpired="true", after=after)
        found += page["events"]
        if page["next"] is None:
            return found
        after = page["next"]


def _count(file: Path, table: str) -> int:
    with closing(sqlite3.connect(file)) as database:
        ((count,),) = database.execute(f"SELECT count(*) FROM {table}")
    return int(count)


def _position(node: NodeProcess, event: str) -> int:
    return int(node.ask("GET", f"/groups/edge/events/{event}")["event"]["position"])


def _in_gap(node: str, position: int, gaps: list[dict[str, Any]]) -> bool:
    return any(gap["node"] == node and gap["after"] < position <= gap["upto"] for gap in gaps)


def main(arguments: list[str]) -> int:
    """Run the table; return 4 if a check fails. Exits with status 2 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos restores", description=__doc__)
    parser.add_argument("--moments", type=read_count, default=3, help="how many times both nodes are backed up")
    parser.add_argument("--most", type=int, default=0, help="at most so many cells, drawn by --seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cells with this text in their name")
    parser.add_argument("--history", choices=["record", "off"], default="record", help="whether nodes keep a history")
    parser.add_argument("--retain", type=int, default=0, help="events that the sender keeps; 0: all")
    parser.add_argument("--report", type=Path, help="write what was run to this file, as JSON")
    options = parser.parse_args(arguments)
    chosen = [cell for cell in cells() if options.only in str(cell)]
    if not chosen:
        known = "\n".join(map(str, cells()))
        parser.error(f"--only: no cell has the text '{options.only}' in its name; the cells:\n{known}")
    drawn = [*itertools.product(range(options.moments), chosen)]
    Random(options.seed).shuffle(drawn)
    report = CampaignReport(options.report)
    return 0 if run_table(drawn[: options.most or None], report, options) else 4


def run_table(drawn: list[tuple[int, Cell]], report: CampaignReport, options: argparse.Namespace) -> bool:
    """Run cells; print the table; return whether every check has passed."""
    directory = Path(tempfile.mkdtemp(prefix="eventd-restores-"))
    moments: int = options.moments
    bench = Bench(directory, PLAIN_GROUP if options.history == "off" else {}, options.retain)
    table: Counter[tuple[str, str]] = Counter()
    failed = 0
    try:
        bench.record(moments)
        say(f"{moments} moments, {sum(bool(each.acknowledged) for each in bench.ledger.events.values())} events")
        for number, (moment, cell) in enumerate(drawn):
            found = bench.run(cell, moment, moments)
            table[str(cell), "runs"] += 1
            table.update((str(cell), note) for note in {*found.notes})
            report.add("runs", {"failed" if found.violations else "passed": 1})
            report.add("restores", {str(cell): 1})
            if found.violations:
                failed += 1
                kept = directory / f"failed-{number}"
                shutil.copytree(directory / "nodes", kept, ignore=shutil.ignore_patterns("*.sock"))
                say(*(f"WRONG: moment {moment}: {cell}: {line}" for line in found.violations), f"kept: {kept}")
                report.blame(found.violations, command=f"--only '{cell}' --moments {moments}", moment=moment)
            report.write()
    finally:
        with redirect_stdout(StringIO()):
            bench.processes.close()
    for cell in dict.fromkeys(str(cell) for _, cell in drawn):
        notes = ", ".join(f"{note} {count}" for (name, note), count in sorted(table.items()) if name == cell)
        say(f"{cell:40} {notes}")
    say(f"{len(drawn)} restores, {failed} failed{f'; logs and databases: {directory}' if failed else ''}")
    if not failed:
        shutil.rmtree(directory)
    return not failed
