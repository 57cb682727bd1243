"""The delivery ledger for external audits: its tables, and their rows as columns, by row number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from eventd.api.framework.operations import Params, Services
from eventd.errors import Conflict
from eventd.lake.extract import Extract, GroupSnapshot, Ledger, LedgerSnapshot, read_ledger, read_state
from eventd.store.engine.database import Connection

MOST_ROWS = 20_000


class EpochChanged(Conflict):
    """The request is for an epoch that has ended, whose row numbers are not valid in the current one.

    `detail` names the current epoch.
    """

    code = "epoch_changed"

    def __init__(self, asked: str, epoch: str) -> None:
        super().__init__(
            f"the log has begun another epoch: {epoch} and not {asked[:64]}",
            hint="read each table from its beginning; rows that were read before belong to the ended epoch",
        )
        self.detail = {"epoch": epoch}


class ListLedgerTables(Params):
    """No parameters."""


async def list_books(services: Services, _params: ListLedgerTables) -> dict[str, Any]:
    state = await services.database.read(read_state)
    return {
        "nodes": state.nodes,
        "epoch": state.epoch,
        "instance": state.instance,
        "head": state.head,
        "books": {book.value: {"first": span.first, "last": span.last} for book, span in state.books.items()},
        "groups": [_show_group(group) for group in state.groups],
    }


def _show_group(group: GroupSnapshot) -> dict[str, Any]:
    return {
        "group": group.group,
        "node": group.node,
        "peers": [
            {
                "peer": link.peer,
                "relay": link.relay,
                "paused": link.paused,
                "state": link.state,
                "reason": link.reason,
                "since": link.since,
                "cursor": link.cursor,
                "createdAt": link.created_at,
                "selections": [
                    {"version": each.version, "declaredAt": each.declared_at, "selection": each.selection}
                    for each in link.selections
                ],
                "repairs": [{"after": after, "upto": upto} for after, upto in link.repairs],
                "begins": link.begins,
            }
            for link in group.peers
        ],
    }


class ReadLedgerTable(Params):
    """Which rows to read."""

    book: Ledger = Field(description="The ledger table.")
    after: int = Field(default=0, ge=0, description="Only rows after this number: the `upto` of the previous answer.")
    rows: int = Field(
        default=5000, ge=1, le=MOST_ROWS, description="Approximate number of rows; a batch is never split."
    )
    epoch: str = Field(default="", description="The epoch that `after` belongs to; status 409 in another epoch.")
    node: str = Field(default="", description="Only rows of groups in which this node has this name.")
    payloads: bool = Field(default=False, description="Include the payloads of events.")


@dataclass(frozen=True, slots=True)
class _LedgerRead:
    state: LedgerSnapshot
    extract: Extract


async def read_rows(services: Services, params: ReadLedgerTable) -> dict[str, Any]:
    found = await services.database.read(_read, params)
    state, extract = found.state, found.extract
    columns = extract.columns
    if "digest" in columns:
        columns["digest"] = [digest.hex() for digest in columns["digest"]]
    return {
        "book": extract.book.value,
        "node": params.node or (state.nodes[0] if len(state.nodes) == 1 else ""),
        "epoch": state.epoch,
        "instance": state.instance,
        "after": extract.after,
        "upto": extract.upto,
        "full": extract.full,
        "columns": columns,
        "lost": [lost._asdict() for lost in extract.lost],
    }


def _read(conn: Connection, params: ReadLedgerTable) -> _LedgerRead:
    """Return the requested rows and the state of the ledger, read in one snapshot. Raises EpochChanged."""
    state = read_state(conn)
    if params.epoch not in ("", state.epoch):
        raise EpochChanged(params.epoch, state.epoch)
    extract = read_ledger(
        conn, params.book, params.after, rows=params.rows, payloads=params.payloads, node=params.node or None
    )
    return _LedgerRead(state, extract)
