"""What an operator does to topics: create, configure, write to, empty and delete them."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import Visit
from eventd.console.view.node_view import V0Request
from eventd.errors import Invalid, NotFound
from eventd.text.plural import counted

_NUMBERS: Final = ("ttl_ms", "cap_records", "cap_bytes", "lease_ms", "max_deliveries")
_TEXTS: Final = ("durability", "discard", "dead_letter")
_DURABILITIES: Final = ("disk", "fsync", "memory", "ephemeral")
_KEY: Final = "idempotency_key"
_LIMITS: Final = (
    FormField("durability", "Durability", "What is safe before a write is acknowledged.", _DURABILITIES),
    FormField("ttl_ms", "Time to live, in milliseconds", "Older records are removed; empty: none are."),
    FormField("cap_records", "Maximum number of records", "Empty: no limit."),
    FormField("cap_bytes", "Maximum number of bytes", "Empty: no limit."),
    FormField("discard", "When it is full", "Remove the oldest records, or reject writes.", ("old", "reject")),
)
_JOBS: Final = (
    FormField("lease_ms", "Lease of a job, in milliseconds", "Empty: 30,000."),
    FormField("max_deliveries", "Deliveries before a job is a dead letter", "Empty: no limit."),
    FormField("dead_letter", "Topic of dead letters", "Empty: they are dropped."),
)


async def ask_create(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the name and the configuration of a new topic. An existing topic is not changed."""
    fields = (
        FormField("topic", "Name", "Letters, digits and . _ : -", required=True),
        FormField("type", "Type", "The jobs of a queue are each given to one client.", ("log", "queue")),
        *_LIMITS,
        *_JOBS,
    )
    name = params.get("topic", "")
    if name and await _exists(visit, name):
        lines = (f"The topic {name} exists already: choose another name, or configure it on its page.",)
        return Question("Create a topic", lines, fields=fields, ready=False)
    return Question("Create a topic", ("Fields of jobs count for queues only.",), fields=fields)


async def _exists(visit: Visit, name: str) -> bool:
    try:
        await visit.view.ask("GET", "topics", name, touch="false")
    except NotFound:
        return False
    return True


def _configured(form: dict[str, Any]) -> dict[str, Any]:
    """Return the name and the configuration of a form. Raises Invalid for what is not a number."""
    config: dict[str, Any] = {name: form[name] for name in ("topic", "type", *_TEXTS) if form.get(name)}
    return config | {name: read_number(name, form[name]) for name in _NUMBERS if form.get(name)}


def read_number(name: str, text: str) -> int:
    """Return the number that a field of a form holds. Raises Invalid."""
    digits = text.replace(",", "").replace("_", "").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise Invalid(f"`{name}` must be a whole number, not {text[:40]!r}")
    return int(digits)


