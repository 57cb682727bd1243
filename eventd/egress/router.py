"""A router: what of one topic is copied to another, and what a copy looks like. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

CYCLE_HOPS = 8
"""Hops after which a router that may close a cycle forwards a record no more."""
FAN_IN_HOPS = 64
"""The same for routers that keep identities. The ids end every cycle; this ends one where they were forgotten."""
STAMP = "_topics_router"
"""The member of meta that says which record of which source a copy was made of."""
MOST_KEYS = 64
"""Members of a meta that takes no further one."""


class Guarantee(StrEnum):
    """What a copy promises. Both are made once; with `exactly_once` the copy itself says what it is a copy of."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a record becomes an event of a group: templates, see `eventd.egress.event_map`. None: what is usual."""

    type: str | None = None
    subject: str | None = None
    id: str | None = None
    payload: dict[str, str] | None = None


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a router does. `filter` is a predicate in its tuple form; None forwards all."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: tuple[str, str, str] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    fan_in: bool = False
    map: EventMap | None = None

    def encode(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()

    @property
    def most_hops(self) -> int | None:
        """Hops of a record that is not forwarded any more; None: there is no such."""
        if self.allow_cycle:
            return CYCLE_HOPS
        return FAN_IN_HOPS if self.fan_in else None


def decode_options(text: str) -> Options:
    """Options as they are stored."""
    return msgspec.json.decode(text, type=Options)


class Router(NamedTuple):
    """A rule by its name: every record of `source` is copied to `dest`. Both are names of topics."""

    name: str
    source: str
    dest: str
    options: Options = Options()
