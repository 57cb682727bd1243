"""Events that a peer returns to their source: the one exception to the rule against one's own name, and its proof."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from federation import returned
from federation.batch import encode_batch
from federation.errors import BadAnswer
from federation.loops import check_inbound
from federation.message_signature import content_digest_header
from federation.peers import Limits
from federation.ranges import Range
from federation.returned import MOST_HASHED, check_returned, encode_positions, gives_digest, read_positions
from federation.runs import Run
from federation.wire import Receipt, Refusal
from tests.support.v2_sender import line

BODIES = [line(f"e{number}", node="a") for number in range(3)]


def _receipt(body: bytes, *, accepted: int = 3, duplicates: int = 0, refused: tuple[Refusal, ...] = ()) -> Receipt:
    return Receipt(
        group="edge",
        from_node="a",
        to_node="b",
        batch="019e78a1-7000-7abc-8def-0123456789ab",
        digest=content_digest_header(body),
        epoch="epoch1",
        incarnation=1,
        upto=100,
        accepted=accepted,
        duplicates=duplicates,
        refused=refused,
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def _range(after: int, upto: int, *, repair: bool = False) -> Range:
    return Range(epoch="epoch1", incarnation=1, after=after, upto=upto, repair=repair)


def _lines(first: int, bodies: Sequence[str] = BODIES) -> bytes:
    return encode_batch((position, "", body) for position, body in enumerate(bodies, first))


def test_a_node_accepts_its_own_name_as_source_only_of_an_event_it_asked_for() -> None:
    event = check_returned(BODIES[0], "e0", group="edge", node="a", limits=Limits())
    assert event.source_node == "a"
    assert check_inbound((), "a", node="a", sender="b", max_hops=8) == "own_source"
    for event_id, node, reason in (("e1", "a", "other_event"), ("e0", "c", "other_source")):
        with pytest.raises(BadAnswer) as refused:
            check_returned(BODIES[0], event_id, group="edge", node=node, limits=Limits())
        assert refused.value.reason == reason


@pytest.mark.parametrize("first", [11, 98])
def test_a_batch_is_recognized_as_lines_and_as_a_run_at_both_ends_of_its_range(first: int) -> None:
    run = Run(first, 3, "", "".join([f"{body}\n" for body in BODIES]).encode()).encode()
    for body in (_lines(first), run):
        assert gives_digest(_receipt(body), _range(10, 100), BODIES)


@pytest.mark.parametrize("positions", [[3], [3, 4, 5], [3, 5, 6], [1, 3, 5]])
def test_positions_are_read_back(positions: list[int]) -> None:
    assert read_positions(encode_positions(positions)) == positions


@pytest.mark.parametrize("text", ["", "x", "1", "1+", "+1", "1+-1", "1+1,", "1+99999999999", "²+1", "9" * 40_000])
def test_other_texts_are_no_positions(text: str) -> None:
    assert read_positions(text) == []


def test_too_many_gaps_are_not_stored() -> None:
    assert encode_positions(range(1, 20_000, 2)) == ""
    assert encode_positions([]) == ""


def test_a_batch_with_gaps_is_recognized_by_the_positions_that_the_receiver_stored() -> None:
    positions = [11, 13, 14]
    lines = encode_batch((position, "", body) for position, body in zip(positions, BODIES, strict=True))
    runs = [Run(11, 1, "", f"{BODIES[0]}\n".encode()), Run(13, 2, "", f"{BODIES[1]}\n{BODIES[2]}\n".encode())]
    for body in (lines, b"".join(run.encode() for run in runs)):
        assert gives_digest(_receipt(body), _range(10, 20), BODIES, encode_positions(positions))
        assert not gives_digest(_receipt(body), _range(10, 20), BODIES, encode_positions([11, 12, 14]))
        assert not gives_digest(_receipt(body), _range(10, 20), BODIES)


def test_a_batch_away_from_both_ends_of_its_range_is_not_looked_for() -> None:
    assert not gives_digest(_receipt(_lines(20)), _range(10, 100), BODIES)


def test_a_forged_receipt_has_the_batch_hashed_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def count(body: bytes) -> str:
        hashed.append(body)
        return content_digest_header(body)

    monkeypatch.setattr(returned, "content_digest_header", count)
    assert not gives_digest(_receipt(b"forged"), _range(0, 100_000), BODIES)
    assert len(hashed) == MOST_HASHED == 4


@pytest.mark.parametrize(
    ("receipt", "covered", "bodies"),
    [
        (_receipt(_lines(1)), _range(0, 3), [*BODIES[:2], line("e2", node="a", subject="other")]),
        (_receipt(_lines(1)), _range(0, 3), BODIES[::-1]),
        (_receipt(_lines(1)), _range(0, 3), BODIES[:2]),
        (_receipt(_lines(1)), _range(3, 6), BODIES),
        (_receipt(_lines(1)), _range(0, 3, repair=True), BODIES),
        (_receipt(_lines(1), duplicates=1), _range(0, 4), BODIES),
        (_receipt(_lines(1), refused=(Refusal(4, "x", "loop"),)), _range(0, 4), BODIES),
        (_receipt(b"", accepted=0), _range(0, 0), []),
    ],
    ids=["content", "order", "fewer", "positions", "repair", "duplicates", "refused", "none"],
)
def test_other_events_do_not_give_the_digest_of_a_receipt(
    receipt: Receipt, covered: Range, bodies: Sequence[str]
) -> None:
    assert not gives_digest(receipt, covered, bodies)
