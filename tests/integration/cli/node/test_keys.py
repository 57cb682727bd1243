"""routerctl key: created on the database or over the API, shown once, listed without its secret, revoked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api, Control
from tests.support.processes import CONTROL
from tests.support.source import ROOT


def test_a_key_is_printed_alone_and_once(routerctl: Control) -> None:
    made = routerctl("key", "create", "ci", "--scope", "read", "--scope", "write", "--prefix", "edge-")
    (key,) = made.lines
    assert key.startswith("evk_")
    assert made.err == "note: this is the key ci; it cannot be shown again\n"
    # Over the API a key is needed from now on.
    listed = routerctl("key", "list", "-o", "wide", code=None)
    assert key not in listed.out + listed.err


def test_the_list_tells_everything_but_the_key(control: Control, migrated_sqlite_url: str) -> None:
    at = ("--database", migrated_sqlite_url)
    first = control("key", "create", "ci", "--scope", "rw", "--expires", "2999-01-01T00:00:00Z", *at).lines[0]
    second = control("key", "create", "ops", "-o", "json", *at).json
    assert (second["name"], second["scopes"]) == ("ops", ["read", "write", "delete", "admin"])
    told = control("key", "list", *at)
    header, ci, ops = told.lines
    assert header.split() == ["NAME", "SCOPES", "PREFIXES", "STATE", "CREATED", "EXPIRES", "LAST_USED"]
    assert ci.split()[:4] == ["ci", "read,write", "-", "active"]
    assert ci.split()[-2:] == ["2999-01-01T00:00:00Z", "-"], "no node runs that could know its last use"
    assert ops.split()[:4] == ["ops", "read,write,delete,admin", "-", "active"]
    assert control("key", "list", "-o", "name", *at).lines == ["ci", "ops"]
    assert not [key for key in (first, second["key"]) if key in control("key", "list", "-o", "json", *at).out]


def test_a_key_may_be_for_looking_alone(control: Control, migrated_sqlite_url: str) -> None:
    at = ("--database", migrated_sqlite_url)
    assert control("key", "create", "prom", "--scope", "look", "-o", "json", *at).json["scopes"] == ["look"]
    control("key", "create", "short", "--scope", "l+w", *at)
    assert [line.split()[:2] for line in control("key", "list", *at).lines[1:]] == [
        ["prom", "look"],
        ["short", "look,write"],
    ]


def test_a_key_ends_when_it_is_revoked_and_its_name_is_free_when_it_is_forgotten(
    control: Control, migrated_sqlite_url: str
) -> None:
    at = ("--database", migrated_sqlite_url)
    control("key", "create", "ci", *at)
    told = control("key", "create", "ci", *at, code=1).err
    assert told.startswith("error: the name ci belongs to another key (choose another name, or delete that key:")
    assert control("key", "revoke", "ci", *at).out == "key/ci revoked\n"
    assert control("key", "list", *at).lines[1].split()[3] == "revoked"
    assert control("key", "revoke", "ci", "--forget", *at).out == "key/ci forgotten\n"
    assert control("key", "revoke", "ci", *at, code=3).err.startswith("error: key ci does not exist (")
    control("key", "create", "ci", *at)


def test_making_the_first_key_makes_the_database(control: Control, tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "node"))
    assert "eventd.db does not exist" in control("key", "list", *where, code=3).err
    control("key", "create", "ops", *where)
    assert control("key", "list", "-o", "name", *where).lines == ["ops"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "a b"), 1, "error: name: 'a b' cannot be the name of a key"),
        (
            ("create", "ci", "--scope", "reed"),
            1,
            "error: scopes: scope 1 is not one of look, read, write, delete, admin and rw",
        ),
        (("create", "ci", "--expires", "soon"), 1, "error: expires: 'soon' is neither a duration nor a time"),
        (("create", "ci", "--prefix", ""), 2, "error: invalid value for '--prefix': must not be empty"),
        (("create", "ci", "--scope", " "), 2, "error: invalid value for '--scope': must not be empty"),
        (("create", "ci", "--expires", " "), 2, "error: invalid value for '--expires': must not be empty"),
        (("create", "ci", "-o", "name"), 2, "error: -o name would lose the key"),
        (("create",), 2, "error: "),
        (("revoke", "nobody"), 3, "error: key nobody does not exist"),
    ],
)
def test_a_mistake_is_one_line(
    control: Control, migrated_sqlite_url: str, arguments: tuple[str, ...], code: int, told: str
) -> None:
    found = control("key", *arguments, "--database", migrated_sqlite_url, code=code)
    assert found.err.startswith(told)
    assert (found.out, found.err.count("\n")) == ("", 1)


def test_keys_over_the_api_need_the_scope_admin(control: Control, sqlite_url: str) -> None:
    with Api(sqlite_url, keys="admin-key-0001,reader-key-0001:read,some-key-0001::edge-") as api:
        at = ("--server", api.url, "--key")
        control("apply", "-f", control.file(EDGE), *at, "admin-key-0001")
        control("key", "create", "ci", *at, "admin-key-0001")
        assert control("key", "list", "-o", "name", *at, "admin-key-0001").lines == ["ci"]
        told = control("key", "list", *at, "reader-key-0001", code=1).err
        assert told == "error: this key lacks the scope admin (use a key with this scope; this one has read)\n"
        told = control("key", "create", "more", *at, "some-key-0001", code=1).err
        assert told.startswith("error: this key is limited to some names")


def test_a_key_that_could_not_be_written_is_said_to_be_in_force(control: Control, migrated_sqlite_url: str) -> None:
    where = ("--database", migrated_sqlite_url)
    with Path("/dev/full").open("w") as full:
        command = [*CONTROL, "key", "create", "ci", *where]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the key ci is active, but could not be printed: No space left on device (")
    assert "routerctl key revoke ci --forget" in done.stderr
    assert done.stderr.count("\n") == 1
    assert control("key", "revoke", "ci", "--forget", *where).out == "key/ci forgotten\n"
