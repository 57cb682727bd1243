"""Answers members of a group that ask for this node's links, but no more often than a map needs them.

A question has no effect, so its nonce is not stored: nothing is written for an open map. A captured question is
refused in any case: it was signed before this process began to serve the group, or its nonce is remembered in memory.
The order of the times of signing decides nothing, because the asker's clock may be set back between two questions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from eventd.ingress.nonces import repeated
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import SECOND, Clock, StartTime
from federation.errors import Conflict, NotShared, TooManyQueries
from federation.signing import VerifiedRequest
from federation.status import NodeReport, read_status_question, write_status_answer
from federation.wire import StatusQuery

SHORTEST_SECONDS: Final = 2.0
"""The shortest time between two answered questions of one node. A map asks every 10 s."""
MOST_ASKERS: Final = 1024
"""Maximum number of undeclared nodes whose questions are remembered: a member can invent names."""
MOST_ANSWERED: Final = 16_384
"""With this many remembered questions, undeclared nodes are not answered: a member can ask in many names."""


class LinkReporter(Protocol):
    """Interface that returns a node's report about its links in a group."""

    async def report(self, hops: int) -> tuple[NodeReport, Sequence[NodeReport]]:
        """Return the report of this node and the known reports of its peers.

        With `hops`, the peers are asked again for a while.
        """
        ...


@dataclass(frozen=True, slots=True)
class _AnsweredQuestion:
    """An answered question: when it was signed (seconds since 1970), and answered (monotonic)."""

    created: int
    at: float


class StatusQuestions:
    """Answers the questions about one group's links."""

    def __init__(self, reporter: LinkReporter, clock: Clock) -> None:
        self._reporter = reporter
        self._clock = clock
        self._begun = StartTime(clock)
        self._asked: dict[str, float] = {}  # by node, when its last question was answered (monotonic)
        self._answered: dict[tuple[str, str], _AnsweredQuestion] = {}  # by key id and nonce
        self._swept = clock.monotonic()

    async def answer(
        self, request: VerifiedRequest, query: StatusQuery, body: bytes, config: GroupConfig, peers: Collection[str]
    ) -> bytes:
        """Return the encoded answer. Raises `NotShared`, `Malformed`, `Conflict` for a replay, `TooManyQueries`."""
        if not config.shares_links:
            raise NotShared("this node does not tell of its links")
        question = read_status_question(body)
        self._require_new(request, config.replay_window // SECOND, peers)
        own, others = await self._reporter.report(question.hops)
        return write_status_answer(query, own, others)

    def _require_new(self, request: VerifiedRequest, window: int, peers: Collection[str]) -> None:
        node, named, now = request.header.from_node, (request.key.id, request.nonce), self._clock.monotonic()
        if request.created < self._begun.seconds():
            raise Conflict("this request was signed before this node began to serve the group (replay)")
        if named in self._answered:
            raise repeated()
        before = self._asked.get(node)
        if before is not None and now - before < SHORTEST_SECONDS:
            raise TooManyQueries(f"a node may ask for links every {SHORTEST_SECONDS:g} s")
        self._sweep(now, window)
        if node not in peers:
            self._require_room(peers)
        self._asked[node] = now
        self._answered[named] = _AnsweredQuestion(request.created, now)

    def _sweep(self, now: float, window: int) -> None:
        """Forget nodes that may ask again, and questions that could not be accepted again, every few seconds.

        A question is accepted up to a window before and after it was signed. It stays remembered for both windows by
        the monotonic clock, and after the wall clock was set back for as long as that still accepts it.
        """
        if now - self._swept < SHORTEST_SECONDS:
            return
        self._swept, oldest = now, self._clock.now() // SECOND - window
        self._asked = {node: at for node, at in self._asked.items() if now - at < SHORTEST_SECONDS}
        self._answered = {
            named: question
            for named, question in self._answered.items()
            if question.created >= oldest or now - question.at <= 2 * window
        }

    def _require_room(self, peers: Collection[str]) -> None:
        """Raise `TooManyQueries` if the questions of undeclared nodes fill the memory for them."""
        many = len(self._asked) >= MOST_ASKERS and sum(node not in peers for node in self._asked) >= MOST_ASKERS
        if many or len(self._answered) >= MOST_ANSWERED:
            raise TooManyQueries("too many nodes that are not declared as peers ask for links")
