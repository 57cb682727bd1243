"""Finds nodes whose ledgers end before the requested period does: later deliveries are unproven.

A node whose clock is far ahead of this machine's clock is found, too, because it would not be noticed that its ledgers
end. So is a node whose ledgers end before the last time at which other nodes heard from it.

A node reports to the lake regularly, even if it has nothing to ship. An old report therefore means that the node or its
shipping has stopped, never that the node was idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from shlex import quote
from typing import Final, Literal, NamedTuple

from eventd.audit.coverage.clock_shifts import ClockShift
from eventd.audit.report.report import Limitation
from eventd.audit.segments.plan import states_by_node
from eventd.lake.address import shown
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND
from federation.event import format_time

PATIENCE: Final = 15 * 60 * SECOND
"""A node whose ledger ends too early is silent if its last report is older than this (microseconds), or than 3 shipping
intervals if those are longer."""
_MISSED: Final = 3
"""Number of shipping intervals that a node may miss, if these are longer than the patience."""
_READING: Final = 120 * SECOND
"""How long a node may take to read and write the rows that its state promises (microseconds)."""
_LONGEST: Final = 24 * 3600 * SECOND
"""The longest shipping interval (microseconds) that is accepted: silence is measured by it, and only the node's state,
which may be forged, says how long it is."""
_NOTABLE: Final = 60 * SECOND
"""The smallest error of a clock that is mentioned (microseconds)."""

SilenceKind = Literal["silent", "behind", "clock", "state"]
Act = Literal["acknowledged", "sent"]


class Mention(NamedTuple):
    """The ledgers of the node `by` show that the mentioned node was at work at `at` or later.

    `at` is in microseconds by the clock of the mentioned node. `act`: it acknowledged a batch, or sent one.
    """

    at: int
    by: str
    act: Act

    @property
    def words(self) -> str:
        """Return the text for an operator that follows the end of the node's ledger."""
        from eventd.audit.report.figures import moment, nearest_time

        what = f"acknowledged a batch of {self.by}" if self.act == "acknowledged" else f"sent a batch to {self.by}"
        return f"before it {what} at {moment(nearest_time(self.at))}"


class Silence(NamedTuple):
    """A node whose ledger ends before the requested period does, or whose state is dated wrong. Times in microseconds.

    `silent`: its last report, made at `reported`, is `age` old; `behind`: it reports or is closed, and has not shipped
    everything; `clock`: its last report is dated in the future (a negative `age`), so its silence could not be
    noticed; `state`: its state has a `fault` that a state written by a node cannot have. The ledgers are complete up
    to `covered`, 0 if never or unknown. `mention`: the last one, if it is later. `covered`, `reported` and `age` are
    corrected for the error of the node's clock, `ahead`, but for `state`.
    """

    node: str
    kind: SilenceKind
    covered: int
    reported: int
    age: int
    mention: Mention | None = None
    ahead: int = 0
    is_closed: bool = False
    fault: str = ""

    @property
    def words(self) -> str:
        """Return the text for an operator that follows the node's name and "is"."""
        from eventd.audit.report.figures import moment, nearest_time, span  # not on Spark's workers, which show nothing

        ends = "its ledgers were never completely shipped to the lake"
        if self.covered > 0:
            ends = f"its ledger ends at {moment(nearest_time(self.covered))}"
        if self.mention is not None:
            ends += f", {self.mention.words}"
        if abs(self.ahead) >= _NOTABLE:
            way = "ahead" if self.ahead > 0 else "behind"
            ends += f" (its clock is {span(abs(self.ahead) / SECOND)} {way}: these times are corrected)"
        match self.kind:
            case "silent":
                return f"silent since {moment(nearest_time(self.reported))} ({span(self.age / SECOND)}): {ends}"
            case "behind":
                return f"behind: it {'is closed' if self.is_closed else 'reports'}, but {ends}"
            case "clock":
                return f"ahead by {span(-self.age / SECOND)}: with that clock its silence would not be noticed"
            case "state":
                return f"not to be trusted: its state of {moment(nearest_time(self.reported))} {self.fault}"


def find_silences(
    survey: Survey,
    *,
    now: int,
    until: int | None,
    patience: int = PATIENCE,
    shifts: Mapping[str, ClockShift] | None = None,
    mentions: Mapping[str, Mention] | None = None,
    clock_change: Callable[[str], int] = lambda node: SECOND,
) -> dict[str, Silence]:
    """Return, by node, a `Silence` if its ledgers do not reach `until` (None: `now`), or its state is dated wrong.

    Delays up to the patience, or 3 shipping intervals if longer, are allowed. The ledgers of a node must also reach its
    last mention in those of others; of a closed node, which ships nothing more, without a delay. `shifts`: by
    node, the error of its clock, see `clock_shifts`. `clock_change`: how far a node's clock may have been set back.
    Times are in microseconds.
    """
    found = {}
    last = _last_rows(survey)
    for states in states_by_node(survey):
        state = states[-1]
        shift, mention = (shifts or {}).get(state.node), (mentions or {}).get(state.node)
        ahead = shift.correction if shift else 0
        later = min(_READING + clock_change(state.node), patience)
        faults = [_fault(one, now, ahead) for one in states]
        # Rows of the future also make the clock of the node look wrong, and with it the times of a silence.
        faults += [_late_rows(one, last, max(later, now + patience - one.as_of)) for one in states]
        rows = [_late_rows(one, last, later) for one in states]
        silence = (
            _faulty(states, faults, now)
            or _silence(state, now, until, patience, ahead, mention)
            or _faulty(states, rows, now)
        )
        if silence is not None:
            found[state.node] = silence
    return found


