"""Callbacks over a log, without a whole node: their consumers, cursors and attempts, and events to deliver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from eventd.egress.callbacks.cursor import CallbackChange
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.egress.callbacks.sink import CallbackDependencies
from eventd.egress.cursors import pause_all
from eventd.egress.peers.budget import Budget
from eventd.egress.transport.transport import Transport
from eventd.groups.callback_history import EndpointAttempt, read_attempt_list
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.core.records import write_body
from eventd.log.core.topic_row import read_topic
from eventd.log.core.values import Drafts
from eventd.log.cursors.cursors import Cursor, create_cursor, delete_cursors, read_cursor, read_cursors
from eventd.log.cursors.selections import declare_selection
from eventd.log.delivery.repairs import StoredDeadLetter, read_dead_letters
from eventd.log.topics.write import Write
from eventd.net.address_rules import AddressRules
from eventd.node.callback_metrics import DeliveryMetrics
from eventd.node.callbacks import CallbackPurpose, Callbacks
from eventd.observe.callback_figures import CallbackFigures
from eventd.observe.routemaster_figures import RoutemasterFigures
from eventd.observe.traffic import Traffic
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.callback_secret_files import CallbackSecretFiles
from eventd.runtime.backoff import Backoff
from eventd.runtime.supervisor import Supervisor
from eventd.runtime.threads import THREADS
from eventd.store.rows.callback_attempts import read_attempts
from eventd.store.rows.callback_cursors import CALLBACK, CALLBACK_KINDS, RESEND, callback_name
from eventd.testing import ManualClock, draft, until
from federation.selector import Selector

HOURLY = Backoff(base=3600.0, cap=3600.0, jitter=0.0, patience=3600.0)
"""Retries every hour, so that a test passes days in few steps and the node is never late."""
LOOPBACK = AddressRules.of_callbacks(["127.0.0.0/8"], [])


def callback(url: str, **changed: Any) -> CallbackConfig:
    """Return a callback that gets every event of the group `g`, one in a request, and retries after 1, 2, 4 … s."""
    fields: dict[str, Any] = {
        "name": "hook",
        "group": "g",
        "topic": "group:g",
        "selector": Selector(),
        "url": url,
        "format": "standard",
        "from_earliest": False,
        "max_events": 1,
        "window": 0,
        "max_bytes": 1 << 20,
        "keys": (),
        "username": "",
        "password_file": "",
        "bearer_file": "",
        "headers": (),
        "timeout": 5.0,
        "connect_timeout": 2.0,
        "per_second": None,
        "in_flight": 1,
        "backoff": Backoff(base=1.0, cap=60.0, jitter=0.0, patience=3600.0),
        "isolate_after": 5,
        "disable_after": None,
        "hold": None,
    }
    return CallbackConfig(**fields | changed)


class CalledBack:
    """The callbacks of one process over a log. `changes` are the notices, as (callback, change)."""

    def __init__(self, log: EventLog, clock: ManualClock) -> None:
        self.log = log
        self.clock = clock
        self.changes: list[tuple[str, str]] = []
        self.transport = Transport(clock)
        self.registry = CollectorRegistry()
        self.figures = CallbackFigures(self.registry)
        self.surface_figures = RoutemasterFigures(self.registry)
        self.files = CallbackSecretFiles(THREADS, None)
        self._supervisor = Supervisor(clock)
        self._purposes: dict[str, CallbackPurpose] = {}
        self.begin()

    def begin(self) -> None:
        """Make callbacks without consumers, as a process does that starts."""
        budget = Budget(64 << 20, lambda: max(1, len(self._purposes)), self.clock)
        metrics = DeliveryMetrics(self.figures, self.surface_figures, Traffic())
        dependencies = CallbackDependencies(self.log, self.transport, LOOPBACK, budget, metrics, self._supervisor.spawn)
        self.callbacks = Callbacks(dependencies, self._supervisor, lambda: 0.0, self.files, self._note)

    def _note(self, name: str, change: CallbackChange, _detail: str) -> None:
        self.changes.append((name, change.value))

    async def declare(self, config: CallbackConfig, **selected: Any) -> None:
        """Run a callback from the end of the log on, or continue it with another configuration."""
        selection = CallbackSelection(config.selector, **selected)
        topic_id = await self._topic(config.topic)
        await self.log.database.write(self._declare, config, topic_id, selection)
        self._purposes[config.name] = CallbackPurpose(config, selection)
        await self.adjust()

    async def _topic(self, name: str) -> int:
        if name.startswith("group:"):
            return await self.log.topic(name)
        return (await self.log.database.read(read_topic, name)).id

    def _declare(self, conn: Any, config: CallbackConfig, topic_id: int, selection: CallbackSelection) -> None:
        name, head = callback_name(config.name), read_head(conn)
        if create_cursor(
            conn,
            name,
            kind=CALLBACK,
            topic_id=topic_id,
            position=0 if config.from_earliest else head.last,
            now=self.clock.now(),
            hold=config.hold,
        ):
            declare_selection(conn, name, 1, selection.to_json(), self.clock.now())

    async def remove(self, name: str) -> None:
        """End a callback, and delete its cursor."""
        del self._purposes[name]
        await self.callbacks.retire(dict(self._purposes))
        await self.log.database.write(delete_cursors, [callback_name(name)])
        await self.adjust()

    async def adjust(self) -> None:
        await self.callbacks.retire(dict(self._purposes))
        await self.callbacks.adjust(await self.log.database.read(read_cursors, *CALLBACK_KINDS))

    async def restart(self) -> None:
        """End all consumers without notice, and start them anew, as after a crash."""
        await self.callbacks.stop(0.0)
        self.begin()
        await self.adjust()

    async def emit(self, *ids: str, **about: Any) -> None:
        """Emit events to the group `g`, in one unit."""
        topic_id = await self.log.topic("group:g")
        await self.log.append(topic_id, [draft(event_id, **about) for event_id in ids])

    async def write(self, tag: str, topic: str, *, data: str = "{}", node: str | None = None, count: int = 1) -> int:
        """Write equal records to a topic; return the id of the topic."""
        body = write_body(node, tag or None, data, None)
        drafts = Drafts(
            (),
            [""] * count,
            [body] * count,
            frozenset({tag} - {""}),
            frozenset({node or ""} - {""}),
            None,
            [len(data)] * count,
        )
        unit = Write(topic, drafts, flushes=self.log.flushes, create=True, random=b"12345")
        done = await self.log.submit(unit)
        return done.topic_id

    async def cursor(self, name: str = "hook") -> Cursor:
        return await self.log.database.read(read_cursor, callback_name(name))

    async def caught_up(self, name: str = "hook") -> Cursor:
        """Wait until everything in the log is settled for a callback; return its cursor."""

        async def settled() -> bool:
            return (await self.cursor(name)).position == (await self.log.database.read(read_head)).last

        await until(settled, f"{name} to catch up")
        return await self.cursor(name)

    async def attempts(self, name: str = "hook") -> list[EndpointAttempt]:
        return await self.log.database.read(_attempts, name)

    async def letters(self, name: str = "hook") -> list[StoredDeadLetter]:
        cursor = await self.cursor(name)
        return await self.log.database.read(_letters, cursor.topic_id, cursor.name)

    async def resends(self) -> list[Cursor]:
        return await self.log.database.read(read_cursors, RESEND)

    async def failed(self, times: int, name: str = "hook") -> Cursor:
        """Wait until so many attempts in a row have failed; return the cursor."""

        async def has_failed() -> bool:
            return (await self.cursor(name)).attempts >= times

        await until(has_failed, f"{times} failures")
        return await self.cursor(name)

    async def pass_failures(self, times: int, name: str = "hook") -> None:
        """Advance the clock from each failed attempt to the next, until so many have failed."""
        for number in range(1, times + 1):
            cursor = await self.failed(number, name)
            if number < times:
                await self.rest(cursor)

    async def rest(self, cursor: Cursor) -> None:
        """Advance the clock to the next attempt of a cursor, once its consumer waits for that."""
        assert cursor.retry_at is not None
        await until(lambda: self.clock.waits, "a wait")
        self.clock.advance(max(0.0, (cursor.retry_at - self.clock.now()) / 1e6) + 0.001)

    async def resume(self, name: str) -> None:
        """Resume a callback, as an operator does."""
        cursor = await self.cursor(name)
        await self.log.database.write(pause_all, [cursor], self.clock.now(), at=None, by="")
        await self.adjust()

    async def stored_failures(self, name: str = "hook") -> Sequence[Any]:
        return await self.log.database.read(read_attempts, callback_name(name))

    async def close(self) -> None:
        await self.callbacks.stop(1.0)
        await self.transport.close()
        await self.files.close()
        await self._supervisor.stop()


def _attempts(conn: Any, name: str) -> list[EndpointAttempt]:
    return read_attempt_list(conn, name, before=None, limit=100)


def _letters(conn: Any, topic_id: int, cursor: str) -> list[StoredDeadLetter]:
    return read_dead_letters(conn, topic_id, cursor=cursor, limit=100)
