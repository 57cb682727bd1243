"""Errors of topics, routers and queues, with details for programs."""

from __future__ import annotations

from typing import Any

from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.text.plural import counted


class DetailedError(EventdError):
    """An error with details: `detail` holds JSON values by name; None if there are none."""

    def __init__(self, message: str, *, hint: str = "", detail: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class TopicNotFound(DetailedError, NotFound):
    """No topic has this name or id."""

    code = "topic_not_found"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist", detail={"topic": topic})


class RouterNotFound(DetailedError, NotFound):
    """No router has this name."""

    code = "router_not_found"

    def __init__(self, router: str) -> None:
        super().__init__(f"router {router!r} does not exist", detail={"router": router})


class Incompatible(DetailedError, Conflict):
    """A topic or router cannot be changed, or used, as requested."""

    code = "topic_exists_incompatible"


class TopicNotEmpty(DetailedError, Conflict):
    """Only an empty topic was to be deleted, but it holds `count` records."""

    code = "topic_not_empty"

    def __init__(self, topic: str, count: int) -> None:
        super().__init__(
            f"the topic {topic!r} contains {counted(count, 'record')}", detail={"topic": topic, "count": count}
        )


class NotAQueue(DetailedError, Conflict):
    """The topic is a log: its records cannot be claimed."""

    code = "not_a_queue"

    def __init__(self, topic: str) -> None:
        hint = "make a queue with type: queue when the topic is created"
        super().__init__(f"the topic {topic!r} is a log, not a queue", hint=hint, detail={"topic": topic})


class RouterCycle(DetailedError, Conflict):
    """The router would close a forbidden cycle; `cycle` lists its topics in order, the first one again at the end."""

    code = "router_cycle"

    def __init__(self, cycle: list[str]) -> None:
        hint = "set fan_in in every router of the cycle or, if it contains no group, allow_cycle in this router"
        super().__init__(f"records would circulate: {' -> '.join(cycle)}", hint=hint, detail={"cycle": cycle})


class BatchTooLarge(DetailedError, Invalid):
    """A request with too many records, seqs or bytes."""

    code = "batch_too_large"


class RecordTooLarge(DetailedError, Invalid):
    """The record is too large for any topic, or the batch for the limits of a topic that refuses writes over them."""

    code = "record_too_large"


class TopicFull(DetailedError):
    """A topic that refuses writes over its limits has no room; no record was dropped."""

    code = "topic_full"


class Throttled(DetailedError):
    """A limit of the node, an API key or a connection is reached; the same request may succeed later."""

    code = "throttled"

    @classmethod
    def by(cls, limit: str, most: int) -> Throttled:
        """Return the error for reaching the limit of this name, which is `most`."""
        return cls(f"the limit {limit} of {most} is reached", detail={"limit": limit, "max": most})
