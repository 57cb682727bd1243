"""Which configurations a topic of some name may have: one check for requests and for resources."""

from __future__ import annotations

import re
from typing import Final

from eventd.errors import Invalid
from eventd.log.core.topic_config import TopicConfig
from eventd.log.topics.errors import DetailedError
from eventd.text.topic_names import GROUP_PREFIX, SURFACE_TOPIC, TOPIC_NAME

MOST: Final = 2**64 - 1


class InvalidSetting(DetailedError, Invalid):
    """The configuration is not allowed for this topic; `detail` names the wrong member."""


def require_valid(config: TopicConfig, topic: str) -> None:
    """Raise `Invalid` for a configuration that is not allowed for a topic of this name."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, int) and value > MOST:
            raise Invalid(f"`{name}` must be at most {MOST}")
    letters = config.dead_letter
    if letters is None:
        return
    if not re.fullmatch(TOPIC_NAME, letters):
        shown = letters[:255]
        raise InvalidSetting(
            f"`dead_letter` {letters[:80]!r} is not a valid topic name",
            hint="use a letter or digit, then up to 254 letters, digits and any of . _ : -",
            detail={"dead_letter": shown},
        )
    if config.type == "queue" and letters == topic:
        raise InvalidSetting("a queue cannot be its own `dead_letter`", detail={"dead_letter": letters})
    if letters.startswith(GROUP_PREFIX):
        raise InvalidSetting(
            f"`dead_letter` {letters!r} is the topic of an event group",
            hint="name a topic of records",
            detail={"dead_letter": letters},
        )
    if letters == SURFACE_TOPIC:
        raise InvalidSetting(
            f"`dead_letter` {letters!r} is the topic of the Routemaster surface",
            hint="name another topic of records",
            detail={"dead_letter": letters},
        )
