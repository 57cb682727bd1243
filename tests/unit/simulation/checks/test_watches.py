"""The checks of watches name a lost, repeated, missing or changed record, and a tombstone without a loss."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.simulation.checks.watches import WatchReference
from eventd.simulation.load.watches import GROUP_TOPIC, LOOKING, SESSION, WATCH, WATCHED, id_of_places, watched_record
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import Asked, Journal, Restore

CONTENT = {"text": "x"}
EPOCH = "e-1"


def records(*numbers: int, after: int = 0, epoch: int = 0) -> SentEvent:
    sent = [{"$seq": seq, "data": watched_record(number)["data"]} for seq, number in enumerate(numbers, after + 1)]
    upto = after + len(numbers)
    data = {"topic": WATCHED, "from_seq": after, "to_seq": upto, "records": sent}
    return SentEvent(5.1, "record", id_of_places({WATCHED: (epoch, upto)}), data)


def caught_up(seq: int, epoch: int = 0) -> SentEvent:
    return SentEvent(5.2, "caught-up", id_of_places({WATCHED: (epoch, seq)}), {"topic": WATCHED, "head_seq": seq})


def found(
    *events: SentEvent,
    topic: str = WATCHED,
    epoch: str = "",
    restored: bool = False,
    status: int = 200,
    restart: bool = False,
) -> set[str]:
    """Return the invariants that these events violate on a stream that reads all, after writes of records 0 and 1.

    `epoch`: the one that the reader has named. `restored`: a copy from before the second write has replaced the
    database. `restart`: the node has started again since the session began.
    """
    named = {"from_seq": 0} | ({"epoch": epoch} if epoch else {})
    changes = [(3.5, "restore", "a")] * restored + [(4.5, "start", "a")] * restart
    session = {"wid": "w", "topics": {topic: {"from_seq": 0, "epoch": EPOCH}}}
    question = {"wid": "w", "last_id": "", "lane": LOOKING, "pause": 0.0}
    emitted = {"events": [{"id": "e", "type": "door.open", "payload": CONTENT}]}
    journal = Journal(
        [
            Asked("emit", "a", 1.0, 1.1, 200, emitted, {"results": []}),
            Asked("watched write", "a", 1.0, 1.1, 200, {"records": [watched_record(0)]}, {"seqs": [1], "last_seq": 1}),
            Asked("watched write", "a", 2.0, 2.1, 200, {"records": [watched_record(1)]}, {"seqs": [2], "last_seq": 2}),
            Asked(SESSION, "a", 4.0, 4.1, 200, {"topics": {topic: named}}, session),
            Asked(WATCH, "a", 5.0, 5.5, status, question, ("hung up", list(events))),
        ],
        changes,
        [Restore("a", 1.5, 3.5)] * restored,
    )
    return {each.invariant for each in WatchReference(journal, "a", 0.0).violations()}


def test_a_topic_that_is_read_whole_violates_nothing() -> None:
    assert found(records(0, 1), caught_up(2)) == set()


def test_an_error_of_the_stream_violates_nothing() -> None:
    error = SentEvent(5.2, "error", id_of_places({WATCHED: (0, 1)}), {"error": "overloaded"})
    assert found(records(0), error) == set()


@pytest.mark.parametrize(
    ("events", "violation"),
    [
        ([records(0), caught_up(1)], "V3"),
        ([records(0, 1, 1), caught_up(3)], "V5"),
        ([records(1, 0), caught_up(2)], "V7"),
        ([records(1, after=1), caught_up(2)], "V14"),
        ([records(0), caught_up(2)], "V14"),
        ([SentEvent(5.1, "tombstone", "", {"topic": WATCHED, "earliest_seq": 1, "epoch": EPOCH})], "V10"),
    ],
)
def test_a_wrong_stream_is_named(events: list[SentEvent], violation: str) -> None:
    assert violation in found(*events)


@pytest.mark.parametrize(("payload", "violations"), [(CONTENT, set()), ({"text": "y"}, {"V7"})])
def test_an_event_with_another_payload_is_named(payload: dict[str, Any], violations: set[str]) -> None:
    sent = [{"$seq": 1, "meta": {"id": "e"}, "data": payload}]
    data = {"topic": GROUP_TOPIC, "from_seq": 0, "to_seq": 1, "records": sent}
    assert found(SentEvent(5.1, "record", id_of_places({GROUP_TOPIC: (0, 1)}), data), topic=GROUP_TOPIC) == violations


def tombstone(epoch: str) -> SentEvent:
    data = {"topic": WATCHED, "earliest_seq": 1, "epoch": epoch}
    return SentEvent(5.05, "tombstone", id_of_places({WATCHED: (1, 0)}), data)


def test_after_a_restore_the_records_of_the_copy_follow_a_tombstone() -> None:
    events = tombstone(EPOCH), records(0, epoch=1), caught_up(1, epoch=1)
    assert found(*events, epoch="e-0", restored=True) == set()


def test_an_id_that_names_the_epoch_before_a_tombstone_is_named() -> None:
    events = tombstone(EPOCH), records(0), caught_up(1)
    assert found(*events, epoch="e-0", restored=True) == {"V14"}


@pytest.mark.parametrize(
    ("events", "epoch", "violation"),
    [
        ([records(0), caught_up(1)], "e-0", "V10"),  # nothing says that the records are others
        ([tombstone(EPOCH), records(0), caught_up(1)], EPOCH, "V10"),
        ([tombstone(EPOCH), caught_up(0)], "e-0", "V3"),
    ],
)
def test_a_wrong_stream_after_a_restore_is_named(events: list[SentEvent], epoch: str, violation: str) -> None:
    assert violation in found(*events, epoch=epoch, restored=True)


@pytest.mark.parametrize(("after", "violations"), [(1, set()), (5, set()), (0, {"V14", "V7"})])
def test_an_id_beyond_what_was_sent_leads_back_to_that_in_the_epoch_of_the_topic(
    after: int, violations: set[str]
) -> None:
    """The reader's place was seq 5 of another epoch, which ids name until the tombstone of the topic."""
    topics = {name: {"from_seq": 5, "epoch": "e-0"} for name in (WATCHED, GROUP_TOPIC)}
    answer = {"wid": "w", "topics": {name: {"from_seq": 5, "epoch": EPOCH} for name in topics}}
    of_group = {"topic": GROUP_TOPIC, "earliest_seq": 1, "epoch": EPOCH}
    other = SentEvent(5.0, "tombstone", id_of_places({GROUP_TOPIC: (1, 0), WATCHED: (0, 5)}), of_group)
    ahead, first = id_of_places({WATCHED: (1, 1000)}), [other, tombstone(EPOCH), records(0, epoch=1)]
    streams = {"": first, ahead: [records(1, after=after, epoch=1)]}
    asked = [Asked(SESSION, "a", 4.0, 4.1, 200, {"topics": topics}, answer)]
    for last_id, events in streams.items():
        question = {"wid": "w", "last_id": last_id, "lane": "reader", "pause": 0.05}
        asked.append(Asked(WATCH, "a", 5.0, 5.5, 200, question, ("hung up", events)))
    found = WatchReference(Journal(asked, [(3.5, "epoch", "a")]), "a", 0.0).violations()
    assert {each.invariant for each in found} == violations


