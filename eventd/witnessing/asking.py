"""Asks a peer about histories: one signed question, one verified answer, and no retry."""

from __future__ import annotations

from typing import Final, TypeVar

from eventd.egress.loop.sink import LinkError
from eventd.egress.peers.answers import is_of_an_api
from eventd.egress.peers.signed_questions import PeerAsker
from eventd.errors import EventdError
from eventd.net.exchange import Answer
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from federation.errors import BadAnswer, NoSigningKey
from federation.history.exchange import (
    HISTORY_ANSWER_BYTES,
    ConsistencyAnswer,
    HistoryQuestion,
    KeysAnswer,
    NoteAnswer,
    ProveAnswer,
    RangeAnswer,
    TilesAnswer,
    WitnessAnswer,
    encode_history,
    read_history_answer,
)
from federation.history.witnessing import KeySource
from federation.keys import Algorithm, Key
from federation.wire import ErrorAnswer, HistoryQuery, read_error

R = TypeVar("R", WitnessAnswer, KeysAnswer, ConsistencyAnswer, TilesAnswer, NoteAnswer, RangeAnswer, ProveAnswer)

ANSWER_SECONDS: Final = 10.0
"""How long a peer may take to answer."""
OLDER, UNREACHABLE, INVALID, BUSY, REFUSED = "older", "unreachable", "invalid", "busy", "refused"


class HistoryUntold(Exception):
    """The peer did not answer the question.

    `reason`: `older` (it keeps no history, or its program is too old for it), `unreachable`, `invalid`, `busy`, or
    `refused`, with its `error`. `cause`: why an answer is `invalid`, as `BadAnswer` says.
    """

    def __init__(self, reason: str, error: ErrorAnswer | None = None, detail: str = "", cause: str = "") -> None:
        super().__init__(detail or (error.message if error else reason))
        self.reason = reason
        self.error = error
        self.cause = cause

    @property
    def is_fault(self) -> bool:
        """Return whether the peer has answered what it must not.

        One that signs with a key that is not known here has not: while keys are replaced, one node has the new one
        before the other.
        """
        return self.reason == INVALID and self.cause != "unknown_key"


def source_of(key: Key, node: str) -> KeySource:
    """Return how strong a node's word on its keys is in a message that is signed with this link key."""
    alone = key.algorithm is Algorithm.ED25519 and key.owner == node
    return KeySource.OWNED if alone else KeySource.SHARED


class HistoryAsker(PeerAsker):
    """Asks the peers of a group about histories."""

    async def ask(
        self, group: GroupConfig, peer: PeerConfig, question: HistoryQuestion, kind: type[R]
    ) -> tuple[R, KeySource]:
        """Return the answer, and how strong the peer's word on its keys is. Raises `HistoryUntold`."""
        query = HistoryQuery(from_node=group.node_name, to_node=peer.node_name, group=group.name)
        body = encode_history(question)
        try:
            answered = await self.post(group, peer, query, body, seconds=ANSWER_SECONDS, most=HISTORY_ANSWER_BYTES)
            answer = answered.answer
            if answer.status != 200:
                raise _judge(answer)
            signer = answered.verify()
            return read_history_answer(answer.body, kind), source_of(signer, peer.node_name)
        except BadAnswer as error:
            raise HistoryUntold(INVALID, detail=error.message, cause=error.reason) from None
        except LinkError as held:
            raise HistoryUntold(INVALID if held.reason == "answer_too_large" else UNREACHABLE) from None
        except (EventdError, NoSigningKey):
            raise HistoryUntold(UNREACHABLE) from None


def _judge(answer: Answer) -> HistoryUntold:
    """Return what a refusal means.

    Even an unsigned refusal is believed: a forged one can only delay a cosignature, and a note in it proves itself.
    """
    error = read_error(answer.body)
    if answer.status in (404, 405) and not is_of_an_api(answer):
        return HistoryUntold(OLDER)
    if answer.status in (429, 503):
        return HistoryUntold(BUSY, error)
    return HistoryUntold(REFUSED if error is not None else UNREACHABLE, error)
