"""Describes a topic's configuration in words, and the consumers that read the topic, for its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import duration, size, whole


def _time(value: int) -> str:
    return duration(value / 1000)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


class _Member(NamedTuple):
    """A member of a configuration: its name, how its value is written, what 0 means, and whether only queues use it."""

    label: str
    write: Callable[[Any], str] = str
    zero: str = ""
    of_queue: bool = False


_WHEN_FULL: Final = {"old": "removes the oldest", "reject": "rejects writes"}
_MEMBERS: Final = {
    "durability": _Member("Durability"),
    "ttl_ms": _Member("Time to live", _time, "unlimited"),
    "cap_records": _Member("Maximum records", whole, "unlimited"),
    "cap_bytes": _Member("Maximum size", size, "unlimited"),
    "discard": _Member("When it is full", lambda value: _WHEN_FULL.get(value, str(value))),
    "priority": _Member("Priority"),
    "auto_priority": _Member("Priority by use", _yes),
    "auto_create": _Member("Created by writes", _yes),
    "idempotency_window_ms": _Member("Repeated writes known for", _time, "not known"),
    "dedupe_node": _Member("Known by their node", _yes),
    "lease_ms": _Member("Lease of a job", _time, of_queue=True),
    "claim_jitter_ms": _Member("Spread of claims", _time, "none", of_queue=True),
    "max_deliveries": _Member("Maximum deliveries", whole, "unlimited", of_queue=True),
    "dead_letter": _Member("Topic of dead letters", of_queue=True),
    "leases_durable": _Member("Leases survive a power failure", _yes, of_queue=True),
}
"""The members that the page shows, in its order. `type` is not among them, because it is shown above, nor is
`durable`, which follows from `durability`."""


def describe_configuration(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the labels and values of a topic's configuration."""
    return [
        (member.label, member.zero if member.zero and not config[name] else member.write(config[name]))
        for name, member in _MEMBERS.items()
        if config.get(name) is not None and (config["type"] == "queue" or not member.of_queue)
    ]


async def find_callbacks(visit: Visit, topic: str) -> list[dict[str, Any]]:
    """Return the callbacks that read a topic; none for a key that may not see them."""
    if not visit.view.may("callbacks.list") or not visit.view.sees(""):
        return []
    known = await visit.look("callbacks.list")
    return [one for one in known.content["callbacks"] if one["topic"] == topic] if known else []
