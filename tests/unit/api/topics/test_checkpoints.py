"""Ids of stream events: seqs while they are short, names of checkpoints beyond that."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from eventd.api.topics import checkpoints
from eventd.api.topics.checkpoints import (
    ID_BYTES,
    Checkpoints,
    EventPlace,
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
    places = {"b": EventPlace(2, 0), "a": EventPlace(0, MOST_SEQ), "c": EventPlace(2**32 - 1, MOST_SEQ)}
    assert read_places(write_places(places).decode()) == places
    assert read_checkpoint(write_places(places).decode()) is None
    assert read_places(f"{TAG}.1.2") == {}


def test_a_place_in_the_first_epoch_is_a_seq_and_in_another_one_a_list() -> None:
    event_id = write_places({"jobs": EventPlace(1, 3), "events": EventPlace(0, 88)})
    assert urlsafe_b64decode(event_id + b"=" * (-len(event_id) % 4)) == b'{"events":88,"jobs":[1,3]}'


@pytest.mark.parametrize(
    "text",
    ["-1", "1.5", f"{2**63}", '"1"', "null", "[]", "[1]", "[1,2,3]", "[-1,2]", "[1,-2]", f"[{2**32},1]", "[[1],2]"],
)
def test_an_id_with_a_wrong_place_has_none(text: str) -> None:
    assert read_places(urlsafe_b64encode(f'{{"a":1,"jobs":{text}}}'.encode()).decode()) == {}


def test_only_topics_whose_places_may_be_too_long_need_checkpoints() -> None:
    names = [f"n{number}" for number in range(256)]
    assert may_need_checkpoints(names)
    without = max(count for count in range(256) if not may_need_checkpoints(names[:count]))
    assert without > 80
    for epoch in 0, 17, 9999:
        assert len(write_places(dict.fromkeys(names[:without], EventPlace(epoch, MOST_SEQ)))) <= ID_BYTES


def test_a_checkpoint_is_where_the_client_stood_after_that_event() -> None:
    kept = Checkpoints(TAG, 3, {"a": EventPlace(0, 5), "b": EventPlace(1, 0)})
    assert kept.last == b"0123456789ab.3.0"
    moves = [("a", EventPlace(0, 7)), ("b", EventPlace(1, 1)), ("a", EventPlace(2, 0))]
    assert [kept.add(*move) for move in moves] == [b"%b.3.%d" % (TAG.encode(), n) for n in (1, 2, 3)]
    assert read_checkpoint(kept.last.decode()) == (TAG, 3, 3)
    assert [kept.places(count) for count in range(5)] == [
        {"a": (0, 5), "b": (1, 0)},
        {"a": (0, 7), "b": (1, 0)},
        {"a": (0, 7), "b": (1, 1)},
        {"a": (2, 0), "b": (1, 1)},
        {},
    ]


@pytest.mark.usefixtures("few")
def test_an_old_checkpoint_leads_back_to_where_the_stream_began_and_never_ahead() -> None:
    kept = Checkpoints(TAG, 1, dict.fromkeys("ab", EventPlace(0, 0)))
    stood = [dict.fromkeys("ab", EventPlace(0, 0))]
    for seq in range(1, 12):
        name, place = "ab"[seq % 2], EventPlace(seq // 3, seq)
        kept.add(name, place)
        stood.append(stood[-1] | {name: place})
    assert [kept.places(count) for count in range(7, 12)] == stood[7:12]
    assert [kept.places(count) for count in range(7)] == [stood[0]] * 7


def test_the_longest_id_of_a_checkpoint_fits() -> None:
    kept = Checkpoints(TAG, 999_999_999, {"a": EventPlace(0, 0)})
    kept._count = 10**15 - 1
    assert len(kept.last) <= 256
    assert read_checkpoint(kept.last.decode()) == (TAG, 999_999_999, 10**15 - 1)


@pytest.mark.parametrize(
    "text", ["", "1.2", f"{TAG}.1", f"{TAG}.1.-1", f"{TAG}.1.2.3", "0123456789AB.1.2", f"{TAG}.x.1"]
)
def test_what_names_no_checkpoint_is_not_read(text: str) -> None:
    assert read_checkpoint(text) is None
