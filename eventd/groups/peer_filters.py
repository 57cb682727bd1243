"""Describes in words which events the filter of an EventPeer selects, and why it does not select an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from eventd.log.core.values import Record
from eventd.resources.group_configuration import PeerConfig
from federation.loops import decode_path

_MOST_NAMED: Final = 5
"""Maximum number of types, and of prefixes, that a sentence names."""


class FilterMismatch(NamedTuple):
    """The reason why an event is not meant for a peer.

    `remedy`: what to change so that it is; empty if no change would help.
    """

    reason: str
    remedy: str


def describe_filter(peer: PeerConfig) -> str:
    """Return which events the peer is sent, such as `events that entered the log here, only of types dns.*`."""
    selector = peer.selector
    parts = ["events of all nodes" if peer.relay else "events that entered the log at this node"]
    if selector.types:
        parts.append(f"only of types {_named(selector.types)}")
    if selector.subject_prefixes:
        parts.append(f"only with subjects that begin with {_named(selector.subject_prefixes)}")
    return ", ".join(parts)


def explain_mismatch(peer: PeerConfig, record: Record) -> FilterMismatch:
    """Return why the peer's declaration does not select this event, which `Selection.matches` has refused."""
    found = list(_mismatches(peer, record))
    remedies = [one.remedy for one in found if one.remedy]
    possible = remedies if len(remedies) == len(found) else []  # one that cannot be changed decides
    return FilterMismatch("; ".join(one.reason for one in found), "; ".join(possible))


def _mismatches(peer: PeerConfig, record: Record) -> Iterator[FilterMismatch]:
    selector, resource = peer.selector, f"EventPeer {peer.name}"
    if record.path and not peer.relay:
        path = decode_path(record.path)
        if peer.node_name in path:
            yield FilterMismatch(f"the event came from or through {peer.node_name}", "")
        else:
            remedy = (
                f"set spec.relay of {resource} to true, unless {path[0]} sends its events to {peer.node_name} itself"
            )
            yield FilterMismatch(f"the event came from {path[-1]}, and the link does not relay", remedy)
    if not selector.takes_type(record.tag):
        remedy = f"add {record.tag} to spec.types of {resource}"
        yield FilterMismatch(f"its filter takes only types {_named(selector.types)}", remedy)
    prefixes = selector.subject_prefixes
    if prefixes and not record.subject.startswith(prefixes):
        remedy = f"add the beginning of the subject to spec.subjectPrefixes of {resource}"
        yield FilterMismatch(f"its filter takes only subjects that begin with {_named(prefixes)}", remedy)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
