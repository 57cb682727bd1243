"""What a node knows of a group, obtained from the worker that serves the group: this worker asks the peers on behalf
of all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from eventd.errors import Unavailable
from eventd.node.membership import Membership

VIEW: Final = "view"
"""The name of this question in the protocol between the workers of a node."""
_ANSWER_SECONDS: Final = 5.0


class ViewQuestion(msgspec.Struct, frozen=True):
    """A question between workers for the view of a group.

    `wait`: seconds to wait for the first answers of its peers.
    """

    group: str
    wait: float


async def answer_view(groups: Mapping[str, Membership], question: bytes) -> bytes:
    """Return the encoded view of a group that this worker serves; empty if it does not serve the group (yet)."""
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
