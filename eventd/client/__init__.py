"""A client of a node, for programs: `async with Client("http://127.0.0.1:8780") as client: …`.

May import: client.refusals, client.streams, net, runtime, streams, tls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventd.client.client import Client
from eventd.client.connection import ONCE, USUAL, Retry
from eventd.client.publishing import Publisher
from eventd.client.refusals.answers import detail_of
from eventd.client.refusals.kinds import Lost, Throttled
from eventd.client.refusals.of_streams import OffsetUnavailable
from eventd.client.streams.values import Event, Published, StreamGap
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
from eventd.streams.messages import At
from eventd.tls.files import ClientTlsConfig

if TYPE_CHECKING:
    from eventd.client.streams.caching import Cache
    from eventd.client.streams.client import StreamClient
    from eventd.client.streams.subscribing import Subscription

__all__ = [
    "ONCE",
    "USUAL",
    "Address",
    "At",
    "Batch",
    "Cache",
    "CaughtUp",
    "Claimed",
    "Client",
    "ClientTlsConfig",
    "Config",
    "Event",
    "Extended",
    "Gap",
    "Job",
    "Lost",
    "NewEvent",
    "NewRecord",
    "OffsetUnavailable",
    "Page",
    "Published",
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
    "StreamClient",
    "StreamGap",
    "Subscription",
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


def __getattr__(name: str) -> Any:
    """Import the client of streams only when its name is used: only this client needs the extra `quic`."""
    match name:
        case "Cache":
            from eventd.client.streams.caching import Cache

            return Cache
        case "StreamClient":
            from eventd.client.streams.client import StreamClient

            return StreamClient
        case "Subscription":
            from eventd.client.streams.subscribing import Subscription

            return Subscription
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
