"""`routerctl` over an API: keys, addresses, and an API that does not answer."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api, Control
from tests.support.ports import free_port

KEYS = "writer-key-0001:read+write:edge,admin-key-0001,reader-key-0001:read"


@pytest.fixture
def api(sqlite_url: str) -> Iterator[Api]:
    """An API that wants keys."""
    with Api(sqlite_url, keys=KEYS) as found:
        yield found


def test_a_key_comes_from_a_flag_a_file_or_the_environment(
    api: Api, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--server", api.url)
    told = control("get", "all", *at, code=1)
    hint = "with routerctl, use --key-file; programs send it as Authorization: Bearer KEY"
    assert told.err == f"error: this API needs a key ({hint})\n"
    assert control("get", "all", *at, "--key", "nobody's key", code=1).err == "error: this key is not known\n"
    assert control("get", "all", *at, "--key", "reader-key-0001").err == "no resources are declared\n"
    path = control.file("admin-key-0001\n", "key")
    control("apply", "-f", control.file(EDGE), *at, "--key-file", path)
    monkeypatch.setenv("EVENTD_SERVER", api.url)
    monkeypatch.setenv("EVENTD_API_KEY_FILE", path)
    assert control("get", "eg", "-o", "name").lines == ["eventgroup/edge"]
    monkeypatch.setenv("EVENTD_API_KEY", "reader-key-0001")
    told = control("fed", "event", "emit", "--group", "edge", "--type", "t", code=1)
    assert told.err.startswith("error: this key lacks the scope write")
    control("fed", "event", "emit", "--group", "edge", "--type", "t", "--key-file", path)


def test_a_key_for_one_group_works_where_the_group_is_named(api: Api, control: Control) -> None:
    at = ("--server", api.url, "--key")
    control("apply", "-f", control.file(EDGE), *at, "admin-key-0001")
    refused = control("get", "all", *at, "writer-key-0001", code=1)
    assert refused.err.endswith("(name the group if the request takes one, else use a key without prefixes)\n")
    control("fed", "event", "emit", "--group", "edge", "--type", "t", "--id", "i", *at, "writer-key-0001")
    assert control("fed", "event", "list", "--group", "edge", "-o", "name", *at, "writer-key-0001").lines == ["i"]
    assert control("fed", "event", "list", "-o", "name", *at, "writer-key-0001").lines == ["i"], "of its groups"


@pytest.mark.parametrize("command", [("get", "all"), ("topic", "list")])
@pytest.mark.parametrize("key", ["ключ", "two\nlines", "caf\udce9"])
def test_a_key_that_can_be_none_is_not_sent(control: Control, command: tuple[str, ...], key: str) -> None:
    told = control(*command, "--server", "http://127.0.0.1:1", "--key", key, code=1)
    assert told.err == (
        "error: the API key contains characters that are not allowed in a key"
        " (correct --key, EVENTD_API_KEY or the key file: a key is printable ASCII)\n"
    )


def test_an_unreadable_key_file_is_named(control: Control) -> None:
    told = control("get", "all", "--server", "http://127.0.0.1:1", "--key-file", "missing", code=1)
    assert told.err == "error: missing: No such file or directory (the file must contain only the key)\n"
    empty = control.file("\n", "empty")
    told = control("get", "all", "--server", "http://127.0.0.1:1", "--key-file", empty, code=1)
    assert told.err == f"error: {empty}: is empty (the file must contain only the key)\n"


def test_a_key_that_may_only_write_is_told_to_name_the_group(sqlite_url: str, control: Control) -> None:
    with Api(sqlite_url, keys="sensor-key-0001:write:edge,admin-key-0001") as api:
        at = ("--server", api.url, "--key")
        control("apply", "-f", control.file(EDGE), *at, "admin-key-0001")
        emit = ("fed", "event", "emit", "--type", "t", "--id", "i", "-o", "name")
        told = control(*emit, *at, "sensor-key-0001", code=1)
        hint = "use a key with this scope; this one has write; name the group with --group"
        assert told.err == f"error: this key lacks the scope look ({hint})\n"
        assert control(*emit, "--group", "edge", *at, "sensor-key-0001").lines == ["i"]


@pytest.mark.parametrize(
    ("both", "told"),
    [
        (("--server", "http://127.0.0.1:1", "--data-dir", "x"), "--server and --data-dir contradict each other"),
        (("--server", "http://127.0.0.1:1", "--state-file", "x"), "--server and --state-file contradict each other"),
        (("--key", "k", "--key-file", "x"), "--key and --key-file contradict each other"),
    ],
)
def test_one_command_line_names_one_node_and_one_key(control: Control, both: tuple[str, ...], told: str) -> None:
    assert control("get", "all", *both, code=2).err.startswith(f"error: {told}: leave one out (see routerctl get")


def test_a_database_that_is_named_comes_before_a_server_of_the_environment(
    control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EVENTD_SERVER", "http://127.0.0.1:1")
    told = control("get", "all", "--data-dir", str(tmp_path / "node"), code=3)
    assert "eventd.db does not exist" in told.err


def test_nobody_there(control: Control) -> None:
    port = free_port()
    told = control("fed", "status", "--server", f"127.0.0.1:{port}", code=1)
    assert told.err == (
        f"error: cannot reach http://127.0.0.1:{port}: Connection refused"
        " (check that the node is running and that this is the address of its API)\n"
    )


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("ftp://host", "the server's address is not a valid API address"),
        ("http://", "the server's address is not a valid API address"),
        ("http://host:port", "the server's address cannot be read"),
        ("http://me:secret@host", "the server's address must not contain a user name or a password"),
    ],
)
def test_a_server_that_is_no_address(control: Control, server: str, message: str) -> None:
    told = control("fed", "status", "--server", server, code=1)
    assert told.err.startswith(f"error: {message} (")
    assert "secret" not in told.err


class Stranger(http.server.BaseHTTPRequestHandler):
    """Some other web server."""

    page = b"<html/>"

    def do_GET(self) -> None:
        status = 200 if "resources" in self.path else 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize("page", [b"<html/>", b"[]", b"[" * 100_000, b'"\\ud800"', b""])
def test_another_server_is_recognised_as_one(control: Control, page: bytes) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), type("Other", (Stranger,), {"page": page}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        at = f"http://127.0.0.1:{server.server_port}"
        assert control("get", "all", "--server", at, code=1).err == (
            f"error: {at} does not answer like a routerd-eventd node"
            " (check that a routerd-eventd serves this address)\n"
        )
        told = control("fed", "status", "--server", at, code=1)
        assert told.err == "error: the server answered 404 (check that a routerd-eventd serves this address)\n"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_answer_is_bounded(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.cli.gateway.api_gateway.MAX_ANSWER_BYTES", 1 << 20)
    server = http.server.HTTPServer(("127.0.0.1", 0), type("Large", (Stranger,), {"page": b" " * (2 << 20)}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        at = f"http://127.0.0.1:{server.server_port}"
        assert control("get", "all", "--server", at, code=1).err == (
            f"error: the answer of {at} is larger than 1 MiB (request fewer rows, for example with --limit)\n"
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
