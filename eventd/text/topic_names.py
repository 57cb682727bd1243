"""Names of topics, and those that stand for topics which the node writes itself."""

from __future__ import annotations

import re
from typing import Final

TOPIC_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"
"""Regular expression of the name of a topic."""
ROUTER_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}"
"""Regular expression of the name of a router."""
GROUP_PREFIX: Final = "group:"
"""Prefix of the names of groups' topics."""
SURFACE_TOPIC: Final = "routemaster"
"""The name of the topic of the Routemaster surface."""
TOPICS_VERSION: Final = "topic.routerd.net/v1alpha1"
"""The apiVersion of the kinds `Topic` and `TopicRouter`."""
TOPIC_KIND: Final = "Topic"
ROUTER_KIND: Final = "TopicRouter"


def is_topic_name(text: str) -> bool:
    """Return whether a topic of records can have this name; False for the topic of a group."""
    return bool(re.fullmatch(TOPIC_NAME, text)) and not text.startswith(GROUP_PREFIX)
