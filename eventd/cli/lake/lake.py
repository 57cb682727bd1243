"""routerctl lake: status, check, compact, retain, close."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.lake_choice import LakeOption, lake_storage
from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.selecting import DryRunOption
from eventd.cli.gateway.session import Session, connected, offline, only_calls
from eventd.cli.program.values import Duration
from eventd.cli.terminal.confirm import confirm
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import CheckFailed, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.lake.ledger_files import Done
    from eventd.lake.reader import Survey, Trouble
    from eventd.lake.retention import LedgerRetention
    from eventd.lake.storage import Storage

STATUS = (
    Column("NODE", text("node")),
    Column("LEDGER", text("book")),
    Column("STATE", text("state")),
    Column("REASON", text("reason")),
    Column("UPTO", text("upto")),
    Column("WAITING", text("waiting")),
    Column("LAST_SUCCESS", moment("lastSuccessAt")),
    Column("NEXT_ATTEMPT", moment("retryAt")),
    Column("LAST_ERROR", text("lastError")),
)
HELD = (
    Column("NODE", text("node")),
    Column("LEDGER", text("book")),
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
    Column("LEDGER", text("book")),
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
    Column("LEDGER", text("book")),
    *RETAINED,
    Column("LAST_DAY", text("lastDay")),
    Column("EPOCH", text("epoch"), wide=True),
)

CLOSED = (
    Column("NODE", text("node")),
    Column("COMPLETE_UNTIL", moment("completeUntil")),
    Column("CLOSED_AT", moment("closedAt")),
)

DAY = Duration.read("1d")

NodesOption = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE", help="Only data of this node; repeatable (default: all nodes)."),
]


@connected
@only_calls
async def status(session: Session) -> None:
    """Show how far each table of the node's delivery ledger is shipped to the lake, and what blocks it."""
    answer = await session.call("lake.status")
    session.out.rows(STATUS, answer["books"], name=lambda row: f"{row['node']}/{row['book']}")
    if session.out.is_table and (remark := nothing_shipped(answer)):
        note(f"note: {remark}")


def nothing_shipped(answer: Mapping[str, Any]) -> str:
    """Return why the node has shipped nothing, and what to do; empty if it has, or if no row waits."""
    tables = answer["books"]
    if tables and (
        any(table["lastSuccessAt"] for table in tables)
        or any(table["state"] != "running" for table in tables)
        or not any(table["waiting"] for table in tables)
    ):
        return ""
    if tables:  # known since the shipping process first reported
        return "no row has been shipped yet: on a machine that is always busy, set EVENTD_LAKE_NICE=10"
    if answer.get("configured"):  # absent in the answer of an older node
        return (
            "nothing is shipped yet: the shipping process of the node has not reported. It needs at least one group;"
            " on a machine that is always busy, set EVENTD_LAKE_NICE=10"
        )
    return "nothing is shipped: run the node with EVENTD_LAKE and at least one group"


@offline(*SHOW)
def check(session: Session, lake: LakeOption = "") -> None:
    """Check a whole lake: list what each node has shipped, and the problems.

    Exits with status 4 for any problem except a new epoch.
    """
    from eventd.lake.reader import TroubleKind, survey

    found = survey(lake_storage(lake))
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
    if problems := sum(one.kind is not TroubleKind.EPOCHS for one in found.troubles):
        raise CheckFailed(
            f"the lake has {counted(problems, 'problem')}",
            hint="the column WHAT, or the field `message`, describes each",
        )


@offline(*SHOW)
def compact(
    session: Session,
    lake: LakeOption = "",
    node: NodesOption = None,
    after: Annotated[
        Duration, typer.Option("--after", metavar="AGE", help="Compact days that ended longer ago than this.")
    ] = DAY,
) -> None:
    """Merge the segments of past days into few files of the archive.

    Also deletes segments that have been archived for a day.
    """
    from eventd.lake.compaction import compacting

    storage, now = lake_storage(lake), _now()
    _show_work(session, compacting(storage, _nodes(storage, node), now=now, after=after))


@offline(*SHOW)
def retain(
    session: Session,
    keep: Annotated[
        Duration,
        typer.Option("--keep", metavar="AGE", help="Age from which the segments of a day expire, such as 90d."),
    ],
    lake: LakeOption = "",
    node: NodesOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Mark segments older than AGE as expired; a run at least 24 h later deletes them.

    On a terminal the command asks before it marks or deletes segments.
    """
    from eventd.lake.retention import plan_retention, retaining

    storage, now = lake_storage(lake), _now()
    nodes = _nodes(storage, node)
    if dry_run or (not yes and sys.stdin.isatty()):
        plans = plan_retention(storage, nodes, now=now, keep=keep)
        if dry_run:
            _show_plans(session, plans)
            return
        _ask(plans)
    done = list(retaining(storage, nodes, now=now, keep=keep))
    row = {"expired": sum(each.expired for each in done), "removed": sum(each.removed for each in done)}
    session.out.one(RETAINED, row, name=lambda row: f"{row['expired']} {row['removed']}")


def _show_plans(session: Session, plans: Sequence[LedgerRetention]) -> None:
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
        note(
            "note: nothing was changed"
            if rows
            else "note: no segment would change: none is that old, or all were marked as expired less than 24 h ago"
        )


def _ask(plans: Sequence[LedgerRetention]) -> None:
    """Ask for confirmation of the plans, if any. Raises EventdError unless the answer is yes."""
    if not plans:
        return
    for plan in plans:
        expired, removed = counted(len(plan.expired), "segment"), counted(len(plan.removed), "segment")
        note(f"{printable(plan.node)}, {plan.book}: mark {expired} as expired, delete {removed}")
    confirm("Continue?")


@offline(*SHOW)
def close(
    session: Session,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Node that is out of service for good.")],
    lake: LakeOption = "",
) -> None:
    """Close a node that is out of service: audits expect nothing more from it. It reopens if it ships again."""
    from eventd.lake.close import close_node
    from federation.event import format_time

    state = close_node(lake_storage(lake), node, now=_now())
    row = {"node": state.node, "completeUntil": state.complete_until, "closedAt": state.closed_at}
    cells = {name: format_time(value) if isinstance(value, int) else value for name, value in row.items()}
    session.out.one(CLOSED, cells, name=lambda row: str(row["node"]))


def _nodes(storage: Storage, named: list[str] | None) -> list[str]:
    """Return the nodes to work on: the named ones, or all. Raises NotFound for one without data in the lake."""
    from eventd.lake.reader import survey

    found = survey(storage)
    reporting = {state.node for state in found.nodes}
    known = reporting | {segment.manifest.node for segment in found.segments}
    if unknown := next((node for node in named or () if node not in known), None):
        raise NotFound(
            f"the lake at {storage.url} has no data of a node {unknown}", hint="`routerctl lake check` lists its nodes"
        )
    return named or sorted(reporting)


def _now() -> int:
    from eventd.runtime.clock import SystemClock

    return SystemClock().now()


def _show_work(session: Session, work: Iterable[Done]) -> None:
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
