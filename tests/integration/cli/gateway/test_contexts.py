"""Contexts: which node a command works on, where its key comes from, and whose file counts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api, Control

KEYS = "admin-key-0001,reader-key-0001:read"
REFUSED = "http://127.0.0.1:1"
"""Where nothing listens."""


@pytest.fixture
def api(sqlite_url: str) -> Iterator[Api]:
    """An API that wants keys."""
    with Api(sqlite_url, keys=KEYS) as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "routerctl" / "contexts.yaml"


def test_the_context_in_use_names_the_node_and_its_key(api: Api, control: Control) -> None:
    key = control.file("admin-key-0001\n", "key")
    control("context", "add", "a", "--server", api.url, "--key-file", key)
    assert "eventd.db does not exist" in control("get", "all", code=3).err
    assert control("context", "use", "a").out == "context/a is in use\n"
    control("apply", "-f", control.file(EDGE))
    assert control("get", "eg", "-o", "name").lines == ["eventgroup/edge"]
    assert control("context", "current", "-o", "name").lines == ["a"]
    control("context", "use", "--none")
    assert control("context", "current", code=3).err.startswith("error: no context is in use")
    assert "eventd.db does not exist" in control("get", "eg", code=3).err


def test_a_key_is_what_a_program_prints_and_is_not_stored(api: Api, control: Control, file: Path) -> None:
    key = control.file("admin-key-0001\n", "key")
    control("context", "add", "a", "--server", api.url, "--key-command", f"cat {key}")
    assert control("get", "all", "--context", "a").err == "no resources are declared\n"
    assert "admin-key" not in file.read_text()
    control("context", "add", "a", "--server", api.url, "--key-command", "false", "--replace")
    told = control("get", "all", "--context", "a", code=1)
    hint = "correct keyCommand of the context; it must print only the key"
    assert told.err == f"error: false exited with status 1 instead of a key ({hint})\n"
    control("context", "add", "a", "--server", api.url, "--key-command", "no-such-program", "--replace")
    assert "cannot start no-such-program" in control("get", "all", "--context", "a", code=1).err


def test_the_command_line_precedes_variables_and_these_the_context(
    api: Api, control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key, wrong = control.file("admin-key-0001\n", "key"), control.file("a wrong key\n", "wrong")
    control("context", "add", "good", "--server", api.url, "--key-file", key)
    control("context", "add", "bad", "--server", REFUSED, "--key-file", wrong, "--use")
    assert "cannot reach" in control("get", "all", code=1).err
    assert control("get", "all", "--context", "good").err == "no resources are declared\n"
    assert control("get", "all", "--server", api.url, code=1).err.startswith("error: this API needs a key")
    assert "eventd.db does not exist" in control("get", "all", "--data-dir", str(tmp_path / "no"), code=3).err
    monkeypatch.setenv("EVENTD_DATA_DIR", str(tmp_path / "no"))
    assert "eventd.db does not exist" in control("get", "all", code=3).err
    monkeypatch.setenv("EVENTD_SERVER", REFUSED)
    monkeypatch.setenv("EVENTD_CONTEXT", "good")
    assert control("get", "all").err == "no resources are declared\n"
    monkeypatch.setenv("EVENTD_API_KEY_FILE", wrong)
    assert control("get", "all", code=1).err == "error: this key is not known\n"
    assert control("get", "all", "--context", "good").err == "no resources are declared\n"
    assert (
        control("get", "all", "--context", "good", "--key-file", wrong, code=1).err == "error: this key is not known\n"
    )


@pytest.mark.parametrize("other", [("--server", REFUSED), ("--data-dir", "x"), ("--database", "sqlite:///x")])
def test_a_context_and_another_node_on_one_command_line_contradict(control: Control, other: tuple[str, str]) -> None:
    told = control("get", "all", "--context", "a", *other, code=2)
    assert told.err.startswith(f"error: --context and {other[0]} contradict each other: leave one out")


def test_an_unknown_context_is_named(control: Control) -> None:
    hint = "`routerctl context list` shows the contexts"
    assert control("get", "all", "--context", "b", code=3).err == f"error: there is no context 'b' ({hint})\n"
    assert control("context", "remove", "b", code=3).err == f"error: there is no context 'b' ({hint})\n"


def test_only_its_user_may_read_the_file(control: Control, file: Path) -> None:
    control("context", "add", "a", "--server", REFUSED, "--use")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for mode in (0o640, 0o602):
        file.chmod(mode)
        told = control("get", "all", code=1)
        assert told.err == f"error: other users may read or change {file} (chmod 600 {file})\n"
        assert control("context", "list", code=1).err == told.err
    assert "eventd.db does not exist" in control("get", "all", "--data-dir", "x", code=3).err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_does_not_count(control: Control, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control("context", "add", "a", "--server", REFUSED, "--use")
    os.chown(file, 65534, 65534)
    assert control("get", "all", code=1).err.startswith(f"error: {file} belongs to another user")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contexts: [", "is not valid YAML"),
        ("nodes: {}", "may have the members `current` and `contexts` only"),
        ("contexts: {a: {}}", "context a: Object missing required field `server`"),
        ("contexts: {a: {server: x, key: s3cret}}", "context a: 'key' is not a member of a context"),
        ("contexts: {a: {server: x, keyCommand: s3cret}}", "context a: Expected `array`, got `str`"),
        ("contexts: {a/b: {server: x}}", "'a/b' cannot be the name of a context"),
    ],
)
def test_a_wrong_file_is_reported_with_the_place_and_without_values(
    control: Control, file: Path, text: str, told: str
) -> None:
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_text(text)
    found = control("get", "all", code=1).err
    assert str(file) in found
    assert told in found
    assert "s3cret" not in found


def test_the_default_group_of_a_context(api: Api, control: Control) -> None:
    key = control.file("admin-key-0001\n", "key")
    control("context", "add", "a", "--server", api.url, "--key-file", key, "--group", "edge", "--use")
    control(
        "apply",
        "-f",
        control.file(EDGE),
        "-f",
        control.file(EDGE.replace("edge", "other").replace("to-cloud", "to-other"), "other.yaml"),
    )
    control("federation", "event", "emit", "--type", "t", "--id", "i")
    assert control("federation", "event", "list", "--group", "edge", "-o", "name").lines == ["i"]


@pytest.fixture
def protected(api: Api, control: Control) -> Control:
    """`routerctl` in a protected context, whose node has the group edge and the topic x."""
    key = control.file("admin-key-0001\n", "key")
    control("context", "add", "a", "--server", api.url, "--key-file", key, "--protected", "--use")
    control("apply", "-f", control.file(EDGE))
    control("topic", "put", "x", "--set", "ttl_ms=1h")
    return control


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions of commands, each answered with yes."""
    found: list[str] = []
    monkeypatch.setattr("eventd.cli.gateway.protection.can_ask", lambda: True)
    monkeypatch.setattr("eventd.cli.gateway.protection.confirm", found.append)
    return found


