"""Plans and executes changes of declared resources: planning writes nothing, execution is one transaction."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.core.head import lock_head
from eventd.log.topics.deleted_topics import delete_topic
from eventd.net.address_rules import AddressRules
from eventd.resources.callback_checks import callback_problems
from eventd.resources.group_configuration import topic_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.resources.kinds.event_peer import EventPeerSpec
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER, KINDS
from eventd.resources.kinds.spec import Spec
from eventd.resources.reading.documents import Identity, ReadResult
from eventd.resources.reading.problems import MOST_FOUND, Problem
from eventd.resources.validation.check import check
from eventd.resources.validation.references import referring
from eventd.resources.validation.resource import Declaration, Resource, document, from_stored, identity_of
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import StoredResource, announce, delete_resource, put_resource, read_resources
from eventd.text.did_you_mean import did_you_mean
from federation.selector import Selector

PUBLIC_ONLY = AddressRules.of_callbacks((), ())
"""The rules of a node whose settings allow no other addresses."""


class Action(StrEnum):
    """What a plan does with a resource; commands print the value."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


def _selector(peer: EventPeerSpec) -> Selector:
    return Selector.of(types=peer.types, subject_prefixes=peer.subject_prefixes)


@dataclass(frozen=True, slots=True)
class Change:
    """One resource before and after; `before` is None when it is created, `after` when it is deleted.

    `adopted`: the spec of the existing topic or router that a created resource takes over.
    """

    action: Action
    identity: Identity
    before: StoredResource | None
    after: Declaration | None
    adopted: Mapping[str, object] | None = None

    @property
    def kind(self) -> str:
        return self.identity.kind

    @property
    def name(self) -> str:
        return self.identity.name

    def lowered(self) -> list[str]:
        """Return the fields of a group's retention by which it evicts events that it kept before."""
        before, after = self.specs()
        if not isinstance(before, EventGroupSpec) or not isinstance(after, EventGroupSpec):
            return []
        return [f"retention.{name}" for name in before.retention.lowered_in(after.retention)]

    def widens(self) -> bool:
        """Return whether a peer gets events that its filter has left out, also those that are stored already."""
        before, after = self.specs()
        if not isinstance(before, EventPeerSpec) or not isinstance(after, EventPeerSpec):
            return False
        old, new = _selector(before), _selector(after)
        return new.widens(old) or (after.relay and not before.relay)

    def narrows(self) -> list[str]:
        """Return to which events a peer's filter is limited from now on, if it lets in less; else nothing."""
        before, after = self.specs()
        if not isinstance(before, EventPeerSpec) or not isinstance(after, EventPeerSpec):
            return []
        found = ["events that entered the log at this node"] if before.relay and not after.relay else []
        if _selector(before).widens(_selector(after)):
            found += [f"types {', '.join(after.types)}"] if after.types else []
            found += [f"subjects that begin with {', '.join(after.subject_prefixes)}"] if after.subject_prefixes else []
        return found

    def specs(self) -> tuple[Spec | None, Spec | None]:
        """Return the specs of a resource that is configured; None for both if one of them cannot be read."""
        if self.before is None or not isinstance(self.after, Resource):
            return None, None
        try:
            before = from_stored(self.before)
        except Invalid:
            return None, None
        return (before.spec, self.after.spec) if isinstance(before, Resource) else (None, None)

    def diff(self) -> str:
        """Return a unified diff of the stored and the applied resource as YAML; empty if it is unchanged."""
        if self.action is Action.UNCHANGED:
            return ""
        lines = difflib.unified_diff(
            self._yaml_before(),
            _yaml_lines(self.after.document()) if self.after else [],
            fromfile=f"{'stored' if self.adopted is None else 'existing'}/{self.identity}",
            tofile=f"applied/{self.identity}",
        )
        return "".join(lines)

    def _yaml_before(self) -> list[str]:
        before = self.before
        if before is not None:
            return _yaml_lines(document(identity_of(before), before.annotations, before.spec, before.labels))
        return [] if self.adopted is None else _yaml_lines(document(self.identity, {}, dict(self.adopted), {}))


