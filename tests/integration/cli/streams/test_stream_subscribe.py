"""routerctl stream subscribe: records as bytes or objects, gaps, and where it starts and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.integration.cli.conftest import Control
from tests.integration.cli.streams.conftest import QuicThread
from tests.support.processes import CONTROL

ORDERS = "t1/default/orders"


def test_records_are_shown_as_they_are(control: Control, quic: QuicThread) -> None:
    quic.server.records[ORDERS] = [b"bolt", b"\xc3\xbc", b"nut"]
    shown = control("stream", "subscribe", ORDERS, "--from", "earliest", "--count", "2", *quic.options)
    assert shown.out == "bolt\nü\n"
    assert control("stream", "subscribe", ORDERS, "--from", "2", "--count", "1", *quic.options).out == "nut\n"


def test_json_shows_offsets_and_what_is_not_text(control: Control, quic: QuicThread) -> None:
    quic.server.records[ORDERS] = [b"bolt", b"\xff\x00", b"", b"\x1b[31m"]
    shown = control("stream", "subscribe", ORDERS, "--from", "earliest", "--count", "4", "-o", "json", *quic.options)
    assert [json.loads(line) for line in shown.lines] == [
        {"offset": 0, "payload": "bolt"},
        {"offset": 1, "base64": "/wA="},
        {"offset": 2, "payload": ""},
        {"offset": 3, "payload": "\x1b[31m"},
    ]
    assert "\x1b" not in shown.out


def test_a_gap_is_reported_to_stderr_and_as_an_object(control: Control, quic: QuicThread) -> None:
    quic.server.records[ORDERS] = [b"a", b"b", b"c"]
    quic.server.oldest = 2
    words = f"gap: stream {ORDERS}: records 0 to 1 are lost (evicted by the caps of its topic)\n"
    shown = control("stream", "subscribe", ORDERS, "--from", "0", "--count", "1", *quic.options)
    assert (shown.out, shown.err) == ("c\n", words)
    shown = control("stream", "subscribe", ORDERS, "--from", "0", "--count", "1", "-o", "json", *quic.options)
    assert [json.loads(line) for line in shown.lines] == [
        {"gap": {"from": 0, "to": 1, "reason": "cap", "missed": 2}},
        {"offset": 2, "payload": "c"},
    ]
    assert shown.err == words


def test_an_offset_beyond_the_end_is_refused(control: Control, quic: QuicThread) -> None:
    refused = control("stream", "subscribe", ORDERS, "--from", "9", *quic.options, code=3)
    assert refused.err.startswith("error: the stream has no event yet at offset 9 (the nearest offset is 0")


def test_a_missing_stream_is_not_found(control: Control, quic: QuicThread) -> None:
    refused = control("stream", "subscribe", "t1/default/nothing", *quic.options, code=3)
    assert refused.err.startswith("error: stream t1/default/nothing does not exist (create it with")


@pytest.mark.parametrize("place", ["newest", "-1", "1.5", "9" * 30, "Earliest"])
def test_a_wrong_place_is_refused(control: Control, place: str) -> None:
    refused = control("stream", "subscribe", ORDERS, f"--from={place}", "--server", "127.0.0.1:1", code=2)
    assert "--from must be latest, earliest or an offset, not" in refused.err


def test_new_records_are_shown_until_ctrl_c(quic: QuicThread) -> None:
    server, options = quic.server, quic.options
    command = [*CONTROL, "stream", "subscribe", ORDERS, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        quic.until(lambda: server.feeds)
        for payload in (b"first", b"second"):
            quic.append(ORDERS, [payload])
            assert running.stdout.readline() == payload + b"\n"  # at once, although more may come
        running.send_signal(signal.SIGINT)
        assert (running.wait(20), running.stderr.read()) == (0, b"")


def test_a_subscription_continues_after_an_interruption(quic: QuicThread) -> None:
    server = quic.server
    command = [*CONTROL, "stream", "subscribe", ORDERS, "--count", "2", *quic.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        quic.until(lambda: server.feeds)
        quic.append(ORDERS, [b"first"])
        assert running.stdout.readline() == b"first\n"
        quic.call(server.cut)
        quic.append(ORDERS, [b"second"])
        assert running.stdout.readline() == b"second\n"
        assert (running.wait(20), running.stderr.read()) == (0, b"")


def test_a_reader_that_leaves_ends_the_command_without_a_traceback(quic: QuicThread) -> None:
    quic.server.records[ORDERS] = [b"x" * 1000] * 2000
    command = [*CONTROL, "stream", "subscribe", ORDERS, "--from", "earliest", *quic.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"x" * 1000 + b"\n"
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(20) == 1
    assert b"Traceback" not in said


def on_a_terminal(*words: str) -> bytes:
    """Run a command whose output is a terminal, and return what it shows."""
    primary, secondary = os.openpty()
    try:
        done = subprocess.run([*CONTROL, *words], stdout=secondary, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return os.read(primary, 1 << 16)
    finally:
        os.close(primary)
        os.close(secondary)


def test_a_payload_does_not_control_a_terminal(control: Control, quic: QuicThread) -> None:
    quic.server.records[ORDERS] = [b"\x1b[31mred", b"\xff\x00"]
    quic.server.values["k"] = b"\x1b]0;title\x07"
    shown = on_a_terminal("stream", "subscribe", ORDERS, "--from", "earliest", "--count", "2", *quic.options)
    assert shown.splitlines() == [b"\\x1b[31mred", b"\\xff\\x00"]
    assert on_a_terminal("cache", "get", "t1/default/primary", "k", *quic.options) == b"\\x1b]0;title\\x07\r\n"
