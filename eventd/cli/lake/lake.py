"""routerctl lake: status, check, compact, retain, close."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.selecting import DryRunOption
from eventd.cli.gateway.session import Session, connected, offline
from eventd.cli.terminal.output import Column, count, moment, note, text
from eventd.errors import CheckFailed, EventdError, Invalid
from eventd.text.invisible import printable

if TYPE_CHECKING:
    from eventd.lake.compaction import Done, Retention
    from eventd.lake.reader import Survey, Trouble
    from eventd.lake.storage import Storage

STATUS = (
    Column("NODE", text("node")),
    Column("BOOK", text("book")),
    Column("STATE", text("state")),
    Column("REASON", text("reason")),
    Column("UPTO", text("upto")),
    Column("WAITING", text("waiting")),
    Column("LAST_SUCCESS", moment("lastSuccessAt")),
    Column("NEXT_TRY", moment("retryAt")),
    Column("LAST_ERROR", text("lastError")),
)
HELD = (
    Column("NODE", text("node")),
    Column("BOOK", text("book")),
    Column("SEGMENTS", text("segments")),
    Column("ARCHIVED", text("archived")),
    Column("ROWS", text("rows")),
    Column("BYTES", text("bytes")),
    Column("FIRST_DAY", text("firstDay")),
    Column("LAST_DAY", text("lastDay")),
    Column("REPORTED", moment("reportedAt")),
)
TROUBLES = (
    Column("TROUBLE", text("kind")),
    Column("NODE", text("node")),
    Column("BOOK", text("book")),
    Column("AFTER", lambda row: str(row["after"])),
    Column("UPTO", lambda row: str(row["upto"])),
    Column("WHAT", text("message")),
    Column("NAME", text("name"), wide=True),
)
TIDIED = (
    Column("COMPACTED", lambda row: str(row["compacted"])),
    Column("REMOVED", lambda row: str(row["removed"])),
)

RETAINED = (
    Column("EXPIRED", lambda row: str(row["expired"])),
    Column("REMOVED", lambda row: str(row["removed"])),
)
PLANNED = (
    Column("NODE", text("node")),
    Column("BOOK", text("book")),
    *RETAINED,
    Column("LAST_DAY", text("lastDay")),
    Column("EPOCH", text("epoch"), wide=True),
)

CLOSED = (
    Column("NODE", text("node")),
    Column("COMPLETE_UNTIL", moment("completeUntil")),
    Column("CLOSED_AT", moment("closedAt")),
)

LakeOption = Annotated[str, typer.Option("--lake", metavar="LAKE", help="Folder or address of the lake. [EVENTD_LAKE]")]
NodesOption = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE", help="Only what this node has shipped; repeatable; all by default."),
]


@connected
async def status(session: Session) -> None:
    """Show how far each book of the node is in the lake, and what holds it up."""
    answer = await session.call("lake.status")
    session.out.rows(STATUS, answer["books"], name=lambda row: f"{row['node']}/{row['book']}")
    if not answer["books"] and session.out.is_table:
        note("note: nothing is shipped; set EVENTD_LAKE where the node runs")


@offline
def check(session: Session, lake: LakeOption = "") -> None:
    """Look at a whole lake: what each node has in it, and what is wrong. Ends with 4 if rows are lost or cannot be
    trusted.
    """
    from eventd.lake.reader import TroubleKind, survey

    found = survey(_storage(session, lake))
    held, troubles = _held(found), [_trouble(one) for one in found.troubles]
    if session.out.is_table:
        session.out.rows(HELD, held, name=lambda row: str(row["book"]))
        if troubles:
            session.out.line()
            session.out.rows(TROUBLES, troubles, name=lambda row: str(row["name"]))
    elif session.out.format == "name":
        session.out.rows(TROUBLES, troubles, name=lambda row: str(row["name"]))
    else:
        session.out.value({"lake": found.head.id, "books": held, "troubles": troubles})
    if any(one.kind is not TroubleKind.EPOCHS for one in found.troubles):
        raise CheckFailed(f"the lake has {len(troubles)} troubles", hint="see `what` of each")


@offline
def compact(
    session: Session,
    lake: LakeOption = "",
    node: NodesOption = None,
    after: Annotated[
        str, typer.Option("--after", metavar="AGE", help="Days that ended longer ago than this, such as 1d or 2h.")
    ] = "1d",
) -> None:
    """Put closed days into the archive, a file instead of many, and remove from the landing what has been there for a
    day.
    """
    from eventd.lake.compaction import compacting

    storage, now = _storage(session, lake), _now()
    _tell(session, compacting(storage, _nodes(storage, node), now=now, after=_age("--after", after)))


@offline
def retain(
    session: Session,
    keep: Annotated[str, typer.Option("--keep", metavar="AGE", help="Days older than this expire, such as 90d.")],
    lake: LakeOption = "",
    node: NodesOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Mark segments of days older than AGE as expired; a run at least 24 h later deletes them. On a terminal it asks
    before it changes anything.
    """
    from eventd.lake.compaction import plan_retention, retaining

    storage, now, age = _storage(session, lake), _now(), _age("--keep", keep)
    nodes = _nodes(storage, node)
    if dry_run or (not yes and sys.stdin.isatty()):
        plans = plan_retention(storage, nodes, now=now, keep=age)
        if dry_run:
            _show_plans(session, plans)
            return
        _ask(plans)
    done = list(retaining(storage, nodes, now=now, keep=age))
    row = {"expired": sum(each.expired for each in done), "removed": sum(each.removed for each in done)}
    session.out.one(RETAINED, row, name=lambda row: f"{row['expired']} {row['removed']}")


