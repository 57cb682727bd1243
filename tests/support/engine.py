"""The subscriptions of one node over an open log; the test plays the plugins and the clock: no process, no
real time."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from eventd.api.framework.operations import Services
from eventd.api.routes import OPERATIONS
from eventd.egress.cursors import BACKFILL, follow, read_declared, subscription_name
from eventd.egress.subscriptions.runner import SubscriptionDependencies
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.node.subscriptions import Subscribers, purposes_of
from eventd.plugins.contract.contract import Outcome, PluginFailed, Result, RunRequest
from eventd.resources.group_configuration import effective
from eventd.resources.plugin_configuration import PluginConfig
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.store.parts.part import StoredPart
from eventd.store.parts.reading import read_parts
from eventd.store.rows.runs import Run, RunStatus, read_runs
from eventd.testing import ManualClock, give_turns, until
from federation.event import Event
from tests.support import operations
from tests.support.declared import declare, group
from tests.support.derived import OBSERVED, ROUTE_API, plugin, subscription
from tests.support.stored import read_stored

TTL = 600_000_000

Answer = Callable[[RunRequest], Any]


def route(event: Event, name: str = "") -> dict[str, Any]:
    """Return a resource about one event, named after its subject."""
    metadata = {"name": name or f"claim-{event.subject or event.id}"}
    return {"apiVersion": ROUTE_API, "kind": "IPv4Route", "metadata": metadata, "spec": {"by": event.id}}


def answer_with(*resources: dict[str, Any], events: Iterable[dict[str, Any]] = (), ttl: int = TTL) -> Answer:
    """Return an answer with these resources and events, whatever the request."""
    return lambda request: Result(observed_at=request.now, ttl=ttl, resources=resources, events=list(events))


def failure(reason: str = "exit_code", **more: Any) -> PluginFailed:
    """Return a failed run, with exit code 42 by default."""
    told = {"exit_code": 42, "stderr": "no route to provider\n"} | more
    return PluginFailed("the plugin exited with status 42", reason=reason, **told)


def routes(request: RunRequest) -> Result:
    """Return one route for each event."""
    return Result(observed_at=request.now, ttl=TTL, resources=[route(event) for event in request.events])


def fail_for(*poison: str, then: Answer = routes) -> Answer:
    """Return an answer that fails if the request contains one of these events, and otherwise is `then`."""

    def answer(request: RunRequest) -> Any:
        return failure() if {event.id for event in request.events} & set(poison) else then(request)

    return answer


class ScriptedPlugins:
    """Stands in for `Plugins`. Each run consumes one of `answers`; without any, `always` is the answer.

    An answer is a Result, an error to raise, a function of the request, or a future of one of these.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.requests: list[RunRequest] = []
        self.answers: deque[Any] = deque()
        self.always: Answer = routes
        self.running = 0
        self.forgotten: list[str] = []

    @property
    def given(self) -> list[list[str]]:
        """Return the event ids of each run."""
        return [[event.id for event in request.events] for request in self.requests]

    def hold(self) -> asyncio.Future[Any]:
        """Return a future; the next run lasts until the test sets its answer."""
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers.append(told)
        return told

    async def run(self, config: PluginConfig, request: RunRequest) -> Outcome:
        self.requests.append(request)
        answer = self.answers.popleft() if self.answers else self.always
        started = self._clock.now()
        self.running += 1
        try:
            while not isinstance(answer, Result):
                if isinstance(answer, BaseException):
                    raise answer
                answer = await answer if isinstance(answer, Awaitable) else answer(request)
        except PluginFailed as failed:
            failed.started_at, failed.completed_at = started, self._clock.now()
            raise
        finally:
            self.running -= 1
        digest = hashlib.sha256(repr(answer).encode()).hexdigest()
        return Outcome(
            exit_code=0, stdout_digest=digest, stderr="", started_at=started, completed_at=self._clock.now(),
            result=answer,
        )  # fmt: skip

    async def forget(self, name: str) -> None:
        self.forgotten.append(name)


