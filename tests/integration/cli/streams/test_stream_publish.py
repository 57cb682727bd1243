"""routerctl stream publish: what reaches a server, and what the command prints."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import Control
from tests.integration.cli.streams.conftest import QuicThread

ORDERS = "t1/default/orders"


def test_each_payload_is_a_record(control: Control, quic: QuicThread) -> None:
    done = control("stream", "publish", ORDERS, "bolt", "nut", *quic.options)
    assert done.out == f"stream/{ORDERS}: 2 records published at 0 to 1\n"
    assert quic.server.records[ORDERS] == [b"bolt", b"nut"]
    assert quic.server.frames == [2]
    assert control("stream", "publish", ORDERS, "ü", *quic.options).out == f"stream/{ORDERS}: 1 record published at 2\n"
    assert quic.server.records[ORDERS][2] == "ü".encode()


def test_standard_input_is_one_payload_byte_for_byte(control: Control, quic: QuicThread) -> None:
    content = bytes(range(256)) + b"\n"
    for words in ((), ("-",)):
        control("stream", "publish", ORDERS, *words, *quic.options, stdin=content)
    control("stream", "publish", ORDERS, *quic.options, stdin=b"")
    assert quic.server.records[ORDERS] == [content, content, b""]


def test_lines_are_published_in_batches(control: Control, quic: QuicThread) -> None:
    lines = "".join(f"{n}\n" for n in range(2500))
    done = control("stream", "publish", ORDERS, "-", "--batch", "1000", *quic.options, stdin=lines)
    assert done.out == f"stream/{ORDERS}: 2,500 records published at 0 to 2499\n"
    assert quic.server.records[ORDERS] == [str(n).encode() for n in range(2500)]
    assert quic.server.frames == [1000, 1000, 500]
    assert control("stream", "publish", ORDERS, "--batch", "9", *quic.options, stdin="\n\n").out == (
        f"stream/{ORDERS}: nothing to publish\n"
    )


def test_each_record_has_an_answer_if_that_is_asked_for(control: Control, quic: QuicThread) -> None:
    done = control("stream", "publish", ORDERS, "a", "b", "c", "--ack", "message", *quic.options, "-o", "json")
    assert [(row["offset"], row["count"]) for row in done.json] == [(0, 1), (1, 1), (2, 1)]
    assert {(row["durability"], row["epoch"]) for row in done.json} == {("fsync", "e1")}
    assert control("stream", "publish", ORDERS, "d", "-o", "name", *quic.options).lines == ["3"]


def test_without_an_answer_only_the_number_of_records_is_shown(control: Control, quic: QuicThread) -> None:
    done = control("stream", "publish", ORDERS, "a", "b", "--ack", "none", *quic.options)
    assert done.out == f"stream/{ORDERS}: 2 records sent, without an answer\n"
    assert quic.server.records[ORDERS] == [b"a", b"b"]
    assert quic.server.frames == []


def test_a_missing_stream_is_not_found(control: Control, quic: QuicThread) -> None:
    done = control("stream", "publish", "t1/default/nothing", "a", *quic.options, code=3)
    assert done.err == (
        "error: stream t1/default/nothing does not exist (create it with routerctl stream create t1/default/nothing)\n"
    )


def test_what_was_confirmed_before_a_refusal_is_reported(control: Control, quic: QuicThread) -> None:
    quic.server.refuse = lambda _: "topic full" if quic.server.records[ORDERS] else ""
    lines = "".join(f"{n}\n" for n in range(2500))
    done = control("stream", "publish", ORDERS, "--batch", "1000", *quic.options, stdin=lines, code=1)
    assert done.err.splitlines()[0] == "note: 1,000 records published at 0 to 999"
    assert done.err.splitlines()[1].startswith("error: topic full (wait until records are evicted")


def test_a_token_comes_from_a_file_and_is_never_shown(control: Control, quic: QuicThread) -> None:
    file = control.file("my-secret\n", "token")
    control("stream", "publish", ORDERS, "a", *quic.options, "--token-file", file)
    assert quic.server.tokens[-1] == "my-secret"
    quic.server.refuse_token = lambda _: "auth failed"
    refused = control("stream", "publish", ORDERS, "a", *quic.options, "--token-file", file, code=1)
    assert refused.err.startswith("error: auth failed (check the tenant and the token")
    assert "my-secret" not in refused.err
    bare = control("stream", "publish", ORDERS, "a", *quic.options, code=1)
    assert bare.err == "error: auth failed: no token was given (name its file with --token-file)\n"
    empty = control.file("", "empty")
    for path, words in {
        empty: "does not contain a token",
        "missing": "cannot read missing",
        "/": "is not a file",
    }.items():
        assert words in control("stream", "publish", ORDERS, "a", *quic.options, "--token-file", path, code=1).err


def test_the_node_and_the_token_may_come_from_the_environment(
    control: Control, quic: QuicThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTD_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("EVENTD_STREAM_SERVER", quic.server.address)
    monkeypatch.setenv("EVENTD_STREAM_CA_FILE", str(quic.server.ca))
    monkeypatch.setenv("EVENTD_STREAM_TOKEN_FILE", control.file("of the environment", "token"))
    control("stream", "publish", ORDERS, "a")
    assert quic.server.tokens[-1] == "of the environment"


def test_what_the_token_does_not_allow_is_named(control: Control, quic: QuicThread) -> None:
    quic.server.refuse = lambda _: "forbidden"
    for ack in "batch", "none":
        refused = control("stream", "publish", ORDERS, "a", "--ack", ack, *quic.options, code=1)
        assert refused.err == (
            "error: the token does not allow stream.publish:stream:t1/default/orders (use one with this permission)\n"
        )


def test_a_server_that_is_not_verified_gets_nothing(control: Control, quic: QuicThread) -> None:
    refused = control("stream", "publish", ORDERS, "a", "--server", quic.server.address, code=1)
    assert "127.0.0.1" in refused.err
    assert "give a file with the CA that issued it" in refused.err
    empty = control.file("no certificate", "ca")
    refused = control("stream", "publish", ORDERS, "a", "--server", quic.server.address, "--ca", empty, code=1)
    assert f"{empty}: the CA file contains no certificate" in refused.err
    refused = control("stream", "publish", ORDERS, "a", "--server", quic.server.address, "--pin", "0" * 64, code=1)
    assert "has the pin" in refused.err
    assert quic.server.tokens == []
    control("stream", "publish", ORDERS, "a", "--server", quic.server.address, "--insecure")
    assert quic.server.records[ORDERS] == [b"a"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--server", "127.0.0.1:1"), 1, "error: cannot reach 127.0.0.1:1"),
        (("--server", "http://127.0.0.1:8780"), 2, "--server must be HOST:PORT of the node's QUIC listener"),
        (("--server", "127.0.0.1:port"), 1, "'127.0.0.1:port' is not a valid address"),
        ((), 2, "missing option '--server'"),
        (("--server", "a:1", "--pin", "nonsense"), 1, "'nonsense' is not a valid pin"),
        (("--server", "a:1", "--ca", "missing.pem"), 1, "cannot read missing.pem"),
        (("--server", "a:1", "--insecure", "--pin", "0" * 64), 2, "--insecure contradicts --ca and --pin"),
        (("--server", "192.0.2.1:5000", "--insecure"), 1, "must be verified"),
        (("--server", "a:1", "-"), 2, "- must be the only payload"),
        (("--server", "a:1", "--batch", "0"), 2, "must be at least 1"),
        (("--server", "a:1", "--ack", "perhaps"), 2, "'perhaps' is not one of none, message, batch"),
        (("--server", "a:1", "x" * (1 << 17)), 1, "cannot reach a:1"),
    ],
)
def test_a_wrong_option_names_what_is_wrong(control: Control, options: tuple[str, ...], code: int, words: str) -> None:
    done = control("stream", "publish", ORDERS, "a", *options, code=code)
    assert (done.out, words in done.err, "Traceback" in done.err) == ("", True, False), done.err


def test_too_large_input_is_refused_before_anything_is_sent(control: Control, quic: QuicThread) -> None:
    large = b"x" * (1 << 20) + b"y"
    refused = control("stream", "publish", ORDERS, *quic.options, stdin=large, code=1)
    assert "standard input has more than 1 MiB" in refused.err
    refused = control("stream", "publish", ORDERS, "--batch", "5", *quic.options, stdin=b"a\n" + large, code=1)
    assert "line 2 of the standard input is longer than 1 MiB" in refused.err
    assert quic.server.records[ORDERS] == []


def test_the_extra_is_named_if_it_is_missing(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.quic.library.find_spec", lambda _: None)
    refused = control("stream", "publish", ORDERS, "a", "--server", "127.0.0.1:1", code=1)
    assert refused.err == ("error: a connection over QUIC needs the extra quic (pip install 'routerd-eventd[quic]')\n")


def test_arguments_that_are_not_text_arrive_as_they_were_written(control: Control, quic: QuicThread) -> None:
    control("stream", "publish", ORDERS, b"\xff\xfe".decode("utf-8", "surrogateescape"), *quic.options)
    assert quic.server.records[ORDERS] == [b"\xff\xfe"]
    assert json.dumps(quic.server.frames) == "[1]"
