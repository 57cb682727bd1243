"""Shows one resource as text: its fields with defaults, and its state: links, runs, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventd.cli.federation.links_table import INBOUND, OUTBOUND
from eventd.cli.terminal.output import Column, Output, show_moment, show_span, text
from eventd.cli.terminal.sections import pairs, table
from eventd.text.invisible import printable
from eventd.text.plural import counted

LETTERS = (
    Column("EVENT_ID", text("eventId")),
    Column("REASON", text("reason")),
    Column("SINCE", lambda row: show_moment(row["parkedAt"])),
)
RUNS = (
    Column("RUN", text("id")),
    Column("STARTED", lambda row: show_moment(row["startedAt"])),
    Column("STATUS", text("status")),
    Column("EVENTS", text("events")),
    Column("ATTEMPT", text("attempt")),
    Column("SOURCE", text("dynamicSource")),
    Column("ERROR", text("error")),
)

ATTEMPTS = (
    Column("AT", lambda row: show_moment(row["at"])),
    Column("EVENTS", text("events")),
    Column("ATTEMPT", text("attempt")),
    Column("STATUS", lambda row: str(row["status"] or "-")),
    Column("REASON", text("reason")),
    Column("DETAIL", text("detail")),
)


def describe_resource(out: Output, answer: Mapping[str, Any]) -> None:
    """Print the answer of `resources.describe` as text."""
    resource = answer["resource"]
    metadata = resource["metadata"]
    pairs(
        out,
        {
            "Name": metadata["name"],
            "Kind": resource["kind"],
            "Version": resource["apiVersion"],
            "Generation": metadata["generation"],
            "Created": show_moment(metadata["creationTimestamp"]),
            "Changed": show_moment(answer["updatedAt"]),
            **{f"Label {key}": value for key, value in metadata.get("labels", {}).items()},
            **{f"Annotation {key}": value for key, value in metadata.get("annotations", {}).items()},
        },
    )
    if answer["problem"]:
        out.line(f"Problem:     {answer['problem']}")
    _section(out, "Spec, with defaults", answer.get("effective", resource["spec"]))
    status = answer.get("status", {})
    if "link" in status:
        _peer(out, status)
    elif "links" in status:
        _group(out, status)
    elif "subscription" in status:
        _subscription(out, status)
    elif "callback" in status:
        _callback(out, status["callback"])
    elif "topic" in status or "topicRouter" in status:
        _topic(out, status)
    elif "recentRuns" in status:
        table(out, "Recent runs", RUNS, status["recentRuns"])
    elif "problem" in status:
        out.line(f"\nProblem:     {status['problem']}")


def _topic(out: Output, status: Mapping[str, Any]) -> None:
    """Print the state of a topic, or of a router."""
    out.line()
    if "topicRouter" in status:
        router = status["topicRouter"]
        state = f"{router['state']} ({router['reason']})" if router["reason"] else router["state"] or "-"
        copies = {"Forwarded": router["forwarded"], "Refused": router["refused"], "Lag": router["lag"]}
        pairs(out, {"State": state, **copies})
        return
    topic = status["topic"]
    seqs = f"{topic['earliestSeq']} to {topic['headSeq']}"
    records = f"{topic['records']:,} ({counted(topic['bytes'], 'byte')})"
    pairs(out, {"Records": records, "Seqs": seqs, "Routers": ", ".join(topic["routers"]) or "none"})


def _section(out: Output, title: str, value: Mapping[str, Any]) -> None:
    from eventd.resources.reading.yaml_text import write_yaml

    out.line(f"\n{title}:")
    for line in write_yaml(dict(value)).splitlines():
        out.line(printable(f"  {line}"))


def _peer(out: Output, status: Mapping[str, Any]) -> None:
    link = status["link"]
    out.line("\nLink:")
    pairs(
        out,
        {
            "  State": link["state"] + (f" ({link['reason']})" if link["reason"] else ""),
            "  Since": show_moment(link["since"]),
            "  Waiting": _waiting(link),
            "  Protocol": link["protocol"],
            "  Attempts": link["attempts"],
            "  Next attempt": show_moment(link["retryAt"]),
            "  Last error": link["lastError"],
            "  Last success": show_moment(link["lastSuccessAt"]),
            "  Paused by": link["pausedBy"],
            "  Dead letters": link["deadLetters"],
            "  Repairs": len(link["repairs"]),
        },
    )
    table(out, "Recent dead letters", LETTERS, status["recentDeadLetters"])
    table(out, "Received from it", INBOUND, status["inbound"])


def _subscription(out: Output, status: Mapping[str, Any]) -> None:
    state = status["subscription"]
    waiting = counted(state["waitingEvents"], "event")
    out.line("\nSubscription:")
    pairs(
        out,
        {
            "  Phase": state["phase"],
            "  State": state["state"] + (f" ({state['reason']})" if state["reason"] else ""),
            "  Waiting": f"{waiting}, the oldest for {show_span(state['waitingSeconds'])}"
            if state["waitingEvents"]
            else "nothing",
            "  Attempts": state["attempts"],
            "  Next attempt": show_moment(state["retryAt"]),
            "  Last error": state["lastError"],
            "  Paused by": state["pausedBy"],
            "  Dead letters": state["deadLetters"],
            "  Backfills": len(state["backfills"]),
        },
    )
    table(out, "Recent runs", RUNS, status["recentRuns"])
    table(out, "Recent dead letters", LETTERS, status["recentDeadLetters"])


def _callback(out: Output, state: Mapping[str, Any]) -> None:
    out.line("\nCallback:")
    pairs(
        out,
        {
            "  State": state["state"] + (f" ({state['reason']})" if state["reason"] else ""),
            "  Since": show_moment(state["since"]),
            "  Waiting": show_waiting(state),
            "  Order": state["order"],
            "  Attempts": state["attempts"],
            "  Next attempt": show_moment(state["retryAt"]),
            "  Last error": state["lastError"],
            "  Last success": show_moment(state["lastSuccessAt"]),
            "  Paused by": state["pausedBy"],
            "  Dead letters": state["deadLetters"],
            "  Resends": len(state["resends"]),
        },
    )
    table(out, "Recent attempts", ATTEMPTS, state["recentAttempts"])


def waiting_events(state: Mapping[str, Any]) -> str:
    """Return how many events wait for a callback: as `1000+` if only that many were counted."""
    return str(state["waitingEvents"]) + ("" if state["waitingIsExact"] else "+")


def show_waiting(state: Mapping[str, Any]) -> str:
    """Return how many events wait for a callback, and for how long the oldest of them."""
    if not state["waitingEvents"]:
        return "nothing"
    word = "event" if state["waitingEvents"] == 1 and state["waitingIsExact"] else "events"
    return f"{waiting_events(state)} {word}, the oldest for {show_span(state['waitingSeconds'])}"


def _waiting(link: Mapping[str, Any]) -> str:
    if not link["lagEvents"]:
        return "nothing"
    return f"{counted(link['lagEvents'], 'event')}, the oldest for {show_span(link['lagSeconds'])}"


def _group(out: Output, status: Mapping[str, Any]) -> None:
    out.line("\nStored:")
    names = {"events": "Events", "bytes": "Bytes", "seq": "Last seq", "evictedSeq": "Evicted up to"}
    pairs(out, {f"  {title}": status[name] for name, title in names.items()})
    table(out, "Links", OUTBOUND, status["links"]["outbound"])
    table(out, "Received from", INBOUND, status["links"]["inbound"])
