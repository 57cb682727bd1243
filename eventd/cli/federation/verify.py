"""routerctl verify: compares what a peer holds with the delivery ledger.

With --repair it sends events that the peer lacks again; with --pull it gets events back that this node lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.fix import RepairReport, repair_peer
from eventd.cli.federation.links import SUMMARY
from eventd.cli.federation.pull import pull as pull_events
from eventd.cli.gateway.completion import complete_peer
from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected
from eventd.cli.program.exits import ExitCode
from eventd.cli.terminal.bar import Bar
from eventd.cli.terminal.output import Column, note, show_moment, text
from eventd.errors import Conflict
from eventd.text.invisible import printable
from eventd.text.plural import counted

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
    "asking": "reading the state of the link",
    "own": "computing this node's digests",
    "peer": "reading the digests of {peer}",
    "ids": "comparing ranges that differ",
    "peer ids": "reading the extra events of {peer}",
}

PeerOption = Annotated[
    str, typer.Option("--peer", metavar="NODE", autocompletion=complete_peer, help="The peer, by its node name.")
]


@connected
async def verify(
    session: Session,
    peer: PeerOption,
    group: GroupOption = "",
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Send missing events again, wait until the peer has them, and compare again."),
    ] = False,
    pull: Annotated[
        bool,
        typer.Option(
            "--pull",
            help="After a restore of this node from an older copy: get its own lost events back from the peer.",
        ),
    ] = False,
    accept_unproven: Annotated[
        bool,
        typer.Option(
            "--accept-unproven",
            help="With --pull: also store events without a receipt that proves them, and mark them.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --pull: only count the events that would be stored.")
    ] = False,
) -> None:
    """Compare a peer's events with this node's delivery ledger; exits with status 4 if they differ.

    Changes nothing without --repair, which sends to the peer, and --pull, which gets from it.
    """
    if repair and pull:
        raise typer.BadParameter("--repair sends events to the peer, --pull gets them from it: choose one")
    if (accept_unproven or dry_run) and not pull:
        raise typer.BadParameter(f"{'--accept-unproven' if accept_unproven else '--dry-run'} needs --pull")
    name = await one_group(session, group)
    if pull:
        await pull_events(session, name, peer, accept_unproven=accept_unproven, dry_run=dry_run)
        return
    repaired = None
    with Bar() as bar:
        report = await compare(session, name, peer, bar)
        if repair and report["compared"]:
            repaired = await repair_peer(session, name, peer, report, compare, bar)
            report = repaired.report
    if not report["compared"]:
        await _not_compared(session, name, peer, report)
    _show(session, name, peer, report, repaired)
    if not report["clean"]:
        note(
            f"{peer} lacks events that it should hold"
            if report["events"]["missing"]
            else f"{peer} and this node's log differ"
        )
        raise typer.Exit(ExitCode.CHECK_FAILED)


async def compare(session: Session, group: str, peer: str, bar: Bar) -> dict[str, Any]:
    """Have the node compare its ledger with the peer's events, showing the progress; returns the report."""
    link = {"group": group, "peer": peer, "seconds": 1}
    answer = await session.call("links.verify", **link)
    while not answer["done"]:
        progress = answer["progress"]
        bar.show(STAGES[progress["stage"]].format(peer=peer), progress["done"], progress["of"])
        answer = await session.call("links.verify", run=answer["run"], **link)
    report: dict[str, Any] = answer["report"]
    return report


async def _not_compared(session: Session, group: str, peer: str, report: Mapping[str, Any]) -> None:
    """Show the summary of the delivery ledger, and raise `Conflict` with the reason if nothing was compared."""
    summary = await session.call("deliveries.summary", group=group, peer=peer, include_expired=True)
    if session.out.is_table:
        session.out.rows(SUMMARY, summary["summary"], name=lambda row: str(row["peer"]))
    else:
        session.out.value({"group": group, "peer": peer, **report, "books": summary["summary"]})
    raise Conflict(
        f"{peer} cannot be compared: {report['why']}; shown is this node's delivery ledger",
        hint="`routerctl federation redeliver` sends events again; the peer drops those it has",
    )


def _show(session: Session, group: str, peer: str, report: Mapping[str, Any], repaired: RepairReport | None) -> None:
    out, events = session.out, report["events"]
    if out.is_document:
        repair = {} if repaired is None else {"repair": repaired.show()}
        out.value({"group": group, "peer": peer, **report, **repair})
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
    _note_findings(peer, report, shown=len(events["gaps"]) if out.format == "wide" else SHOWN_GAPS)
    if repaired is not None:
        note(repaired.words(peer))


def _note_findings(peer: str, report: Mapping[str, Any], *, shown: int) -> None:
    events, link = report["events"], report["link"]
    if len(events["gaps"]) > shown:
        note(f"note: {counted(len(events['gaps']) - shown, 'more gap')}: -o json lists all of them")
    if events["untold"]:
        note(f"note: {counted(events['untold'], 'missing event')} in further gaps, not listed")
    if events["extra"]:
        extra = counted(events["extra"], "event")
        note(f"{peer} holds {extra} of this node that this node's log does not contain: {_ids(events['extraIds'])}")
        note(f"note: if this database was restored, `routerctl verify --peer {peer} --pull` gets them back")
    if events["other"]:
        note(
            f"{peer} holds other events under {counted(events['other'], 'id')} of this node: {_ids(events['otherIds'])}"
        )
    if events["unresolved"]:
        note(f"note: {counted(events['unresolved'], 'part')} of the digests differ and were not resolved: verify again")
    for words in link["notes"]:
        note(f"note: {words}")
    if link["peerKeepsSince"]:
        note(f"note: {peer} keeps nothing that it stored before {show_moment(link['peerKeepsSince'])}")


def _ids(ids: list[str]) -> str:
    return printable(_some(ids, len(ids)))


def _some(ids: list[str], number: int) -> str:
    shown = ids[:SHOWN_IDS]
    more = number - len(shown)
    return ",".join(shown) + (f" and {more} more" if more > 0 else "")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
