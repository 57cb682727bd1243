"""Declared resources: apply, diff, list, describe, delete. A change and its consequences are one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain, islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field
from pydantic.alias_generators import to_camel

from eventd.api.admin.callbacks.callbacks import describe_callback
from eventd.api.admin.deliveries.links import read_links
from eventd.api.admin.resources.resource_changes import ApplyOptions, ResourceChanger
from eventd.api.admin.subscriptions.subscription_runs import show_run
from eventd.api.admin.subscriptions.subscription_states import ListSubscriptions, read_states
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.recorder import name_objects
from eventd.egress.cursors import link_name, subscription_name
from eventd.errors import Conflict, EventdError, NotFound
from eventd.groups.lookup import read_group_topic
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.repairs import read_dead_letters
from eventd.log.topics.limits import read_size
from eventd.log.topics.router_rows import read_router, read_router_names
from eventd.resources.kinds.registry import (
    EVENT_CALLBACK,
    EVENT_GROUP,
    EVENT_PEER,
    EVENT_SUBSCRIPTION,
    KINDS,
    PLUGIN,
    TOPIC,
    TOPIC_ROUTER,
)
from eventd.resources.label_selector import LabelSelector
from eventd.resources.reading.documents import Identity, ReadResult, load_text
from eventd.resources.reading.problems import MOST_FOUND, InvalidResources, Problem
from eventd.resources.validation.foreign import KindId, full_word, meant_kinds
from eventd.resources.validation.resource import document, from_stored, identity_of
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import SUBSCRIBER
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import read_runs
from eventd.text.arguments import as_argument

RECENT = 5
"""Maximum number of dead letters, and of runs, that a description shows."""
MOST_VALUES = 200_000
"""Maximum number of values in the sources of one request: they take about 40 MiB of memory."""
SUGGESTED = 10
"""Maximum number of names that are suggested for an unknown one."""


class Source(BaseModel):
    """One file: its text, or why and on which line it could not be read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    text: str = ""
    problem: str = ""
    line: int = Field(default=0, ge=0)


class Sources(Params):
    """Resources as YAML or JSON text; problems show the name of their source."""

    sources: Annotated[list[Source], FailFast()] = Field(
        min_length=1, description="The contents of files, each with the name of the file."
    )

    def load(self) -> ReadResult:
        """Return the resources as written (drafts) and the problems of reading; for too many values, only that problem.

        Large sources take seconds, so do not call it on the event loop.
        """
        loaded, values = ReadResult(), 0
        for source in self.sources:
            if source.problem:
                found = ReadResult(problems=(Problem(source.name, source.line, 0, "", source.problem),))
            else:
                found = load_text(source.name, source.text, MOST_VALUES)
            values += sum(draft.node.size for draft in found.drafts)
            if values > MOST_VALUES:
                message = f"the sources hold more than {MOST_VALUES} values together"
                hint = "use several requests, without prune"
                return ReadResult(problems=(Problem(source.name, 0, 0, "", message, hint),))
            loaded += found
            if len(loaded.problems) >= MOST_FOUND:
                break
        return loaded


class ExpectedGeneration(BaseModel):
    """A resource that must be stored with this generation."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)

    api_version: str
    kind: str
    name: str
    generation: int = Field(ge=1)


class Apply(Sources):
    """Create or update the resources of the sources, all or none; with `prune`, delete all others."""

    prune: bool = Field(default=False, description="Delete stored resources that are not in the sources.")
    allow_empty: bool = Field(
        default=False, description="With prune: delete everything if the sources contain no resources."
    )
    adopt: bool = Field(
        default=False, description="Let resources take over topics and routers that were made through the API."
    )
    dry_run: bool = Field(default=False, description="Only show what would change.")
    expected: Annotated[list[ExpectedGeneration], FailFast()] = Field(
        default=[], description="Resources with the generations that they must still have; otherwise nothing changes."
    )


async def apply(services: Services, params: Apply) -> dict[str, Any]:
    loaded = await asyncio.to_thread(params.load)
    _name(draft.identity for draft in loaded.drafts if draft.identity)
    expected = {Identity(each.api_version, each.kind, each.name): each.generation for each in params.expected}
    options = ApplyOptions(params.prune, params.allow_empty, params.adopt, expected)
    done = await ResourceChanger(services).apply(loaded, options, dry_run=params.dry_run)
    return {"changes": await asyncio.to_thread(done.shown), "dryRun": params.dry_run}


SUBSCRIBER_HINT = (
    "this is the name of a subscriber of the Routemaster surface, which is not declared: see routerctl callback"
    " describe {name}; it ends when its client unsubscribes, or with routerctl routemaster token revoke"
)


class Diff(Sources):
    """Compare the sources with the stored resources."""

    prune: bool = Field(
        default=False, description="Also show the deletion of stored resources that are not in the sources."
    )
    adopt: bool = Field(default=False, description="Compare as apply with `adopt` would change.")


async def diff(services: Services, params: Diff) -> dict[str, Any]:
    loaded = await asyncio.to_thread(params.load)
    options = ApplyOptions(params.prune, allow_empty=True, adopt=params.adopt)
    done = await ResourceChanger(services).apply(loaded, options, dry_run=True)
    return {"changes": await asyncio.to_thread(done.shown, diffs=True)}  # thousands of differences take seconds


class ListResources(Params):
    """Which resources to list."""

    kind: str = Field(
        default="",
        description="Only this kind: EventGroup, eventgroups or eg; other programs' kinds as Route.v1.net.example.",
    )
    name: str = Field(default="", description="Only resources of this name.")
    selector: str = Field(
        default="",
        description="Only resources whose labels meet all of these conditions: `site=north,tier!=lab,!old`.",
    )


async def list_resources(services: Services, params: ListResources) -> dict[str, Any]:
    selector = LabelSelector(params.selector)
    rows = await services.database.read(_select, params)
    return {"resources": [_show(row) for row in _in_order(rows) if selector.matches(row.labels)]}


def _select(conn: Connection, params: ListResources) -> list[StoredResource]:
    if not params.kind:
        return read_resources(conn, None, params.name or None)
    rows = read_resources(conn)
    kinds = set(meant_kinds(params.kind, rows))
    return [row for row in rows if _kind_of(row) in kinds and row.name == (params.name or row.name)]


def _kind_of(row: StoredResource) -> KindId:
    return row.api_version, row.kind


def _in_order(rows: Iterable[StoredResource]) -> list[StoredResource]:
    """Return the rows sorted by kind and name: this program's kinds in the order of `KINDS`, then those of others."""
    order = list(KINDS)
    return sorted(
        rows,
        key=lambda row: (
            order.index(row.kind) if row.kind in order else len(order),
            row.kind,
            row.name,
            row.api_version,
        ),
    )


