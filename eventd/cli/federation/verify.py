"""routerctl verify: does a peer hold what our books say it has; and sending again what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.fix import Mended, mend
from eventd.cli.federation.links import SUMMARY
from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected
from eventd.cli.program.exits import ExitCode
from eventd.cli.terminal.bar import Bar
from eventd.cli.terminal.output import Column, count, note, show_moment, text
from eventd.errors import Conflict
from eventd.text.invisible import printable

COMPARED = (
    Column("GROUP", text("group")),
    Column("PEER", text("peer")),
    Column("COMPARED", lambda row: str(row["compared"])),
    Column("MISSING", lambda row: str(row["missing"])),
    Column("EXTRA", lambda row: str(row["extra"])),
    Column("OTHER", lambda row: str(row["other"])),
    Column("PENDING", lambda row: str(row["pending"])),
    Column("SET_ASIDE", lambda row: ",".join(f"{number} {name}" for name, number in row["setAside"].items()) or "-"),
    Column("RESULT", text("result")),
)
GAPS = (
    Column("GAP", lambda row: _span(row["fromSeq"], row["toSeq"])),
    Column("POSITIONS", lambda row: _span(row["fromPosition"], row["toPosition"])),
    Column("EVENTS", text("events")),
    Column("EVENT_IDS", lambda row: _some(row["ids"], row["events"]), uncut=lambda row: ",".join(row["ids"])),
)
SHOWN_IDS = 5
SHOWN_GAPS = 50
STAGES = {
    "asking": "asking where the link stands",
    "own": "adding up what we have",
    "peer": "adding up what {peer} has",
    "ids": "looking at what differs",
    "peer ids": "looking at what {peer} has beyond it",
}

PeerOption = Annotated[str, typer.Option("--peer", metavar="NODE", help="The peer, by its node name.")]


@connected
async def verify(
    session: Session,
    peer: PeerOption,
    group: GroupOption = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="Send what is missing again, wait until it is there, and compare again.")
    ] = False,
) -> None:
    """Compare what a peer holds with what our books say it has, and name what is missing; end with 4 if anything is."""
    name = await one_group(session, group)
    bar = Bar()
    try:
        report = await compare(session, name, peer, bar)
        mended = await mend(session, name, peer, report, compare, bar) if repair and report["compared"] else None
    finally:
        bar.clear()
    report = mended.report if mended is not None else report
    if not report["compared"]:
        await _not_compared(session, name, peer, report)
    _show(session, name, peer, report, mended)
    if not report["clean"]:
        note(f"{peer} does not hold what it should" if report["events"]["missing"] else f"{peer} and our log differ")
        raise typer.Exit(ExitCode.CHECK_FAILED)


async def compare(session: Session, group: str, peer: str, bar: Bar) -> dict[str, Any]:
    """The report of one whole comparison."""
    where = {"group": group, "peer": peer, "seconds": 1}
    told = await session.call("links.verify", **where)
    while not told["done"]:
        progress = told["progress"]
        bar.show(STAGES[progress["stage"]].format(peer=peer), progress["done"], progress["of"])
        told = await session.call("links.verify", run=told["run"], **where)
    report: dict[str, Any] = told["report"]
    return report


async def _not_compared(session: Session, group: str, peer: str, report: Mapping[str, Any]) -> None:
    """Say what our own books say, and that they are not compared with anything."""
    summary = await session.call("deliveries.summary", group=group, peer=peer, include_expired=True)
    if session.out.is_table:
        session.out.rows(SUMMARY, summary["summary"], name=lambda row: str(row["peer"]))
    else:
        session.out.value({"group": group, "peer": peer, **report, "books": summary["summary"]})
    raise Conflict(
        f"{peer} cannot be asked what it holds: {report['why']}; what is shown is what our books say",
        hint="routerctl federation redeliver sends events again, which such a peer drops where it has them",
    )


def _show(session: Session, group: str, peer: str, report: Mapping[str, Any], mended: Mended | None) -> None:
    out, events = session.out, report["events"]
    if out.format in ("json", "yaml"):
        repaired = {} if mended is None else {"repair": mended.show()}
        out.value({"group": group, "peer": peer, **report, **repaired})
        return
    if out.format == "name":
        for gap in events["gaps"]:
            for event_id in gap["ids"]:
                out.line(printable(event_id))
        return
    result = "clean" if report["clean"] else "differs"
    out.table(COMPARED, [{**events, "group": group, "peer": peer, "result": result}])
    if events["gaps"]:
        out.line()
        out.table(GAPS, events["gaps"] if out.format == "wide" else events["gaps"][:SHOWN_GAPS])
    _tell(peer, report, shown=len(events["gaps"]) if out.format == "wide" else SHOWN_GAPS)
    if mended is not None:
        note(mended.words(peer))


def _tell(peer: str, report: Mapping[str, Any], *, shown: int) -> None:
    events, link = report["events"], report["link"]
    if len(events["gaps"]) > shown:
        note(f"note: {count(len(events['gaps']) - shown, 'more gap')}: -o json names all of them")
    if events["untold"]:
        note(f"note: {count(events['untold'], 'missing event')} lie in further gaps, which are not listed")
    if events["extra"]:
        note(f"{peer} holds {_of_ours(events['extra'])} that our log does not know: {_ids(events['extraIds'])}")
    if events["other"]:
        note(f"{peer} holds another event under {count(events['other'], 'id')} of ours: {_ids(events['otherIds'])}")
    if events["unresolved"]:
        note(f"note: {count(events['unresolved'], 'part')} of the sums differ, and were not cleared up: compare again")
    for words in link["notes"]:
        note(f"note: {words}")
    if link["peerKeepsSince"]:
        note(f"note: {peer} keeps nothing it recorded before {show_moment(link['peerKeepsSince'])}")


def _of_ours(number: int) -> str:
    return f"{count(number, 'event')} of ours"


def _ids(ids: list[str]) -> str:
    return printable(_some(ids, len(ids)))


def _some(ids: list[str], number: int) -> str:
    shown = ids[:SHOWN_IDS]
    more = number - len(shown)
    return ",".join(shown) + (f" and {more} more" if more > 0 else "")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
