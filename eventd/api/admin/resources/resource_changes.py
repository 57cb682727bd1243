"""Changes declared resources, with all consequences, in one transaction, which a dry run undoes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from eventd.api.admin.resources.groups import count_events
from eventd.api.admin.resources.stopped_types import read_stopped_types
from eventd.api.framework.limits import Limits
from eventd.api.framework.operations import Services
from eventd.egress.cursors import reconcile
from eventd.egress.routers.declared_topics import DeclarationRules, DeclaredTopics, concerns_topics
from eventd.egress.routers.resource_specs import topic_problems
from eventd.errors import Conflict
from eventd.log.core.head import lock_head
from eventd.log.routers.declare import RouterLimits
from eventd.resources.apply import Action, Change, Plan, apply_loaded, delete_resources
from eventd.resources.kinds.registry import EVENT_GROUP, TOPIC
from eventd.resources.reading.documents import Identity, ReadResult
from eventd.resources.validation.resource import identity_of
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import read_resources

T = TypeVar("T")


class ApplyOptions(NamedTuple):
    """How to apply: see `apply_loaded` and `DeclarationRules`.

    `expected`: the generations that resources must still have.
    """

    prune: bool = False
    allow_empty: bool = False
    adopt: bool = False
    expected: Mapping[Identity, int] = MappingProxyType({})


class ChangeResult(NamedTuple):
    """The changes, the number of events of each group before them, and their effects on topics.

    `records`: the numbers of records of deleted topics; `adopted`: resources that take over existing topics or
    routers; `lowered`: the fields by which a topic deletes records that it kept before; `stopped`: of a dry
    run, the types that a narrower filter leaves out.
    """

    plan: Plan
    events: dict[str, int]
    records: dict[str, int]
    adopted: frozenset[Identity]
    lowered: Mapping[Identity, list[str]]
    stopped: Mapping[Identity, list[str]] = MappingProxyType({})

    def shown(self, *, diffs: bool = False) -> list[dict[str, Any]]:
        """Return the change of each resource as JSON.

        A deleted group shows the number of `events`, a deleted Topic that of `records` deleted with it. A changed one
        shows the fields of lowered limits (`lowers`), and an EventPeer whose filter lets in more, `widens`, or in
        less, `narrows`.
        """
        return [
            {
                "action": str(change.action),
                "apiVersion": change.identity.api_version,
                "kind": change.kind,
                "name": change.name,
                **self._losses(change),
                **({"adopted": True} if change.identity in self.adopted else {}),
                **({"lowers": lowers} if (lowers := self.lowered.get(change.identity) or change.lowered()) else {}),
                **({"widens": True} if change.widens() else {}),
                **({"narrows": limits} if (limits := change.narrows()) else {}),
                **({"stops": types} if (types := self.stopped.get(change.identity)) else {}),
                **({"diff": change.diff()} if diffs else {}),
            }
            for change in self.plan.changes
        ]

    def _losses(self, change: Change) -> dict[str, int]:
        if change.action is not Action.DELETED:
            return {}
        if change.kind == EVENT_GROUP.name:
            return {"events": self.events.get(change.name, 0)}
        return (
            {"records": self.records[change.name]} if change.kind == TOPIC.name and change.name in self.records else {}
        )


class _DryRunEnd(Exception):
    """Undoes the transaction of a dry run."""


class ResourceChanger:
    """Applies and deletes resources for an operation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        limits = services.limits or Limits()
        self._limits = RouterLimits(limits.max_routers, limits.max_topics)

    async def apply(self, loaded: ReadResult, options: ApplyOptions, *, dry_run: bool) -> ChangeResult:
        """Apply the resources.

        Raises `Conflict` for another generation, and what `apply_loaded` and `DeclaredTopics` raise.
        """
        services, now = self._services, self._services.clock.now()
        rules = DeclarationRules(self._limits, options.adopt)

        def change(conn: Connection, *, pretend: bool = False) -> ChangeResult:
            if not pretend:
                lock_head(conn)  # of two simultaneous applies, the second is checked against the result of the first
            if options.expected:
                _require_generations(conn, options.expected)
            events = count_events(conn)
            planned = apply_loaded(
                conn,
                loaded,
                now=now,
                prune=options.prune,
                allow_empty=options.allow_empty,
                dry_run=pretend,
                rules=services.callback_rules,
                found=[*topic_problems(loaded.drafts)],
            )
            return _complete(conn, planned, events, now, rules, pretend=pretend)

        return await self._run(change, dry_run=dry_run)

    async def delete(self, doomed: list[Identity], *, dry_run: bool) -> ChangeResult:
        """Delete resources. Raises what `delete_resources` and `DeclaredTopics` raise."""
        now = self._services.clock.now()

        def change(conn: Connection, *, pretend: bool = False) -> ChangeResult:
            if not pretend:
                lock_head(conn)
            events = count_events(conn)
            planned = delete_resources(conn, doomed, now=now, dry_run=pretend)
            return _complete(conn, planned, events, now, DeclarationRules(self._limits), pretend=pretend)

        return await self._run(change, dry_run=dry_run)

    async def _run(self, change: Callable[..., ChangeResult], *, dry_run: bool) -> ChangeResult:
        services = self._services
        if not dry_run:
            done = await services.database.write(change)
            if done.plan.writes:
                await services.take_over()  # the node of this process, if any, applies it before the response is sent
            return done
        planned = await services.database.read(change, pretend=True)
        # What topics and routers allow depends on all that exist: the change is made, and undone.
        if not concerns_topics(planned.plan):
            return planned
        return (await _undone(services.database, change))._replace(stopped=planned.stopped)


def _require_generations(conn: Connection, expected: Mapping[Identity, int]) -> None:
    """Raise `Conflict` if a resource was changed or deleted since its generation was read."""
    stored = {identity_of(row): row.generation for row in read_resources(conn)}
    for identity, generation in expected.items():
        found = stored.get(identity)
        if found != generation:
            what = "was deleted" if found is None else f"has the generation {found}, not {generation}: it changed"
            raise Conflict(f"{identity} {what} meanwhile", hint="read it again, and repeat the change")


def _complete(
    conn: Connection, planned: Plan, events: dict[str, int], now: int, rules: DeclarationRules, *, pretend: bool
) -> ChangeResult:
    """Make topics, routers, cursors and the parts of deleted owners match the resources, unless the change is only
    planned.

    No node needs to run for it. From then on, retention keeps events for a new peer.
    """
    if pretend:
        return ChangeResult(planned, events, {}, frozenset(), {}, read_stopped_types(conn, planned.changes, now))
    topics = DeclaredTopics(conn, planned, now, rules)
    topics.remove_routers()
    topics.put_topics()
    if planned.writes:
        reconcile(conn, read_resources(conn), now)
    topics.put_routers()
    topics.remove_topics()
    return ChangeResult(topics.plan, events, topics.records, frozenset(topics.adopted), topics.lowered)


async def _undone(database: Database, change: Callable[[Connection], T]) -> T:
    """Return the result of a change whose transaction is undone."""
    made: list[T] = []

    def make(conn: Connection) -> None:
        made.append(change(conn))
        raise _DryRunEnd

    try:
        await asyncio.wrap_future(database.start_write(make, durable=False))
    except _DryRunEnd:
        return made[0]
    raise AssertionError("the transaction of a dry run was committed")