@pytest.mark.parametrize(
    ("events", "violations"),
    [
        ([tombstone(EPOCH), records(0, epoch=1)], set()),
        ([caught_up(5)], {"V10"}),  # its epoch has ended
        ([records(0, after=5)], {"V10"}),
    ],
)
def test_a_reader_that_continues_before_a_tombstone_gets_it_again(
    events: list[SentEvent], violations: set[str]
) -> None:
    before = SentEvent(5.0, "record", id_of_places({WATCHED: (0, 5)}), records(0, after=4).data)
    topics = {WATCHED: {"from_seq": 4, "epoch": "e-0"}}
    asked = [Asked(SESSION, "a", 4.0, 4.1, 200, {"topics": topics}, {"wid": "w", "topics": topics})]
    for last_id, sent in (("", [before, tombstone(EPOCH), records(0, epoch=1)]), (before.id, events)):
        question = {"wid": "w", "last_id": last_id, "lane": "reader", "pause": 0.05}
        asked.append(Asked(WATCH, "a", 5.0, 5.5, 200, question, ("hung up", sent)))
    found = WatchReference(Journal(asked, [(4.9, "epoch", "a")]), "a", 0.0).violations()
    assert {each.invariant for each in found} == violations


@pytest.mark.parametrize(("status", "violations"), [(404, set()), (200, {"V14"})])
def test_another_process_does_not_know_a_session(status: int, violations: set[str]) -> None:
    assert found(status=status, restart=True) == violations


@pytest.mark.parametrize(("loss", "violations"), [(True, set()), (False, {"V16"})])
def test_another_epoch_without_a_loss_is_named(loss: bool, violations: set[str]) -> None:
    sessions = [
        Asked(SESSION, "a", at, at + 0.1, 200, {"topics": {WATCHED: {"from_seq": 0}}}, answer)
        for at, epoch in ((1.0, "e-1"), (3.0, "e-2"))
        for answer in [{"wid": epoch, "topics": {WATCHED: {"from_seq": 0, "epoch": epoch}}}]
    ]
    journal = Journal(sessions, [(2.0, "power", "a")] * loss)
    assert {each.invariant for each in WatchReference(journal, "a", 0.0).violations()} == violations
