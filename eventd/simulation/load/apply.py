"""Declarations that are made under way, again until the node has taken them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.world import SimulatedWorld

_TRIES: Final = 60
_PAUSE: Final = 0.5


async def apply_insistently(
    world: SimulatedWorld, client: ApiClient, kind: str, documents: Sequence[dict[str, Any]], unit: str
) -> None:
    """Apply resources; `kind` and `unit` are those of the journal's entries.

    Raises TimeoutError if the node does not take them.
    """
    text = "\n---\n".join(msgspec.json.encode(each).decode() for each in documents)
    question = {"sources": [{"name": kind, "text": text}]}
    for _ in range(_TRIES):
        reply = await client.ask(kind, "POST", "/resources/apply", question, seconds=5.0, unit=unit)
        if reply.is_good:
            return
        await world.loop.pause(_PAUSE)
    raise TimeoutError(f"{client.machine.name} does not take the resources of {kind}")
