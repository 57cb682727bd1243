"""Checks callbacks against what is not declared: the topics that exist, and the addresses that are allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from eventd.log.core.topic_row import find_topic
from eventd.net.address_rules import AddressRules
from eventd.net.literal_address import literal_address
from eventd.resources.kinds.registry import EVENT_CALLBACK
from eventd.resources.reading.documents import Draft
from eventd.resources.reading.problems import Problem
from eventd.store.engine.database import Connection


def callback_problems(conn: Connection, drafts: Sequence[Draft], rules: AddressRules) -> Iterator[Problem]:
    """Yield the problems of the callbacks among the drafts, which may also have others.

    A topic must exist, and not be a queue, whose jobs are claimed. An
    address in a URL must be allowed by `rules`; a name is judged at each connection.
    """
    for draft in drafts:
        identity, spec = draft.identity, draft.data.get("spec")
        if identity is None or identity.kind != EVENT_CALLBACK.name or not isinstance(spec, dict):
            continue
        source = spec.get("source")
        topic = source.get("topic") if isinstance(source, dict) else None
        if isinstance(topic, str) and topic and not topic.startswith("group:"):
            yield from _topic_problems(conn, draft, topic)
        url = spec.get("url")
        if isinstance(url, str):
            yield from _url_problems(draft, url, rules)


def _topic_problems(conn: Connection, draft: Draft, name: str) -> Iterator[Problem]:
    path, topic = ("spec", "source", "topic"), find_topic(conn, name)
    if topic is None:
        yield draft.problem(path, f"topic {name} does not exist", f"create it first: routerctl topic create {name}")
    elif topic.is_queue:
        yield draft.problem(path, f"topic {name} is a queue", "jobs are claimed; name a topic of records")


def _url_problems(draft: Draft, url: str, rules: AddressRules) -> Iterator[Problem]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme.lower() == "https" else 80)
    except ValueError:
        return  # reported with the field itself
    address = literal_address(host) if host else None
    if address is not None and (reason := rules.judge(str(address), host, port)):
        yield draft.problem(("spec", "url"), reason)
