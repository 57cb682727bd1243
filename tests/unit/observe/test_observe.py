"""Log lines and metrics: their form, and that neither contains a payload or grows without bound."""

from __future__ import annotations

import io
import json
import logging
from asyncio import InvalidStateError
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from eventd.errors import Invalid
from eventd.log.cursors.cursors import LinkState
from eventd.node.membership import GroupMetrics
from eventd.observe.consumer_figures import LINK_STATES
from eventd.observe.log_lines import MOST_BYTES, JsonLines, TextLines, configure_logging
from eventd.observe.metrics import LABELS, METRICS_CONTENT_TYPE, TASK_FAILURES, Metrics
from eventd.runtime.supervisor import Failure


def record(message: str = "it happened", *args: object, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("eventd.test").makeRecord(
        "eventd.test", level, "f.py", 1, message, args, None, extra=extra
    )
    made.created = 1_780_136_000.5
    return made


def line(*args: Any, **extra: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(JsonLines().format(record(*args, **extra)))
    return told


def failed(error: BaseException, *, cause: BaseException | None = None) -> logging.LogRecord:
    try:
        raise error from cause
    except BaseException as raised:
        made = record("it broke", level=logging.ERROR)
        made.exc_info = (type(raised), raised, raised.__traceback__)
        return made


# --- lines -------------------------------------------------------------------------------------------------------


def test_a_json_line_has_time_level_logger_message_and_the_extra_fields() -> None:
    told = line("sent %d events", 3, group="edge", seconds=0.25, peers=("a", "b"))
    assert told == {
        "ts": "2026-05-30T10:13:20.500000Z",
        "level": "info",
        "logger": "eventd.test",
        "msg": "sent 3 events",
        "group": "edge",
        "seconds": 0.25,
        "peers": ["a", "b"],
    }


def test_a_json_line_is_one_line_whatever_it_holds() -> None:
    text = JsonLines().format(record("a\nb\u2028", group="x\ny"))
    assert "\n" not in text
    assert json.loads(text)["group"] == "x\ny"


def test_an_extra_field_does_not_replace_one_of_the_four() -> None:
    assert line(level_="x", logger="mine")["logger"] == "eventd.test"
    assert line(logger="mine")["logger_"] == "mine"


@pytest.mark.parametrize(
    "name",
    [
        *("secret", "payload", "body", "signature", "authorization", "password", "token", "nonce", "cookie"),
        *("api_token", "requestBody", "client-secret", "PAYLOAD".lower(), "credentials"),
    ],
)
def test_what_is_named_like_a_secret_or_a_payload_is_left_out(name: str) -> None:
    assert "geheim" not in json.dumps(line(**{name: "geheim"}))
    assert "geheim" not in TextLines(colour=False).format(record(**{name: "geheim"}))
    assert "geheim" not in json.dumps(line(around={"fine": 1, name: "geheim"}))


def test_what_is_about_a_secret_is_kept() -> None:
    kept = {"secret_file": "/etc/k", "body_bytes": 12, "key_id": "k1", "nonce_count": 1, "everybody": "x"}
    assert line(**kept).items() >= kept.items()


def test_bytes_are_counted_not_shown_and_long_text_is_cut() -> None:
    told = line(raw=b"geheim", text="x" * 5000)
    assert told["raw"] == "<6 bytes>"
    assert len(told["text"]) == 2001


@pytest.mark.parametrize(
    "extra",
    [
        {"detail": "x" * 2000, "names": ["y" * 1900] * 40},
        {"names": [f"name-{number}" for number in range(9000)]},
        {"around": {f"name-{number}": "z" * 100 for number in range(900)}},
        {f"field_{number}": "\u2028" * 1900 for number in range(9)},
        {"nested": [["y" * 1900] * 40]},
    ],
    ids=["texts", "many", "mapping", "escaped", "nested"],
)
def test_a_line_has_at_most_16_kb_and_keeps_what_fits(extra: dict[str, Any]) -> None:
    """Collectors of logs divide longer lines, or drop them."""
    assert MOST_BYTES == 16 * 1024
    made = record("it happened", group="edge", **extra)
    text = JsonLines().format(made)
    assert len(text.encode()) <= MOST_BYTES
    told = json.loads(text)
    assert (told["msg"], told["group"], told["level"]) == ("it happened", "edge", "info")
    assert "…" in text
    assert all(len(one.encode()) <= MOST_BYTES for one in TextLines(colour=False).format(made).splitlines())


def test_a_long_message_is_cut_too() -> None:
    text = JsonLines().format(record("ü" * 40_000))
    assert 4000 < len(text.encode()) <= MOST_BYTES
    assert json.loads(text)["msg"].endswith("…")


def test_a_line_that_fits_is_not_cut() -> None:
    names = ["y" * 1900] * 8
    assert line(names=names)["names"] == names


def test_values_of_other_kinds_are_text() -> None:
    assert line(state=LinkState.PAUSED, which=Invalid, nothing=None)["state"] == "paused"


def test_an_error_is_told_with_its_place_and_its_causes() -> None:
    told = json.loads(JsonLines().format(failed(Invalid("the name is missing"), cause=OSError(28, "No space left"))))
    assert told["error"] == "Invalid: the name is missing"
    assert told["causes"] == ["OSError: [Errno 28] No space left"]
    assert "test_observe.py" in told["trace"][-1]


@pytest.mark.parametrize(
    "error", [ValueError("geheim"), KeyError("geheim"), UnicodeError("geheim"), Exception("geheim")]
)
def test_the_text_of_an_error_that_may_quote_a_value_is_left_out(error: Exception) -> None:
    made = failed(Invalid("wrong"), cause=error)
    for text in (JsonLines().format(made), TextLines(colour=False).format(made), JsonLines().format(failed(error))):
        assert "geheim" not in text
        assert type(error).__name__ in text


def test_errors_that_cause_each_other_are_told_once() -> None:
    one, two = Invalid("one"), Invalid("two")
    one.__cause__, two.__cause__ = two, one
    made = record(level=logging.ERROR)
    made.exc_info = (Invalid, one, None)
    assert json.loads(JsonLines().format(made))["causes"] == ["Invalid: two"]


def test_a_line_of_text_is_aligned_and_readable() -> None:
    text = TextLines(colour=False).format(record("ready", api="127.0.0.1:8780", note="two words", n=3, empty=""))
    assert text == '10:13:20.500 INFO    ready  api=127.0.0.1:8780 note="two words" n=3 empty=""'
    assert TextLines(colour=False).format(record("ready")) == "10:13:20.500 INFO    ready"


def test_text_from_outside_cannot_start_a_line_or_steer_the_terminal() -> None:
    evil = "\x1b[2J\x9b31m\u202e\u2066\u200b\x7f"
    for lines in (TextLines(colour=False), JsonLines()):
        text = lines.format(record(f"a\n12:00:00 INFO fake {evil}", peer=f"x\ny{evil}", peers=(evil,)))
        assert text.isprintable(), ascii(text)


def test_colour_goes_by_level() -> None:
    warned, told = (TextLines(colour=True).format(record(level=level)) for level in (logging.WARNING, logging.INFO))
    assert "\x1b[33mWARNING\x1b[0m" in warned
    assert "\x1b[32mINFO   \x1b[0m" in told


def test_an_error_as_text_has_its_frames_below() -> None:
    first, *frames = TextLines(colour=False).format(failed(Invalid("wrong"))).splitlines()
    assert first.endswith('it broke  error="Invalid: wrong"')
    assert all(frame.startswith("    ") for frame in frames)
    assert frames


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logging_restored() -> Iterator[None]:
    names = ("", "eventd", "aiohttp.access")
    before = {name: logging.getLogger(name).level for name in names}
    handlers = logging.root.handlers[:]
    logging.root.handlers.clear()
    yield
    logging.root.handlers[:] = handlers
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("aiohttp.server").filters.clear()
    logging.captureWarnings(False)


@pytest.mark.usefixtures("logging_restored")
@pytest.mark.parametrize(
    ("make", "format", "is_json"),
    [
        (io.StringIO, "auto", True),
        (Terminal, "auto", False),
        (Terminal, "json", True),
        (io.StringIO, "text", False),
    ],
)
def test_text_on_a_terminal_and_json_elsewhere(make: Callable[[], io.StringIO], format: str, is_json: bool) -> None:
    stream = make()
    configure_logging(stream, format=format)
    logging.getLogger("eventd.x").info("hello")
    assert stream.getvalue().startswith("{") is is_json
    assert ("\x1b[" in stream.getvalue()) is (make is Terminal and not is_json)


@pytest.mark.usefixtures("logging_restored")
def test_no_colour_where_none_is_wanted() -> None:
    stream = Terminal()
    configure_logging(stream, colour=False)
    logging.getLogger("eventd.x").warning("hello")
    assert "\x1b" not in stream.getvalue()


@pytest.mark.usefixtures("logging_restored")
def test_the_level_is_ours_and_libraries_only_warn() -> None:
    stream = io.StringIO()
    configure_logging(stream, level="debug")
    for name in ("eventd.x", "alembic.runtime.migration", "aiohttp.access", "sqlalchemy.engine"):
        logging.getLogger(name).debug("from %s", name)
        logging.getLogger(name).info("from %s", name)
    assert [json.loads(text)["logger"] for text in stream.getvalue().splitlines()] == ["eventd.x", "eventd.x"]


@pytest.mark.usefixtures("logging_restored")
def test_a_client_that_speaks_no_http_and_a_request_at_the_end_of_a_stop_are_no_lines_but_a_fault_is() -> None:
    stream = io.StringIO()
    configure_logging(stream)
    server = logging.getLogger("aiohttp.server")
    for error in (BadHttpMessage("half a request"), InvalidStateError("invalid state"), TypeError("a fault of ours")):
        server.error("Error handling request", exc_info=error)
    assert [json.loads(text)["error"] for text in stream.getvalue().splitlines()] == ["TypeError: a fault of ours"]


# --- metrics -----------------------------------------------------------------------------------------------------


def told_of_everything() -> Metrics:
    metrics = Metrics()
    metrics.accepted("g", "b", 5, 2)
    metrics.refused("g", "bad_signature")
    metrics.refused("g", "own_source", 3)
    metrics.verified("g", "v1")
    metrics.verified("g", "v2")
    metrics.delivered("g", "b", 10, 1000, 0.02)
    metrics.rejected("g", "b", 1)
    metrics.failed("g", "b", "refused_connection")
    metrics.skewed("g", "b", -1.5)
    metrics.link("g", "b", state="blocked", lag_events=7, lag_seconds=3.5)
    metrics.head(42)
    metrics.topic("g", records=40, size=4000)
    metrics.history("g", size=3, lag=0.5)
    metrics.history_tiles("g", 96)
    metrics.history_witnessed("g", {"b": 2.0})
    metrics.pruned("g", 2)
    metrics.committed(0.004, 250)
    metrics.committed(0.0004, 1, in_loop=True)
    metrics.wal(8192)
    metrics.outbox(lambda: 4096, lambda: 3)
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"routerd_eventd_{name}", labels)


def test_no_two_protocols_of_a_group_give_one_name_to_two_metrics() -> None:
    names = [name for one in GroupMetrics.__bases__ for name in vars(one) if not name.startswith("_")]
    assert "rejected" in names
    assert len(names) == len(set(names)), "an object can implement only one of them"


def test_what_metrics_are_told_is_what_they_show() -> None:
    metrics = told_of_everything()
    link = {"group": "g", "peer": "b"}
    found = {
        "accepted": value(metrics, "receiver_accepted_total", group="g"),
        "duplicate": value(metrics, "receiver_duplicate_total", group="g"),
        "batches": value(metrics, "receiver_batches_total", group="g"),
        "rejected": value(metrics, "receiver_reject_total", group="g", reason="own_source"),
        "v1": value(metrics, "receiver_v1_requests_total", group="g"),
        "delivered": value(metrics, "outbox_delivery_total", **link, status="delivered"),
        "refused": value(metrics, "outbox_delivery_total", **link, status="refused"),
        "attempts": value(metrics, "outbox_delivery_attempts_total", **link),
        "failures": value(metrics, "outbox_failures_total", **link, reason="refused_connection"),
        "lag": value(metrics, "outbox_delivery_lag_seconds_sum", **link),
        "skew": value(metrics, "peer_clock_skew_seconds", **link),
        "head": value(metrics, "log_head_position"),
        "commits": value(metrics, "commit_records_count"),
        "in loop": value(metrics, "commits_in_loop_total"),
        "wal": value(metrics, "sqlite_wal_bytes"),
        "held": value(metrics, "outbox_held_bytes"),
        "waiting": value(metrics, "outbox_waiting_links"),
    }
    expected = {"accepted": 5, "duplicate": 2, "batches": 1, "rejected": 3, "v1": 1, "delivered": 10, "refused": 1}
    expected |= {"attempts": 2, "failures": 1, "lag": 0.02, "skew": -1.5, "head": 42, "commits": 2, "wal": 8192}
    expected |= {"held": 4096, "waiting": 3, "in loop": 1}
    assert found == expected


def test_a_link_is_in_one_state_at_a_time() -> None:
    metrics = told_of_everything()
    metrics.link("g", "b", state="running", lag_events=0, lag_seconds=0.0)
    states = {state: value(metrics, "link_state", group="g", peer="b", state=state) for state in LINK_STATES}
    assert states == {"running": 1, "backing-off": 0, "blocked": 0, "paused": 0, "failed": 0}


def test_the_states_are_those_of_the_log() -> None:
    assert set(LINK_STATES) == {str(state) for state in LinkState}


def test_what_follows_a_failure_is_what_the_supervisor_reports() -> None:
    assert set(TASK_FAILURES) == {str(failure) for failure in Failure}


def test_open_connections_are_counted_by_kind() -> None:
    metrics = Metrics()
    assert set(metrics.open_connections().values()) == {0}
    for group, count in (("", 4), ("edge", 2), ("lab", 3), ("(routemaster)", 1), ("gone", 9)):
        metrics.connections(group, count)
    metrics.connections("gone", None)
    metrics.publish_connections(3)
    metrics.local_connections(1)
    metrics.streams.connected()
    assert metrics.open_connections() == {
        "api": 4,
        "peers": 5,
        "routemaster": 1,
        "local": 1,
        "publish": 3,
        "quic": 1,
    }


def test_counters_that_alerts_watch_begin_at_zero() -> None:
    """Prometheus sees no increase in a series that appears with its first count."""
    metrics = Metrics()
    metrics.connections("g", 0)
    metrics.link("g", "b", state="running", lag_events=0, lag_seconds=0.0)
    metrics.subscriptions.show("g", "s", state="running", events=0, seconds=0.0)
    metrics.topic("g", records=0, size=0)
    metrics.callbacks.attempted("hook", 1000, "")
    assert {value(metrics, "task_failures_total", status=status) for status in TASK_FAILURES} == {0}
    assert value(metrics, "listener_turned_away_total", group="g", reason="full") == 0
    for status in ("refused", "lost"):
        assert value(metrics, "outbox_delivery_total", group="g", peer="b", status=status) == 0
    assert value(metrics, "subscription_runs_total", group="g", subscription="s", status="parked") == 0
    assert value(metrics, "receiver_reject_total", group="g", reason="full") == 0
    assert value(metrics, "callback_deliveries_total", callback="hook", status="refused") == 0
    assert value(metrics, "stream_published_total", result="dropped") == 0


def test_what_is_no_longer_declared_leaves_no_gauge_behind() -> None:
    metrics = told_of_everything()
    metrics.forget_link("g", "b")
    metrics.forget_link("g", "b")
    metrics.forget_topic("g")
    text = metrics.render().decode()
    names = ("routerd_eventd_link", "routerd_eventd_topic", "routerd_eventd_history")
    assert [text for text in text.splitlines() if text.startswith(names)] == []


def test_a_history_that_is_off_has_no_gauges_but_of_the_bytes_that_it_left() -> None:
    metrics = told_of_everything()
    metrics.forget_history("g")
    shown = [line.split("{")[0] for line in metrics.render().decode().splitlines() if "_history_" in line]
    assert [line for line in shown if not line.startswith("#")] == ["routerd_eventd_history_tile_bytes"]


def test_every_name_is_ours_and_every_label_from_the_closed_list() -> None:
    """Ids, subjects, addresses and texts of errors as labels would make series without bound."""
    for family in told_of_everything().registry.collect():
        assert family.name.startswith(("routerd_eventd_", "routemaster_", "process_"))
        assert family.documentation
        for sample in family.samples:
            assert set(sample.labels) - {"le"} <= set(LABELS), sample.name
    assert set(LABELS).isdisjoint({"event_id", "id", "subject", "address", "endpoint", "error"})


def test_two_nodes_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.head(1)
    assert value(other, "log_head_position") == 0


def test_what_is_rendered_is_prometheus_text_without_created_series() -> None:
    text = told_of_everything().render().decode()
    assert "# TYPE routerd_eventd_receiver_accepted_total counter" in text
    assert "_created" not in text
    assert METRICS_CONTENT_TYPE.startswith("text/plain; version=0.0.4")
