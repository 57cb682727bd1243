"""Routers: create, configure, show, list and delete them."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from eventd.api.framework.models import Body, NoQuery, ResponseModel
from eventd.api.framework.paging import NamePage, cut_page, write_cursor
from eventd.api.topics.calls import Call
from eventd.egress.routers.graph import NewRouterRules, router_of
from eventd.egress.routers.projection import EventMap
from eventd.egress.routers.request import request_router
from eventd.log.routers.declare import DeleteRouter, PutRouter, RouterLimits, RouterSpec
from eventd.log.topics import router_rows
from eventd.log.topics.declared import ManagedBy, managed_by, managed_by_each
from eventd.log.topics.errors import RouterNotFound
from eventd.log.topics.router_rows import RouterFilter, RouterRow, read_rejected, read_router
from eventd.text.topic_names import ROUTER_KIND, ROUTER_NAME

SHOWN_DEAD_LETTERS = 10
"""Maximum number of dead letters that are shown with a router: the newest ones."""

NAME = re.compile(ROUTER_NAME)

GuaranteeName = Literal["at_least_once", "exactly_once"]


class RouterBody(Body):
    """What a router copies, and how. `filter` chooses by the tag, as `match` of a delete does; null copies all.

    With `fan_in` a copy keeps its original's record id, and a topic stores each id once; routers that all have it may
    write to one topic from several sources, and form cycles. `map` describes the events made of records for a group.
    """

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: str | list[str] | None = None
    allow_cycle: bool = False
    guarantee: GuaranteeName = "at_least_once"
    fan_in: bool = False
    map: EventMap | None = None


class RouterAnswer(ResponseModel):
    """A router's topics and options."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: GuaranteeName
    fan_in: bool
    map: EventMap | UnsetType = UNSET


class RouterSet(RouterAnswer, kw_only=True):
    """A router after it was created (`created`) or configured."""

    created: bool


class RefusedRecord(msgspec.Struct, kw_only=True):
    """A router's dead letter since `ts` (milliseconds): a record that it could not copy, or records that the source
    lost. `id`: of the event to be made of the record; empty without one."""

    ts: int
    id: str
    reason: str
    detail: str


class RouterShown(RouterAnswer, kw_only=True):
    """The state of a router.

    `forwarded_total` counts copies, and records that the source lost before they were copied; `refused_total`, records
    that could not be copied. `refused`: the newest dead letters. `lag`: seqs of the source not read yet.
    `state`: running, or backing-off, for `reason`. `managed`: `declared` if a resource declares the router, and alone
    changes and deletes it; otherwise `api`.
    """

    forwarded_total: int
    refused_total: int
    refused: list[RefusedRecord]
    lag: int
    state: str
    reason: str
    managed: ManagedBy


class RouterListed(msgspec.Struct, kw_only=True):
    """A router in short: enough to see its edge of the graph. `managed` as in `RouterShown`."""

    router: str
    source: str
    dest: str
    guarantee: GuaranteeName
    filter: list[str] | None
    allow_cycle: bool
    fan_in: bool
    forwarded_total: int
    managed: ManagedBy


class RouterList(ResponseModel):
    """Routers, ordered by the bytes of their names. `next_cursor` is present if there are more."""

    routers: list[RouterListed]
    next_cursor: str | UnsetType = UNSET


class RouterDeleted(ResponseModel):
    """Whether there was a router to delete."""

    router: str
    deleted: bool


class RouterPage(NamePage, frozen=True):
    """Which routers to list: those from `source` and into `dest`; an empty name stands for any topic."""

    source: str = ""
    dest: str = ""


