"""One signed question to a peer, over the transport of its link; and the verification of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from eventd.egress.transport.transport import Transport
from eventd.net.address_rules import AddressRules
from eventd.net.exchange import Answer
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import Clock
from federation.keys import Key, KeyRing
from federation.signing import SignedRequest, sign_request, verify_answer
from federation.wire import HistoryQuery, StatusQuery


class QuestionAnswer(NamedTuple):
    """An answer, of which nothing is proven before `verify`; with the question, and the keys at that time."""

    answer: Answer
    question: SignedRequest
    ring: KeyRing

    def verify(self) -> Key:
        """Return the key that signed the answer to this question. Raises `BadAnswer`."""
        answer = self.answer
        return verify_answer(self.question, answer.status, answer.headers, answer.body, self.ring)


@dataclass(frozen=True, slots=True)
class PeerAsker:
    """Asks the peers of a group on behalf of this node.

    `ring` returns the current keys, `random` random bytes; `rules` judge the peers' addresses.
    """

    transport: Transport
    ring: Callable[[], KeyRing]
    clock: Clock
    random: Callable[[int], bytes]
    rules: AddressRules | None

    async def post(
        self,
        group: GroupConfig,
        peer: PeerConfig,
        query: StatusQuery | HistoryQuery,
        body: bytes,
        *,
        seconds: float,
        most: int,
    ) -> QuestionAnswer:
        """Send a question; the answer may take `seconds` and have `most` bytes.

        Raises `LinkError`, `NoSigningKey`, and what `ring` raises.
        """
        ring = self.ring()
        key = ring.signer(group.node_name)
        now, nonce = self.clock.now(), self.random(16).hex()
        question = sign_request(query, body, key, now=now, nonce=nonce, window=group.replay_window)
        answer = await self.transport.post(
            peer.endpoint + query.path,
            body,
            question.headers | {"Accept-Encoding": "identity"},
            seconds=seconds,
            most=most,
            tls=peer.tls,
            node=peer.node_name,
            rules=self.rules,
        )
        return QuestionAnswer(answer, question, ring)