class RunRecorder:
    """Records the runs that are reported to it."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str, str, int]] = []

    def ran(self, group: str, subscription: str, status: str, events: int, seconds: float) -> None:
        self.runs.append((group, subscription, str(status), events))


class Engine:
    """The subscriptions of node `onprem`, which can be stopped and started again."""

    def __init__(self, log: EventLog, clock: ManualClock) -> None:
        self.log = log
        self.clock = clock
        self.plugins = ScriptedPlugins(clock)
        self.told = RunRecorder()
        self.changes = 0
        self.services = Services(log, self._take_over)
        self._supervisor = Supervisor(clock)
        self.spawn = self._supervisor.spawn
        self._turn = asyncio.Lock()
        self.start()

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        outfit = SubscriptionDependencies(self.log, self.plugins, lambda plugin: [], self._note_change, self.told)  # type: ignore[arg-type]
        self.subscribers: Subscribers | None = Subscribers(outfit, self._supervisor, lambda: 0.0)

    async def stop(self, seconds: float = 5.0) -> None:
        """Stop as a node does."""
        subscribers, self.subscribers = self.subscribers, None
        if subscribers is not None:
            await subscribers.stop(seconds)

    async def restart(self, seconds: float = 5.0) -> None:
        await self.stop(seconds)
        self.start()
        await self._take_over()

    async def crash(self) -> None:
        """Stop as `kill -9` does: starts of runs are stored, their ends are not."""
        running = [run.id for run in await self.runs() if run.status is RunStatus.RUNNING]
        await self.stop(0.0)
        sql = (
            "UPDATE plugin_runs SET status = 'running', completed_at = NULL, error = ''"
            " WHERE id = ? AND status = 'interrupted'"
        )
        for run_id in running:
            await self.log.database.write(execute, sql, (run_id,))

    async def close(self) -> None:
        await self.stop(0.0)
        await self._supervisor.stop()

    def _note_change(self) -> None:
        self.changes += 1

    async def _take_over(self) -> None:
        """Apply changed resources as a node does."""
        async with self._turn:
            while self.subscribers is not None:
                version, declared, _ = await self.log.database.read(read_declared)
                changed = await self.subscribers.retire(purposes_of(declared, effective(declared)))
                found = await self.log.database.write(follow, version, declared, sorted(changed), self.clock.now())
                if found is not None:
                    await self.subscribers.adjust(found[0])
                    return

    # --- asking -----------------------------------------------------------------------------------------------

    async def ask(self, operation: str, /, **params: Any) -> Any:
        """Run an operation, its parameters by their JSON names, and notify the node."""
        answer = await operations.run(self.services, operation, **params)
        if operation.startswith("subscriptions.") and OPERATIONS[operation].method == "POST":
            await self._take_over()
        return answer

    async def apply(self, *documents: dict[str, Any]) -> None:
        await self.ask("resources.apply", sources=[{"name": "test", "text": declare(*documents)}])

    async def subscribe(self, *types: str, **spec: Any) -> None:
        """Apply group `edge`, plugin `routes` and subscription `claims`, which selects these types."""
        await self.apply(group("onprem"), plugin("/bin/true"), subscription(*types, **spec))

    async def delete(self, kind: str, name: str) -> None:
        await self.ask("resources.delete", kind=kind, name=name)

    async def emit(self, *ids: str, group: str = "edge", **fields: Any) -> None:
        """Store events of this node; without `subject` each is about its own id."""
        events = [{"id": each, "type": OBSERVED, "subject": each, **fields} for each in ids]
        await self.ask("events.emit", group=group, events=events)

    async def runs(self, **asked: Any) -> list[Run]:
        """Return every run, the oldest first."""
        return (await self.log.database.read(lambda conn: read_runs(conn, **{"limit": 5000, **asked})))[::-1]

    async def statuses(self) -> list[str]:
        return [str(run.status) for run in await self.runs()]

    async def parts(self, *, live: bool = True) -> list[StoredPart]:
        found = await self.log.database.read(read_parts)
        return [part for part in found if not live or part.ends_at > self.clock.now()]

    async def claims(self) -> dict[str, str]:
        """Return the resources in effect: name → the event that it comes from."""
        return {
            key.name: next(r["spec"]["by"] for r in part.resources if r["metadata"]["name"] == key.name)
            for part in await self.parts()
            for key, held in part.claims.items()
            if held.ends_at > self.clock.now()
        }

    async def letters(self, name: str = "claims", group: str = "edge") -> list[tuple[str, str, int, str]]:
        """Return event, reason, attempts and error of each dead letter."""
        sql = "SELECT event_id, reason, attempts, detail FROM dead_letters WHERE cursor = ? ORDER BY id"
        return await self.rows(sql, subscription_name(group, name))

    async def cursor(self, name: str = "claims", group: str = "edge") -> Cursor:
        (found,) = await self.log.database.read(read_cursors, name=subscription_name(group, name))
        return found

    async def backfills(self) -> list[Cursor]:
        return await self.log.database.read(read_cursors, BACKFILL)

    async def state(self, name: str = "claims") -> dict[str, Any]:
        shown: dict[str, Any] = (await self.ask("subscriptions.list", subscription=name))["subscriptions"][0]
        return shown

    async def records(self, group: str = "edge") -> list[Record]:
        return await self.log.database.read(read_stored, await self.log.topic(f"group:{group}"))

    async def rows(self, sql: str, *params: Any) -> list[Any]:
        def ask(conn: Connection) -> list[Any]:
            return [tuple(row) for row in fetch(conn, sql, params)]

        return await self.log.database.read(ask)

    # --- waiting ----------------------------------------------------------------------------------------------

    async def gathering(self, *waits: float) -> None:
        """Wait until the clock has exactly these waits, in seconds, the shortest first."""
        await until(lambda: self._near(waits), f"waits of {waits}; there are {self.clock.waits}")

    def _near(self, waits: tuple[float, ...]) -> bool:
        found = self.clock.waits
        return len(found) == len(waits) and all(abs(a - b) < 1e-5 for a, b in zip(found, waits, strict=True))

    async def ran(self, *given: list[str]) -> None:
        """Wait until the plugin has run for exactly these events, run by run, and all runs are settled."""
        expected = list(given)
        try:
            await until(lambda: len(self.plugins.given) >= len(expected), f"{len(expected)} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}; given: {self.plugins.given}") from None
        await self.rested()
        assert self.plugins.given == expected

    async def rested(self) -> None:
        """Wait until no run is active and every end is stored."""

        async def so() -> bool:
            await give_turns()
            busy = self.plugins.running or "running" in await self.statuses()
            return not busy and len(await self.runs()) >= len(self.plugins.requests)

        await until(so, "the runs to be settled")

    async def reached(self, position: int, name: str = "claims") -> None:
        """Wait until the subscription has settled all events up to a position. The clock stands still."""

        async def so() -> bool:
            return (await self.cursor(name)).position >= position

        await until(so, f"{name} to have settled position {position}")

    async def passed(self, position: int | None = None, name: str = "claims") -> None:
        """Wait until the subscription has scanned up to the end of the log, or up to a position."""

        async def so() -> bool:
            goal = (await self.log.look_around()).last if position is None else position
            if (await self.cursor(name)).position >= goal:
                return True
            self.clock.advance(1)  # records that match no subscription are passed after a while
            return False

        await until(so, f"{name} to have passed everything")