def _show(row: StoredResource) -> dict[str, Any]:
    """Return the resource in a form that can be applied again; its generation and creation time are ignored then."""
    shown = document(identity_of(row), row.annotations, row.spec, row.labels)
    shown["metadata"] |= {"generation": row.generation, "creationTimestamp": show_time(row.created_at)}
    return shown


class OneResource(Params):
    """One resource, by its kind and name."""

    kind: str = Field(
        description="The kind: EventGroup, eventgroups or eg; other programs' kinds as Route.v1.net.example."
    )
    name: str = Field(description="The name of the resource.")


def find_resource(conn: Connection, params: OneResource) -> StoredResource:
    """Return the stored resource. Raises NotFound, and Conflict if several kinds of the name have one."""
    rows = read_resources(conn)
    kinds = meant_kinds(params.kind, rows)
    known = [row for row in rows if _kind_of(row) in kinds]
    found = _in_order(row for row in known if row.name == params.name)
    if not found:
        kind = kinds[0][1]
        hint = f"declared: {_first_names(known)}" if known else f"no {kind} is declared"
        hint = _undeclared_hint(conn, kind, params.name) or hint
        if params.name.startswith(SUBSCRIBER) and kind == EVENT_CALLBACK.name:
            hint = SUBSCRIBER_HINT.format(name=as_argument(params.name, "NAME"))
        raise NotFound(f"{kind}/{params.name} does not exist", hint=hint)
    if len(found) > 1:
        what = f"{identity_of(found[0])} exists in {' and in '.join(row.api_version for row in found)}"
        raise Conflict(what, hint=f"name one, for example {full_word(_kind_of(found[0]))}")
    return found[0]


def _undeclared_hint(conn: Connection, kind: str, name: str) -> str:
    """Return a hint if a topic or router of the name exists that no resource declares; empty if there is none."""
    is_topic = kind == TOPIC.name
    exists = find_topic(conn, name) if is_topic else read_router(conn, name) if kind == TOPIC_ROUTER.name else None
    if exists is None:
        return ""
    noun, show = ("topic", "topic describe") if is_topic else ("router", "router list")
    shown = f"routerctl {show}{f' {name}' if is_topic else ''}"
    return f"a {noun} of this name exists that no resource declares: {shown} shows it, apply --adopt takes it over"


def _first_names(rows: Iterable[StoredResource]) -> str:
    return ", ".join(dict.fromkeys(row.name for row in list(rows)[:SUGGESTED]))


async def get(services: Services, params: OneResource) -> dict[str, Any]:
    return _show(await services.database.read(find_resource, params))


async def describe(services: Services, params: OneResource) -> dict[str, Any]:
    return await services.database.read(_read_description, params, services.clock.now())


