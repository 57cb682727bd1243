"""`routerctl db copy`: a node that moves to another database goes on there."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import EDGE, Control
from tests.support.processes import Processes
from tests.support.running import NodeProcess

EMIT = ("fed", "event", "emit", "--group", "edge", "--type", "t", "--subject")


@pytest.mark.postgres
def test_a_node_moves_to_postgres_with_its_events(control: Control, sqlite_url: str, postgres_url: str) -> None:
    old, new = ("--database", sqlite_url), ("--database", postgres_url)
    control("apply", "-f", control.file(EDGE), *old)
    control(*EMIT, "first", *old)
    url = control.file(postgres_url + "\n", "database.url")
    done = control("db", "copy", *old, "--to-file", url)
    assert "found equal there" in done.err
    assert {"blocks", "1"} <= {word for line in done.lines if line.startswith("blocks ") for word in line.split()}
    assert control("get", "all", "-o", "yaml", *new).out == control("get", "all", "-o", "yaml", *old).out
    control(*EMIT, "second", *new)
    events = control("fed", "event", "list", "--group", "edge", "-o", "json", *new).json
    assert [event["subject"] for event in events] == ["first", "second"]
    assert "is not empty" in control("db", "copy", *old, "--to-file", url, code=1).err


def test_a_database_that_a_node_serves_is_not_copied(control: Control, processes: Processes) -> None:
    node = NodeProcess(processes, "a")
    refused = control("db", "copy", "--data-dir", str(node.data), "--to", f"sqlite:///{control.folder}/b.db", code=1)
    assert "serves, migrates or restores this database" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the database to copy to: --to URL, or --to-file FILE"),
        (("--to", "mysql://x"), "unsupported database 'mysql'"),
        (("--to", "sqlite:////nonexistent/b.db"), "the folder /nonexistent does not exist (create it first)"),
        (("--to-file", "/nonexistent"), "/nonexistent: No such file or directory (the file must contain only the URL)"),
        (("--server", "http://127.0.0.1:1", "--to", "sqlite:////x.db"), "db copy does not work through the API"),
    ],
    ids=["nowhere", "kind", "folder", "file", "server"],
)
def test_a_place_that_cannot_be_copied_to_is_refused(
    control: Control, migrated_sqlite_url: str, arguments: tuple[str, ...], message: str
) -> None:
    at = () if "--server" in arguments else ("--database", migrated_sqlite_url)
    assert message in control("db", "copy", *at, *arguments, code=None).err


@pytest.mark.parametrize("password", ["s3cret-p4ss", "p/s3cret", "p@127.0.0.1:1/s3cret"])
def test_the_password_of_a_url_is_not_shown(control: Control, migrated_sqlite_url: str, password: str) -> None:
    to = f"postgresql+psycopg://u:{password}@127.0.0.1:1/x"
    refused = control("db", "copy", "--database", migrated_sqlite_url, "--to", to, code=1)
    assert "s3cret" not in refused.err + refused.out


def test_every_command_says_that_a_copy_did_not_finish(control: Control) -> None:
    (control.folder / "eventd.db.partial").touch()
    at = ("--data-dir", str(control.folder))
    for command in (("get", "all"), ("doctor",), ("apply", "-f", control.file(EDGE)), ("topic", "put", "x")):
        told = control(*command, *at, code=1).err
        assert "of a `routerctl db copy` that did not finish" in told
        assert "run the copy again" in told
    assert not (control.folder / "eventd.db").exists()
