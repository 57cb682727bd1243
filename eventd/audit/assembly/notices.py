"""The notices of a report: conditions that are not faults, but limit what the audit can notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.audit.assembly.assemble import StageResults
from eventd.audit.coverage.silence import longest_silence
from eventd.audit.report.figures import moment, nearest_time, span
from eventd.audit.report.report import Notice
from eventd.audit.segments.plan import states_by_node
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted

_MOST_NODES: Final = 5
"""Maximum number of nodes that one notice names."""


def make_notices(results: StageResults, patience: int) -> list[Notice]:
    """Return the notices: events that were delivered again, links that are not declared any more, and nodes whose
    silence is noticed late or never.

    `patience`: after how many microseconds without a report a node counts as silent.
    """
    return [*_repeated(results), *_former_links(results), *_closed_nodes(results), *_slow_nodes(results, patience)]


def _repeated(results: StageResults) -> Iterator[Notice]:
    """Yield how many events of each pair were delivered again by repairs and resends, which operators request."""
    for pair, n in sorted(results.comparison.redelivered.items()):
        message = f"{counted(n, 'event was', 'events were')} delivered again by a repair or a resend"
        yield Notice(kind="redelivery", **pair._asdict(), events=n, message=message)


def _former_links(results: StageResults) -> Iterator[Notice]:
    """Yield the links that nodes do not declare any more: events that they still had to send are not expected."""
    for (owner, group, peer), upto in sorted(results.plan.former.items()):
        message = (
            f"{owner.node} does not declare this link any more: nothing that it had to send after position"
            f" {max(upto, 0):,} of its log is expected"
        )
        yield Notice(kind="undeclared", group=group, source=owner.node, peer=peer, events=0, message=message)


def _closed_nodes(results: StageResults) -> Iterator[Notice]:
    """Yield a notice if all nodes are closed: then no age of a report makes the audit unproven."""
    last = [states[-1] for states in states_by_node(results.survey)]
    if last and all(state.closed_at for state in last):
        more = "" if len(last) <= _MOST_NODES else f" and {len(last) - _MOST_NODES:,} more"
        names = ", ".join(state.node for state in last[:_MOST_NODES])
        message = (
            f"all nodes say that they are closed ({names}{more}), the last since"
            f" {moment(nearest_time(max(state.closed_at for state in last)))}: the audit expects no reports, and"
            " does not notice that the lake was taken back to an earlier hour"
        )
        yield Notice(kind="closed", group="", source="", peer="", events=0, message=message)


def _slow_nodes(results: StageResults, patience: int) -> Iterator[Notice]:
    """Yield the nodes in service that may be silent for longer than the patience, because they say that they ship
    seldom."""
    for states in states_by_node(results.survey):
        state, allowed = states[-1], longest_silence(states[-1], patience)
        if allowed > patience and not state.closed_at:
            message = (
                f"{state.node} says that it ships every {span(state.interval / SECOND)}: it counts as silent after"
                f" {span(allowed / SECOND)} without a report, and not after {span(patience / SECOND)} (--silence)"
            )
            yield Notice(kind="interval", group="", source=state.node, peer="", events=0, message=message)