async def ask_configure(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the limits of a topic; the form holds the present ones.

    `seen` of the parameters identifies the configuration that the form began with, and the limits whose effect, with
    the number of records, the visitor was shown: if either differs now, the question is shown again.
    """
    name, seen = params.get("topic", ""), params.pop("seen", "")
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    config, fields = topic["config"], (*_LIMITS, *_JOBS) if topic["type"] == "queue" else _LIMITS
    present = {one.name: str(config[one.name]) for one in fields if config[one.name]}
    if not seen:
        params |= present
    params["present"] = topic["type"]
    lines = ["Other members of the configuration stay."]
    number, was, shown = [*seen.split("-", 2), "", ""][:3]
    now, (most, exact) = _digest(config), _losses(topic, params)
    chosen = _digest([params.get(one.name) for one in _LIMITS]) if most else ""
    ready = (was, shown) == (now, chosen) and number.isascii() and number.isdigit() and len(number) < 16
    count = int(number) if ready else most
    params["seen"] = f"{count}-{now}-{chosen}"
    if seen and was != now:
        other = [f"{one.label}: {present.get(one.name, 'the default')}" for one in _differing(fields, present, params)]
        lines = ["The topic was configured since this form was opened.", f"Now it has {'; '.join(other)}."]
        lines = lines if other else lines[:1]
    if count:
        what = counted(count, "record")
        lines.append(f"The lower limits remove {'' if exact else 'up to '}{what} at once, for good: the oldest ones.")
    return Question(f"Configure {name}", tuple(lines), count or None, fields, ready=ready, danger=bool(count))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _differing(fields: tuple[FormField, ...], present: dict[str, str], form: dict[str, Any]) -> list[FormField]:
    """Return the fields of a form whose values differ from the present configuration."""
    return [one for one in fields if present.get(one.name, "") != form.get(one.name, "")]


def _losses(topic: dict[str, Any], form: dict[str, Any]) -> tuple[int, bool]:
    """Return how many records the limits of a form remove immediately, and whether the number is exact.

    Otherwise it is an upper bound.
    """
    try:
        limits = {name: read_number(name, form[name]) for name in _NUMBERS if form.get(name)}
    except Invalid:
        return 0, True  # the request is refused
    config, count = topic["config"], int(topic["count"])
    ttl, records, size = (limits.get(name, 0) for name in ("ttl_ms", "cap_records", "cap_bytes"))
    evicts = form.get("discard") != "reject"
    if (ttl and (not config["ttl_ms"] or ttl < config["ttl_ms"])) or (evicts and size and topic["bytes"] > size):
        return count, False
    return max(0, count - records) if evicts and records else 0, True


def _changed(form: dict[str, Any]) -> dict[str, Any]:
    """Return the topic's name and the changes in a form; a field that was emptied gets its default."""
    fields = (*_LIMITS, *_JOBS) if form.get("present") == "queue" else _LIMITS
    given = _configured({name: value for name, value in form.items() if name != "type"})
    return {one.name: None for one in fields} | given


async def ask_write(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the members of a new record."""
    name = params.get("topic", "")
    fields = (
        FormField("data", "Data", "JSON; it is stored as it is written", long=True, required=True),
        FormField("tag", "Tag", "Routers can choose by it"),
        FormField("node", "Node", "The name of the writer"),
    )
    lines = ("Its readers, and routers that read the topic, get it.",)
    return Question(f"Write a record to {name}", lines, fields=fields)


def _written(form: dict[str, Any]) -> dict[str, Any]:
    """Return the topic and a batch of one record. Raises Invalid for data that is not JSON."""
    text = form.get("data", "").strip()
    try:
        msgspec.json.decode(text.encode(), type=msgspec.Raw)
        msgspec.json.decode(text.encode())
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the data is not JSON: {error}", hint='write a value such as {"item": "bolt"}') from None
    keyed = {_KEY: form[_KEY]} if form.get(_KEY) else {}
    record = {"data": msgspec.Raw(text.encode())} | {name: form[name] for name in ("tag", "node") if form.get(name)}
    return {"topic": form.get("topic", ""), "records": [record], "create": False, **keyed}


async def ask_purge(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before all present records of a topic are deleted; later ones stay."""
    name = params.get("topic", "")
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    if "before_seq" not in params:
        params |= {"before_seq": str(topic["next_seq"]), "count": str(topic["count"])}
    count = _count(params)
    what = "jobs, also those that clients hold," if topic["type"] == "queue" else "records"
    lines = (
        f"All {count:,} {what} with a seq below {params['before_seq']} are deleted for good. Readers are not notified.",
        "Records that are written from now on stay, and so do the topic and its routers.",
    )
    return Question(f"Purge {name}?", lines, count=count)


def _count(params: dict[str, Any]) -> int:
    text = str(params.get("count", ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _purged(form: dict[str, Any]) -> dict[str, Any]:
    return {"topic": form.get("topic", ""), "before_seq": read_number("before_seq", str(form.get("before_seq", "")))}


async def ask_delete(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a topic is deleted, and say what is deleted with it."""
    name = params.get("topic", "")
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    params.setdefault("count", str(topic["count"]))
    count = _count(params)
    lines = [f"The topic and its {count:,} records are deleted for good. Its readers get an error."]
    if visit.view.may_ask("GET", "routers"):
        ends = [await visit.view.ask("GET", "routers", **{end: name}) for end in ("source", "dest")]
        routers = sorted({router["router"] for end in ends for router in end["routers"]})
        more = " and more" if any("next_cursor" in end for end in ends) else ""
        lines.append(f"Its routers are deleted, too: {', '.join(routers)}{more}." if routers else "No router uses it.")
    else:
        lines.append("Routers that read or write it are deleted, too.")
    return Question(f"Delete {name}?", tuple(lines), count=count)


def _deleted(form: dict[str, Any]) -> dict[str, Any]:
    return {"topic": form.get("topic", "")}


_TOPIC: Final = ("topics", "{topic}")
ACTIONS: Final = {
    "topics.create": PageAction(
        "Create a topic",
        "The topic is created.",
        ask_create,
        prepare=_configured,
        request=V0Request("PUT", _TOPIC),
    ),
    "topics.configure": PageAction(
        "Configure",
        "The topic is configured.",
        ask_configure,
        prepare=_changed,
        bound="seen",
        request=V0Request("PATCH", _TOPIC),
    ),
    "topics.write": PageAction(
        "Write a record",
        "The record is written.",
        ask_write,
        prepare=_written,
        keyed=_KEY,
        request=V0Request("POST", _TOPIC),
    ),
    "topics.purge": PageAction(
        "Purge",
        "The records are deleted.",
        ask_purge,
        danger=True,
        prepare=_purged,
        bound="before_seq",
        request=V0Request("POST", (*_TOPIC, "delete")),
    ),
    "topics.delete": PageAction(
        "Delete",
        "The topic is deleted.",
        ask_delete,
        danger=True,
        prepare=_deleted,
        bound="count",
        request=V0Request("DELETE", _TOPIC),
    ),
}
