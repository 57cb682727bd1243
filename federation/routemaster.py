"""The conventions between publishers, subscribers and a Routemaster bus: the names of topics, and the types of
events."""

from __future__ import annotations

from typing import Final, Literal, get_args

TOPIC_NAME: Final = "[a-z_]{1,64}"
"""Regular expression of the name of a topic of the Routemaster surface."""
Action = Literal["create", "update", "delete", "noop"]
"""The type of an event: what happened to the document at its URL."""
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
