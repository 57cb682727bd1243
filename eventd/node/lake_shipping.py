"""This node's way to the lake, if one is set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from urllib.parse import quote

from eventd.egress.lake.protocol import Terms
from eventd.egress.lake.shipping import Segments
from eventd.egress.lake.worker_client import Courier
from eventd.lake.extra import require
from eventd.lake.metrics import LakeFigures
from eventd.lake.storage import connect
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND
from eventd.runtime.supervisor import Chore
from eventd.settings.model import Settings, lake_environment
from eventd.store.engine.database import Database

logger = logging.getLogger("eventd.lake")


def chores(log: EventLog, settings: Settings, figures: LakeFigures, chance: Callable[[], float]) -> dict[str, Chore]:
    """What runs as long as the node does, by its name.

    Raises MissingExtra and LakeUnusable at once where nothing can ever be shipped. A lake that is away is no reason not
    to start.
    """
    if not settings.lake:
        return {}
    require()
    if "://" in settings.lake:
        connect(settings.lake)
    if settings.group is not None:  # or each of several processes over one database would ship the same books
        logger.warning("nothing is shipped to the lake: a node for one group leaves that to one for all")
        return {}
    return {"lake": _segments(log, settings, figures, chance).run_for_ever}


def _segments(log: EventLog, settings: Settings, figures: LakeFigures, chance: Callable[[], float]) -> Segments:
    terms = Terms(
        database=_address(log.database),
        claim=log.database.claim_name,
        lake=settings.lake,
        rows=settings.lake_rows,
        payloads=settings.lake_payloads,
        compact_after=settings.lake_compact_after,
        retention=settings.lake_retention,
        nice=settings.lake_nice,
        interval=int(settings.lake_interval * SECOND),
    )
    courier = Courier(terms, lake_environment(), log.clock)
    interval, rows = settings.lake_interval, settings.lake_rows
    return Segments(log, courier, figures, interval=interval, rows=rows, chance=chance)


def _address(database: Database) -> str:
    """The database for one who only reads, and must not make a file where there is none any more."""
    url = database.url
    if database.path is not None:
        url = url.set(database=f"file:{quote(str(database.path.absolute()))}", query={"mode": "ro", "uri": "true"})
    return url.render_as_string(hide_password=False)
