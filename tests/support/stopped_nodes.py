"""Ships the ledgers of a stopped node: the steps of the real shipping process, answered as the node answers them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from msgspec.structs import astuple

from eventd.egress.lake.protocol import (
    Answer,
    CursorsMissing,
    Failure,
    RoundEnd,
    Shipment,
    Terms,
    TidyResult,
    cursor_name,
)
from eventd.egress.lake.shipper import Shipper
from eventd.egress.lake.signed_files import keep_signed_files
from eventd.egress.lake.sink import enrol
from eventd.lake.extract import EvictedRows, note_lost
from eventd.log.core.head import lock_head
from eventd.log.cursors.steps import Step, apply_step
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database

_MOST_STEPS = 1000


def ship(
    url: str,
    lake: Path,
    *,
    now: int,
    payloads: bool = False,
    keys: Path | None = None,
    compact: bool = False,
    retention: int = 0,
) -> None:
    """Ship everything that a stopped node recorded before `now` (microseconds), less ten seconds, to the lake.

    With `keys`, the folder of its key file, it signs what it writes; with `compact`, it also archives closed days, and
    with a `retention` it lets segments expire after that time (microseconds).
    """
    terms = Terms(
        database=url,
        lake=str(lake),
        rows=100_000,
        payloads=payloads,
        compact_after=int(compact),
        retention=retention,
        nice=0,
        interval=0,
        keys="" if keys is None else str(keys),
    )
    with closing(Database(url)) as database:
        shipper = Shipper(terms, database)
        _ship_round(shipper, database, now)
        while (compact or retention) and isinstance(done := shipper.tidy(now), TidyResult) and done.more:
            pass
        if compact or retention:
            _ship_round(shipper, database, now + 60 * SECOND)


def _ship_round(shipper: Shipper, database: Database, now: int) -> None:
    for _ in range(_MOST_STEPS):
        answer = shipper.step(now)
        heed(answer, database, now)
        if isinstance(answer, RoundEnd):
            return
    raise AssertionError("shipping does not end")


def heed(answer: Answer, database: Database, now: int) -> None:
    """Do what the node does about an answer of the shipping process."""
    match answer:
        case CursorsMissing():
            database.write_now(enrol, answer.nodes, answer.lake, now)
        case Shipment():
            database.write_now(_settle, answer, now)
        case RoundEnd():
            database.write_now(keep_signed_files, answer.files)
        case Failure():
            raise AssertionError(f"shipping failed: {answer.message}")


def _settle(conn: Connection, moved: Shipment, now: int) -> None:
    lock_head(conn)
    note_lost(conn, [EvictedRows(*astuple(lost)) for lost in moved.lost], now)
    apply_step(conn, Step(cursor_name(moved.node, moved.book), moved.position, moved.upto, moved.upto, now))
