"""Checks that the topics of callbacks exist and the addresses in their URLs are allowed, which other resources cannot
tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventd.log.core.topic_row import find_topic
from eventd.net.address_rules import AddressRules
from eventd.resources.kinds.registry import EVENT_CALLBACK, TOPIC
from eventd.resources.reading.documents import Draft
from eventd.resources.reading.problems import Problem
from eventd.store.engine.database import Connection
from eventd.text.topic_names import is_topic_name


def callback_problems(conn: Connection, drafts: Sequence[Draft], rules: AddressRules) -> Iterator[Problem]:
    """Yield problems of the callbacks among the drafts, also of callbacks that have other problems.

    A topic must exist and hold records: the jobs of a queue are claimed by its workers. An address in a URL must be
    allowed by `rules`; of a host name only the port is checked here, and its addresses when a connection is made.
    """
    declared = {draft.identity.name: draft for draft in drafts if draft.identity and draft.identity.kind == TOPIC.name}
    for draft in drafts:
        spec = draft.data.get("spec") if draft.node.text("kind") == EVENT_CALLBACK.name else None
        if not isinstance(spec, dict):
            continue
        source, url = spec.get("source"), spec.get("url")
        topic = source.get("topic") if isinstance(source, dict) else None
        if isinstance(topic, str) and is_topic_name(topic):
            yield from _topic_problems(conn, draft, topic, declared.get(topic))
        if isinstance(url, str) and (reason := rules.forbidden_url(url)):
            yield draft.problem(("spec", "url"), reason, rules.hint)


def _topic_problems(conn: Connection, draft: Draft, name: str, declared: Draft | None) -> Iterator[Problem]:
    """Yield a problem if the topic is missing or is a queue.

    `declared`: the Topic resource among the drafts, if any.
    """
    path, topic = ("spec", "source", "topic"), find_topic(conn, name)
    if topic is None and declared is None:
        yield draft.problem(path, f"topic {name} does not exist", f"create it first: routerctl topic put {name}")
    elif topic.is_queue if topic else declared is not None and _is_queue(declared):
        yield draft.problem(path, f"topic {name} is a queue", "name a topic of records")


def _is_queue(topic: Draft) -> bool:
    spec = topic.data.get("spec")
    return isinstance(spec, dict) and spec.get("type") == "queue"
