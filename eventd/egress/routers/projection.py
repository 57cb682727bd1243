"""A router: which records of one topic it copies to another, and the content of a copy. Pure."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from eventd.log.core.records import Provenance, read_body, tag_of, write_body, write_provenance
from eventd.log.routers.source import Copy, CopyPage, Original, OriginalPage
from eventd.log.topics.predicate import Predicate, parse

CYCLE_HOPS = 8
"""Hops after which a router that may close a cycle stops forwarding a record."""
FAN_IN_HOPS = 64
"""Hops after which a router with `fan_in` stops forwarding a record. Ids end every cycle; this limit ends one whose ids
are no longer stored."""
STAMP = "_topics_router"
"""The member of meta that says of which record of which source this is a copy."""
WRAPPED = "_topics_original_meta"
"""The member that holds an original meta, beside the stamp, if it is not an object or has too many members."""
MOST_KEYS = 64
"""A meta with this many members, besides a stamp, is wrapped (see `WRAPPED`); the stamp is added in any case."""


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Guarantee(StrEnum):
    """The guarantee of copies. Each copy is made once; with `exactly_once` it also names its original."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The templates by which a record becomes an event of a group, see `event_map.py`. None: the field's default."""

    type: str | None = None
    subject: str | None = None
    id: str | None = None
    payload: dict[str, str] | None = None


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a router. `filter` is a predicate in its tuple form; None forwards everything."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: tuple[str, str, str] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    fan_in: bool = False
    map: EventMap | None = None

    def encode(self) -> str:
        """Return the options as the JSON text that is stored."""
        return msgspec.json.encode(self).decode()

    @property
    def most_hops(self) -> int | None:
        """Return the number of hops after which a record is not forwarded again; None without a limit."""
        if self.allow_cycle:
            return CYCLE_HOPS
        return FAN_IN_HOPS if self.fan_in else None


@lru_cache(maxsize=1024)  # very many routers have equal options
def decode_options(text: str) -> Options:
    """Decode stored options."""
    return msgspec.json.decode(text, type=Options)


class Router(NamedTuple):
    """A named rule that copies records of the topic `source` to the topic `dest`, as the options say."""

    name: str
    source: str
    dest: str
    options: Options = Options()


class Shape(NamedTuple):
    """The options that determine the content of a copy: routers of one shape make the same copies.

    `stamp` names the router if its copies name their originals; empty otherwise.
    """

    preserve_node: bool
    preserve_tag: bool
    filter: Predicate | None
    most_hops: int | None
    fan_in: bool
    stamp: str

    @classmethod
    def of(cls, router: Router) -> Shape:
        """Return the shape of a router's copies in a topic of records."""
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
        """Whether a copy has exactly the body of its original."""
        return self.preserve_node and self.preserve_tag and not self.stamp

    def wants(self, original: Original) -> bool:
        """Return whether a record is copied, by the filter and the limit of hops."""
        if self.most_hops is not None and original.hops >= self.most_hops:
            return False
        return self.filter is None or self.filter.matches(tag_of(original.body))


class CopySource(NamedTuple):
    """The source of copies, as their stamps and event ids identify it; `epoch` is that of the log."""

    topic: str
    topic_id: int
    instance: int
    epoch: str

    @classmethod
    def of(cls, page: OriginalPage) -> CopySource:
        """Return the source of a page."""
        return cls(page.topic.name, page.topic.id, page.topic.instance, page.head.epoch)


def cut_records(page: OriginalPage, shape: Shape) -> CopyPage:
    """Return the copies that routers of a shape make of a page, for a topic of records."""
    source = CopySource.of(page)
    return CopyPage.of_records([copy_of(original, shape, source) for original in page.items if shape.wants(original)])


def copy_of(original: Original, shape: Shape, source: CopySource) -> Copy:
    """Return the copy of a record for routers of a shape."""
    kept = original.identity(source.instance) if shape.fan_in else ""
    body = original.body if shape.verbatim else _reworded(original, shape, source)
    return Copy(original.position, original.seq, kept, write_provenance(Provenance(original.hops + 1, kept)), body)


def _reworded(original: Original, shape: Shape, source: CopySource) -> str:
    node, tag, data, meta = read_body(original.body)
    if shape.stamp:
        meta = _stamped(meta, shape.stamp, source, original)
    return write_body(node if shape.preserve_node else None, tag if shape.preserve_tag else None, data, meta)


def _stamped(meta: str | None, router: str, source: CopySource, original: Original) -> str:
    """Return a record's meta with the stamp; the original meta is wrapped if it is not an object, or has many members.

    The stamp is the same whenever the copy is made. It contains the record's time, so that it differs if the seq is
    later assigned to another record, as may happen after a power loss in a topic that is not flushed.
    """
    seq, epoch = original.seq, f"{source.instance}.{original.recorded_at // 1000}"
    stamp = {
        "idempotency_key": f"router:{router}:{source.topic_id}:{epoch}:{seq}",
        "router": router,
        "source_topic": source.topic,
        "source_topic_id": source.topic_id,
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
