"""Names of topics and of tokens."""

from __future__ import annotations

import re

from federation.routemaster import TOPIC_NAME

_TOPIC = re.compile(TOPIC_NAME)
_TOKEN = re.compile(r"[a-z0-9:_-]{1,64}")


def is_topic(text: object) -> bool:
    """Return whether a topic can have this name."""
    return isinstance(text, str) and _TOPIC.fullmatch(text) is not None


def is_token(text: str) -> bool:
    """Return whether a token, or the name of one, can be this text."""
    return _TOKEN.fullmatch(text) is not None
