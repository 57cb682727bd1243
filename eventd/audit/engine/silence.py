"""Nodes whose ledgers end before the time that was asked for. What a ledger does not cover in time is not proven.

A node reports to the lake all the time, also when it has nothing to ship. So an old report says that the node, or its
shipping, has stopped, and never that there was nothing to do.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from eventd.audit.engine.plan import histories
from eventd.audit.report.report import Trouble
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND
from federation.event import format_time

PATIENCE: Final = 15 * 60 * SECOND
"""How old a node's last report may be before the node counts as silent (microseconds)."""
_MISSED: Final = 3
"""So many intervals of its own shipping a node may miss, where that is longer."""

Kind = Literal["silent", "behind", "clock"]


class Silence(NamedTuple):
    """A node whose ledger does not reach the time that was asked for. Times in microseconds.

    `silent`: its last report, made at `reported`, is `age` old; `behind`: it reports, and has not shipped everything;
    `clock`: its last report is of the future, so that nobody can tell when it stops.
    """

    node: str
    kind: Kind
    covered: int
    reported: int
    age: int

    @property
    def words(self) -> str:
        """What an operator is told; the node's name and "is" come before it."""
        from eventd.audit.report.figures import moment, span  # not on Spark's workers, which show nothing

        ends = "its ledger was never complete"
        if self.covered > 0:
            ends = f"its ledger ends at {moment(format_time(self.covered))}"
        match self.kind:
            case "silent":
                return f"silent since {moment(format_time(self.reported))} ({span(self.age / SECOND)}): {ends}"
            case "behind":
                return f"behind: it reports, but {ends}"
            case "clock":
                return f"ahead by {span(-self.age / SECOND)}: with that clock nobody can tell when it stops reporting"


def find_silences(survey: Survey, *, now: int, until: int | None, patience: int = PATIENCE) -> dict[str, Silence]:
    """The nodes whose ledgers do not reach `until`, by name; None asks for everything up to `now`.

    A node that was closed is not asked for what came afterwards. Times in microseconds.
    """
    found = {}
    for *_, state in histories(survey):
        if not state.closed_at and (silence := _judge(state, now, until, patience)) is not None:
            found[state.node] = silence
    return found


def _judge(state: NodeState, now: int, until: int | None, patience: int) -> Silence | None:
    allowed = max(patience, _MISSED * state.interval)
    age = now - state.as_of
    needed = now - allowed if until is None else min(until, now - allowed)
    kind: Kind | None = None
    if age < -allowed:
        kind = "clock"
    elif state.complete_until < needed and age > allowed:
        kind = "silent"
    elif state.complete_until < needed and state.as_of - state.complete_until > allowed:
        kind = "behind"
    return None if kind is None else Silence(state.node, kind, state.complete_until, state.as_of, age)


_HINTS: Final[dict[Kind, str]] = {
    "silent": "start the node, or see `routerctl lake status` on it; if it is out of service for good, run "
    "`routerctl lake close --node NODE`",
    "behind": "see `routerctl lake status` on the node",
    "clock": "set the clock of the node, or of this machine",
}


def trouble_of(silence: Silence) -> Trouble:
    """How a report tells it."""
    return Trouble(kind=silence.kind, where=silence.node, message=silence.words, hint=_HINTS[silence.kind])