def _yaml_lines(value: object) -> list[str]:
    from eventd.resources.reading.yaml_text import write_yaml  # slow to load, and only differences are shown as YAML

    return write_yaml(value).splitlines(keepends=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of all resources of the input, in its order, also of unchanged ones; then of the deleted ones."""

    changes: tuple[Change, ...]

    @property
    def writes(self) -> bool:
        """Return whether the plan changes anything."""
        return any(change.action is not Action.UNCHANGED for change in self.changes)

    def count(self, action: Action) -> int:
        """Return the number of resources whose action is `action`."""
        return sum(change.action is action for change in self.changes)

    def diff(self) -> str:
        """Return the diffs of all resources as one text; empty if the plan changes nothing."""
        return "".join(change.diff() for change in self.changes)


def plan(
    desired: Sequence[Declaration],
    stored: Sequence[StoredResource],
    *,
    prune: bool = False,
    allow_empty: bool = False,
) -> Plan:
    """Return the plan to apply `desired`. With `prune`, stored resources that are not in `desired` are deleted.

    Raises Conflict when `desired` is empty and pruning would delete every stored resource, unless `allow_empty`.
    """
    rows = {identity_of(row): row for row in stored}
    changes = [_change(resource, rows.get(resource.identity)) for resource in desired]
    if prune:
        wanted = {resource.identity for resource in desired}
        doomed = [row for row in stored if identity_of(row) not in wanted]
        if doomed and not desired and not allow_empty:
            what = f"the input contains no resources: pruning would delete all {len(doomed)} that are stored"
            raise Conflict(what, hint="check the input, or use --force, in the API allowEmpty")
        changes += [_deletion(row) for row in _referring_first(doomed)]
    return Plan(tuple(changes))


def _change(resource: Declaration, before: StoredResource | None) -> Change:
    return Change(_action(resource, before), resource.identity, before, resource)


def _action(resource: Declaration, before: StoredResource | None) -> Action:
    if before is None:
        return Action.CREATED
    return Action.UNCHANGED if _same(resource, before) else Action.CONFIGURED


def _same(resource: Declaration, before: StoredResource) -> bool:
    try:
        return resource.means(from_stored(before))
    except Invalid:
        return False  # a row that cannot be read any more is repaired by writing it again


def _deletion(row: StoredResource) -> Change:
    return Change(Action.DELETED, identity_of(row), row, None)


def _referring_first(rows: Sequence[StoredResource]) -> list[StoredResource]:
    """Return the rows in an order in which each stands before the resources that it refers to."""
    order = [*KINDS, *sorted({row.kind for row in rows} - set(KINDS))]
    return sorted(rows, key=lambda row: (-order.index(row.kind), *identity_of(row)))


def plan_delete(doomed: Sequence[Identity], stored: Sequence[StoredResource]) -> Plan:
    """Return the plan to delete the resources `doomed`.

    Raises NotFound if one of them is not stored, and Conflict if a resource that is not deleted refers to one of them.
    """
    rows = {identity_of(row): row for row in stored}
    for identity in doomed:
        if identity not in rows:
            names = [row.name for row in stored if identity_of(row)[:2] == identity[:2]]
            raise NotFound(f"{identity} does not exist", hint=did_you_mean(identity.name, names))
    going = dict.fromkeys(doomed)
    for identity in going:
        users = referring(identity.name, KINDS[identity.kind], stored) if identity.kind in KINDS else []
        if left := [row for row in users if identity_of(row) not in going]:
            blockers = ", ".join(str(identity_of(row)) for row in left)
            what = "still has peers" if all(row.kind == EVENT_PEER.name for row in left) else "is still used"
            raise Conflict(f"{identity} {what}: {blockers}", hint="delete those first, or together with it")
    return Plan(tuple(_deletion(row) for row in _referring_first([rows[identity] for identity in going])))


def execute(conn: Connection, planned: Plan, *, now: int) -> None:
    """Write the plan in the open transaction, whose commit notifies running nodes. `now` in microseconds.

    The topic of a deleted group is marked as deleted, and its routers are deleted; a node removes its events later.
    """
    for change in planned.changes:
        version, kind, name = change.identity
        if change.action is Action.DELETED:
            delete_resource(conn, api_version=version, kind=kind, name=name)
            if kind == EVENT_GROUP.name:
                delete_topic(conn, topic_of(name))
        elif change.after is not None and change.action is not Action.UNCHANGED:
            put_resource(
                conn,
                api_version=version,
                kind=kind,
                name=name,
                annotations=change.after.annotations,
                labels=change.after.labels,
                spec=change.after.canonical(),
                now=now,
            )
    if planned.writes:
        announce(conn)


def apply_loaded(
    conn: Connection,
    loaded: ReadResult,
    *,
    now: int,
    prune: bool = False,
    allow_empty: bool = False,
    dry_run: bool = False,
    rules: AddressRules | None = None,
    found: Sequence[Problem] = (),
) -> Plan:
    """Validate the drafts together with the stored resources, and apply them in the open transaction unless `dry_run`.

    `rules` judge addresses in the URLs of callbacks; None allows only public ones. `found`: problems of the drafts that
    the caller has found. Returns the plan. Raises InvalidResources with the problems, Invalid for an empty input
    without `prune`, and what `plan` raises.
    """
    if not dry_run:
        lock_head(conn)  # locked first: what was validated must still hold when it is written
    stored = read_resources(conn)
    checked = check(loaded, stored, prune=prune)
    others = islice(callback_problems(conn, loaded.drafts, rules or PUBLIC_ONLY), MOST_FOUND)
    desired = replace(checked, problems=tuple(sorted({*checked.problems, *found, *others}))).accepted()
    if not desired and not prune:
        raise Invalid("the input contains no resources", hint="a resource has apiVersion, kind, metadata and spec")
    planned = plan(desired, stored, prune=prune, allow_empty=allow_empty)
    if not dry_run:
        execute(conn, planned, now=now)
    return planned


def delete_resources(conn: Connection, doomed: Sequence[Identity], *, now: int, dry_run: bool = False) -> Plan:
    """Delete resources in the open transaction unless `dry_run`. Returns the plan; raises what `plan_delete` raises."""
    if not dry_run:
        lock_head(conn)  # as in apply_loaded
    planned = plan_delete(doomed, read_resources(conn))
    if not dry_run:
        execute(conn, planned, now=now)
    return planned
