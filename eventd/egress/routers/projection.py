"""A router: what of one topic is copied to another, and what a copy looks like. Pure."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from eventd.log.core.records import Provenance, read_body, tag_of, write_body, write_provenance
from eventd.log.routers.source import Copy, CopyPage, Original, SourcePage
from eventd.log.topics.predicate import Predicate, parse

CYCLE_HOPS = 8
"""Hops after which a router that may close a cycle forwards a record no more."""
FAN_IN_HOPS = 64
"""The same for routers that keep identities. The ids end every cycle; this ends one where they were forgotten."""
STAMP = "_topics_router"
"""The member of meta that says which record of which source a copy was made of."""
WRAPPED = "_topics_original_meta"
"""The member that holds a meta which could not take the stamp."""
MOST_KEYS = 64
"""Members of a meta that takes no further one."""


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Guarantee(StrEnum):
    """What a copy promises. Both are made once; with `exactly_once` the copy itself says what it is a copy of."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a record becomes an event of a group: templates, see `event_map.py`. None: the default of the field."""

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


@lru_cache(maxsize=1024)  # very many routers do the same
def decode_options(text: str) -> Options:
    """Options as they are stored."""
    return msgspec.json.decode(text, type=Options)


class Router(NamedTuple):
    """A rule by its name: every record of `source` is copied to `dest`. Both are names of topics."""

    name: str
    source: str
    dest: str
    options: Options = Options()


class Shape(NamedTuple):
    """All that the look of a copy depends on: routers of one shape make the same copies.

    `stamp` names the router where its copies tell what they were made of; empty otherwise.
    """

    preserve_node: bool
    preserve_tag: bool
    filter: Predicate | None
    most_hops: int | None
    fan_in: bool
    stamp: str

    @classmethod
    def of(cls, router: Router) -> Shape:
        """The shape of a router's copies, as long as they are records."""
        options = router.options
        stamped = options.guarantee is Guarantee.EXACTLY_ONCE
        return cls(
            options.preserve_node,
            options.preserve_tag,
            None if options.filter is None else parse([*options.filter]),
            options.most_hops,
            options.fan_in,
            router.name if stamped else "",
        )

    @property
    def verbatim(self) -> bool:
        """Whether a copy has the body of its original."""
        return self.preserve_node and self.preserve_tag and not self.stamp

    def wants(self, original: Original) -> bool:
        """Whether a record is to be copied at all."""
        if self.most_hops is not None and original.hops >= self.most_hops:
            return False
        return self.filter is None or self.filter.matches(tag_of(original.body))


class Origin(NamedTuple):
    """The source of copies, as stamps name it."""

    topic: str
    topic_id: int
    instance: int
    epoch: str

    @classmethod
    def of(cls, page: SourcePage) -> Origin:
        """Where a page comes from."""
        return cls(page.line.name, page.line.id, page.line.instance, page.head.epoch)


def cut_records(page: SourcePage, shape: Shape) -> CopyPage:
    """The copies of a page that routers of a shape make, for a topic that holds records."""
    origin = Origin.of(page)
    return CopyPage.of_records(
        [copy_of(original, shape, origin) for original in page.originals if shape.wants(original)]
    )


def copy_of(original: Original, shape: Shape, origin: Origin) -> Copy:
    """The copy that routers of a shape make of a record."""
    kept = original.identity(origin.instance) if shape.fan_in else ""
    body = original.body if shape.verbatim else _reworded(original, shape, origin)
    return Copy(original.position, original.seq, kept, write_provenance(Provenance(original.hops + 1, kept)), body)


def _reworded(original: Original, shape: Shape, origin: Origin) -> str:
    node, tag, data, meta = read_body(original.body)
    if shape.stamp:
        meta = _stamped(meta, shape.stamp, origin, original)
    return write_body(node if shape.preserve_node else None, tag if shape.preserve_tag else None, data, meta)


def _stamped(meta: str | None, router: str, origin: Origin, original: Original) -> str:
    """A record's meta with what says where the copy comes from; wrapped, where it takes no further member.

    The key is the same whenever the copy is made, and another one where a seq was given to another record, as may be
    after a power cut in a topic that does not wait for the disk: hence the time.
    """
    seq, epoch = original.seq, f"{origin.instance}.{original.recorded_at // 1000}"
    stamp = {
        "idempotency_key": f"router:{router}:{origin.topic_id}:{epoch}:{seq}",
        "router": router,
        "source_topic": origin.topic,
        "source_topic_id": origin.topic_id,
        "source_epoch": epoch,
        "source_seq": seq,
    }
    members: dict[str, Any] = {}
    if meta is not None:
        try:
            members = _MEMBERS.decode(meta)
        except msgspec.ValidationError:
            members = {WRAPPED: msgspec.Raw(meta.encode())}
        if len(members.keys() - {STAMP}) >= MOST_KEYS:
            members = {WRAPPED: msgspec.Raw(meta.encode())}
    return msgspec.json.encode(members | {STAMP: stamp}).decode()
