"""The writer of a log: units that share transactions, flushes, kills, and power losses.

`flush_marks` and `may_lack_commits` are the product's own. A power loss takes any suffix of the commits after the last
flush; a kill takes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.log.core.commit import flush_marks
from eventd.log.core.head import may_lack_commits
from tests.models.explorer import Broken, Label

DURABLE, LOOK, MEMORY, FLUSHED = "an event", "a check of what is stored", "a record in memory", "a record on disk"
"""Kinds of units: durable; durable without records, whose result depends on what is stored; not durable; not durable,
but its topic turns out to require a flush."""
KINDS: Final = (DURABLE, LOOK, MEMORY, FLUSHED)
IDLE, FLUSH, ANSWER = "idle", "flush", "answer"

UNMARKED = "commits that are not flushed are not marked"
TRUSTED = "a process relies on a mark that another one has removed"

KEPT = "what was acknowledged as durable survives a power loss (V3)"
TOLD = "a tail is lost only with a new epoch (V3)"
CAUSE = "no new epoch begins without a power loss (V16)"


class Unit(NamedTuple):
    kind: str
    number: int


class Commit(NamedTuple):
    """The numbers of the records, and what the head says about commits that are not flushed."""

    records: tuple[int, ...]
    unsynced: str


class WriterState(NamedTuple):
    """`synced`: how many commits are flushed. `looked`: the records that a check of the latest
    group has seen. `promised` and `told`: the records that callers rely on.
    """

    waiting: tuple[Unit, ...] = ()
    group: tuple[Unit, ...] = ()
    phase: str = IDLE
    commits: tuple[Commit, ...] = ()
    synced: int = 0
    looked: frozenset[int] = frozenset()
    boot: int = 1
    promised: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()
    closed: bool = False
    marked: bool = False
    submitted: int = 0
    others: int = 0
    kills: int = 0
    losses: int = 0

    @property
    def unsynced(self) -> str:
        return self.commits[-1].unsynced if self.commits else ""

    @property
    def stored(self) -> frozenset[int]:
        return frozenset(number for commit in self.commits for number in commit.records)


@dataclass
class WriterModel:
    """The model of the writer. `others`: how many steps of other processes with the same database there are."""

    units: int = 3
    others: int = 0
    kills: int = 1
    losses: int = 1
    bug: str = ""
    name: str = "writer"

    def start(self) -> WriterState:
        return WriterState()

    def steps(self, state: WriterState) -> Iterator[tuple[Label, Any]]:
        if state.submitted < self.units and not state.closed:
            for kind in KINDS:
                unit = Unit(kind, state.submitted)
                submitted = state._replace(waiting=(*state.waiting, unit), submitted=state.submitted + 1)
                yield ("submit", kind), submitted
        if state.phase == IDLE and state.waiting:
            yield ("commit", len(state.waiting)), self._commit(state)
        if state.phase == FLUSH:
            # A counter is changed; SQLite writes nothing, and flushes nothing, if a row stays the same.
            same = self.bug == "a flush writes the same value"
            touched = state.commits if same else (*state.commits, Commit((), state.unsynced))
            yield (
                ("flush",),
                state._replace(commits=touched, synced=state.synced if same else len(touched), phase=ANSWER),
            )
        early = self.bug == "a unit is answered before its commit" and state.phase == IDLE and state.waiting
        if state.phase == ANSWER:
            yield ("answer",), self._answer(state, state.group)._replace(phase=IDLE, group=(), looked=frozenset())
        elif early:
            yield ("answer too early",), self._answer(state, state.waiting[:1])
        if state.phase == IDLE and not state.waiting and not state.closed:
            yield ("close",), self._close(state)
        if state.others < self.others:
            yield from self._elsewhere(state._replace(others=state.others + 1))
        if state.kills < self.kills:
            yield ("kill",), self._started(state._replace(kills=state.kills + 1), state.commits, state.boot)
        if state.losses < self.losses:
            for kept in range(state.synced, len(state.commits) + 1):
                after = state._replace(losses=state.losses + 1)
                yield (
                    ("power loss", len(state.commits) - kept),
                    self._started(after, state.commits[:kept], state.boot + 1),
                )

    def _elsewhere(self, state: WriterState) -> Iterator[tuple[Label, Any]]:
        """Yield the steps of other processes: one stops, or one commits a record, unflushed if it sees the mark."""
        if state.unsynced:
            settled = (*state.commits, Commit((), ""))
            yield ("another stops",), state._replace(commits=settled, synced=len(settled))
        number = -state.others
        commits = (*state.commits, Commit((number,), state.unsynced or str(state.boot)))
        yield (
            ("another commits",),
            state._replace(
                commits=commits,
                synced=state.synced if state.unsynced else len(commits),
                told=state.told | {number},
            ),
        )

    def _commit(self, state: WriterState) -> WriterState:
        units, before = state.waiting, state.unsynced
        asked = any(unit.kind in (DURABLE, LOOK) for unit in units)
        durable = asked or not state.marked or (not before and self.bug not in (TRUSTED, UNMARKED))
        if self.bug == "the mark of unflushed commits is flushed after its commit":
            durable = asked
        records = tuple(unit.number for unit in units if unit.kind != LOOK)
        marks = flush_marks(asked=asked, durable=durable, unsynced=bool(before), appended=bool(records))
        if self.bug == UNMARKED:
            marks = marks._replace(unsynced=False)
        if self.bug == "a check does not flush what it depends on":
            marks = marks._replace(touch=False)
        flush = any(unit.kind == FLUSHED for unit in units) or marks.unsynced
        if self.bug == "a result does not wait for the flush":
            flush = False
        commits = state.commits
        if records or marks.unsynced or marks.touch:
            commits = (*commits, Commit(records, str(state.boot) if marks.unsynced else before))
        flushed = durable and len(commits) > len(state.commits) and self.bug != "durable commits are not flushed"
        return state._replace(
            waiting=(),
            group=units,
            phase=FLUSH if flush and not durable else ANSWER,
            commits=commits,
            synced=len(commits) if flushed else state.synced,
            looked=state.stored.union(records) if any(unit.kind == LOOK for unit in units) else frozenset(),
            marked=state.marked or (durable and bool(commits and commits[-1].unsynced)) or self.bug == UNMARKED,
        )

    def _answer(self, state: WriterState, group: tuple[Unit, ...]) -> WriterState:
        durable = {unit.number for unit in group if unit.kind in (DURABLE, FLUSHED)}
        if any(unit.kind == LOOK for unit in group):
            durable |= state.looked if state.phase == ANSWER else state.stored
        told = {unit.number for unit in group if unit.kind == MEMORY}
        return state._replace(promised=state.promised | durable, told=state.told | told)

    def _close(self, state: WriterState) -> WriterState:
        if not state.unsynced:
            return state._replace(closed=True)
        commits = (*state.commits, Commit((), ""))
        return state._replace(commits=commits, synced=len(commits), closed=True)

    def _started(self, state: WriterState, commits: tuple[Commit, ...], boot: int) -> Any:
        """Return the state after a start, or the invariant that the end before it has broken."""
        after = state._replace(
            waiting=(), group=(), phase=IDLE, commits=commits, looked=frozenset(), boot=boot, closed=False, marked=False
        )
        renewed = may_lack_commits(after.unsynced, str(boot))
        if self.bug == "a start does not look for lost commits":
            renewed = False
        if self.bug == "every start begins a new epoch":
            renewed = True
        if not after.promised <= after.stored:
            return Broken(KEPT)
        if not after.told <= after.stored and not renewed:
            return Broken(TOLD)
        if renewed and boot == state.boot:
            return Broken(CAUSE)
        if renewed:
            commits = (*commits, Commit((), ""))
            after = after._replace(commits=commits, synced=len(commits))
        return after._replace(told=after.told & after.stored)

    def broken(self, state: WriterState) -> str:
        return ""

    def rests(self, state: WriterState) -> bool:
        return state.phase == IDLE and not state.waiting

    def words(self, label: Label) -> str:
        name, *arguments = label
        sentences = {
            "submit": "a caller submits {}",
            "commit": "the writer commits {} units together",
            "flush": "the writer flushes with a change of a counter",
            "answer": "the callers get their results",
            "answer too early": "a caller gets its result before the commit",
            "close": "the node stops after it has flushed everything",
            "another stops": "another process stops, and records that no commit can be lost",
            "another commits": "another process commits a record",
            "kill": "the process is killed, and starts again",
            "power loss": "the machine loses its power, and the last {} commits with it; the node starts again",
        }
        return sentences[name].format(*arguments)
