"""Digests over what two nodes hold are the same at both ends, at every granularity; and invalid queries."""

from __future__ import annotations

import random
import re

import pytest

from eventd.testing import event
from federation.compare import (
    LATE,
    MOST_ASKED,
    MOST_BUCKETS,
    Grain,
    Ids,
    IdsQuery,
    KnownEvents,
    KnownQuery,
    PathFilter,
    Question,
    RecordScope,
    ReportedGap,
    State,
    StateQuery,
    Sums,
    SumsQuery,
    add_up,
    coarser,
    count_in,
    encode_question,
    encode_reply,
    fold,
    minus,
    minute_of,
    places_of,
    read_question,
    read_reply,
    read_sums,
    show_fingerprint,
    show_sums,
    sum_in,
    total_of,
)
from federation.digest import fingerprint
from federation.errors import BadAnswer, Malformed
from federation.event import encode, from_micros
from federation.peers import SECOND
from federation.ranges import Mark

NOW = 1_780_142_400 * SECOND
MINUTE = NOW // (60 * SECOND)


def body(number: int, *, seconds: float = 0.0, **fields: object) -> str:
    observed = NOW + round(seconds * SECOND)
    return encode(event(f"e{number}", observed=observed, **fields)).decode()  # type: ignore[arg-type]


BODIES = [body(number, seconds=number * 7.3) for number in range(500)]


def summed(bodies: list[str], grain: Grain, since: int | None = None) -> dict[int, int]:
    totals: dict[int, int] = {}
    add_up(bodies, grain, totals, since=since)
    return totals


def told(totals: dict[int, int], grain: Grain) -> set[tuple[int, int, int, str]]:
    return set(show_sums(totals, grain, None).buckets)


