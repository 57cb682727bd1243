"""Which questions for links are answered, whatever the wall clocks of the two nodes did; replays are refused always."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from eventd.ingress import status
from eventd.ingress.status import MOST_ANSWERED, SHORTEST_SECONDS, StatusQuestions
from eventd.resources.group_configuration import GroupConfig, LimitsConfig, RetentionConfig
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from federation.errors import Conflict, TooManyQueries
from federation.keys import Key
from federation.signing import VerifiedRequest
from federation.status import NodeReport
from federation.wire import StatusQuery

HOUR = 3600
WINDOW = 300
CONFIG = GroupConfig(
    name="g",
    node_name="b",
    protocols=frozenset({"v2"}),
    listen=None,
    replay_window=WINDOW * SECOND,
    secret_file="",
    keys=(),
    retention=RetentionConfig(max_events=None, max_age=None, max_bytes=None, keep_undelivered=True, ids=1),
    limits=LimitsConfig(1, 1, 1, 1, 1),
)
KEY = Key.hmac("shared", "0123456789abcdef0123456789abcdef")


class Links:
    """A reporter of no links."""

    async def report(self, hops: int) -> tuple[NodeReport, Sequence[NodeReport]]:
        return NodeReport(node="b"), ()


class Asker:
    """Signs questions of nodes, by a clock that is `ahead` of the receiver's, and asks them as often as is allowed."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.questions = StatusQuestions(Links(), clock)
        self._nonces = count()

    def signed(self, ahead: int = 0, node: str = "a") -> VerifiedRequest:
        header = StatusQuery(from_node=node, to_node="b", group="g")
        created = self.clock.now() // SECOND + ahead
        return VerifiedRequest(header, KEY, "", "", f"nonce-{next(self._nonces):016}", 0, created)

    async def send(self, request: VerifiedRequest, peers: Sequence[str] = ("a",)) -> None:
        header = request.header
        assert isinstance(header, StatusQuery)
        await self.questions.answer(request, header, b"{}", CONFIG, peers)

    async def ask(self, ahead: int = 0) -> VerifiedRequest:
        """Ask the next question, and return it: captured."""
        self.clock.advance(SHORTEST_SECONDS)
        request = self.signed(ahead)
        await self.send(request)
        return request

    async def refuses(self, request: VerifiedRequest) -> bool:
        """Return whether a question is refused as a replay."""
        try:
            await self.send(request)
        except Conflict:
            return True
        return False

    def step(self, seconds: int) -> None:
        """Set the receiver's wall clock."""
        self.clock.set_wall(self.clock.now() + seconds * SECOND)


@pytest.fixture
def asker() -> Asker:
    return Asker(ManualClock())


@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR])
async def test_a_clock_that_is_corrected_after_the_start_refuses_no_question(asker: Asker, step: int) -> None:
    asker.step(step)
    await asker.ask()
    assert await asker.refuses(asker.signed(-3)), "it was signed before the start"


async def test_an_asker_whose_clock_is_set_back_is_answered_again_at_once(asker: Asker) -> None:
    ahead = await asker.ask(WINDOW)
    await asker.ask()
    assert await asker.refuses(ahead)


async def test_nodes_whose_clocks_are_set_back_together_talk_on(asker: Asker) -> None:
    await asker.ask()
    asker.step(-HOUR)
    await asker.ask()


async def test_a_question_is_answered_once_while_its_time_of_signing_is_accepted(asker: Asker) -> None:
    captured = await asker.ask(WINDOW)
    while captured.created >= asker.clock.now() // SECOND - WINDOW:
        assert await asker.refuses(captured)
        asker.clock.advance(50)
        await asker.ask()


async def test_a_question_from_before_the_clock_was_set_back_stays_refused_until_it_is_too_old(asker: Asker) -> None:
    captured = await asker.ask()
    asker.step(-HOUR)
    for _ in range(0, HOUR + WINDOW, 50):
        assert await asker.refuses(captured)
        asker.clock.advance(48)
        await asker.ask()


async def test_questions_that_are_too_old_take_no_memory(asker: Asker) -> None:
    for _ in range(3):
        await asker.ask()
    asker.clock.advance(2 * WINDOW + 1)
    await asker.ask()
    assert len(asker.questions._answered) == 1


async def test_questions_of_invented_names_are_bounded_and_keep_no_peer_from_its_answer(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_ANSWERED > status.MOST_ASKERS
    monkeypatch.setattr(status, "MOST_ANSWERED", 3)
    for number in range(3):
        await asker.send(asker.signed(node=f"stranger{number}"))
    asker.clock.advance(SHORTEST_SECONDS)
    with pytest.raises(TooManyQueries):
        await asker.send(asker.signed(node="stranger9"))
    await asker.ask()
