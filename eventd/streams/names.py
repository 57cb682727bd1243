"""Names of streams and caches, and the topic behind a stream."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

TOPIC: Final = "stream:"
"""Beginning of the names of topics that are streams: `stream:TENANT:NAMESPACE:STREAM`."""
DEFAULT: Final = "default"
"""The namespace, and the cache, that apply if a request leaves them out, where that is allowed."""
NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
_NAME: Final = re.compile(NAME)
_MOST_SHOWN: Final = 1024
"""Maximum number of characters of a name in an answer. It is high because some clients compare the text with the name
that they sent."""


class StreamName(NamedTuple):
    """A stream: its tenant, namespace and own name."""

    tenant: str
    namespace: str
    stream: str

    @property
    def is_possible(self) -> bool:
        """Return whether a stream may have this name; without colons and slashes, no two have the same topic."""
        return all(map(is_name, self))

    @property
    def topic(self) -> str:
        """Return the name of its topic."""
        return TOPIC + ":".join(self)

    @property
    def resource(self) -> str:
        """Return the stream's name in the form that patterns of permissions match:
        `stream:TENANT/NAMESPACE/STREAM`."""
        return "stream:" + "/".join(self)


class CacheName(NamedTuple):
    """A cache: its tenant, namespace and own name."""

    tenant: str
    namespace: str
    cache: str

    @property
    def resource(self) -> str:
        """Return the cache's name in the form that patterns of permissions match: `cache:TENANT/NAMESPACE/CACHE`."""
        return "cache:" + "/".join(self)


def is_name(text: str) -> bool:
    """Return whether a tenant, namespace, stream or cache may have this name."""
    return _NAME.fullmatch(text) is not None


def cut_name(text: str) -> str:
    """Return a name for an answer; a very long one is cut, so that the answer stays small."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def stream_of(topic: str) -> StreamName | None:
    """Return the stream whose events are in this topic; None if the topic does not belong to a stream."""
    if not topic.startswith(TOPIC):
        return None
    parts = topic.removeprefix(TOPIC).split(":")
    return StreamName(*parts) if len(parts) == 3 and all(map(is_name, parts)) else None
