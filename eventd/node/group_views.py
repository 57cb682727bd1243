"""What a node knows of a group, from the worker that serves it: that one asks the peers, for all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from eventd.errors import Unavailable
from eventd.node.membership import Membership

VIEW: Final = "view"
"""The name of the question among the workers."""
_ANSWER_SECONDS: Final = 5.0


class ViewQuestion(msgspec.Struct, frozen=True):
    """Asks for what is known of a group; `wait`: seconds to wait for the first answers of its peers."""

    group: str
    wait: float


async def answer_view(groups: Mapping[str, Membership], question: bytes) -> bytes:
    """Return the encoded view of a group that this worker serves; empty if it does not (yet)."""
    asked = msgspec.json.decode(question, type=ViewQuestion)
    group = groups.get(asked.group)
    return b"" if group is None else msgspec.json.encode(await group.reports.view(asked.wait))


async def read_view(ask: Callable[..., Awaitable[bytes | None]], group: str, wait: float) -> bytes:
    """Return the encoded view of a group, by `WorkerPeers.ask_worker_of`. Raises `Unavailable`."""
    question = msgspec.json.encode(ViewQuestion(group, wait))
    answer = await ask(group, VIEW, question, seconds=wait + _ANSWER_SECONDS)
    if not answer:
        raise Unavailable(f"the process that serves the group {group} does not answer", hint="try again in a moment")
    return answer
