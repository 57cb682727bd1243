"""Builds the chore that ships this node's ledger rows to its lake, if one is configured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from eventd.egress.lake.protocol import SEGMENTS, Terms
from eventd.egress.lake.sink import LakeSink, LedgerCursors
from eventd.egress.lake.worker_client import WorkerClient
from eventd.egress.loop.consumer import Consumer
from eventd.lake.extra import require
from eventd.lake.metrics import LakeFigures
from eventd.lake.storage import connect
from eventd.log.core.eventlog import EventLog
from eventd.node.membership import GroupDependencies
from eventd.node.shipped_trees import ShippedTrees
from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import SECOND
from eventd.runtime.supervisor import Chore
from eventd.runtime.worker_share import Share
from eventd.settings.environment import lake_environment
from eventd.settings.model import Settings
from eventd.store.engine.address import SqliteUrl
from eventd.store.engine.database import Database

BACKOFF: Final = Backoff(base=1.0, cap=60.0)

logger = logging.getLogger("eventd.lake")


def await_shipped(settings: Settings, share: Share) -> ShippedTrees:
    """Return what histories wait for, if this process alone serves all groups, and ships to a lake.

    Of several workers, one ships, and the others do not know what the lake has.
    """
    return ShippedTrees(awaited=bool(settings.lake) and settings.group is None and share.is_whole)


def chores(
    dependencies: GroupDependencies, settings: Settings, figures: LakeFigures, chance: Callable[[], float]
) -> dict[str, Chore]:
    """Return the chore that ships ledger rows, by task name; empty without a lake, or in a node for one group.

    Raises MissingExtra and LakeUnusable if shipping can never work. An unreachable lake does not prevent the node from
    starting.
    """
    if not settings.lake:
        return {}
    require()
    if "://" in settings.lake:
        connect(settings.lake)
    if settings.group is not None:  # otherwise several processes over one database would ship the same ledgers
        logger.warning("lake shipping off", extra={"reason": "only a node for all groups ships to the lake"})
        return {}
    return {"lake": _shipping(dependencies, settings, figures, chance)}


def _shipping(
    dependencies: GroupDependencies, settings: Settings, figures: LakeFigures, chance: Callable[[], float]
) -> Chore:
    log, spawn = dependencies.log, dependencies.supervisor.spawn
    worker = WorkerClient(_terms(log, settings), lake_environment(), log.clock)
    sink = LakeSink(
        log,
        worker,
        figures,
        interval=settings.lake_interval,
        rows=settings.lake_rows,
        shipped=dependencies.shipped.note_shipped,
        files=dependencies.shipped.files,
    )
    cursors = LedgerCursors(log, figures)

    async def run() -> None:
        consumer = Consumer(
            log, SEGMENTS, sink, version=1, spawn=spawn, backoff=BACKOFF, chance=chance, cursors=cursors
        )
        try:
            await consumer.run()
        finally:
            await worker.close()

    return run


def _terms(log: EventLog, settings: Settings) -> Terms:
    return Terms(
        database=_address(log.database),
        claim=log.database.claim_name,
        lake=settings.lake,
        rows=settings.lake_rows,
        payloads=settings.lake_payloads,
        compact_after=settings.lake_compact_after,
        retention=settings.lake_retention,
        nice=settings.lake_nice,
        interval=int(settings.lake_interval * SECOND),
        keys=str(settings.data_dir if log.database.path is None else log.database.path.parent),
    )


def _address(database: Database) -> str:
    """Return the database URL, with its password, for a reader, which must not create a missing SQLite file."""
    url = database.url.read_only() if isinstance(database.url, SqliteUrl) else database.url
    return url.render_as_string(hide_password=False)
