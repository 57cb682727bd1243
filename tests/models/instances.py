"""Two instances of a node over one Postgres database: a claim, sessions, and processes that are stopped and continued.

An instance that takes the claim ends the sessions of every instance without one. A step of a cursor is checked by
`check_fence`, as in the product; an operator moves the cursor meanwhile. A process stops between any two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.errors import FenceLost
from eventd.log.cursors.steps import Step, check_fence
from tests.models.explorer import Broken, Label

ONE = "only one step from a position commits (T1)"
CLAIMED = "an instance writes only while no other one serves (T2)"
WAITS, TAKES, SERVES, SENDS = "waits", "takes", "serves", "sends"


class Instance(NamedTuple):
    """`session`: it has an open session that can write. `read`: the position at which its step began."""

    phase: str = WAITS
    session: bool = False
    checked: bool = False
    stopped: bool = False
    read: int = 0


class InstancesState(NamedTuple):
    """`holder`: the instance whose claim session holds the lock, None if there is none. `moves`: by the operator."""

    instances: tuple[Instance, Instance] = (Instance(), Instance())
    holder: int | None = None
    position: int = 0
    version: int = 0
    began: tuple[int, int] = (0, 0)
    stops: int = 0
    takeovers: int = 0
    moves: int = 0


@dataclass
class InstancesModel:
    """The model of two instances."""

    records: int = 2
    stops: int = 2
    takeovers: int = 2
    moves: int = 1
    bug: str = ""
    name: str = "two instances"

    def start(self) -> InstancesState:
        return InstancesState()

    def steps(self, state: InstancesState) -> Iterator[tuple[Label, Any]]:
        for number, instance in enumerate(state.instances):
            if instance.stopped:
                yield ("continue", number), _with(state, number, instance._replace(stopped=False))
                continue
            yield from self._acting(state, number, instance)
            if state.stops < self.stops:
                stopped = _with(state, number, instance._replace(stopped=True))
                yield ("stop", number), stopped._replace(stops=state.stops + 1)
        holder = state.holder
        if holder is not None and state.takeovers < self.takeovers and state.instances[holder].stopped:
            yield ("end a silent claim", holder), state._replace(holder=None, takeovers=state.takeovers + 1)
        if state.moves < self.moves and state.position:
            moved = state._replace(position=0, version=state.version + 1, moves=state.moves + 1)
            yield ("move the cursor",), moved

    def _acting(self, state: InstancesState, number: int, instance: Instance) -> Iterator[tuple[Label, Any]]:
        if instance.phase == WAITS and state.holder is None:
            yield ("claim", number), _with(state, number, instance._replace(phase=TAKES))._replace(holder=number)
        elif instance.phase == TAKES:
            others = state
            if self.bug != "sessions of an instance without a claim are not ended":
                other = state.instances[1 - number]
                ended = other._replace(session=False, checked=other.checked and not other.session)
                others = _with(state, 1 - number, ended)
            yield ("end sessions", number), _with(others, number, instance._replace(phase=SERVES))
        elif instance.phase in (SERVES, SENDS) and state.holder != number:
            lost = instance._replace(phase=WAITS, session=False, checked=False)
            yield ("notice the lost claim", number), _with(state, number, lost)
        if instance.phase == SERVES and not instance.session:
            # The session is named before it asks for the claim, so that who takes the claim meanwhile ends it.
            named = self.bug != "a session is opened after its claim was checked"
            if named:
                yield ("open a session", number), _with(state, number, instance._replace(session=True))
            elif not instance.checked:
                if state.holder == number:
                    yield ("check the claim", number), _with(state, number, instance._replace(checked=True))
            else:
                yield ("open a session", number), _with(state, number, instance._replace(session=True))
        elif instance.phase == SERVES and not instance.checked:
            if state.holder == number or self.bug == "a new session does not check the claim":
                yield ("check the claim", number), _with(state, number, instance._replace(checked=True))
            else:
                gone = instance._replace(session=False)
                yield ("refuse the session", number), _with(state, number, gone)
        elif instance.phase == SERVES and instance.session and state.position < self.records:
            began = list(state.began)
            began[number] = state.version
            reads = _with(state, number, instance._replace(phase=SENDS, read=state.position))
            yield ("read and send", number), reads._replace(began=(began[0], began[1]))
        elif instance.phase == SENDS:
            yield from self._settling(state, number, instance)

    def _settling(self, state: InstancesState, number: int, instance: Instance) -> Iterator[tuple[Label, Any]]:
        after = instance._replace(phase=SERVES)
        if not instance.session:
            yield ("fail to write", number), _with(state, number, after._replace(checked=False))
            return
        step = Step("peer", instance.read, instance.read + 1, instance.read + 1, 0)
        try:
            if self.bug != "the fence is not checked":
                check_fence({"peer": state.position}, step)
        except FenceLost:
            yield ("lose the fence", number), _with(state, number, after)
            return
        if state.instances[1 - number].phase in (SERVES, SENDS) and state.holder == 1 - number:
            yield ("settle", number, step.upto), Broken(CLAIMED)
            return
        if instance.read != state.position:
            yield ("settle", number, step.upto), Broken(ONE)
            return
        settled = _with(state, number, after)._replace(position=step.upto, version=state.version + 1)
        yield ("settle", number, step.upto), settled

    def broken(self, state: InstancesState) -> str:
        return ""

    def rests(self, state: InstancesState) -> bool:
        return state.position == self.records

    def words(self, label: Label) -> str:
        name, *arguments = label
        shown = ["ab"[arguments[0]], *arguments[1:]] if arguments else []
        return _WORDS[name].format(*shown)


def _with(state: InstancesState, number: int, instance: Instance) -> InstancesState:
    first, second = state.instances
    return state._replace(instances=(instance, second) if number == 0 else (first, instance))


_WORDS: Final = {
    "claim": "instance {} takes the claim",
    "end sessions": "instance {} ends the sessions of instances without a claim, and serves",
    "notice the lost claim": "instance {} notices that its claim is lost",
    "open a session": "instance {} opens a session",
    "check the claim": "instance {} checks its claim over the session",
    "refuse the session": "instance {} closes a session, because it does not hold its claim",
    "read and send": "instance {} reads a page, and its peer acknowledges it",
    "fail to write": "instance {} cannot write, because its session was ended",
    "lose the fence": "instance {} finds the cursor moved",
    "settle": "instance {} moves the cursor to {}",
    "stop": "instance {} is stopped",
    "continue": "instance {} continues",
    "end a silent claim": "a standby ends the claim of instance {}, which has long been silent",
    "move the cursor": "an operator moves the cursor back to 0",
}
