from __future__ import annotations

import pytest

from eventd.errors import Invalid
from eventd.resources.group_configuration import (
    GroupConfig,
    KeyConfig,
    LimitsConfig,
    ListenConfig,
    PeerConfig,
    RetentionConfig,
    effective,
)
from eventd.runtime.backoff import Backoff
from eventd.store.rows.registry import StoredResource
from federation.selector import Selector
from tests.unit.resources.samples import EVERYTHING, FEDERATION, GROUP, PEER, group, peer, problems, rows

MINUTE = 60_000_000
HOUR = 60 * MINUTE


def config(text: str) -> GroupConfig:
    return effective(rows(text))["edge"]


def test_the_smallest_group_has_every_default() -> None:
    assert config(GROUP) == GroupConfig(
        name="edge",
        node_name="onprem",
        protocols=frozenset({"v1", "v2"}),
        listen=None,
        replay_window=5 * MINUTE,
        secret_file="/etc/eventd/edge.key",
        keys=(),
        retention=RetentionConfig(max_events=None, max_age=None, max_bytes=None, keep_undelivered=True, ids=24 * HOUR),
        limits=LimitsConfig(2**20, 8 * 2**20, 10_000, 8, 64 * 2**20),
        peers={},
        keeps_history=True,
    )


def test_the_smallest_peer_has_every_default() -> None:
    assert config(EVERYTHING).peers == {
        "cloud": PeerConfig(
            name="cloud",
            group="edge",
            node_name="cloud",
            endpoint="http://10.99.0.7:8787",
            protocol="auto",
            relay=False,
            selector=Selector(),
            in_flight=4,
            batch_events=2500,
            batch_bytes=2**20,
            timeout=30.0,
            backoff=Backoff(base=0.2, cap=30.0),
        )
    }


def test_what_is_written_takes_effect() -> None:
    more = """\
listen: {address: "::", port: 8787}
protocols: [v2]
replayWindow: 2h
retention: {maxEvents: 5, maxAge: 1h, maxBytes: 1KiB, undelivered: drop, ids: 1m}
limits: {maxEventBytes: 2KiB, maxBatchBytes: 4KiB, maxBatchEvents: 7, maxHops: 3, maxWaitingBytes: 8KiB}
"""
    found = config(group(more))
    assert found.listen == ListenConfig("::", 8787)
    assert found.protocols == {"v2"}
    assert found.replay_window == 2 * HOUR
    assert found.retention == RetentionConfig(5, HOUR, 1024, keep_undelivered=False, ids=2 * HOUR)
    assert found.limits == LimitsConfig(2048, 4096, 7, 3, 8192)


def test_what_is_written_of_a_peer_takes_effect() -> None:
    more = """\
protocol: v1
relay: true
types: [b, a, b]
subjectPrefixes: ["10."]
limits: {inFlight: 1, batchEvents: 2, batchBytes: 3KiB, timeout: 1500ms}
retry: {baseBackoff: 1s, maxBackoff: 1m}
"""
    found = config(f"{GROUP}---\n{peer(more)}").peers["cloud"]
    assert found.protocol == "v1"
    assert found.relay
    assert found.selector == Selector.of(types=["a", "b"], subject_prefixes=["10."])
    assert (found.in_flight, found.batch_events, found.batch_bytes, found.timeout) == (1, 2, 3072, 1.5)
    assert found.backoff == Backoff(base=1.0, cap=60.0)


@pytest.mark.parametrize(("protocols", "protocol"), [("[v1]", "v1"), ("[v2]", "v2"), ("[v1, v2]", "auto")])
def test_nothing_is_found_out_where_only_one_protocol_is_spoken(protocols: str, protocol: str) -> None:
    text = f"{group(f'protocols: {protocols}')}---\n{PEER}"
    assert config(text).peers["cloud"].protocol == protocol


def test_a_key_speaks_for_its_owner_unless_it_says_otherwise() -> None:
    keys = """\
auth:
  keys:
  - {id: a, owner: onprem, secretFile: /a}
  - {id: b, owner: cloud, secretFile: "credential:b", speaksFor: "*", state: retiring}
  - {id: c, owner: far, algorithm: ed25519, publicKeyFile: /c, speaksFor: [far, farther]}
  - {id: d, owner: "*", secretFile: /d}
"""
    assert config(group(keys, auth=False)).keys == (
        KeyConfig("a", "onprem", "hmac-sha256", "active", "/a", "", frozenset({"onprem"})),
        KeyConfig("b", "cloud", "hmac-sha256", "retiring", "credential:b", "", None),
        KeyConfig("c", "far", "ed25519", "active", "", "/c", frozenset({"far", "farther"})),
        KeyConfig("d", "*", "hmac-sha256", "active", "/d", "", None),
    )


def test_peers_are_found_by_their_group() -> None:
    other = peer(name="other", node="b").replace("groupRef: edge", "groupRef: far")
    groups = effective(rows(f"{EVERYTHING}---\n{group(name='far')}---\n{other}"))
    assert {name: list(found.peers) for name, found in groups.items()} == {"edge": ["cloud"], "far": ["other"]}


def test_a_peer_without_its_group_is_left_out() -> None:
    assert effective(row for row in rows(EVERYTHING) if row.kind == "EventPeer") == {}


def test_the_change_of_one_peer_leaves_everything_else_equal() -> None:
    other = peer(name="far", node="far")
    before = config(f"{EVERYTHING}---\n{other}")
    after = config(f"{GROUP}---\n{peer('relay: true')}---\n{other}")
    assert before != after
    assert before.same_but_peers(after)
    assert before.peers["far"] == after.peers["far"]
    assert before.peers["cloud"] != after.peers["cloud"]


def test_the_change_of_a_group_is_seen_beside_its_peers() -> None:
    before, after = config(EVERYTHING), config(EVERYTHING.replace("/etc/eventd", "/run"))
    assert not before.same_but_peers(after)
    assert before.peers == after.peers


def test_the_same_meaning_in_other_words_is_equal() -> None:
    assert config(EVERYTHING) == config(f"{group('replayWindow: 300s')}---\n{peer('limits: {timeout: 0.5m}')}")


def test_a_row_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Invalid, match=r"the stored EventGroup/edge cannot be used: spec\.nodeName is required"):
        effective([StoredResource(FEDERATION, "EventGroup", "edge", {}, {}, 1, 1, 1)])


def test_what_is_told_of_links_and_where_a_console_is_take_effect() -> None:
    assert config(GROUP).shares_links
    assert not config(group("status: {share: none}")).shares_links
    found = config(f"{GROUP}---\n{peer('console: HTTPS://Cloud.example:8780/Console/?a=b')}").peers["cloud"]
    assert found.console == "https://cloud.example:8780/Console/?a=b"


@pytest.mark.parametrize(
    "console",
    ["javascript:alert(1)", "https://me:hunter2@cloud.example/", "//cloud.example/", f"https://c.example/{'a' * 2048}"],
)
def test_a_console_is_an_address_of_the_web_without_a_user(console: str) -> None:
    found = problems(f"{GROUP}---\n{peer(f'console: {console}')}")
    assert len(found) == 1
    assert "console" in found[0]
    assert "hunter2" not in found[0]