def _faulty(states: Sequence[NodeState], faults: Iterable[str], now: int) -> Silence | None:
    """Return the silence of a node for the first fault of its states; None if there is no fault.

    `faults` has the fault of each state, in order, or an empty text. The times are those of the state: a fault may
    make its clock look wrong.
    """
    wrong = next(((one, fault) for one, fault in zip(cycle(states), faults, strict=False) if fault), None)
    if wrong is None:
        return None
    state, fault = wrong
    return Silence(state.node, "state", 0, state.as_of, now - state.as_of, fault=fault)


def _last_rows(survey: Survey) -> dict[tuple[str, str], int]:
    """Return the time of the last row that the state of each node and epoch promises, in microseconds."""
    promised = {
        (state.node, state.epoch, book): reach.upto for state in survey.nodes for book, reach in state.segments.items()
    }
    last: dict[tuple[str, str], int] = {}
    for place, manifest in survey.segments:
        owner = manifest.node, manifest.epoch
        # The node may have shipped what follows since it wrote the state.
        if manifest.times and place.upto <= promised.get((*owner, place.book), -1):
            last[owner] = max(manifest.times[1], last.get(owner, 0))
    return last


def _late_rows(state: NodeState, last: Mapping[tuple[str, str], int], later: int) -> str:
    """Return the fault of a state with rows that were recorded more than `later` after it was written; else empty."""
    from eventd.audit.report.figures import moment, nearest_time

    at = last.get((state.node, state.epoch), 0)
    return f"promises a later row, of {moment(nearest_time(at))}" if at - later > state.as_of else ""


def _fault(state: NodeState, now: int, ahead: int) -> str:
    """Return the fault of a state that no node would have written, whatever its rows are; empty if it has none."""
    if state.complete_until > state.as_of:
        return "says that its ledgers are complete until a later time"
    if state.began_at > state.as_of:
        return "says that its epoch began later"
    if state.closed_at and not state.began_at - ahead - _LONGEST <= state.closed_at <= now + _LONGEST:
        return f"says that it was closed at {format_time(state.closed_at)}"
    if state.interval > _LONGEST:
        return f"says that it looks for rows every {state.interval // _LONGEST:,} days, and at most one is allowed"
    return ""


def longest_silence(state: NodeState, patience: int) -> int:
    """Return after how many microseconds without a report the node of a state counts as silent."""
    return max(patience, _MISSED * state.interval)


def _silence(
    state: NodeState, now: int, until: int | None, patience: int, ahead: int, mention: Mention | None
) -> Silence | None:
    allowed = longest_silence(state, patience)
    covered, reported = state.complete_until, state.as_of - ahead
    age = now - reported
    later = mention if mention is not None and mention.at >= covered else None
    kind: SilenceKind | None = None
    if state.closed_at:
        kind = "behind" if later else None
    elif age < -patience:
        kind = "clock"
    else:
        needed = now - allowed if until is None else min(until, now - allowed)
        ends_early = covered - ahead < needed
        if (ends_early or _is_late(later, covered, allowed)) and age > allowed:
            kind = "silent"
        elif (ends_early and state.as_of - covered > allowed) or _is_late(later, covered, allowed):
            kind = "behind"
    if kind is None:
        return None
    return Silence(state.node, kind, max(covered - ahead, 0), reported, age, later, ahead, bool(state.closed_at))


def _is_late(mention: Mention | None, covered: int, allowed: int) -> bool:
    """Return whether a ledger ends before a mention of its node by more time than shipping may take."""
    return mention is not None and mention.at - covered > allowed


_OF_CLOSED: Final = (
    "its last rows were not shipped: start the node once more until it has shipped them; if they are lost, audit the"
    " time before by --to, and the time after by --from"
)
_HINTS: Final[dict[SilenceKind, str]] = {
    "silent": "start the node, or see `routerctl lake status` on it; if it is out of service for good, run {close}",
    "behind": "see `routerctl lake status` on the node",
    "clock": "set the clock of the node, or of this machine",
    "state": "find out who wrote the state; the node writes a new one when it ships its next rows",
}


def limitation_of(silence: Silence, lake: str) -> Limitation:
    """Return the limitation of a report for a silence; secrets of the address `lake` are not shown."""
    hint = _OF_CLOSED if silence.is_closed and silence.kind == "behind" else _HINTS[silence.kind]
    hint = hint.format(close=_closing(silence.node, lake))
    return Limitation(kind=silence.kind, where=silence.node, message=silence.words, hint=hint)


def _closing(node: str, lake: str) -> str:
    """Return the command that closes a node; without the address of the lake if a part of it is secret."""
    if shown(lake) != lake:
        return f"`routerctl lake close --node {quote(node)}` with the address of the lake in EVENTD_LAKE"
    return f"`routerctl lake close --lake {quote(lake)} --node {quote(node)}`"
