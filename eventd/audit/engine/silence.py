"""Finds nodes whose ledgers end before the requested period does: later deliveries are unproven.

A node whose clock is far ahead of this machine's is found, too: the end of its ledgers would not be noticed.

A node reports to the lake regularly, even if it has nothing to ship. An old report therefore means that the node or its
shipping has stopped, never that the node was idle.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from eventd.audit.engine.plan import states_by_node
from eventd.audit.report.report import Limitation
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND
from federation.event import format_time

PATIENCE: Final = 15 * 60 * SECOND
"""A node whose ledger ends too early is silent if its last report is older than this (microseconds), or than 3 shipping
intervals if those are longer."""
_MISSED: Final = 3
"""Shipping intervals that a node may miss, if they are longer than the patience."""

Kind = Literal["silent", "behind", "clock"]


class Silence(NamedTuple):
    """A node whose ledger ends before the requested period does, or whose clock is ahead. Times in microseconds.

    `silent`: its last report, made at `reported`, is `age` old; `behind`: it reports, and has not shipped everything;
    `clock`: its last report is dated in the future (a negative `age`), so its silence could not be noticed. The ledgers
    are complete up to `covered`, 0 if never.
    """

    node: str
    kind: Kind
    covered: int
    reported: int
    age: int

    @property
    def words(self) -> str:
        """Return the text for an operator that follows the node's name and "is"."""
        from eventd.audit.report.figures import moment, span  # not on Spark's workers, which show nothing

        ends = "its ledgers were never completely shipped to the lake"
        if self.covered > 0:
            ends = f"its ledger ends at {moment(format_time(self.covered))}"
        match self.kind:
            case "silent":
                return f"silent since {moment(format_time(self.reported))} ({span(self.age / SECOND)}): {ends}"
            case "behind":
                return f"behind: it reports, but {ends}"
            case "clock":
                return f"ahead by {span(-self.age / SECOND)}: with that clock its silence would not be noticed"


def find_silences(survey: Survey, *, now: int, until: int | None, patience: int = PATIENCE) -> dict[str, Silence]:
    """Return, by node, a `Silence` if its ledgers do not reach `until` (None: `now`), or its clock is ahead.

    Delays up to the patience, or 3 shipping intervals if longer, are allowed; closed nodes are left out. Times are in
    microseconds.
    """
    found = {}
    for *_, state in states_by_node(survey):
        if not state.closed_at and (silence := _silence(state, now, until, patience)) is not None:
            found[state.node] = silence
    return found


def _silence(state: NodeState, now: int, until: int | None, patience: int) -> Silence | None:
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


def limitation_of(silence: Silence) -> Limitation:
    """Return the limitation of a report for a silence."""
    return Limitation(kind=silence.kind, where=silence.node, message=silence.words, hint=_HINTS[silence.kind])
