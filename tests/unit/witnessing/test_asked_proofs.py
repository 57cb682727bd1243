"""What a node makes of the answers of a peer that is asked to prove an event: honest ones, busy ones, and lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from eventd.testing import draft
from eventd.witnessing.asked_proofs import PAUSE_SECONDS, TRIES, AskedProofs, TreeToAsk
from eventd.witnessing.asking import BUSY, REFUSED, HistoryUntold
from federation.errors import HistoryError
from federation.history.exchange import NoteAnswer, NoteQuestion, ProveAnswer, ProveQuestion, answer_note, write_hashes
from federation.history.proof_file import ProofFile
from tests.support import plain_history as plain
from tests.support.growing_tree import SECOND, GrowingTree

BODY = draft("e1", node="a").body
Answer = NoteAnswer | ProveAnswer
Change = Callable[[Any], Any]


@dataclass
class ProvingPeer:
    """Answers as an honest peer with these trees does, but for a `change`; `busy`: how often it has no time before."""

    trees: list[GrowingTree]
    change: Change = lambda answer: answer
    busy: int = 0
    pauses: list[float] = field(default_factory=list)
    asked: list[NoteQuestion | ProveQuestion] = field(default_factory=list)

    @property
    def clock(self) -> ProvingPeer:
        return self

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def ask(self, _group: Any, _peer: Any, question: Any, _kind: Any) -> tuple[Answer, None]:
        self.asked.append(question)
        if self.busy:
            self.busy -= 1
            raise HistoryUntold(BUSY)
        tree = next((one for one in self.trees if str(one.origin) == question.tree), None)
        if tree is None:
            return NoteAnswer(), None
        if isinstance(question, NoteQuestion):
            return self.change(answer_note(tree.offer())), None
        leaves = {plain.b64(entry[1:]): index for index, entry in enumerate(tree.entries) if index}
        found = [leaves.get(one, 0) for one in question.digests] + [*question.indices]
        proof = plain.multiproof({*found} - {0}, tree.entries) if any(found) else []
        note = tree.note().encode().decode()
        return self.change(ProveAnswer(indices=tuple(found), proof=write_hashes(tuple(proof)), note=note)), None


def tree_with_event(name: str = "t") -> GrowingTree:
    return GrowingTree(name).grow("before", BODY, "after", "later")


def to_ask(tree: GrowingTree, leaf: int = 0) -> TreeToAsk:
    return TreeToAsk(str(tree.origin), tree.signer.key, leaf)


async def prove(peer: ProvingPeer, *trees: TreeToAsk) -> ProofFile | None:
    asked = AskedProofs(peer, None, None)  # type: ignore[arg-type]
    return await asked.prove(BODY, trees)


async def test_an_event_is_proven_where_its_sender_said_that_it_is_or_by_its_digest() -> None:
    tree = tree_with_event()
    for leaf, questions in ((2, 2), (0, 2), (3, 3), (99, 2)):
        peer = ProvingPeer([tree])
        file = await prove(peer, to_ask(tree, leaf))
        assert file is not None
        _, index, size, _ = plain.open_file(file.encode(), tree.signer.key.text(), [])
        assert (index, size, len(peer.asked)) == (2, 5, questions)


async def test_the_trees_are_asked_about_one_after_the_other() -> None:
    without, tree = GrowingTree("u").grow("other"), tree_with_event()
    peer = ProvingPeer([without, tree])
    file = await prove(peer, to_ask(GrowingTree("v")), to_ask(without), to_ask(tree))
    assert file is not None
    assert [type(one).__name__[0] for one in peer.asked] == ["N", "N", "P", "N", "P"]
    assert await prove(ProvingPeer([without]), to_ask(without), to_ask(tree)) is None


def replaced(**members: Any) -> Change:
    """Change the answer to `prove`, or that to `note` if the members are its."""

    def change(answer: Answer) -> Answer:
        fits = isinstance(answer, NoteAnswer) == (members.keys() <= {"note", "opening"})
        return msgspec.structs.replace(answer, **members) if fits else answer

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced(indices=(3,)), "root"),
        (replaced(indices=(2, 3)), "index"),
        (replaced(indices=(9,)), "index"),
        (replaced(proof=()), "proof_length"),
        (replaced(proof=("AAAA",) * 3), "hash"),
        (replaced(note=GrowingTree(key=SECOND).grow("x").note().encode().decode()), "unsigned"),
        (replaced(opening=None), "proof_length"),
    ],
    ids=["other-leaf", "two-leaves", "beyond", "no-proof", "no-hash", "other-key", "no-opening"],
)
async def test_a_lie_proves_nothing(change: Change, reason: str) -> None:
    tree = tree_with_event()
    with pytest.raises(HistoryError) as refused:
        await prove(ProvingPeer([tree], change), to_ask(tree))
    assert refused.value.reason == reason


async def test_a_busy_peer_is_asked_again_for_a_while_and_a_refusal_ends_it() -> None:
    tree = tree_with_event()
    peer = ProvingPeer([tree], busy=TRIES - 1)
    assert await prove(peer, to_ask(tree)) is not None
    assert peer.pauses == [PAUSE_SECONDS] * (TRIES - 1)
    with pytest.raises(HistoryUntold) as untold:
        await prove(ProvingPeer([tree], busy=TRIES), to_ask(tree))
    assert untold.value.reason == BUSY

    def refuse(_: Answer) -> Answer:
        raise HistoryUntold(REFUSED)

    refusing = ProvingPeer([tree], refuse)
    with pytest.raises(HistoryUntold):
        await prove(refusing, to_ask(tree))
    assert len(refusing.asked) == 1
