"""The rates of a process: what is sampled, what is kept, and the sums of several workers."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from eventd.observe import rates
from eventd.observe.rates import (
    CALLBACK,
    GROUP,
    INBOUND,
    LINK,
    MOST_CALLBACKS,
    MOST_COLUMNS,
    MOST_INBOUND,
    MOST_SERIES,
    NODE,
    POINTS,
    TOPIC,
    RateFilter,
    RateHistory,
    RatePage,
    add_pages,
)
from eventd.observe.traffic import MOST_COUNTED, CallbackCount, Traffic, TrafficSample

GROUPS = {1: "edge"}


class Appended:
    def __init__(self, topic_id: int, records: int, own: int = 1) -> None:
        self.topic_id, self.records, self.own = topic_id, records, own


def sample(topics: dict[int, int] | None = None, links: int = 0) -> TrafficSample:
    made = {("edge", f"n{number}"): (5, 50) for number in range(links)}
    return TrafficSample(made, {}, {topic: (records, 0) for topic, records in (topics or {}).items()}, {})


def of(page: RatePage, kind: str) -> list[list[list[float | None]]]:
    return [columns for key, columns in page.series if key.kind == kind]


def test_counts_become_rates_of_node_group_link_sender_callback_and_topic() -> None:
    traffic, history = Traffic(), RateHistory()
    traffic.delivered("edge", "b", 10, 1000)
    traffic.delivered("edge", "b", 10, 1000)
    traffic.lag("edge", "b", 1.5)
    traffic.received("edge", "c", 5)
    traffic.requested("hook", failed=False)
    traffic.requested("hook", failed=True)
    traffic.accepted("hook", 20)
    traffic.appended([Appended(1, 30), Appended(1, 5, own=0), Appended(7, 15)])
    history.add(100, 5.0, traffic.take(), GROUPS)
    page = history.read(RateFilter())
    assert page.ticks == [100]
    assert of(page, NODE) == [[[10.0], [1.0], [4.0], [400.0]]]
    assert of(page, GROUP) == [[[6.0], [1.0]]]
    assert of(page, LINK) == [[[4.0], [400.0], [1.5]]]
    assert of(page, INBOUND) == [[[1.0]]]
    assert of(page, CALLBACK) == [[[0.4], [0.2], [4.0], [2.0], [1.0]]]
    assert of(page, TOPIC) == [[[3.0]]]
    assert history.means(LINK, "edge", 12) == {"b": 4.0}
    assert history.means(LINK, "other", 12) == {}
    assert traffic.take().links == {}, "each sample counts anew"


def test_a_series_that_begins_later_is_unknown_before_and_zero_in_between() -> None:
    history = RateHistory()
    for tick, links in enumerate((0, 1, 0), start=1):
        history.add(tick, 5.0, sample(links=links), GROUPS)
    assert of(history.read(RateFilter(kind=LINK)), LINK)[0][0] == [None, 1.0, 0.0]


def test_fifteen_minutes_are_kept_and_an_idle_series_goes() -> None:
    history = RateHistory()
    history.add(1, 5.0, sample(links=1), GROUPS)
    for tick in range(2, POINTS + 1):
        history.add(tick, 5.0, sample(), GROUPS)
    assert len(of(history.read(RateFilter()), LINK)) == 1
    history.add(POINTS + 1, 5.0, sample(), GROUPS)
    page = history.read(RateFilter())
    assert page.ticks == list(range(2, POINTS + 2))
    assert of(page, LINK) == []
    assert history.read(RateFilter(ticks=12)).ticks == list(range(POINTS - 10, POINTS + 2))


def test_ticks_that_were_missed_are_left_out_and_a_clock_that_was_set_back_begins_anew() -> None:
    history = RateHistory()
    for tick in (1, 2, 500):
        history.add(tick, 5.0, sample(links=1), GROUPS)
    assert history.read(RateFilter()).ticks == [500]
    history.add(400, 5.0, sample(links=1), GROUPS)
    assert history.read(RateFilter()).ticks == [400]
    assert of(history.read(RateFilter()), LINK) == [[[1.0], [10.0], [0.0]]]


def test_the_busiest_topics_get_the_room_that_links_leave() -> None:
    history = RateHistory()
    history.add(1, 5.0, sample({topic: 1 for topic in range(10, 5000)}), GROUPS)
    for tick in range(2, 40):
        history.add(tick, 5.0, sample({topic: 1 for topic in range(10, 1000)} | {9999: 500}), GROUPS)
    assert len(history) <= MOST_SERIES
    assert len(of(history.read(RateFilter(topic=9999)), TOPIC)) == 1, "a busy topic takes the place of an idle one"
    history.add(50, 5.0, sample({topic: 1 for topic in range(10, 1000)}, links=200), GROUPS)
    assert len(of(history.read(RateFilter()), LINK)) == 200, "topics make room for links"
    assert len(history) <= MOST_SERIES
    history.add(51, 5.0, sample(links=2000), GROUPS)
    assert 3 * len(of(history.read(RateFilter()), LINK)) <= MOST_COLUMNS


def test_invented_senders_leave_room_for_links_and_busy_senders() -> None:
    history = RateHistory()
    for tick in range(1, 10):
        invented = {("edge", f"invented{tick}-{number}"): 1 for number in range(500)}
        made = sample(links=10)._replace(inbound=invented | {("edge", "real"): 100})
        history.add(tick, 5.0, made, GROUPS)
    found = history.read(RateFilter(kind=INBOUND)).series
    assert len(found) == MOST_INBOUND
    assert "real" in [key.node for key, _ in found]
    assert len(history.read(RateFilter(kind=LINK)).series) == 10


def test_the_busiest_callbacks_have_series_and_are_found_by_name() -> None:
    history = RateHistory()
    for tick in range(1, 10):
        callbacks = {f"hook{number}": CallbackCount(1 + number, 0, 1) for number in range(MOST_CALLBACKS + 10)}
        history.add(tick, 5.0, sample(links=1)._replace(callbacks=callbacks), GROUPS)
    found = [key.node for key, _ in history.read(RateFilter(kind=CALLBACK)).series]
    assert (len(found), f"hook{MOST_CALLBACKS + 9}" in found, "hook0" in found) == (MOST_CALLBACKS, True, False)
    named = history.read(RateFilter(callback=found[0])).series
    assert [(key.kind, key.node) for key, _ in named] == [(CALLBACK, found[0])]
    assert history.read(RateFilter(node=found[0])).series == [], "a link may have the same name"


def test_the_senders_of_one_sample_are_bounded() -> None:
    traffic = Traffic()
    for number in range(MOST_COUNTED + 5):
        traffic.received("edge", f"invented{number}", 1)
    assert len(traffic.take().inbound) == MOST_COUNTED


def test_pages_of_all_workers_add_up_by_tick_and_lags_do_not() -> None:
    first, second = RateHistory(), RateHistory()
    one = TrafficSample({("edge", "b"): (10, 100)}, {}, {}, {("edge", "b"): 2.0})
    for history, ticks in ((first, (1, 2)), (second, (2, 3))):
        for tick in ticks:
            history.add(tick, 5.0, one, GROUPS)
    page = add_pages([history.read(RateFilter(kind=LINK)) for history in (first, second)], 10)
    assert page.ticks == [1, 2, 3]
    assert page.series[0][1] == [[2.0, 4.0, 2.0], [20.0, 40.0, 20.0], [2.0, 2.0, 2.0]]
    assert add_pages([RatePage([], [])], 10) == RatePage([], [])


def test_series_are_read_page_by_page_in_order() -> None:
    history = RateHistory()
    history.add(1, 5.0, sample({topic: 1 for topic in range(10, 30)}, links=10), GROUPS)
    every = [key for key, _ in history.read(RateFilter()).series]
    assert every == sorted(every)
    found, after = [], None
    while page := history.read(RateFilter(limit=7, after=after)).series:
        found += [key for key, _ in page]
        after = found[-1]
    assert found == every


def test_a_full_history_takes_less_than_a_mebibyte() -> None:
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    history = RateHistory()
    for tick in range(1, 20):
        history.add(tick, 5.0, sample({topic: 1 for topic in range(10, 2000)}, links=250), GROUPS)
    gc.collect()  # and the lists of free tuples, which are not the history's
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(history) == MOST_SERIES or history._columns > MOST_COLUMNS - 3
    assert used < 1 << 20, used


@pytest.mark.parametrize("busy", [0, 500])
def test_a_sample_of_a_full_history_takes_less_than_a_few_milliseconds(busy: int) -> None:
    history = RateHistory()
    best = 1.0
    for tick in range(1, 30):
        made = sample({topic: 1 + topic for topic in range(10, 10 + busy)}, links=200)
        begun = time.perf_counter()
        history.add(tick, 5.0, made, GROUPS)
        best = min(best, time.perf_counter() - begun)
    assert best < 0.005, best  # about 0.5 ms where nothing else runs


def test_columns_have_one_name_for_each_value() -> None:
    assert [*rates.COLUMNS] == [NODE, GROUP, LINK, INBOUND, CALLBACK, TOPIC]
