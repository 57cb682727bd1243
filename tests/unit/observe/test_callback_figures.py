"""The metrics of callbacks are bounded: those of deleted ones go, and too many have none of their own."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eventd.observe import callback_figures
from eventd.observe.callback_figures import MOST, MOST_REASONS, OTHER, CallbackFigure, CallbackFigures

FEW = 10


def series(registry: CollectorRegistry) -> int:
    return sum(not line.startswith(b"#") for line in generate_latest(registry).splitlines())


def use(figures: CallbackFigures, name: str) -> None:
    figures.attempted(name, 1000, "")
    figures.attempted(name, 1000, "http_503")
    figures.attempted(name, 1000, "timeout")
    figures.delivered(name, 3, 5)
    figures.refused(name, 1)


@pytest.fixture(autouse=True)
def room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST == 1000, "as the reference of metrics says"
    monkeypatch.setattr(callback_figures, "MOST", FEW)


def test_callbacks_that_are_made_and_deleted_leave_no_series() -> None:
    registry = CollectorRegistry()
    figures = CallbackFigures(registry)
    for number in range(2 * FEW):
        name = f"c{number}"
        use(figures, name)
        figures.show([CallbackFigure(name, "running", 1, 0.5, 0)])
        counted = registry.get_sample_value("routerd_eventd_callback_attempts_total", {"callback": name})
        assert counted == 3, "it has room, because those before it are forgotten"
        figures.forget(name)
    figures.forget("unknown")
    figures.show([])
    assert series(registry) == 0


def test_the_first_ones_have_series_and_a_deleted_one_makes_room() -> None:
    registry = CollectorRegistry()
    figures = CallbackFigures(registry)
    use(figures, "first")
    each = series(registry)
    for number in range(2 * FEW):
        use(figures, f"c{number}")
    assert series(registry) == FEW * each
    assert registry.get_sample_value("routerd_eventd_callback_attempts_total", {"callback": "first"}) == 3
    assert registry.get_sample_value("routerd_eventd_callback_attempts_total", {"callback": "c19"}) is None
    figures.forget("first")
    use(figures, "c19")
    assert registry.get_sample_value("routerd_eventd_callback_attempts_total", {"callback": "c19"}) == 3
    assert series(registry) == FEW * each


def test_an_endpoint_that_answers_every_status_has_few_series() -> None:
    registry = CollectorRegistry()
    figures = CallbackFigures(registry)
    for status in range(300, 1000):
        figures.attempted("hook", 1000, f"http_{status}")
    figures.attempted("hook", 1000, "http_300")

    def count(reason: str) -> float | None:
        labels = {"callback": "hook", "reason": reason}
        return registry.get_sample_value("routerd_eventd_callback_failures_total", labels)

    assert (count("http_300"), count("http_999"), count(OTHER)) == (2, None, 700 - MOST_REASONS)