async def put(call: Call[NoQuery, RouterBody]) -> RouterSet:
    """Create a router, or replace its options; another source or destination is refused.

    Missing topics are created, except those of groups, and the destination only with `create_dest`.
    """
    v0, body = call.v0, call.body
    call.key.require_names(body.source, body.dest)
    router = request_router(call.name, body)
    unit = PutRouter(
        RouterSpec(router.name, router.source, router.dest, router.options.encode()),
        NewRouterRules(router),
        RouterLimits(v0.limits.max_routers, v0.limits.max_topics),
        create_dest=body.create_dest,
        random=v0.log.chance.token(16),
    )
    done = await v0.log.submit(unit)
    v0.routing.put(done.line, done.version)
    return RouterSet(**_show(done.line), created=done.created, performance=call.performance())


def _show(line: RouterRow) -> dict[str, Any]:
    options = router_of(line).options
    return {
        "router": line.name,
        "source": line.source,
        "dest": line.dest,
        "preserve_node": options.preserve_node,
        "preserve_tag": options.preserve_tag,
        "filter": None if options.filter is None else [*options.filter],
        "allow_cycle": options.allow_cycle,
        "guarantee": options.guarantee.value,
        "fan_in": options.fan_in,
        "map": options.map or UNSET,
    }


async def show(call: Call[NoQuery, None]) -> RouterShown:
    """Return the state of a router, after a few seconds at most in which it catches up with its source."""
    v0 = call.v0
    line = await _find(call)
    await v0.routing.drive(line.dest_id)
    line = await _find(call)
    return RouterShown(
        **_show(line),
        forwarded_total=line.forwarded,
        refused_total=line.refused,
        refused=[
            RefusedRecord(ts=each.at // 1000, id=each.id, reason=each.reason, detail=each.detail)
            for each in await v0.database.read(read_rejected, call.name, SHOWN_DEAD_LETTERS)
        ],
        lag=max(0, line.source_head - max(line.seq, v0.routing.seen_seq(line.name))),
        state=line.state,
        reason=line.reason,
        managed=await v0.database.read(managed_by, ROUTER_KIND, call.name),
        performance=call.performance(),
    )


async def _find(call: Call[Any, Any]) -> RouterRow:
    """Return the router of the path. Raises `RouterNotFound`, and `Forbidden` if the key may not access its topics."""
    line = await call.v0.database.read(read_router, call.name) if NAME.fullmatch(call.name) else None
    if line is None:
        raise RouterNotFound(call.name)
    call.key.require_names(line.source, line.dest)
    return line


async def list_routers(call: Call[RouterPage, None]) -> RouterList:
    """List routers whose name, source and destination the key may access."""
    query, key = call.query, call.key

    def sees(line: RouterRow) -> bool:
        return all(map(key.sees, (line.name, line.source, line.dest)))

    choice = RouterFilter(query.prefix, query.source, query.dest, sees)
    found = await call.v0.database.read(router_rows.list_routers, choice, after=query.after, limit=query.limit)
    shown, cursor = cut_page(found, query.limit, lambda line: write_cursor(line.name))
    managed = await call.v0.database.read(managed_by_each, ROUTER_KIND, [line.name for line in shown])
    listed = [_listed(line, managed[line.name]) for line in shown]
    return RouterList(routers=listed, next_cursor=cursor or UNSET, performance=call.performance())


def _listed(line: RouterRow, managed: ManagedBy) -> RouterListed:
    options = router_of(line).options
    return RouterListed(
        router=line.name,
        source=line.source,
        dest=line.dest,
        guarantee=options.guarantee.value,
        filter=None if options.filter is None else [*options.filter],
        allow_cycle=options.allow_cycle,
        fan_in=options.fan_in,
        forwarded_total=line.forwarded,
        managed=managed,
    )


async def delete(call: Call[NoQuery, None]) -> RouterDeleted:
    """Delete a router. The records it has copied stay."""
    deleted = False
    try:
        await _find(call)
    except RouterNotFound:
        pass
    else:
        version = await call.v0.log.submit(DeleteRouter(call.name))
        deleted = version is not None
        if version is not None:
            call.v0.routing.removed([call.name], version)
    return RouterDeleted(router=call.name, deleted=deleted, performance=call.performance())
