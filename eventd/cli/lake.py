"""routerctl lake: status, check, compact, retain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.output import Column, moment, note, text
from eventd.cli.session import Session, connected, offline
from eventd.errors import CheckFailed, Invalid

if TYPE_CHECKING:
    from eventd.lake.reading import Survey, Trouble
    from eventd.lake.storage import Storage
    from eventd.lake.tidying import Done

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
    from eventd.lake.reading import TroubleKind, survey

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
    from eventd.lake.tidying import compacting

    storage, now = _storage(session, lake), _now()
    _tell(session, compacting(storage, _nodes(storage, node), now=now, after=_age("--after", after)))


@offline
def retain(
    session: Session,
    keep: Annotated[str, typer.Option("--keep", metavar="AGE", help="Days older than this go, such as 90d.")],
    lake: LakeOption = "",
    node: NodesOption = None,
) -> None:
    """Remove old days from a lake: nobody is promised them from now on, and a day later they go, with the next run."""
    from eventd.lake.tidying import retaining

    storage, now = _storage(session, lake), _now()
    _tell(session, retaining(storage, _nodes(storage, node), now=now, keep=_age("--keep", keep)))


def _storage(session: Session, lake: str) -> Storage:
    """The lake that is named, or that of the settings. Raises Invalid where there is none."""
    from eventd.lake.storage import connect, open_lake
    from eventd.settings import load

    url = load({**session.where.flags(), "lake": lake or None}).lake
    if not url:
        raise Invalid("no lake is named", hint="say --lake FOLDER, or set EVENTD_LAKE")
    storage = connect(url)
    open_lake(storage)
    return storage


def _nodes(storage: Storage, named: list[str] | None) -> list[str]:
    from eventd.lake.reading import survey

    return named or sorted({state.node for state in survey(storage).nodes})


def _age(option: str, text: str) -> int:
    from eventd.setting_values import read_age

    try:
        return read_age(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def _now() -> int:
    from eventd.clock import SystemClock

    return SystemClock().now()


def _tell(session: Session, work: Iterable[Done]) -> None:
    done = list(work)
    row = {"compacted": sum(each.compacted for each in done), "removed": sum(each.removed for each in done)}
    session.out.one(TIDIED, row, name=lambda row: f"{row['compacted']} {row['removed']}")


def _held(found: Survey) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for place, manifest in found.segments:
        blank = {"segments": 0, "archived": 0, "rows": 0, "bytes": 0, "firstDay": place.day, "lastDay": place.day}
        row = rows.setdefault((manifest.node, place.book), {"node": manifest.node, "book": str(place.book), **blank})
        row["segments"] += 1
        row["archived"] += place.tree == "archive"
        row["rows"] += manifest.rows
        row["bytes"] += manifest.bytes
        row["firstDay"], row["lastDay"] = min(row["firstDay"], place.day), max(row["lastDay"], place.day)
    return [rows[key] for key in sorted(rows)]


def _trouble(one: Trouble) -> dict[str, Any]:
    return {**one._asdict(), "kind": str(one.kind), "book": str(one.book or "")}
