"""routerctl verify --pull: gets events of this node that its log lacks back from a peer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import typer

from eventd.cli.gateway.session import Session
from eventd.cli.program.exits import ExitCode
from eventd.cli.terminal.bar import Bar
from eventd.cli.terminal.output import Column, note, show_moment, text
from eventd.text.plural import counted

PULLED = (
    Column("GROUP", text("group")),
    Column("PEER", text("peer")),
    Column("LACKING", text("lacking")),
    Column("STORED", text("stored")),
    Column("BY_RECEIPT", text("byReceipt")),
    Column("CONFIRMED", text("confirmed")),
    Column("UNPROVEN", text("unproven")),
    Column("LEFT", lambda row: ",".join(f"{number} {name}" for name, number in row["left"].items()) or "-"),
)
COUNTS = ("lacking", "stored", "byReceipt", "confirmed", "unproven")
REASONS = {
    "unproven": "no receipt of {peer} names them: --accept-unproven stores and marks them",
    "expired": "they have expired",
    "tooLarge": "they are too large for an answer",
    "notReturned": "{peer} does not hold them any more, or they are of another source",
    "otherEvent": "this node has another event under their ids",
    "hereMeanwhile": "they were stored meanwhile",
}
SHOWN_IDS = 5
MOST_LISTED = 10_000
"""Maximum number of unproven events that the output lists."""
HARMLESS = frozenset(("expired", "hereMeanwhile"))
"""Reasons for which an event need not be stored."""


async def pull(session: Session, group: str, peer: str, *, accept_unproven: bool, dry_run: bool) -> None:
    """Have the node get its events back, call by call, and show the counts.

    Exits with status 4 if some events were not stored.
    """
    params = {"group": group, "peer": peer, "accept_unproven": accept_unproven, "dry_run": dry_run}
    total: Counter[str] = Counter()
    left: Counter[str] = Counter()
    unproven: list[Mapping[str, Any]] = []
    after = ""
    with Bar() as bar:
        while True:
            answer = await session.call("links.pull", **params, after=after, seconds=2)
            total.update({name: answer[name] for name in COUNTS})
            left.update(answer["left"])
            unproven += answer["unprovenEvents"][: MOST_LISTED - len(unproven)]
            if answer["next"] is None:
                break
            after = answer["next"]
            bar.show(f"getting events back from {peer}", *_progress(after))
    row = {"group": group, "peer": peer, "dryRun": dry_run}
    row |= {name: total[name] for name in COUNTS} | {"left": dict(left)}
    _show(session, peer, row | {"unprovenEvents": unproven})
    if any(number for reason, number in left.items() if reason not in HARMLESS) or (dry_run and total["stored"]):
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _progress(position: str) -> tuple[int, int]:
    """Return how far the peer's log was read, and up to which position it will be read, from the position in an
    answer."""
    _, upto, after, *_ = position.split(":")
    return int(after), int(upto)


def _show(session: Session, peer: str, row: Mapping[str, Any]) -> None:
    out = session.out
    if out.is_document:
        out.value(row)
        return
    out.rows(PULLED, [row], name=lambda one: f"{one['group']}/{one['peer']}")
    if not out.is_table:
        return
    for reason, number in row["left"].items():
        ids = [one["id"] for one in row["unprovenEvents"][:SHOWN_IDS]] if reason == "unproven" else []
        listed = f" ({', '.join(ids)}{', …' if number > len(ids) else ''})" if ids else ""
        note(f"note: {counted(number, 'event')} left{listed}: {REASONS[reason].format(peer=peer)}")
    if row["dryRun"]:
        note(f"dry run: {counted(row['stored'], 'event')} would be stored, nothing was")


def show_returned(mark: Mapping[str, Any] | None) -> str:
    """Return the mark of an event that came back from a peer in one line; `-` without one."""
    if mark is None:
        return "-"
    evidence = "confirmed" if mark["confirmed"] else "by receipt" if mark["byReceipt"] else "unproven"
    return f"from {mark['from']}, {evidence}"


def describe_returned(mark: Mapping[str, Any]) -> str:
    """Return the mark of an event that came back from a peer as a sentence for a description."""
    evidence = f"unproven: {mark['reason']}"
    if mark["byReceipt"]:
        evidence = f"the peer's receipt of batch {mark['batchId']} names it"
    if mark["confirmed"]:
        evidence += ", confirmed by this node's own ledger"
    return f"from {mark['from']} at {show_moment(mark['at'])}, {evidence}"
