"""Which place a client of a watch continues from: never one ahead of it, and never one of another epoch."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from eventd.api.topics.checkpoints import EventPlace
from eventd.api.topics.client_stream import WatchCursor
from eventd.api.topics.start import OTHER_EPOCH
from eventd.api.topics.topic_progress import EPOCH_BYTES, KEPT_EPOCHS, TopicProgress


@pytest.fixture
def progress() -> TopicProgress:
    """A session that began after seq 2 of the epoch `a`; its streams were sent up to 5 in it, and then 3 of `b`."""
    progress = TopicProgress(WatchCursor(2, "a"))
    progress.note(WatchCursor(5, "a"))
    progress.note(WatchCursor(3, "b"))
    return progress


def test_epochs_have_numbers_in_the_order_in_which_the_session_meets_them(progress: TopicProgress) -> None:
    assert [progress.number_of(epoch) for epoch in "abca"] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("place", "cursor"),
    [
        (EventPlace(0, 4), WatchCursor(4, "a")),
        (EventPlace(0, 1), WatchCursor(1, "a")),
        (EventPlace(0, 99), WatchCursor(5, "a")),
        (EventPlace(1, 3), WatchCursor(3, "b")),
        (EventPlace(1, 0), WatchCursor(0, "b")),
        (EventPlace(1, 99), WatchCursor(3, "b")),
        (EventPlace(2, 1), WatchCursor(2, "a")),  # of no id: where the last stream began
    ],
)
def test_a_client_continues_in_the_epoch_of_its_id_and_not_ahead_of_what_was_sent(
    progress: TopicProgress, place: EventPlace, cursor: WatchCursor
) -> None:
    progress.continue_after(place)
    assert progress.begun == cursor
    assert progress.start == EventPlace(0, 2)


def test_the_place_where_a_stream_began_names_its_epoch(progress: TopicProgress) -> None:
    assert progress.stream_start == EventPlace(0, 2)
    progress.continue_after(EventPlace(1, 2))
    assert progress.stream_start == EventPlace(1, 2)


def test_a_seq_of_an_epoch_that_is_no_longer_kept_is_of_no_epoch_of_the_topic() -> None:
    progress = TopicProgress(WatchCursor(7, "e0"))
    for number in range(1, KEPT_EPOCHS + 1):
        progress.note(WatchCursor(9, f"e{number}"))
    progress.continue_after(EventPlace(1, 8))
    assert progress.begun == WatchCursor(8, "e1")
    progress.continue_after(EventPlace(0, 7))
    assert progress.begun == WatchCursor(7, OTHER_EPOCH)
    assert progress.number_of("e0") == KEPT_EPOCHS + 1, "a stream that is still in it"


def test_the_memory_of_kept_epochs_is_estimated() -> None:
    topics = [TopicProgress(WatchCursor(10**6, f"b7ed1d622e6eb2be:{topic}")) for topic in range(50)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for topic, progress in enumerate(topics):
            for number in range(1, 100):
                progress.note(WatchCursor(10**6 + number, f"b7ed1d622e6eb2be:{1000 * number + topic}"))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    estimated = EPOCH_BYTES * sum(progress.further_epochs for progress in topics)
    assert estimated == EPOCH_BYTES * 50 * (KEPT_EPOCHS - 1)
    assert 0.8 * estimated < taken < 1.1 * estimated


@pytest.mark.parametrize("seed", range(20))
def test_no_id_of_any_stream_leads_ahead_of_it_or_into_another_epoch(seed: int) -> None:
    chance = random.Random(seed)
    progress = TopicProgress(WatchCursor(0, "0"))
    present = 0
    streams = [progress.begun] * 3
    ids: list[tuple[EventPlace, WatchCursor]] = []
    for _ in range(400):
        number = chance.randrange(len(streams))
        seq, epoch = streams[number]
        match chance.choice(("new epoch", "read", "read", "read", "note", "return")):
            case "new epoch" if chance.random() < 0.2:
                present += 1
            case "read":
                streams[number] = WatchCursor(seq + 1 if epoch == str(present) else 0, str(present))
                ids.append((EventPlace(progress.number_of(str(present)), streams[number].seq), streams[number]))
            case "note":
                progress.note(streams[number])
            case "return" if ids:
                place, sent = chance.choice(ids)
                progress.continue_after(place)
                assert progress.begun.epoch in (sent.epoch, OTHER_EPOCH)
                assert progress.begun.seq <= sent.seq
                streams[number] = progress.begun