def test_a_protected_context_asks_before_something_ends(protected: Control) -> None:
    told = protected("delete", "eventpeer", "to-cloud", code=1)
    assert told.err.startswith("error: there is no terminal to ask on whether to delete the eventpeer to-cloud:")
    assert "whether to delete the topic x" in protected("topic", "delete", "x", code=1).err
    assert "dead letters of the queue x" in protected("queue", "retry", "x", code=1).err
    assert "delayed jobs of the queue x" in protected("queue", "release", "x", "1", code=1).err
    assert "x" in protected("topic", "list", "-o", "name").lines
    assert protected("delete", "eventpeer", "to-cloud", "--dry-run").out
    protected("topic", "delete", "x", "--yes")
    assert "x" not in protected("topic", "list", "-o", "name").lines


def test_a_protected_context_asks_before_an_apply_deletes_something(protected: Control, asked: list[str]) -> None:
    only = EDGE.split("---")[0]
    protected("apply", "-f", protected.file(only))
    protected("apply", "-f", protected.file(only), "--prune", "--dry-run")
    assert asked == []
    protected("apply", "-f", protected.file(f"{only}  retention: {{maxAge: 1h}}\n"), "--prune")
    assert asked == [
        "The context a is protected. Apply the files, which deletes eventpeer/to-cloud and lowers retention.maxAge of"
        " eventgroup/edge, by which older records or events are deleted?"
    ]
    protected("apply", "-f", protected.file(only), "--yes")


def test_a_protected_context_asks_before_a_topic_keeps_less(protected: Control, asked: list[str]) -> None:
    protected("topic", "set", "x", "ttl_ms=2h", "lease_ms=1s")
    protected("topic", "put", "new", "--set", "ttl_ms=1")
    assert asked == []
    protected("topic", "set", "x", "ttl_ms=1h")
    protected("topic", "put", "x", "--set", "cap_records=5")
    assert asked == [
        f"The context a is protected. Change {field} of the topic x, which deletes records that it keeps now?"
        for field in ("ttl_ms", "cap_records")
    ]
    protected("topic", "set", "x", "cap_records=1", "--yes")
    assert len(asked) == 2


def test_a_context_is_replaced_only_on_request_and_removed(control: Control) -> None:
    control("context", "add", "a", "--server", "localhost", "--colour", "red", "--use")
    assert "the context a exists" in control("context", "add", "a", "--server", "other", code=1).err
    control("context", "add", "a", "--server", "other", "--replace")
    assert control("context", "list", "-o", "json").json[0]["server"] == "http://other:8780"
    assert control("context", "remove", "a").out == "context/a removed\n"
    assert control("context", "list", "-o", "json").json == []
    assert control("context", "current", code=3).err
    assert (
        "belong together" in control("context", "add", "a", "--server", "https://x", "--client-cert", "c", code=2).err
    )
