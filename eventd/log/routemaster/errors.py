"""Why a request to the Routemaster surface is refused."""

from __future__ import annotations

from eventd.errors import Forbidden, NotFound


class TopicClaimed(Forbidden):
    """Another client is the publisher of the topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the topic {topic} is claimed by another client",
            hint="hand its claim over with `routerctl routemaster topic claim`",
        )


class RmTopicNotFound(NotFound):
    """The surface has no topic of this name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the Routemaster surface has no topic {topic[:80]!r}")


class SubscriberNotFound(NotFound):
    """The client has not subscribed."""

    def __init__(self) -> None:
        super().__init__("this client has no subscription")


class NotSubscribed(NotFound):
    """The client has not subscribed to the topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"this client is not subscribed to {topic}")


_HANDLES = "name it by its handle, which `routerctl routemaster token list` shows: several tokens may have one name"


class TokenNotFound(NotFound):
    """No token has this handle, or is this text, which may be a token: the message does not repeat it."""

    def __init__(self) -> None:
        super().__init__("no such token", hint=_HANDLES)
