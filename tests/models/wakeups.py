"""Readers that wait for the log to grow: appends of this process and of others, signals that come late or never.

The model works on real objects of `Wakeups`, made anew for each step. A reader must always be able to reach the end of
its topic without an append that happens by chance later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.log.core.wakeups import Wakeups, Watch
from tests.models.explorer import Label

WATCHED, OTHER = 1, 2
READING, WAITING, WOKEN = "reading", "waiting", "woken"


class _Sign:
    """Stands for a future of asyncio, which needs a loop."""

    def __init__(self) -> None:
        self.is_set = False

    def done(self) -> bool:
        return self.is_set

    def set_result(self, _result: None) -> None:
        self.is_set = True


class WakeupState(NamedTuple):
    """`log`: the topic of each record. `known`, `head`: what the process, and the reader's watch, know of the log.

    `committed`: own commits whose results are still to be delivered. `version`: the file's counter; `seen`: what the
    poll has seen of it; `due`: the poll has yet to read the head. `place`: up to where the reader has read.
    """

    log: tuple[int, ...] = ()
    known: int = 0
    head: int = 0
    committed: tuple[int, ...] = ()
    version: int = 0
    seen: int = 0
    due: bool = False
    phase: str = READING
    place: int = 0
    page: int = 0


@dataclass
class WakeupModel:
    """The model of wake-ups. `signs_get_lost`: signals of other processes may be lost, as on Postgres."""

    appends: int = 3
    signs_get_lost: bool = False
    bug: str = ""
    name: str = "wake-ups"

    def start(self) -> WakeupState:
        return WakeupState()

    def steps(self, state: WakeupState) -> Iterator[tuple[Label, Any]]:
        if len(state.log) < self.appends:
            for topic in (WATCHED, OTHER):
                grown = state._replace(log=(*state.log, topic))
                at = len(grown.log)
                yield ("append", topic), grown._replace(committed=(*state.committed, at))
                yield ("append elsewhere", topic), grown._replace(version=state.version + 1)
        if state.committed:
            first, *rest = state.committed
            topics = {state.log[first - 1]: True}
            delivered = state._replace(committed=tuple(rest))
            yield ("deliver", first), self._wake(delivered, lambda wakeups: wakeups.appended(first, first, topics))
        yield from self._polling(state)
        yield from self._reading(state)

    def _polling(self, state: WakeupState) -> Iterator[tuple[Label, Any]]:
        late = self.bug == "another process's sign is taken after the look"
        if state.due:
            looked, last = state._replace(due=False, seen=state.version if late else state.seen), len(state.log)
            if late:
                yield ("sign",), looked
                return
            yield ("look",), self._wake(looked, lambda wakeups: wakeups.foreign(last)) if last > state.known else looked
        elif late and state.version != state.seen:
            last = len(state.log)
            yield ("look first",), self._wake(state._replace(due=True), lambda wakeups: wakeups.foreign(last))
        elif state.version != state.seen:
            yield ("sign",), state._replace(seen=state.version, due=True)
            if self.signs_get_lost:
                yield ("lose a sign",), state._replace(seen=state.version)
        elif self.signs_get_lost and self.bug != "a wait for signs never ends":
            yield ("time is up",), state._replace(due=True)

    def _reading(self, state: WakeupState) -> Iterator[tuple[Label, Any]]:
        if state.phase == READING:
            # From memory if the process knows of nothing beyond, else from the database.
            end = state.place if state.known <= state.place else len(state.log)
            yield ("read", end), state._replace(phase=WOKEN, page=end)
        elif state.phase == WOKEN:
            _, watch = self._objects(state)
            sign = _Sign()
            if self.bug != "a wait begins after the append that it waits for":
                watch.beyond(state.page, sign)  # type: ignore[arg-type]
            after = state._replace(place=state.page, page=0)
            yield ("wait",), after._replace(phase=READING if sign.is_set else WAITING)

    def _wake(self, state: WakeupState, signal: Any) -> WakeupState:
        """Return the state after a signal to real objects in this state."""
        wakeups, watch = self._objects(state)
        sign = _Sign()
        if state.phase == WAITING:
            watch._wait(state.place, sign)  # type: ignore[arg-type]
        signal(wakeups)
        phase = READING if sign.is_set else state.phase
        return state._replace(known=wakeups.head, head=watch.head, phase=phase)

    def _objects(self, state: WakeupState) -> tuple[Wakeups, Watch]:
        wakeups = Wakeups()
        wakeups.head = state.known
        watch = wakeups.watch((WATCHED,))
        watch.head = state.head
        if self.bug == "own appends after those of others wake only their topics":
            wakeups.foreign = lambda last: setattr(wakeups, "head", max(wakeups.head, last))  # type: ignore[method-assign]
        return wakeups, watch

    def broken(self, state: WakeupState) -> str:
        return ""

    def rests(self, state: WakeupState) -> bool:
        """Return whether the reader waits, and nothing of its topic lies beyond its place."""
        return state.phase == WAITING and WATCHED not in state.log[state.place :]

    def words(self, label: Label) -> str:
        name, *arguments = label
        return _WORDS[name].format(*arguments)


_WORDS: Final = {
    "append": "this process commits a record of topic {}",
    "append elsewhere": "another process commits a record of topic {}",
    "deliver": "this process learns of its commit at {}",
    "sign": "the poll sees that another process has written",
    "lose a sign": "the signal of another process is lost",
    "time is up": "the wait for a signal ends without one",
    "look": "the process reads the head of the log",
    "look first": "the process reads the head before it notes the sign",
    "read": "the reader reads up to {}",
    "wait": "the reader waits for what comes after",
}
