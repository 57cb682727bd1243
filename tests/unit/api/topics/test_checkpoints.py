"""Ids of stream events: seqs while they are short, names of checkpoints beyond that."""

from __future__ import annotations

import pytest

from eventd.api.topics import checkpoints
from eventd.api.topics.checkpoints import (
    ID_BYTES,
    Checkpoints,
    may_need_checkpoints,
    read_checkpoint,
    read_places,
    write_places,
)
from eventd.api.topics.start import MOST_SEQ

TAG = "0123456789ab"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest four checkpoints are kept."""
    monkeypatch.setattr(checkpoints, "MOVES", 4)


def test_places_come_back_as_they_were() -> None:
    seqs = {"b": 0, "a": MOST_SEQ}
    assert read_places(write_places(seqs).decode()) == seqs
    assert read_checkpoint(write_places(seqs).decode()) is None
    assert read_places(f"{TAG}.1.2") == {}


def test_only_topics_whose_places_may_be_too_long_need_checkpoints() -> None:
    assert not may_need_checkpoints(f"n{number}" for number in range(100))
    assert may_need_checkpoints(f"n{number}" for number in range(256))
    seqs = dict.fromkeys((f"n{number}" for number in range(100)), MOST_SEQ)
    assert len(write_places(seqs)) <= ID_BYTES


def test_a_checkpoint_is_where_the_client_stood_after_that_event() -> None:
    kept = Checkpoints(TAG, 3, {"a": 5, "b": 0})
    assert kept.last == b"0123456789ab.3.0"
    assert [kept.add("a", 7), kept.add("b", 1), kept.add("a", 9)] == [b"%b.3.%d" % (TAG.encode(), n) for n in (1, 2, 3)]
    assert read_checkpoint(kept.last.decode()) == (TAG, 3, 3)
    assert [kept.places(count) for count in range(5)] == [
        {"a": 5, "b": 0},
        {"a": 7, "b": 0},
        {"a": 7, "b": 1},
        {"a": 9, "b": 1},
        {},
    ]


@pytest.mark.usefixtures("few")
def test_an_old_checkpoint_leads_back_to_where_the_stream_began_and_never_ahead() -> None:
    kept = Checkpoints(TAG, 1, {"a": 0, "b": 0})
    stood = [{"a": 0, "b": 0}]
    for seq in range(1, 12):
        kept.add("ab"[seq % 2], seq)
        stood.append(stood[-1] | {"ab"[seq % 2]: seq})
    assert [kept.places(count) for count in range(7, 12)] == stood[7:12]
    assert [kept.places(count) for count in range(7)] == [stood[0]] * 7


def test_the_longest_id_of_a_checkpoint_fits() -> None:
    kept = Checkpoints(TAG, 999_999_999, {"a": 0})
    kept._count = 10**15 - 1
    assert len(kept.last) <= 256
    assert read_checkpoint(kept.last.decode()) == (TAG, 999_999_999, 10**15 - 1)


@pytest.mark.parametrize(
    "text", ["", "1.2", f"{TAG}.1", f"{TAG}.1.-1", f"{TAG}.1.2.3", "0123456789AB.1.2", f"{TAG}.x.1"]
)
def test_what_names_no_checkpoint_is_not_read(text: str) -> None:
    assert read_checkpoint(text) is None
