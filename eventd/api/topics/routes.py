"""One path of /v0: who may use it, what it takes, what runs, what it answers. And what they all work with.

A surface is a file of this package with `ROUTES`, a tuple of `Route`; `surfaces.py` collects them, `app.py` mounts them
and `openapi.py` describes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import msgspec
from aiohttp import web

from eventd.api.framework.auth import ApiKey
from eventd.api.framework.callers import Callers
from eventd.api.framework.routes import Scope
from eventd.api.framework.worker_peers import Siblings
from eventd.api.topics.limits import Limits, Occupancy
from eventd.api.topics.models import Answer, NoQuery, Performance, Query
from eventd.api.topics.problems import OutOfReach
from eventd.api.topics.recency import Recency
from eventd.egress.routers.pump import Routing
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import find_topic
from eventd.log.topics.topics import count_topics
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Database

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
T = TypeVar("T")
Q = TypeVar("Q", bound=Query)
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class V0:
    """What every path of /v0 works with.

    `siblings` knows how all processes of the node are doing; `stopping` is done when it begins to stop; `started` is
    when it began to serve, on the monotonic clock.
    """

    log: EventLog
    callers: Callers
    routing: Routing
    metrics: Metrics
    siblings: Siblings
    supervisor: Supervisor
    stopping: asyncio.Future[None]
    version: str
    limits: Limits
    occupancy: Occupancy
    started: float
    recency: Recency = field(default_factory=Recency)
    _parts: dict[Any, Any] = field(default_factory=dict)

    def part(self, make: Callable[[V0], T]) -> T:
        """What a surface keeps while the node runs: made by `make` when it is first asked for, then always the same."""
        if make not in self._parts:
            self._parts[make] = make(self)
        part: T = self._parts[make]
        return part

    @property
    def database(self) -> Database:
        return self.log.database

    @property
    def clock(self) -> Clock:
        return self.log.clock

    @property
    def uptime_ms(self) -> int:
        """Milliseconds for which it has served."""
        return round((self.clock.monotonic() - self.started) * 1000)

    async def count_topics(self) -> int:
        """How many topics hold records."""
        return await self.database.read(count_topics)

    def moved(self, topic_id: int) -> None:
        """A topic was created or configured: its readers look again, and so do the routers."""
        self.log.wakeups.touch(topic_id)
        self.routing.changed()

    async def catch_up(self, topic: str) -> None:
        """Before a topic is read: have in it what its routers' sources hold now."""
        if self.routing.feeds(topic):
            line = await self.database.read(find_topic, topic)
            if line is not None:
                await self.routing.drive(line.id)


@dataclass(slots=True)
class Call(Generic[Q, B]):
    """One request: who calls, the decoded `name` in its path (empty where there is none), its query and its body."""

    v0: V0
    request: web.Request
    key: ApiKey
    name: str
    query: Q
    body: B
    begun: float

    def performance(self) -> Performance:
        """The time since the request came; to be taken last."""
        return Performance(server_total_ms=self.elapsed_ms())

    def elapsed_ms(self) -> float:
        """Milliseconds since the request came."""
        return round((self.v0.clock.monotonic() - self.begun) * 1000, 3)

    def require_name(self, *names: str) -> None:
        """Raises `Forbidden` unless the key is for all these topics or routers."""
        require_names(self.key, names)

    def answer(self, answer: Answer, *, created: bool = False) -> web.Response:
        """200, or 201 where something was `created`."""
        body = msgspec.json.encode(answer)
        return web.Response(status=201 if created else 200, body=body, content_type="application/json")


def require_names(key: ApiKey, names: tuple[str, ...]) -> None:
    """Raises `Forbidden` for the first name that is outside the key's prefixes."""
    for name in names:
        if not key.sees(name):
            raise OutOfReach(f"this key is not for {name!r}", detail={"topic": name})


Run = Callable[[Call[Any, Any]], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    `path` may hold `{topic}`, `{router}` or another name in braces; a topic's or router's is held to the key's
    prefixes before anything is read, `scopes` (all of them needed) before that; without scopes no key is needed.
    `body` is the type of the JSON body, None for none; with `may_be_empty` a body without a byte is `{}`;
    it has at most `most_bytes`, and `require_bounded` refuses a large text that would fill memory when it is decoded.
    `answer` is what 200 and, with `creates`, 201 carry; None where it is no JSON, and then `media` says what it is.
    `stream`: it goes on for as long as the client likes, so it counts among the streams and not among the requests,
    and the key may stand in the query as `token`; with `upgrade` it is a WebSocket, and the key stands in
    its header. `refusals`: the statuses it may answer with beside those of every path of its kind; `unready` is what
    503 carries where that is no refusal.
    `probe`: it needs a key after all where keys guard health and readiness.
    """

    method: Method
    path: str
    run: Run
    summary: str
    scopes: tuple[Scope, ...] = ()
    query: type[Query] = NoQuery
    body: type[Any] | None = None
    may_be_empty: bool = False
    most_bytes: int = 256 << 10
    require_bounded: Callable[[bytes | bytearray], None] | None = None
    answer: type[Any] | None = None
    creates: bool = False
    media: str = "application/json"
    stream: bool = False
    upgrade: bool = False
    unready: type[Any] | None = None
    probe: bool = False
    refusals: tuple[int, ...] = ()
