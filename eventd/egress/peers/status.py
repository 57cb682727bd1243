"""Asks a peer for its links: one signed question, one verified answer, and no retry."""

from __future__ import annotations

from typing import Final, Protocol

from eventd.egress.loop.sink import LinkError
from eventd.egress.peers.answers import is_of_an_api
from eventd.egress.peers.signed_questions import PeerAsker
from eventd.errors import EventdError
from eventd.net.exchange import Answer
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from federation.errors import BadAnswer, NoSigningKey
from federation.peers import PROTOCOL_V1
from federation.status import (
    STATUS_ANSWER_BYTES,
    StatusAnswer,
    StatusQuestion,
    encode_status_question,
    read_status_answer,
)
from federation.wire import StatusQuery, read_error

ANSWER_SECONDS: Final = 3.0
"""How long a peer may take to answer: its links are read in a few milliseconds."""
OLDER, NOT_SHARED, UNREACHABLE, INVALID = "older", "not-shared", "unreachable", "invalid"


class StatusMetrics(Protocol):
    """Interface of the metrics of questions to peers about their links."""

    def status_asked(self, group: str, result: str) -> None: ...


class LinksUntold(Exception):
    """The peer did not report its links. `reason` is `older`, `not-shared`, `unreachable` or `invalid`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StatusAsker(PeerAsker):
    """Asks the peers of a group for their links."""

    async def ask(self, group: GroupConfig, peer: PeerConfig, question: StatusQuestion) -> StatusAnswer:
        """Return the peer's answer. Raises `LinksUntold`."""
        if peer.protocol == PROTOCOL_V1:
            raise LinksUntold(OLDER)
        query = StatusQuery(from_node=group.node_name, to_node=peer.node_name, group=group.name)
        body = encode_status_question(question)
        try:
            answered = await self.post(group, peer, query, body, seconds=ANSWER_SECONDS, most=STATUS_ANSWER_BYTES)
            answer = answered.answer
            if answer.status != 200:
                raise LinksUntold(_judge(answer))
            answered.verify()
            return read_status_answer(answer.body, query)
        except BadAnswer:
            raise LinksUntold(INVALID) from None
        except LinkError as held:
            raise LinksUntold(INVALID if held.reason == "answer_too_large" else UNREACHABLE) from None
        except (EventdError, NoSigningKey):
            raise LinksUntold(UNREACHABLE) from None


def _judge(answer: Answer) -> str:
    """Return the reason that a refusal gives.

    Even an unsigned refusal is believed: the worst that a forged one can do is to hide links.
    """
    error = read_error(answer.body)
    if error is not None and error.code == "not_shared":
        return NOT_SHARED
    if answer.status in (404, 405) and not is_of_an_api(answer):
        return OLDER
    return UNREACHABLE
