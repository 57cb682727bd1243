"""A fault as data, and how the faults of a run are drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from eventd.simulation.world.clock import Seconds
from eventd.simulation.world.proxy import ANSWERS
from eventd.simulation.world.session_failures import SessionFailure
from eventd.simulation.world.streams import ChanceStreams, Stream
from eventd.simulation.world.topology import Topology, client_of


class FaultKind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"  # the process ends, and starts again after a while
    POWER = "power"  # the machine loses its power
    STOP = "stop"  # the node is stopped in order
    FREEZE = "freeze"  # the process stands still
    WALL = "wall"  # nothing passes from one machine to another, or connections are refused or break
    CUT = "cut"  # connections break in the middle of what is sent
    SLOW = "slow"  # the network is slow
    SLOW_DISK = "slow disk"
    DISK = "disk"  # the disk fails, is full, or does not sync
    CLOCK = "clock"  # the wall time is set
    EPOCH = "new epoch"  # the process ends, and the log begins a new epoch, as after a restore
    FLIP = "flip"  # bits change on the way between two nodes
    PROXY = "proxy"  # a proxy answers in the place of a node
    RESTORE = "restore"  # the database is copied, and replaced by the copy a while later
    REPLAY = "replay"  # an adversary sends a recorded request again, as it was or changed
    STATEMENT = "statement"  # statements of a node on Postgres fail
    SERVER = "server"  # a Postgres server ends all sessions of a node, and takes none for a while
    AT_STATEMENT = "at statement"  # the next but so many statement on Postgres fails, or the process ends in it
    AT_JOB = "at job"  # killed, or without power, when the process has done so many further jobs
    AT_ANSWER = "at answer"  # the same, when a client gets its next answer


SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"
LACKING: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    SQLITE: (FaultKind.STATEMENT, FaultKind.SERVER, FaultKind.AT_STATEMENT),
    POSTGRES: (FaultKind.DISK, FaultKind.RESTORE),
}
"""The kinds of faults that nodes with such a database do not have."""
AIMED: Final = (FaultKind.AT_JOB, FaultKind.AT_ANSWER)
AIMED_AT_STATEMENTS: Final = 2
"""How many faults of a run on Postgres are aimed at a statement, besides the others."""
USUAL: Final = tuple(
    kind for kind in FaultKind if kind not in (FaultKind.FLIP, FaultKind.PROXY, FaultKind.RESTORE, FaultKind.REPLAY)
)
"""Kinds after which every check applies in full, and every answer comes from the node that was asked."""
OF_PATHS: Final = (FaultKind.WALL, FaultKind.CUT, FaultKind.SLOW, FaultKind.FLIP, FaultKind.PROXY)
"""The kinds that concern what goes from one machine to another."""
RESTORES: Final = ("by command", "by hand")
"""How a database is replaced: the command lets a new epoch begin; by hand, the node finds out."""
REPLAYS: Final = (
    "again",
    "again",
    "to another node",
    "in another group",
    "of another time",
    "cut",
    "with another body",
)
"""How a recorded request is sent."""
STATEMENT_FAILURES: Final = (
    SessionFailure.LOST,
    SessionFailure.UNANSWERED,
    SessionFailure.SERIALIZATION,
    SessionFailure.LOCK,
)
"""What happens to statements that fail."""
STATEMENT_ENDS: Final = (
    SessionFailure.UNANSWERED_COMMIT,
    SessionFailure.UNANSWERED_COMMIT,
    SessionFailure.KILL,
    SessionFailure.KILL,
    *STATEMENT_FAILURES,
)
"""What happens to a statement that a fault is aimed at."""
RATES: Final = (10.0, 10.0, 20.0)
"""The mean number of faults in a run with `USUAL_KINDS` kinds."""
USUAL_KINDS: Final = 5
SHARES: Final = {FaultKind.RESTORE: 0.25}
"""The shares of runs that have a kind, if it is not half of them: less is certain of what a restore may have taken."""
MOST_RESTORES: Final = 1
"""The maximum number of restores of a machine in a run."""
LOST_EPOCHS: Final = 0.3
"""The share of restores that also take an epoch, which begins after the copy was made."""
LOST_EPOCH_SECONDS: Final = (5.0, 8.0)
"""How old the copy is then: peers must have cosigned a tree of the epoch, or nothing shows the node that it had one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens to the machine `target`, `at` seconds after the begin of the load, for `seconds`.

    `other` is the second machine of a fault of the network: what goes from the target to it is concerned. `mode`,
    `amount` and `number` mean what the kind says.
    """

    at: Seconds
    kind: str
    target: str
    seconds: Seconds
    other: str = ""
    mode: str = ""
    amount: float = 0.0
    number: int = 0

    def __str__(self) -> str:
        where = f"{self.target}>{self.other}" if self.other else self.target
        words = [self.kind, where, self.mode, f"{self.amount:g}" if self.amount else ""]
        words += [f"number {self.number}" if self.number else "", f"for {self.seconds:.3f} s"]
        return f"{self.at:.3f} s " + " ".join(word for word in words if word)


def draw_faults(
    streams: ChanceStreams,
    topology: Topology,
    seconds: float,
    among: Iterable[FaultKind] = FaultKind,
    *,
    rates: Sequence[float] = RATES,
    aimed: int = 2,
    store: str = SQLITE,
) -> list[Fault]:
    """Return the faults of a run of kinds `among` these, each kind and place from a stream of its own, by time.

    Half of the kinds, drawn by the seed, are left out: a fault that hides others must not do so in every run.
    """
    among = [kind for kind in among if kind not in LACKING[store]]
    # A stream for each kind: a new kind leaves the faults of the others where they are.
    aims = (*AIMED, FaultKind.AT_STATEMENT)
    kinds = [kind for kind in among if kind not in aims and _is_drawn(streams.of(f"kind {kind}"), kind)]
    rate = streams.of("rate").choice(rates) / (USUAL_KINDS * len(topology.nodes) * seconds)
    faults: list[Fault] = []
    for kind in kinds:
        for host in topology.nodes:
            stream = streams.of(f"fault {kind} {host}")
            times = _times(stream, seconds, rate)
            if kind is FaultKind.RESTORE:
                times = itertools.islice(times, MOST_RESTORES)
            drawn = [_draw(stream, kind, host, topology, at) for at in times]
            if kind is FaultKind.RESTORE and drawn:
                drawn = _with_lost_epochs(streams.of(f"lost epoch {host}"), drawn)
            faults += drawn
    for number in range(aimed):
        stream = streams.of(f"aimed fault {number}")
        at = stream.uniform(0, seconds * 0.8)
        faults.append(_draw(stream, stream.choice(AIMED), stream.choice(topology.nodes), topology, at))
    for number in range(AIMED_AT_STATEMENTS if FaultKind.AT_STATEMENT in among else 0):
        stream = streams.of(f"fault at a statement {number}")
        at = stream.uniform(0, seconds * 0.8)
        faults.append(_draw(stream, FaultKind.AT_STATEMENT, stream.choice(topology.nodes), topology, at))
    return sorted(faults, key=lambda fault: fault.at)


def _is_drawn(stream: Stream, kind: FaultKind) -> bool:
    return stream.random() < SHARES.get(kind, 0.5)


def _times(stream: Stream, seconds: float, rate: float) -> Iterator[float]:
    """Yield random times, on average `rate` in a second."""
    at = stream.expovariate(rate)
    while at < seconds:
        yield at
        at += stream.expovariate(rate)


def _with_lost_epochs(stream: Stream, restores: list[Fault]) -> list[Fault]:
    """Return restores of one machine, in a share of which an epoch begins between the copy and the restore."""
    faults: list[Fault] = []
    for restore in restores:
        if stream.random() < LOST_EPOCHS:
            begun = round(restore.at + stream.uniform(0.1, 1.0), 6)
            faults.append(Fault(begun, FaultKind.EPOCH, restore.target, stream.uniform(0.05, 0.5)))
            restore = replace(restore, amount=stream.uniform(*LOST_EPOCH_SECONDS))
        faults.append(restore)
    return faults


def _draw(stream: Stream, kind: FaultKind, host: str, topology: Topology, at: float) -> Fault:
    other = stream.choice([name for name in topology.nodes if name != host])
    down = stream.choice((0.05, 0.5, 2.0)) * stream.uniform(0.2, 1.5)
    power = "power" if stream.random() < 0.5 else "kill"
    at = round(at, 6)
    match kind:
        case FaultKind.WALL:
            mode = stream.choice(("drop", "drop", "refuse", "break"))
            return Fault(at, kind, host, stream.uniform(0.1, 6.0), other, mode, amount=stream.randint(0, 1))
        case FaultKind.CUT:
            other = stream.choice((other, client_of(host)))
            return Fault(at, kind, host, stream.uniform(0.5, 5.0), other, amount=stream.choice((0.02, 0.1, 0.4)))
        case FaultKind.SLOW:
            return Fault(at, kind, host, stream.uniform(0.5, 5.0), other, amount=stream.choice((0.05, 0.3, 1.0)))
        case FaultKind.SLOW_DISK:
            return Fault(at, kind, host, stream.uniform(0.5, 5.0), amount=stream.choice((0.02, 0.2)))
        case FaultKind.DISK:
            return Fault(at, kind, host, stream.uniform(0.1, 3.0), mode=stream.choice(("errors", "full", "sync")))
        case FaultKind.CLOCK:
            return Fault(at, kind, host, stream.uniform(0.5, 8.0), amount=stream.choice((-3600, -30, -2, 2, 30, 3600)))
        case FaultKind.FLIP:
            return Fault(at, kind, host, stream.uniform(0.5, 5.0), other, amount=stream.choice((0.02, 0.2)))
        case FaultKind.PROXY:
            return Fault(at, kind, host, stream.uniform(0.5, 5.0), other, stream.choice(tuple(ANSWERS)))
        case FaultKind.RESTORE:
            age = stream.choice((0.1, 1.0, 4.0)) * stream.uniform(0.2, 1.5)
            return Fault(at, kind, host, down, mode=stream.choice(RESTORES), amount=age)
        case FaultKind.REPLAY:
            return Fault(
                at, kind, host, 0.0, other, stream.choice(REPLAYS), number=stream.randrange(stream.choice((1, 100)))
            )
        case FaultKind.FREEZE:
            return Fault(at, kind, host, stream.choice((0.2, 2.0, 12.0)) * stream.uniform(0.5, 1.5))
        case FaultKind.STATEMENT:
            mode = stream.choice(STATEMENT_FAILURES)
            return Fault(at, kind, host, stream.uniform(0.1, 2.0), mode=mode, amount=stream.choice((0.01, 0.1)))
        case FaultKind.SERVER:
            return Fault(at, kind, host, stream.choice((0.0, 0.5, 2.0)) * stream.uniform(0.5, 1.5))
        case FaultKind.AT_STATEMENT:
            mode = stream.choice(STATEMENT_ENDS)
            most = (3, 10, 30) if mode == SessionFailure.UNANSWERED_COMMIT else (5, 40, 200)
            return Fault(at, kind, host, down, mode=mode, number=stream.randint(1, stream.choice(most)))
        case FaultKind.AT_JOB:
            return Fault(at, kind, host, down, mode=power, number=stream.randint(1, stream.choice((5, 40, 200))))
        case FaultKind.AT_ANSWER:
            return Fault(at, kind, host, down, mode=power, number=stream.randint(1, 8))
    return Fault(at, kind, host, down)
