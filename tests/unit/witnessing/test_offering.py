"""What a peer's refusals do to the offers of checkpoints: they name no series of metrics, and hold nothing up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.log.witnesses.findings import HistoryFinding
from eventd.witnessing.asking import BUSY, REFUSED, HistoryUntold
from eventd.witnessing.offering import Offering
from federation.wire import ErrorAnswer
from tests.contract.log.witnesses.test_witnessing import GrowingTree


class Refusing:
    """A peer that refuses each question, and the metrics of the node that asks it."""

    def __init__(self, untold: HistoryUntold) -> None:
        self._untold = untold
        self.results: list[str] = []

    def refused(self, group: str, reason: str) -> None: ...

    def history_cosigned(self, group: str, peer: str, result: str) -> None:
        self.results.append(result)

    async def ask(self, *_: Any) -> None:
        raise self._untold


def offering_to(peer: Refusing) -> Offering:
    config = SimpleNamespace(name="g", peers={})
    witness = SimpleNamespace(config=lambda: config, metrics=peer)
    return Offering(cast(Any, witness), cast(Any, SimpleNamespace(node_name="b")), cast(Any, peer))


@pytest.mark.parametrize(
    ("code", "result"), [("key_changed", "key_changed"), ("made-up", "refused"), ("x" * 10_000, "refused")]
)
def test_a_code_that_a_peer_invents_is_no_series_of_metrics(code: str, result: str) -> None:
    untold = HistoryUntold(REFUSED, ErrorAnswer(code=code, message=""))
    peer = Refusing(untold)
    offering_to(peer)._pause(untold)
    assert peer.results == [result]


async def test_a_proof_that_a_peer_cannot_give_does_not_hold_its_offers_up() -> None:
    tree = GrowingTree().grow("x", "y")
    notes = [tree.note(size).encode().decode() for size in (2, 3)]
    pending = HistoryFinding(1, str(tree.origin), "b", "pending", 2, 3, *notes, "", 0, None)
    pruned = HistoryUntold(REFUSED, ErrorAnswer(code="malformed", message="tile/0/000 is not stored"))
    await offering_to(Refusing(pruned))._proofs.settle(pending)
    with pytest.raises(HistoryUntold):
        await offering_to(Refusing(HistoryUntold(BUSY)))._proofs.settle(pending)
