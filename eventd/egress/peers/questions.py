"""Asks a peer which events of this node it holds: signed questions, verified answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from eventd.egress.loop.sink import Blocked, LinkError, LinkUnavailable
from eventd.egress.peers.answers import is_of_an_api, link_error
from eventd.egress.transport.transport import Transport
from eventd.errors import Conflict, EventdError, Unavailable
from eventd.net.address_rules import AddressRules
from eventd.net.exchange import Answer
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import Clock
from federation.compare import Ids, KnownEvents, Question, State, Sums, encode_question, read_reply
from federation.errors import BadAnswer, NoSigningKey
from federation.keys import KeyRing
from federation.returned import ReturnedEvents
from federation.signing import sign_request, verify_answer
from federation.wire import VerifyQuery, read_error

R = TypeVar("R", State, Sums, Ids, KnownEvents, ReturnedEvents)

ANSWER_SECONDS = 20.0
"""Seconds that an answer may take: a peer works on it for one second, and may be busy."""
ANSWER_BYTES = 16 << 20
BUSY_SECONDS = 30.0
"""Seconds that a peer may be busy with other questions before the question fails."""


class QueryUnsupported(Exception):
    """The peer does not know this kind of question."""


class HistoryEnded(Exception):
    """The positions of the question belong to a history of the peer's log that has ended."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one peer on behalf of this node. `random` returns random bytes; `rules` judge the peer's addresses."""

    group: GroupConfig
    peer: PeerConfig
    transport: Transport
    ring: KeyRing
    clock: Clock
    random: Callable[[int], bytes]
    rules: AddressRules | None = None

    async def ask(self, question: Question, kind: type[R]) -> R:
        """Return the answer, decoded as the type `kind`; a busy peer is asked again for up to `BUSY_SECONDS`.

        Raises `QueryUnsupported` if the peer does not know the query, `HistoryEnded`, `Unavailable` while the peer
        cannot be queried, and `Conflict` if it refuses, answers without proof, or this node has no signing key.
        """
        body = encode_question(question)
        end = self.clock.monotonic() + BUSY_SECONDS
        while (reply := await self._try(body, kind, may_wait=self.clock.monotonic() < end)) is None:
            pass
        return reply

    async def _try(self, body: bytes, kind: type[R], *, may_wait: bool) -> R | None:
        """Return the answer; None, after a pause, if asking again may help and `may_wait`."""
        query = VerifyQuery(from_node=self.group.node_name, to_node=self.peer.node_name, group=self.group.name)
        try:
            key = self.ring.signer(self.group.node_name)
            signed = sign_request(
                query,
                body,
                key,
                now=self.clock.now(),
                nonce=self.random(16).hex(),
                window=self.group.replay_window,
            )
            headers = signed.headers | {"Accept-Encoding": "identity"}
            url = self.peer.endpoint + query.path
            answer = await self.transport.post(
                url,
                body,
                headers,
                seconds=ANSWER_SECONDS,
                most=ANSWER_BYTES,
                tls=self.peer.tls,
                node=self.peer.node_name,
                rules=self.rules,
            )
            if answer.status == 200:
                verify_answer(signed, answer.status, answer.headers, answer.body, self.ring)
                return read_reply(answer.body, kind)
        except NoSigningKey as error:
            raise Conflict(f"group {self.group.name}: {error.message}") from None
        except LinkError as held:
            raise self._down(held) from None
        except BadAnswer as error:
            raise Conflict(f"{self.peer.node_name} sent an invalid answer: {error.message}") from None
        if kind is ReturnedEvents and answer.status == 400:
            raise QueryUnsupported("the peer does not know the question for events: upgrade it")
        await self._judge(answer, may_wait=may_wait)
        return None

    async def _judge(self, answer: Answer, *, may_wait: bool) -> None:
        """If asking again may help and `may_wait` is true, pause; otherwise raise the error."""
        error = read_error(answer.body)
        code = error.code if error is not None else ""
        if answer.status in (404, 405) and not is_of_an_api(answer):
            raise QueryUnsupported(
                f"the peer answers {answer.status} to the query: its program is too old for it, or a proxy answers"
            )
        if code == "other_history":
            raise HistoryEnded
        detail = error.message if error is not None else ""
        held = link_error(answer, self.peer.endpoint, self.clock.now(), code=code, detail=detail)
        if not may_wait or not (isinstance(held, LinkUnavailable) or code == "replayed"):
            raise self._down(held)
        await self.clock.sleep(min(5.0, (isinstance(held, LinkUnavailable) and held.retry_after) or 0.5))

    def _down(self, held: LinkError) -> EventdError:
        words = f"{self.peer.node_name} cannot be queried: {held.detail}"
        hint = f"routerctl federation links --group {self.group.name} shows the state of the link"
        return Conflict(words, hint=hint) if isinstance(held, Blocked) else Unavailable(words, hint=hint)
