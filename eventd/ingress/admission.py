"""Builds the drafts of received events, and decides whether an event that came over v1 is accepted. Pure."""

from __future__ import annotations

from eventd.log.core.values import Draft, Drafts
from eventd.resources.group_configuration import GroupConfig
from federation.batch import Lines
from federation.errors import V1Refused
from federation.event import Event, encode, expiry_micros, micros
from federation.keys import Key
from federation.loops import encode_path, extend_path


def drafts_of(lines: Lines, sender: str, key_id: str) -> Drafts:
    """Return the drafts for the lines of a v2 batch. The sender is appended to each path; the bodies stay unchanged."""
    paths = {path: extend_path(path, sender) for path in set(lines.paths)}
    return Drafts(
        lines.ids,
        [paths[path] for path in lines.paths],
        lines.bodies,
        frozenset(lines.types),
        frozenset(source for _, source, _ in lines.origins),
        None if lines.expires_first is None else micros(lines.expires_first),
        key_id=key_id,
    )


def draft_of(event: Event, body: str, path: str) -> Draft:
    """Return the draft of a normalised event whose canonical form is `body`."""
    return Draft(event.id, event.source_node, event.type, expiry_micros(event), path, body)


def admit_v1(event: Event, group: GroupConfig, key: Key) -> Draft:
    """Return the draft of an event received over v1.

    Raises `V1Refused` with the messages that v1 senders know. v1 names no sender, so the event's source stands for the
    path: an empty path marks a record as this node's own.
    """
    if event.group != group.name:
        raise V1Refused("validation", f"federation event group is not {group.name}")
    if event.source_node == group.node_name:
        raise V1Refused("validation", "federation event sourceNode is the receiver itself")
    if not key.may_speak_for(event.source_node):
        raise V1Refused("validation", "federation event sourceNode may not be spoken for with this key")
    body = encode(event)
    if len(body) > group.limits.max_event_bytes:
        raise V1Refused("validation", f"federation event is larger than {group.limits.max_event_bytes} bytes")
    return draft_of(event, body.decode(), encode_path((event.source_node,)))