def _show_plans(session: Session, plans: Sequence[Retention]) -> None:
    rows = [
        {
            "node": plan.node,
            "book": str(plan.book),
            "epoch": plan.epoch,
            "expired": len(plan.expired),
            "removed": len(plan.removed),
            "lastDay": max(place.day for place in [*plan.expired, *plan.removed]),
        }
        for plan in plans
    ]
    session.out.rows(PLANNED, rows, name=lambda row: f"{row['node']}/{row['book']}")
    if session.out.is_table:
        note("note: nothing was changed" if rows else "note: nothing is that old, or everything waits for its 24 h")


def _ask(plans: Sequence[Retention]) -> None:
    """Raises EventdError where the answer is not yes."""
    if not plans:
        return
    for plan in plans:
        expired, removed = count(len(plan.expired), "segment"), count(len(plan.removed), "segment")
        note(f"{printable(plan.node)}, {plan.book}: mark {expired} as expired, delete {removed}")
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise EventdError("nothing was changed")


@offline
def close(
    session: Session,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="The node that is out of service for good.")],
    lake: LakeOption = "",
) -> None:
    """Declare a node out of service: an audit expects nothing more from it. A node that ships again is open again."""
    from eventd.lake.close import close_node
    from federation.event import format_time

    state = close_node(_storage(session, lake), node, now=_now())
    row = {"node": state.node, "completeUntil": state.complete_until, "closedAt": state.closed_at}
    told = {name: format_time(value) if isinstance(value, int) else value for name, value in row.items()}
    session.out.one(CLOSED, told, name=lambda row: str(row["node"]))


def _storage(session: Session, lake: str) -> Storage:
    """The lake that is named, or that of the settings. Raises Invalid where there is none."""
    from eventd.lake.storage import connect, open_lake
    from eventd.settings.model import load

    url = load({**session.where.flags(), "lake": lake or None}).lake
    if not url:
        raise Invalid("no lake is named", hint="say --lake FOLDER, or set EVENTD_LAKE")
    storage = connect(url)
    open_lake(storage)
    return storage


def _nodes(storage: Storage, named: list[str] | None) -> list[str]:
    from eventd.lake.reader import survey

    return named or sorted({state.node for state in survey(storage).nodes})


def _age(option: str, text: str) -> int:
    from eventd.settings.values import read_age

    try:
        return read_age(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def _now() -> int:
    from eventd.runtime.clock import SystemClock

    return SystemClock().now()


def _tell(session: Session, work: Iterable[Done]) -> None:
    done = list(work)
    row = {"compacted": sum(each.compacted for each in done), "removed": sum(each.removed for each in done)}
    session.out.one(TIDIED, row, name=lambda row: f"{row['compacted']} {row['removed']}")


def _held(found: Survey) -> list[dict[str, Any]]:
    from federation.event import format_time

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    reported: dict[str, int] = {}
    for state in found.nodes:
        reported[state.node] = max(state.as_of, reported.get(state.node, 0))
    for place, manifest in found.segments:
        blank = {"segments": 0, "archived": 0, "rows": 0, "bytes": 0, "firstDay": place.day, "lastDay": place.day}
        row = rows.setdefault((manifest.node, place.book), {"node": manifest.node, "book": str(place.book), **blank})
        row["segments"] += 1
        row["archived"] += place.tree == "archive"
        row["rows"] += manifest.rows
        row["bytes"] += manifest.bytes
        row["reportedAt"] = format_time(reported[manifest.node]) if manifest.node in reported else None
        row["firstDay"], row["lastDay"] = min(row["firstDay"], place.day), max(row["lastDay"], place.day)
    return [rows[key] for key in sorted(rows)]


def _trouble(one: Trouble) -> dict[str, Any]:
    return {**one._asdict(), "kind": str(one.kind), "book": str(one.book or "")}
