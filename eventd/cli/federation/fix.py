"""Has the node send a peer the events that the peer lacks, and compares again.

Repeats this while it makes progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventd.cli.gateway.session import Session
from eventd.cli.terminal.bar import Bar
from eventd.errors import Conflict, NotFound
from eventd.text.plural import counted

LONG = 1000
"""Gaps with at least this many events are sent as a range; the events of shorter gaps are sent together, by their
ids."""
IDS_AT_ONCE = 10_000
REPAIRS_AT_ONCE = 8
"""Maximum number of repairs that are requested at a time; the rest follows when these are done."""
MOST_ROUNDS = 50
LOOK_SECONDS = 0.25
STILL_SECONDS = 60.0
"""Seconds without progress after which the wait ends."""

Compare = Callable[[Session, str, str, Bar], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The last comparison, and the number of events that the node was asked to send, in all rounds.

    `trouble`: why the repair stopped early; empty if it did not, or if the last comparison failed.
    """

    report: dict[str, Any]
    asked: int
    trouble: str = ""

    def show(self) -> dict[str, Any]:
        return {"events": self.asked, "done": self.report["clean"], "trouble": self.trouble}

    def words(self, peer: str) -> str:
        """Return the outcome in one line."""
        if not self.asked and not self.trouble:
            return "nothing was missing; nothing was sent"
        if self.trouble:
            return f"requested to send {counted(self.asked, 'event')} to {peer} again: {self.trouble}"
        held = "some are still missing" if self.report["events"]["missing"] else "it holds all of them"
        return f"sent {counted(self.asked, 'event')} to {peer} again, and compared again: {held}"


async def repair_peer(
    session: Session, group: str, peer: str, report: dict[str, Any], compare: Compare, bar: Bar
) -> RepairReport:
    """Have the node send the events that the report lists as missing, wait, and compare again.

    Repeats this while each round leaves fewer events missing, at most `MOST_ROUNDS` times.
    """
    asked = 0
    for _ in range(MOST_ROUNDS):
        missing = report["events"]["missing"]
        if not missing:
            return RepairReport(report, asked)
        sent, refused = await _ask(session, group, peer, plan(report["events"]["gaps"]))
        asked += sent
        if not sent:
            return RepairReport(report, asked, refused)
        if not session.serving():
            words = "no node serves this database now; a node sends them when it starts"
            return RepairReport(report, asked, words)
        if trouble := await _wait(session, group, peer, bar):
            return RepairReport(report, asked, trouble)
        report = await compare(session, group, peer, bar)
        if not report["compared"]:
            return RepairReport(report, asked)
        if report["events"]["missing"] >= missing:
            return RepairReport(report, asked, f"{peer} still lacks {counted(report['events']['missing'], 'event')}")
    return RepairReport(report, asked, "more events are missing: run `routerctl verify --repair` again")


async def _ask(session: Session, group: str, peer: str, parts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Request the repairs that `plan` returned. Returns how many events will be sent, and the last refusal or "".

    Events may have expired or been evicted since they were found missing: the next comparison excludes these.
    """
    sent, refused = 0, ""
    for params in parts:
        try:
            answer = await session.call("deliveries.redeliver", group=group, peer=peer, **params)
            sent += answer["events"]
        except (Conflict, NotFound) as error:
            refused = error.message
    return sent, refused


def plan(gaps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the parameters of the repairs to request next, at most `REPAIRS_AT_ONCE`.

    At most half are ranges, of the longest gaps that have `LONG` events or unlisted ids; the others name ids.
    """
    ordered = sorted(gaps, key=lambda gap: -gap["events"])
    long = [gap for gap in ordered if gap["events"] >= LONG or len(gap["ids"]) < gap["events"]][: REPAIRS_AT_ONCE // 2]
    found = [{"from_seq": gap["fromSeq"], "to_seq": gap["toSeq"]} for gap in long]
    ids = [event_id for gap in ordered if gap not in long for event_id in gap["ids"]]
    parts = [ids[start : start + IDS_AT_ONCE] for start in range(0, len(ids), IDS_AT_ONCE)]
    return [*found, *({"ids": part} for part in parts[: REPAIRS_AT_ONCE - len(found)])]


async def _wait(session: Session, group: str, peer: str, bar: Bar) -> str:
    """Wait until the peer has no running repair; returns an empty text.

    If the peer is paused, or makes no progress, stop waiting and return the reason.
    """
    from eventd.runtime.clock import SystemClock

    clock, most, left, moved = SystemClock(), 0, 0, SystemClock().monotonic()
    while True:
        [link] = (await session.call("links.status", group=group, peer=peer))["outbound"]
        repairs = link["repairs"]
        if not repairs:
            return ""
        ahead = sum(repair["until"] - repair["position"] for repair in repairs if repair["until"] is not None)
        most = max(most, ahead)
        if link["pausedAt"]:
            return f"{peer} is paused; resume it to send them: routerctl federation resume {peer}"
        if ahead != left:
            left, moved = ahead, clock.monotonic()
        elif clock.monotonic() - moved > STILL_SECONDS:
            why = next((repair["lastError"] for repair in repairs if repair["lastError"]), link["state"])
            return f"no progress for {STILL_SECONDS:g} s: {why}"
        bar.show(f"sending missing events to {peer} again", most - ahead, most)
        await clock.sleep(LOOK_SECONDS)
