"""A client of a node, for programs: `async with Client("http://127.0.0.1:8780") as client: …`.

May import: client.refusals, net, runtime, tls.
"""

from __future__ import annotations

from eventd.client.client import Client
from eventd.client.connection import ONCE, USUAL, Retry
from eventd.client.publishing import Publisher
from eventd.client.refusals.answers import detail_of
from eventd.client.refusals.kinds import Lost, Throttled
from eventd.client.values import (
    Batch,
    CaughtUp,
    Claimed,
    Config,
    Extended,
    Gap,
    Job,
    NewEvent,
    NewRecord,
    Page,
    Purged,
    QueueCounts,
    Record,
    RouterDeletion,
    RouterSpec,
    RouterState,
    Settled,
    Sight,
    TopicDeleted,
    TopicDeletion,
    TopicPut,
    TopicRow,
    TopicState,
    Written,
)
from eventd.client.watching import Watch
from eventd.net.address import Address
from eventd.tls.files import ClientTlsConfig

__all__ = [
    "ONCE",
    "USUAL",
    "Address",
    "Batch",
    "CaughtUp",
    "Claimed",
    "Client",
    "ClientTlsConfig",
    "Config",
    "Extended",
    "Gap",
    "Job",
    "Lost",
    "NewEvent",
    "NewRecord",
    "Page",
    "Publisher",
    "Purged",
    "QueueCounts",
    "Record",
    "Retry",
    "RouterDeletion",
    "RouterSpec",
    "RouterState",
    "Settled",
    "Sight",
    "Throttled",
    "TopicDeleted",
    "TopicDeletion",
    "TopicPut",
    "TopicRow",
    "TopicState",
    "Watch",
    "Written",
    "detail_of",
]
