"""`routerctl verify` without anything to compare with: its message, and its exit status."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.conftest import Control
from tests.support.declared import declare, group, peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer
from tests.support.ports import free_port


@pytest.fixture
def edge(routerctl: Control) -> Control:
    """A group with three peers: one that is down, one of v1, and one of an older program."""
    secret = routerctl.folder / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    peers = [peer("down", free_port()), peer("old", free_port(), protocol="v1")]
    routerctl("apply", "-f", routerctl.file(declare(group("onprem", secret=secret), *peers)))
    return routerctl


def test_an_unknown_peer_or_group_ends_with_3(edge: Control) -> None:
    assert "group edge has no peer dwon (did you mean down?)" in edge("verify", "--peer", "dwon", code=3).err
    assert "EventGroup other is not declared" in edge("verify", "--peer", "down", "-g", "other", code=3).err
    edge("verify", code=2)


def test_a_peer_that_is_down_ends_with_1(edge: Control) -> None:
    ended = edge("verify", "--peer", "down", code=1)
    told = re.sub(r":[0-9]+: ", ":PORT: ", ended.err)
    assert told.startswith("error: down cannot be queried: cannot connect to 127.0.0.1:PORT: Connection refused")
    assert edge("verify", "--peer", "down", code=1).err == ended.err  # the failed run does not block another


def test_a_peer_that_cannot_be_asked_is_told_with_what_our_books_say(edge: Control) -> None:
    ended = edge("verify", "--peer", "old", code=1)
    assert ended.lines[0].split()[:4] == ["GROUP", "PEER", "EVENTS", "DELIVERED"]
    assert "the peer is declared with v1, which cannot be verified" in ended.err
    told = edge("verify", "--peer", "old", "--repair", "-o", "json", code=1).json
    assert (told["compared"], told["clean"]) == (False, False)
    assert told["books"][0]["peer"] == "old"


def test_an_older_program_is_told_from_one_that_is_down(edge: Control) -> None:
    with FlakyPeer(free_port(), lambda heard: FixedResponse(404)) as older:
        edge("apply", "-f", edge.file(declare(peer("older", older.port)), "older.yaml"))
        ended = edge("verify", "--peer", "older", code=1)
    assert "the peer answers 404 to the query: its program is too old for it, or a proxy answers" in ended.err


def test_a_key_that_cannot_be_read_is_named_and_never_shown(edge: Control) -> None:
    (edge.folder / "secret").unlink()
    ended = edge("verify", "--peer", "down", code=1)
    assert f"EventGroup 'edge': cannot read {edge.folder / 'secret'}" in ended.err
    assert "0123456789abcdef" not in ended.err
