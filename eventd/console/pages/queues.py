"""Queues: all of the node with their oldest ready jobs, and one with its leases, which an operator extends or ends."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.topic_actions import read_number
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.view.node_view import V0Request
from eventd.errors import Conflict, NotFound
from eventd.text.plural import counted

SHOW: Final = V0Request("GET", ("topics", "{topic}"))
_LONGEST_MS: Final = 86_400_000
_MOST_RETRIED: Final = 1000


async def show_queues(visit: Visit) -> ShownPage:
    """Show a page of the queues by name, or of those whose names begin with `prefix` of the query."""
    found = await visit.view.call(
        "queues.list", prefix=visit.asked("prefix"), after=visit.asked("after"), limit=visit.limit
    )
    return ShownPage("Queues", "queues.html", {"prefix": visit.asked("prefix"), **found}, live=not visit.asked("after"))


async def show_queue(visit: Visit) -> ShownPage:
    """Show one queue, and a page of its leased and delayed jobs. Raises NotFound, and Conflict for other topics."""
    name = visit.names["topic"]
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    if topic["type"] != "queue":
        raise Conflict(f"the topic {name} is a log, not a queue", hint="the page Topics shows it")
    found = await visit.view.call("queues.list", prefix=name, limit=1)
    queue = next((one for one in found["queues"] if one["queue"] == name), None)
    leases: dict[str, Any] = {"leases": None, "next": None}
    if visit.view.may("queues.leases") and visit.view.sees(name):
        leases = await visit.view.call("queues.leases", topic=name, after=visit.asked("after"), limit=visit.limit)
    data = {"name": name, "queue": queue, "topic": topic, **leases}
    return ShownPage(name, "queue.html", data, live=not visit.asked("after"))


async def ask_extend(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask how long a client may keep a job."""
    node, seq = params.get("node", ""), params.get("seq", "")
    field = FormField("lease_ms", "Milliseconds from now", "Such as 60000; at most a day.", required=True)
    lines = (f"The client {node} keeps the job {seq} for that long; no other client gets it.",)
    return Question(f"Extend the lease of job {seq}", lines, fields=(field,))


async def ask_return(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a job is taken from its client and given back to the queue."""
    node, seq = params.get("node", ""), params.get("seq", "")
    lines = (
        f"The job {seq} is taken from the client {node} and can be claimed again.",
        "If the client still works on it, the job may be done twice: the client cannot acknowledge it any more.",
    )
    field = FormField("delay_ms", "After a delay, in milliseconds", "Empty: at once.")
    return Question(f"Give job {seq} back to {params.get('topic', '')}?", lines, fields=(field,))


def _held(form: dict[str, Any]) -> dict[str, Any]:
    """Return the topic, the client and the job of a form. Raises Invalid."""
    return {
        "topic": form.get("topic", ""),
        "node": form.get("node", ""),
        "seqs": [read_number("seq", str(form.get("seq", "")))],
    }


def _extended(form: dict[str, Any]) -> dict[str, Any]:
    return _held(form) | {"lease_ms": min(_LONGEST_MS, read_number("lease_ms", str(form.get("lease_ms", ""))))}


def _returned(form: dict[str, Any]) -> dict[str, Any]:
    delay = read_number("delay_ms", form["delay_ms"]) if form.get("delay_ms") else 0
    return _held(form) | {"delay_ms": min(_LONGEST_MS, delay)}


def _settled(answer: dict[str, Any]) -> None:
    """Raise Conflict if the client did not hold the job any more."""
    if answer["skipped"]:
        raise Conflict("the client does not hold the job any more", hint="the page of the queue shows its leases now")


async def ask_retry(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before dead letters are returned to their queue."""
    name = params.get("topic", "")
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    letters = topic["config"].get("dead_letter") or ""
    count = await _count(visit, letters)
    most = min(count, _MOST_RETRIED) if count else _MOST_RETRIED
    holds = f" {letters} holds {counted(count, 'record')}." if count else ""
    lines = (
        f"Up to {counted(most, 'dead letter')} of {name} {'is' if most == 1 else 'are'} taken from"
        f" {letters or 'its topic of dead letters'}, the oldest first.{holds}",
        "They become new jobs. Their count of deliveries begins at 0 again.",
    )
    return Question(f"Retry the dead letters of {name}?", lines)


async def _count(visit: Visit, topic: str) -> int:
    """Return the number of records of a topic; 0 if there is none, or if the visitor may not see it."""
    if not topic or not visit.view.may_ask("GET", "topics", topic):
        return 0
    try:
        return int((await visit.view.ask("GET", "topics", topic, touch="false"))["count"])
    except NotFound:
        return 0


def _retried(form: dict[str, Any]) -> dict[str, Any]:
    return {"topic": form.get("topic", ""), "limit": _MOST_RETRIED}


def _returned_some(answer: dict[str, Any]) -> None:
    """Raise Conflict if the queue has no dead letter that could be returned to it."""
    if not answer["retried"] and not answer["complete"]:
        raise Conflict(
            "no dead letter of the queue was found yet", hint="its topic of dead letters is long: retry again"
        )
    if not answer["retried"]:
        raise Conflict("the queue has no dead letter any more", hint="the topic of dead letters shows what it holds")


def _released(form: dict[str, Any]) -> dict[str, Any]:
    return {"topic": form.get("topic", ""), "seqs": [read_number("seqs", str(form.get("seqs", "")))]}


def _ready(answer: dict[str, Any]) -> None:
    """Raise Conflict if the job was not delayed any more."""
    if answer["skipped"]:
        raise Conflict("the job is not delayed any more", hint="the page of the queue shows its leases now")


ACTIONS: Final = {
    "queues.retry": PageAction(
        "Retry dead letters", "Dead letters are jobs again.", ask_retry, prepare=_retried, check=_returned_some
    ),
    "queues.release": PageAction("Retry now", "The job is ready.", prepare=_released, check=_ready),
    "queues.extend": PageAction(
        "Extend",
        "The lease is extended.",
        ask_extend,
        prepare=_extended,
        request=V0Request("POST", ("topics", "{topic}", "extend")),
        check=_settled,
    ),
    "queues.return": PageAction(
        "Give back",
        "The job is back in its queue.",
        ask_return,
        danger=True,
        prepare=_returned,
        request=V0Request("POST", ("topics", "{topic}", "nack")),
        check=_settled,
    ),
}