def test_a_bucket_is_the_minute_and_the_first_bits_of_the_fingerprint() -> None:
    [text] = [body(1, seconds=61)]
    number = fingerprint(text) % 2**64
    assert minute_of(text) == MINUTE + 1
    assert told(summed([text], Grain(1, 16)), Grain(1, 16)) == {(MINUTE + 1, number >> 60, 1, f"{number:016x}")}
    assert told(summed([text], Grain(60, 1)), Grain(60, 1)) == {((MINUTE + 1) // 60, 0, 1, f"{number:016x}")}


def test_sums_do_not_depend_on_the_order_or_on_the_portions() -> None:
    grain = Grain(1, 64)
    mixed = random.Random(1).sample(BODIES, len(BODIES))
    totals = summed(mixed[:123], grain)
    add_up(mixed[123:], grain, totals)
    assert told(totals, grain) == told(summed(BODIES, grain), grain)
    assert sum(map(count_in, totals.values())) == 500
    assert sum(map(sum_in, totals.values())) % 2**64 == sum(map(fingerprint, BODIES)) % 2**64


@pytest.mark.parametrize("coarse", [Grain(1, 1), Grain(2, 64), Grain(32, 8), Grain(1024, 1)])
def test_fine_sums_fold_into_coarse_ones_here_and_out_of_an_answer(coarse: Grain) -> None:
    fine = Grain(1, 64)
    expected = told(summed(BODIES, coarse), coarse)
    assert told(fold(summed(BODIES, fine), fine, coarse), coarse) == expected
    answer = read_reply(encode_reply(show_sums(summed(BODIES, fine), fine, None)), Sums)
    read: dict[int, int] = {}
    read_sums(answer, fine, coarse, read)
    assert told(read, coarse) == expected


def test_every_event_is_found_in_the_bucket_it_was_counted_in() -> None:
    for grain in (Grain(1, 1), Grain(7, 1024), Grain(1, 1 << 16)):
        totals = summed(BODIES, grain)
        keys, numbers = places_of(BODIES, grain)
        assert {*keys} == totals.keys()
        assert [*numbers] == [fingerprint(text) % 2**64 for text in BODIES]


def test_times_before_1970_have_their_slots() -> None:
    text = encode(event("old", observed=-61 * SECOND)).decode()
    assert minute_of(text) == -2
    assert told(summed([text], Grain(3, 1)), Grain(3, 1)) == {(-1, 0, 1, show_fingerprint(fingerprint(text)))}


def test_what_was_observed_too_early_is_in_no_bucket() -> None:
    grain = Grain(1, 4)
    some = summed(BODIES, grain, MINUTE + 10)
    late = [text for text in BODIES if minute_of(text) >= MINUTE + 10]
    assert 0 < len(late) < 500
    assert told(some, grain) == told(summed(late, grain), grain)
    keys, _ = places_of(BODIES, grain, MINUTE + 10)
    assert [text for key, text in zip(keys, BODIES, strict=True) if key >= LATE] == late


def test_a_payload_that_looks_like_a_time_misleads_nobody() -> None:
    text = body(1, payload={"a": "b", "observedAt": "1999-01-01T00:00:00Z", "z": ',"observedAt":"1999'})
    assert minute_of(text) == MINUTE
    assert {key // 4 for key in summed([text], Grain(1, 4))} == {MINUTE}


def test_what_is_left_without_some_is_the_rest() -> None:
    prints = [fingerprint(text) for text in BODIES]
    whole, some, rest = total_of(prints), total_of(prints[:100]), total_of(prints[100:])
    assert minus(minus(whole, some), rest) == 0
    assert minus(whole, whole) == 0
    assert count_in(minus(some, whole)) == -400
    assert minus(some, total_of(prints[1:101])) != 0


def test_buckets_become_fewer_by_their_parts_first_and_their_length_afterwards() -> None:
    many = summed([body(number) for number in range(200)], Grain(1, 1024))
    assert coarser(many, Grain(1, 1024)) == Grain(1, 512)
    thin = summed([body(number, seconds=60 * number) for number in range(200)], Grain(1, 4))
    assert coarser(thin, Grain(1, 4)) == Grain(2, 4)
    assert coarser(thin, Grain(1, 1)) == Grain(2, 1)


def test_records_come_from_a_node_by_their_path() -> None:
    own, passed = PathFilter("a", True), PathFilter("a", False)
    paths = ["", "a", "a,b", "b,a", "b", "ab"]
    assert [path for path in paths if own.takes(path)] == ["a", "a,b"]
    assert [path for path in paths if passed.takes(path)] == ["a", "a,b", "b,a"]


ABOUT = {"history": "h", "after": 1, "upto": 9, "what": RecordScope(types=("a.*",), since=5), "grain": Grain(2, 8)}
QUESTIONS: list[Question] = [
    StateQuery(),
    SumsQuery(**ABOUT),  # type: ignore[arg-type]
    IdsQuery(**ABOUT, buckets=((7, 3), (-1, 0))),  # type: ignore[arg-type]
    KnownQuery(ids=("a", "b")),
    KnownQuery(ids=("a",), fingerprints=("0123456789abcdef",)),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_a_question_is_read_as_it_was_asked(question: Question) -> None:
    assert read_question(encode_question(question)) == question


SUMS = '{"ask":"sums","history":"h","after":0,"upto":9,"what":{},"grain":{"minutes":1,"parts":4}}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `ask`"),
        ('{"ask":"everything"}', "Invalid value 'everything'"),
        ('{"ask":"state","x":' + "[" * 100_000, "not JSON"),
        (SUMS.replace('"after":0', '"after":10'), "runs backwards"),
        (SUMS.replace('"after":0', '"after":-1'), "Expected `int` >= 0"),
        (SUMS.replace('"parts":4', '"parts":3'), "parts must be a power of two, not 3"),
        (SUMS.replace('"parts":4', '"parts":131072'), "Expected `int` <= 65536"),
        (SUMS.replace('"minutes":1', '"minutes":0'), "Expected `int` >= 1"),
        (SUMS.replace('"what":{}', '"what":{"types":[1]}'), "Expected `str`"),
        (SUMS.replace('"h"', '""'), "length >= 1"),
        (SUMS.replace("sums", "ids")[:-1] + ',"buckets":[]}', "length >= 1"),
        (SUMS.replace("sums", "ids")[:-1] + ',"buckets":[[1,4]]}', "the part of each bucket must be less than 4"),
        (SUMS.replace("sums", "ids")[:-1] + ',"buckets":[[1]]}', "Expected `array` of length 2"),
        ('{"ask":"known","ids":[]}', "length >= 1"),
        ('{"ask":"known","ids":["a"],"fingerprints":["x"]}', "matching regex"),
        ('{"ask":"known","ids":["a","b"],"fingerprints":["0123456789abcdef"]}', "a fingerprint for every id"),
        ('{"ask":"known","ids":["' + "x" * 513 + '"]}', "length <= 512"),
    ],
)
def test_what_is_no_question_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Malformed) as refused:
        read_question(text.encode())
    assert why in refused.value.message


def test_a_question_has_its_limits() -> None:
    with pytest.raises(Malformed, match=str(MOST_ASKED)):
        read_question(encode_question(KnownQuery(ids=("x",) * (MOST_ASKED + 1))))
    many = tuple((number, 0) for number in range(MOST_BUCKETS + 1))
    with pytest.raises(Malformed, match=str(MOST_BUCKETS)):
        read_question(encode_question(IdsQuery(**ABOUT, buckets=many)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"upto":5', '"upto":-5'),
        ('"upto":5', f'"upto":{10**15}'),
        ('"upto":3', '"upto":-3'),
        ('"after":1', '"after":-1'),
        ('"since":"2026-05-30T12:00:00Z"', '"since":"2026-05-30T12:00:00"'),
        ('"recordedAt":"2026-05-30T12:00:00Z"', '"recordedAt":"2026-05-30T12:00:00"'),
        ('"recordedAt":"2026-05-30T12:00:00Z"', '"recordedAt":"9999-12-31T23:59:59-23:59"'),
    ],
)
def test_a_state_with_an_absurd_place_or_time_proves_nothing(old: str, new: str) -> None:
    gap = ReportedGap(epoch="e", after=1, upto=2, reason="lost", recorded_at=from_micros(NOW))
    mark = Mark(epoch="e", incarnation=0, upto=3, base=0)
    text = encode_reply(State(history="h", upto=5, mark=mark, since=from_micros(NOW), gaps=(gap,))).decode()
    assert old in text
    with pytest.raises(BadAnswer):
        read_reply(text.replace(old, new).encode(), State)


@pytest.mark.parametrize("upto", [-1, 10**15, 2**63, 2**64, 10**40])
def test_a_question_beyond_all_positions_is_refused(upto: int) -> None:
    text = encode_question(SumsQuery(**ABOUT)).decode()  # type: ignore[arg-type]
    assert '"upto":' in text
    with pytest.raises(Malformed):
        read_question(re.sub('"upto":[0-9]+', f'"upto":{upto}', text).encode())


def test_an_answer_of_another_kind_proves_nothing() -> None:
    mark = Mark(epoch="e", incarnation=0, upto=3, base=0)
    state = State(history="h", upto=5, mark=mark, since=from_micros(NOW))
    assert read_reply(encode_reply(state), State) == state
    for kind, text in ((Sums, b"{}"), (Ids, b"[]"), (State, encode_reply(KnownEvents())), (KnownEvents, b"\xff")):
        with pytest.raises(BadAnswer) as refused:
            read_reply(text, kind)  # type: ignore[type-var]
        assert refused.value.reason == "no_reply"
