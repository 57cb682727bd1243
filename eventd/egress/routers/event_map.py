"""Converts a record to an event of a group by templates, with defaults. Pure.

A template is a text with `${…}` in it: `${node}`, `${tag}`, `${topic}`, `${seq}`, `${id}`, `${data}` and `${meta}` as
JSON, and `${data.a.b}` for a member of `data` or `meta`: a text without quotes, any other value as JSON. A missing
value is empty. `$$` stands for a dollar sign.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from eventd.egress.routers.projection import CopySource, EventMap, Router, Shape
from eventd.errors import Invalid
from eventd.log.core.records import UNTAGGED, RecordParts, read_body
from eventd.log.core.values import Draft
from eventd.log.routers.source import CopyFailure, CopyPage, Original, OriginalPage
from eventd.resources.group_configuration import GroupConfig
from federation.errors import MessageError
from federation.event import DECODER, Event, encode, expiry_micros, from_micros, new_event_id, normalise

BAD_EVENT = "bad_event"
"""The reason of a dead letter whose record gives an event that is not valid, or too large for the group."""

_FIELD = re.compile(r"\$(?:\$|\{([^{}]*)\}|)")
_NAMES = ("node", "tag", "topic", "seq", "id", "data", "meta")
_TREES = ("data", "meta")


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The values that templates can use. `id` is the id that copies of the record share, `seq` its seq in `topic`."""

    stored: RecordParts
    topic: str
    seq: int
    id: str
    trees: dict[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """Return the value of `${name}`; empty if the record has none."""
        root, _, path = name.partition(".")
        if path:
            return _written(_member(self._tree(root), path.split(".")))
        if root in ("topic", "seq", "id"):
            return str(getattr(self, root))
        return getattr(self.stored, root) or ""

    def _tree(self, root: str) -> Any:
        if root not in self.trees:
            text = getattr(self.stored, root)
            self.trees[root] = None if text is None else msgspec.json.decode(text)
        return self.trees[root]


def _member(tree: Any, path: list[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def fill(template: str, fields: RecordFields) -> str:
    """Return the text of a template with its fields filled in."""
    return _FIELD.sub(lambda found: "$" if found[1] is None else fields.value(found[1]), template)


@dataclass(frozen=True, slots=True)
class RenderedEvent:
    """The fields of an event that come from its record."""

    type: str
    subject: str
    id: str
    payload: Mapping[str, str]


def render_event(fields: RecordFields, templates: EventMap | None) -> RenderedEvent:
    """Return the event's fields for a record; the event's `id` is empty unless a template gives one."""
    templates = templates or EventMap()
    usual = fields.stored.tag or UNTAGGED
    payload = {"data": fields.stored.data} | ({"meta": fields.stored.meta} if fields.stored.meta is not None else {})
    if templates.payload is not None:
        payload = {name: fill(template, fields) for name, template in templates.payload.items()}
    return RenderedEvent(
        usual if templates.type is None else fill(templates.type, fields),
        fill(templates.subject or "", fields),
        fill(templates.id or "", fields),
        payload,
    )


def check_map(templates: EventMap) -> None:
    """Raise `Invalid` for a template with an unknown name."""
    texts = {"type": templates.type, "subject": templates.subject, "id": templates.id}
    texts |= {f"payload.{name}": text for name, text in (templates.payload or {}).items()}
    for place, text in texts.items():
        for found in _FIELD.finditer(text or ""):
            _check_field(place, found[0], found[1])


def _check_field(place: str, written: str, name: str | None) -> None:
    if written == "$$":
        return
    root, dot, path = (name or "").partition(".")
    if root not in _NAMES or (dot and (root not in _TREES or "" in path.split("."))):
        known = ", ".join(f"${{{each}}}" for each in _NAMES)
        raise Invalid(
            f"map.{place}: {written[:40]!r} is not a member of a record",
            hint=f"use {known} or a member like ${{data.name}}; write $$ for a dollar sign",
        )


def cut_events(page: OriginalPage, router: Router, group: GroupConfig) -> CopyPage:
    """Return the copies of a page that a router makes for a group.

    Records that give no valid event are its `failures`, which become dead letters.
    """
    shape, source = Shape.of(router), CopySource.of(page)
    made: list[tuple[Original, Draft]] = []
    failures: list[CopyFailure] = []
    for original in filter(shape.wants, page.items):
        event_id = _event_id(original, router, source)
        try:
            made.append((original, _draft(original, event_id, router, source, group)))
        except (MessageError, ValueError) as error:
            words = error.message if isinstance(error, MessageError) else str(error)
            failures.append(CopyFailure(original.position, event_id, BAD_EVENT, words))
    return CopyPage.of_events(made, failures, keeps=router.options.fan_in)


def _event_id(original: Original, router: Router, source: CopySource) -> str:
    """Return the id of a copy for which no template gives one.

    It is the same at every attempt; with `fan_in` it is the original's id.
    """
    if router.options.fan_in:
        return original.identity(source.instance)
    place = f"{router.name}\n{source.epoch}\n{original.position}"
    return new_event_id(original.recorded_at, hashlib.sha256(place.encode()).digest())


def _draft(original: Original, event_id: str, router: Router, source: CopySource, group: GroupConfig) -> Draft:
    is_event = original.event and router.options.map is None
    event = (
        _event_in_group(original, event_id, router, group)
        if is_event
        else _event_of(original, event_id, router, source, group)
    )
    event = normalise(event, now=original.recorded_at)
    body = encode(event)
    if len(body) > group.limits.max_event_bytes:
        raise ValueError(f"{len(body)} bytes are over the limit of {group.limits.max_event_bytes} of the group")
    return Draft(event.id, event.source_node, event.type, expiry_micros(event), "", body.decode())


def _event_in_group(original: Original, event_id: str, router: Router, group: GroupConfig) -> Event:
    """Return an event of one group as an event of another group.

    The router's map decides whether node and type are kept.
    """
    rendered = DECODER.decode(original.event)
    return msgspec.structs.replace(
        rendered,
        id=event_id,
        group=group.name,
        source_node=rendered.source_node if router.options.preserve_node else group.node_name,
        type=rendered.type if router.options.preserve_tag else UNTAGGED,
        dedupe_key="" if rendered.dedupe_key == rendered.id else rendered.dedupe_key,
    )


def _event_of(original: Original, event_id: str, router: Router, source: CopySource, group: GroupConfig) -> Event:
    """Return a record as an event of the group."""
    stored, options = read_body(original.body), router.options
    kept = stored._replace(
        node=stored.node if options.preserve_node else None, tag=stored.tag if options.preserve_tag else None
    )
    rendered = render_event(
        RecordFields(kept, source.topic, original.seq, original.identity(source.instance)), options.map
    )
    return Event(
        id=rendered.id or event_id,
        group=group.name,
        source_node=kept.node or group.node_name,
        type=rendered.type,
        subject=rendered.subject,
        payload=dict(rendered.payload),
        observed_at=from_micros(original.recorded_at),
    )
