"""Creates, configures and deletes the topics and routers that resources declare, in the transaction of an apply.

The units that requests submit do the work, so that every rule and limit is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from pydantic.alias_generators import to_camel

from eventd.egress.routers.graph import NewRouterRules, router_of
from eventd.egress.routers.resource_specs import config_of, router_of_spec, spec_of_config, spec_of_router
from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.core.commit import Transaction, TransactionTimes
from eventd.log.core.head import lock_head
from eventd.log.core.topic_row import find_topic
from eventd.log.routers.declare import DeleteRouter, PutRouter, RouterLimits, RouterSpec
from eventd.log.topics.errors import DetailedError
from eventd.log.topics.limits import read_size
from eventd.log.topics.router_rows import read_router, read_router_names
from eventd.log.topics.topics import DeleteTopic, PutTopic
from eventd.resources.apply import Action, Change, Plan
from eventd.resources.kinds.registry import EVENT_GROUP, TOPIC, TOPIC_ROUTER, Kind
from eventd.resources.kinds.spec import Spec
from eventd.resources.kinds.topic import TopicSpec
from eventd.resources.kinds.topic_router import TopicRouterSpec
from eventd.resources.reading.documents import Identity
from eventd.resources.validation.references import users_by_name
from eventd.resources.validation.resource import Resource
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import chance_of
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.text.arguments import as_argument

MOST_NAMED = 5
"""Maximum number of names that a message lists."""

T = TypeVar("T", bound=Spec)


class DeclarationRules(NamedTuple):
    """The limits of topics and routers, and whether resources take over those that exist already (`adopt`)."""

    limits: RouterLimits = RouterLimits()
    adopt: bool = False


def concerns_topics(planned: Plan) -> bool:
    """Return whether topics or routers may have to be written for the plan."""
    return any(_is_of(change, kind) for change in planned.changes for kind in (TOPIC, TOPIC_ROUTER, EVENT_GROUP))


def _is_of(change: Change, kind: Kind) -> bool:
    """Return whether a change is of this program's kind of this name: another program's stored kind may have the same
    name."""
    return (change.identity.api_version, change.kind) == (kind.api_version, kind.name)


class DeclaredTopics:
    """Makes topics and routers match a plan whose resources are written in the open transaction.

    Call the methods in their order; each raises `Conflict`. `records` are the numbers of records of deleted topics, and
    `adopted` the resources that took over what existed. `lowered`: the fields by which a topic deletes records that it
    kept before.
    """

    def __init__(self, conn: Connection, planned: Plan, now: int, rules: DeclarationRules) -> None:
        self.records: dict[str, int] = {}
        self.adopted: set[Identity] = set()
        self.lowered: dict[Identity, list[str]] = {}
        self._changes = {change.identity: change for change in planned.changes}
        self._rules = rules
        self._conn = conn
        self._tx = Transaction(conn, lock_head(conn), {}, Moment(now, 0), TransactionTimes())

    @property
    def plan(self) -> Plan:
        """Return the plan, in which also those resources count as changed whose topic or router differed from them."""
        return Plan(tuple(self._changes.values()))

    def remove_routers(self) -> None:
        """Delete the routers whose resources are deleted."""
        for change in self._deleted(TOPIC_ROUTER):
            DeleteRouter(change.name, declared=True).make(self._tx)

    def put_topics(self) -> None:
        """Create and configure topics."""
        wanted = [*self._wanted(TOPIC, TopicSpec)]
        found = {change.name: find_topic(self._conn, change.name) for change, _ in wanted}
        self._require_own([change for change, _ in wanted if found[change.name] is not None])
        for change, spec in wanted:
            line, config = found[change.name], config_of(spec)
            if line is not None:
                self._note_adoption(change, spec_of_config(line.config))
            if line is not None and line.config == config:
                continue
            if line is not None:
                self.lowered[change.identity] = [to_camel(name) for name in line.config.lowered_in(config)]
            self._note_drift(change, None if line is None else spec_of_config(line.config))
            with _named(change):
                random, most = chance_of(self._conn).token(16), self._rules.limits.topics
                PutTopic(change.name, config, max_topics=most, random=random, declared=True).make(self._tx)

    def put_routers(self) -> None:
        """Create and configure routers. The topics of groups must exist."""
        wanted = [*self._wanted(TOPIC_ROUTER, TopicRouterSpec)]
        found = {change.name: read_router(self._conn, change.name) for change, _ in wanted}
        self._require_own([change for change, _ in wanted if found[change.name] is not None])
        for change, spec in wanted:
            with _named(change):
                router, line = router_of_spec(change.name, spec), found[change.name]
            if line is not None:
                self._note_adoption(change, spec_of_router(router_of(line)))
            if line is not None and router_of(line) == router:
                continue
            self._note_drift(change, None if line is None else spec_of_router(router_of(line)))
            asked = RouterSpec(router.name, router.source, router.dest, router.options.encode())
            with _named(change):
                random, rules = chance_of(self._conn).token(16), NewRouterRules(router)
                PutRouter(
                    asked, rules, self._rules.limits, create_dest=spec.create_dest, random=random, declared=True
                ).make(self._tx)

    def remove_topics(self) -> None:
        """Delete the topics whose resources are deleted; refuse if a router or a callback still needs one."""
        for kind in (EVENT_GROUP, TOPIC):
            if doomed := [*self._deleted(kind)]:
                users = users_by_name(kind, read_resources(self._conn))
                for change in doomed:
                    _require_unused(change, users.get(change.name, ()))
        for change in self._deleted(TOPIC):
            line = find_topic(self._conn, change.name)
            if line is None:
                continue
            if routers := read_router_names(self._conn, line.id):
                raise Conflict(
                    f"{change.identity} is still used by routers that no resource declares: {_listed(routers)}",
                    hint=f"delete them first: routerctl router delete {as_argument(routers[0], 'ROUTER')}",
                )
            self.records[change.name] = read_size(self._conn, line, self._tx.now).count
            DeleteTopic(change.name, declared=True).make(self._tx)

    def _wanted(self, kind: Kind, spec: type[T]) -> Iterator[tuple[Change, T]]:
        for change in [*self._changes.values()]:
            after = change.after
            if _is_of(change, kind) and isinstance(after, Resource) and isinstance(after.spec, spec):
                yield change, after.spec

    def _deleted(self, kind: Kind) -> Iterator[Change]:
        return (change for change in self._changes.values() if change.action is Action.DELETED and _is_of(change, kind))

    def _require_own(self, existing: Sequence[Change]) -> None:
        """Raise `Conflict` if one of these resources is new but its topic or router exists already, unless it may be
        adopted."""
        others = [change.identity for change in existing if change.before is None]
        if others and not self._rules.adopt:
            one = len(others) == 1
            raise Conflict(
                f"{_listed([*map(str, others)])} {'exists' if one else 'exist'} already, made through the API",
                hint=f"routerctl apply --adopt takes {'it' if one else 'them'} over",
            )
        self.adopted.update(others)

    def _note_adoption(self, change: Change, actual: dict[str, object]) -> None:
        """Note the spec of an existing topic or router that a new resource takes over, which a diff compares."""
        if change.before is None:
            self._changes[change.identity] = replace(change, adopted=actual)

    def _note_drift(self, change: Change, actual: dict[str, object] | None) -> None:
        """Change the plan if a resource is stored unchanged, but its topic or router has another spec (`actual`) or
        does not exist."""
        if change.before is None:
            return
        if actual is None:
            noted = replace(change, action=Action.CREATED, before=None)
        elif change.action is Action.UNCHANGED:
            noted = replace(change, action=Action.CONFIGURED, before=replace(change.before, spec=actual))
        else:
            return
        self._changes[change.identity] = noted


def _require_unused(change: Change, users: Iterable[StoredResource]) -> None:
    """Raise `Conflict` if one of the remaining resources `users` refers to a deleted one."""
    names = sorted(f"{row.kind}/{row.name}" for row in users)
    if names:
        raise Conflict(
            f"{change.identity} is still used: {_listed(names)}", hint="delete those first, or together with it"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


@contextmanager
def _named(change: Change) -> Iterator[None]:
    """Raise an error of the block as a `Conflict` that names the resource."""
    try:
        yield
    except (Conflict, Invalid, NotFound, DetailedError) as error:
        raise Conflict(f"{change.identity}: {error.message}", hint=error.hint) from error
