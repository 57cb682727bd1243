"""Answers members of a group that ask for this node's links, but no more often than a map needs them.

A question has no effect, so its nonce is not stored: nothing is written for an open map. A captured question is
useless in any case: each question of a node must be signed later than its last one, and after this process began to
serve the group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import SECOND, Clock
from federation.errors import Conflict, NotShared, TooManyQueries
from federation.signing import VerifiedRequest
from federation.status import NodeReport, read_status_question, write_status_answer
from federation.wire import StatusQuery

SHORTEST_SECONDS: Final = 2.0
"""The shortest time between two answered questions of one node. A map asks every 10 s."""
MOST_ASKERS: Final = 1024
"""Maximum number of undeclared nodes whose questions are remembered: a member can invent names."""


class LinkReporter(Protocol):
    """Interface that returns a node's report about its links in a group."""

    async def report(self, hops: int) -> tuple[NodeReport, Sequence[NodeReport]]:
        """Return the report of this node and the known reports of its peers.

        With `hops`, the peers are asked again for a while.
        """
        ...


@dataclass(frozen=True, slots=True)
class _AnsweredQuestion:
    """The last answered question of a node: when it was signed (seconds since 1970), and answered (monotonic)."""

    created: int
    at: float


class StatusQuestions:
    """Answers the questions about one group's links."""

    def __init__(self, reporter: LinkReporter, clock: Clock) -> None:
        self._reporter = reporter
        self._clock = clock
        self._since = clock.now() // SECOND
        self._asked: dict[str, _AnsweredQuestion] = {}  # most recent last

    async def answer(
        self, request: VerifiedRequest, query: StatusQuery, body: bytes, config: GroupConfig, peers: Collection[str]
    ) -> bytes:
        """Return the encoded answer. Raises `NotShared`, `Malformed`, `Conflict` for a replay, `TooManyQueries`."""
        if not config.shares_links:
            raise NotShared("this node does not tell of its links")
        question = read_status_question(body)
        self._require_new(query.from_node, request.created, config.replay_window // SECOND, peers)
        own, others = await self._reporter.report(question.hops)
        return write_status_answer(query, own, others)

    def _require_new(self, node: str, created: int, window: int, peers: Collection[str]) -> None:
        before, now = self._asked.get(node), self._clock.monotonic()
        if created < self._since or (before is not None and created <= before.created):
            raise Conflict("this request is not signed later than the last one (replay)")
        if before is not None and now - before.at < SHORTEST_SECONDS:
            raise TooManyQueries(f"a node may ask for links every {SHORTEST_SECONDS:g} s")
        if before is None and node not in peers:
            self._make_room(now, 2 * window, peers)
        self._asked.pop(node, None)
        self._asked[node] = _AnsweredQuestion(created, now)

    def _make_room(self, now: float, seconds: float, peers: Collection[str]) -> None:
        """Forget undeclared nodes whose last question is too old to be accepted again. Raises `TooManyQueries`."""
        if len(self._asked) < MOST_ASKERS:
            return
        strangers = {name: asked for name, asked in self._asked.items() if name not in peers}
        for name, asked in strangers.items():
            if now - asked.at > seconds:
                del self._asked[name]
        if sum(name not in peers for name in self._asked) >= MOST_ASKERS:
            raise TooManyQueries("too many nodes that are not declared as peers ask for links")