def _read_description(conn: Connection, params: OneResource, now: int) -> dict[str, Any]:
    row = find_resource(conn, params)
    described: dict[str, Any] = {"resource": _show(row), "updatedAt": show_time(row.updated_at), "problem": ""}
    try:
        described["effective"] = from_stored(row).effective()
    except EventdError as error:
        return described | {"problem": error.message}
    if row.kind == EVENT_GROUP.name:
        described["status"] = _group_status(conn, row.name, now)
    elif row.kind == EVENT_PEER.name:
        described["status"] = _peer_status(conn, row, now)
    elif row.kind == EVENT_SUBSCRIPTION.name:
        described["status"] = _subscription_status(conn, row, now)
    elif row.kind == EVENT_CALLBACK.name:
        described["status"] = {"callback": describe_callback(conn, row.name, now)}
    elif row.kind in (TOPIC.name, TOPIC_ROUTER.name):
        described["status"] = _topic_status(conn, row, now)
    elif row.kind == PLUGIN.name:
        described["status"] = {"recentRuns": [show_run(run) for run in read_runs(conn, plugin=row.name, limit=RECENT)]}
    return described


def _group_status(conn: Connection, name: str, now: int) -> dict[str, Any]:
    topic = read_group_topic(conn, name)
    return {
        "events": topic.ids,
        "bytes": topic.bytes,
        "seq": topic.next_seq - 1,
        "evictedSeq": topic.evicted_seq,
        "deadLetters": sum(count_dead_letters(conn, topic.id).values()),
        "links": read_links(conn, name, "", now),
    }


def _topic_status(conn: Connection, row: StoredResource, now: int) -> dict[str, Any]:
    if row.kind == TOPIC_ROUTER.name:
        router = read_router(conn, row.name)
        if router is None:
            return {"problem": "the router does not exist: apply the resource again"}
        keys = {"forwarded": router.forwarded, "refused": router.refused, "lag": router.source_head - router.seq}
        return {"topicRouter": keys | {"state": router.state, "reason": router.reason}}
    line = find_topic(conn, row.name)
    if line is None:
        return {"problem": "the topic does not exist: apply the resource again"}
    size = read_size(conn, line, now)
    seqs = {"earliestSeq": size.earliest_seq, "headSeq": line.head_seq}
    return {"topic": {"records": size.count, "bytes": size.bytes, **seqs, "routers": read_router_names(conn, line.id)}}


def _peer_status(conn: Connection, row: StoredResource, now: int) -> dict[str, Any]:
    group, node = str(row.spec.get("groupRef", "")), str(row.spec.get("nodeName", ""))
    try:
        links = read_links(conn, group, node, now)
    except NotFound as error:
        return {"problem": error.message}
    recent = _recent_letters(conn, group, link_name(group, node))
    return {"link": links["outbound"][0], "inbound": links["inbound"], "recentDeadLetters": recent}


def _subscription_status(conn: Connection, row: StoredResource, now: int) -> dict[str, Any]:
    group = str(row.spec.get("groupRef", ""))
    try:
        (state,) = read_states(conn, ListSubscriptions(group=group, subscription=row.name), now)
    except NotFound as error:
        return {"problem": error.message}
    runs = read_runs(conn, subscription=row.name, group=group, limit=RECENT)
    recent = _recent_letters(conn, group, subscription_name(group, row.name))
    return {"subscription": state, "recentRuns": [show_run(run) for run in runs], "recentDeadLetters": recent}


def _recent_letters(conn: Connection, group: str, cursor: str) -> list[dict[str, Any]]:
    letters = read_dead_letters(conn, read_group_topic(conn, group).id, cursor=cursor, limit=RECENT, newest=True)
    return [
        {"eventId": letter.event_id, "reason": letter.reason, "parkedAt": show_time(letter.parked_at)}
        for letter in letters
    ]


class DeleteResource(OneResource):
    """Delete one resource."""

    dry_run: bool = Field(default=False, description="Only show what would change.")


async def delete(services: Services, params: DeleteResource) -> dict[str, Any]:
    found = await services.database.read(find_resource, params)
    return await _delete_all(services, [identity_of(found)], dry_run=params.dry_run)


class DeleteResources(Sources):
    """Delete the resources that the sources name; their specs are ignored."""

    ignore_not_found: bool = Field(default=False, description="Skip resources that are not stored.")
    dry_run: bool = Field(default=False, description="Only show what would change.")


async def delete_sources(services: Services, params: DeleteResources) -> dict[str, Any]:
    loaded = await asyncio.to_thread(params.load)
    nameless = (d.problem((), "lacks apiVersion, kind or metadata.name") for d in loaded.drafts if d.identity is None)
    if problems := [*islice(chain(loaded.problems, nameless), MOST_FOUND)]:
        raise InvalidResources(problems)
    doomed = list(dict.fromkeys(draft.identity for draft in loaded.drafts if draft.identity))
    if params.ignore_not_found:
        stored = {identity_of(row) for row in await services.database.read(read_resources)}
        doomed = [identity for identity in doomed if identity in stored]
    return await _delete_all(services, doomed, dry_run=params.dry_run)


def _name(identities: Iterable[Identity]) -> None:
    """Name the resources in the record of actions."""
    name_objects([f"{each.kind} {each.name}" for each in identities])


async def _delete_all(services: Services, doomed: list[Identity], *, dry_run: bool) -> dict[str, Any]:
    _name(doomed)
    done = await ResourceChanger(services).delete(doomed, dry_run=dry_run)
    return {"changes": done.shown(), "dryRun": dry_run}
