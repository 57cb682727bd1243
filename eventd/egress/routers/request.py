"""The router that a request or a resource describes: one check for both. Pure."""

from __future__ import annotations

import re
from typing import Protocol

from eventd.egress.routers.event_map import check_map
from eventd.egress.routers.projection import EventMap, Guarantee, Options, Router
from eventd.errors import Invalid
from eventd.log.topics.predicate import parse
from eventd.log.topics.topics import GROUP, ROUTEMASTER, refuse_reserved, require_name
from eventd.text.topic_names import ROUTER_NAME


class RequestedRouter(Protocol):
    """The options of a router as a request or a resource gives them."""

    @property
    def source(self) -> str: ...
    @property
    def dest(self) -> str: ...
    @property
    def preserve_node(self) -> bool: ...
    @property
    def preserve_tag(self) -> bool: ...
    @property
    def filter(self) -> str | list[str] | None: ...
    @property
    def allow_cycle(self) -> bool: ...
    @property
    def guarantee(self) -> str: ...
    @property
    def fan_in(self) -> bool: ...
    @property
    def map(self) -> EventMap | None: ...


def request_router(name: str, asked: RequestedRouter) -> Router:
    """Return the router as requested. Raises `Invalid`, and `Incompatible` for a destination that no router may have.

    Its topics, and the other routers, are not considered.
    """
    if asked.dest == ROUTEMASTER:
        refuse_reserved(asked.dest, "written to by a router")
    if not re.fullmatch(ROUTER_NAME, name):
        raise Invalid(
            f"{name[:80]!r} is not a valid router name",
            hint="use a letter or digit, then up to 254 letters, digits and any of . _ : > -",
        )
    if asked.source == asked.dest:
        raise Invalid("a router needs two topics: `source` and `dest` are the same")
    require_name(asked.source)
    require_name(asked.dest)
    options = Options(
        preserve_node=asked.preserve_node,
        preserve_tag=asked.preserve_tag,
        filter=None if asked.filter is None else _chosen(asked.filter),
        allow_cycle=asked.allow_cycle,
        guarantee=Guarantee(asked.guarantee),
        fan_in=asked.fan_in,
        map=_mapped(asked),
    )
    return Router(name, asked.source, asked.dest, options)


def _chosen(given: str | list[str]) -> tuple[str, str, str]:
    field, op, text = parse(given).shown()
    return field, op, text


def _mapped(asked: RequestedRouter) -> EventMap | None:
    if asked.map is None:
        return None
    if not asked.dest.startswith(GROUP):
        raise Invalid(
            f"`map` describes events, but `dest` {asked.dest!r} is not the topic of a group",
            hint="leave out `map`, or name the topic of a group as `dest`",
        )
    if asked.fan_in and asked.map.id is not None:
        raise Invalid(
            "`map.id` gives events new ids, and `fan_in` keeps those of the records", hint="leave out one of the two"
        )
    check_map(asked.map)
    return asked.map
