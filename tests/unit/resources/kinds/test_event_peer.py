from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.resources.group_configuration import effective
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner
from tests.unit.resources.samples import GROUP, PEER, accepted, group, peer, problems, rows

STORED = rows(GROUP)


def spec_of(text: str) -> dict[str, Any]:
    [resource] = accepted(text, STORED)
    return resource.effective()


def wrong(text: str) -> list[str]:
    return problems(text, STORED)


def test_the_smallest_peer_has_every_default() -> None:
    assert spec_of(PEER) == {
        "groupRef": "edge",
        "nodeName": "cloud",
        "endpoint": "http://10.99.0.7:8787",
        "direction": "push",
        "protocol": "auto",
        "types": [],
        "subjectPrefixes": [],
        "tls": {"caFile": "", "certFile": "", "keyFile": "", "serverName": "", "pins": []},
        "console": "",
        "relay": False,
        "history": {"logKey": "", "witnessKey": ""},
        "limits": {"inFlight": 4, "batchEvents": 2500, "batchBytes": "1MiB", "timeout": "30s"},
        "retry": {"baseBackoff": "200ms", "maxBackoff": "30s"},
    }


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("direction: push", "direction", "push"),
        ("direction: ''", "direction", "push"),
        ("protocol: v1", "protocol", "v1"),
        ("protocol: v2", "protocol", "v2"),
        ("types: [a.b, no]", "types", ["a.b", "no"]),
        ("types:", "types", []),
        ("subjectPrefixes: ['10.88.60.', 'a ']", "subjectPrefixes", ["10.88.60.", "a "]),
        ("relay: true", "relay", True),
        (
            "limits: {inFlight: 16, batchEvents: 1, batchBytes: 8MiB, timeout: 1m}",
            "limits",
            {"inFlight": 16, "batchEvents": 1, "batchBytes": "8MiB", "timeout": "1m0s"},
        ),
        ("retry: {maxBackoff: 5s}", "retry", {"baseBackoff": "200ms", "maxBackoff": "5s"}),
    ],
)
def test_a_field_is_read(more: str, field: str, value: object) -> None:
    assert spec_of(peer(more))[field] == value


@pytest.mark.parametrize(
    ("endpoint", "canonical"),
    [
        ("http://10.99.0.7:8787", "http://10.99.0.7:8787"),
        ("https://Cloud.Example/", "https://cloud.example"),
        ("HTTP://[FD00::1]:80//", "http://[fd00::1]:80"),
        ("http://cloud:8787/bus/Edge/", "http://cloud:8787/bus/Edge"),
        ("http://node_1.internal.:1", "http://node_1.internal.:1"),
    ],
)
def test_an_endpoint_is_a_url_in_canonical_form(endpoint: str, canonical: str) -> None:
    assert spec_of(PEER.replace("http://10.99.0.7:8787", f"'{endpoint}'"))["endpoint"] == canonical


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("", "is required"),
        ("5", "must be text (put it in quotes)"),
        ("cloud:8787", "must begin with http:// or https:// (for example http://10.99.0.7:8787)"),
        ("10.99.0.7", "must begin with http:// or https:// (for example http://10.99.0.7:8787)"),
        ("ftp://cloud", "must begin with http:// or https:// (for example http://10.99.0.7:8787)"),
        ("http://", "must name a host (for example http://10.99.0.7:8787)"),
        ("http://:80", "must name a host (for example http://10.99.0.7:8787)"),
        (
            "http://10.99.0.700",
            "must have a valid name or a complete address as its host (for example http://10.99.0.7:8787)",
        ),
        (
            "http://-cloud",
            "must have a valid name or a complete address as its host (for example http://10.99.0.7:8787)",
        ),
        ("http://cloud:0", "must not name port 0 (write a port from 1 to 65535, or leave it out)"),
        ("http://cloud:65536", "must be a URL such as http://10.99.0.7:8787; its host or port is not valid"),
        ("http://cloud:http", "must be a URL such as http://10.99.0.7:8787; its host or port is not valid"),
        ("http://[::1", "must be a URL such as http://10.99.0.7:8787; its host or port is not valid"),
        ("http://cloud/a?b=c", "must not contain a query or a fragment"),
        ("http://cloud/#", "must not contain a query or a fragment"),
        ("http://cloud/a b", "must be a URL without blanks and without characters outside ASCII"),
        ("http://wolke.köln", "must be a URL without blanks and without characters outside ASCII"),
        (
            "http://me:hunter2@cloud",
            "must not contain a user name or a password (peers are authenticated by the group's keys)",
        ),
    ],
)
def test_what_is_no_endpoint_is_refused_without_being_repeated(endpoint: str, message: str) -> None:
    quoted = endpoint if endpoint == "5" else f"'{endpoint}'"
    [found] = wrong(PEER.replace("http://10.99.0.7:8787", quoted))
    assert found == f"7: EventPeer/cloud spec.endpoint: {message}"
    assert "hunter2" not in found


NAME_RULE = "must be 1 to 127 letters, digits or '.', '_', '-', beginning with a letter or a digit"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("direction: pull", "spec.direction: must be blank or push, not 'pull'"),
        ("protocol: v3", "spec.protocol: must be auto, v1 or v2, not 'v3'"),
        ("protocol: V2", "spec.protocol: must be auto, v1 or v2, not 'V2' (did you mean v2?)"),
        (
            "types: a",
            "spec.types: must be a list, not 'a' (write [...] around it, or each value on a line, after a dash)",
        ),
        ("types: [a, ' ']", "spec.types[1]: ' ' must not be blank"),
        ("types: [5]", "spec.types[0]: must be text, not 5 (put it in quotes)"),
        ("types: [~]", "spec.types[0]: must be text"),
        (
            "types: ['a ']",
            "spec.types[0]: 'a ' must not end with white space: events are trimmed, so it would never match",
        ),
        (
            "types: [' a']",
            "spec.types[0]: ' a' must not begin with white space: events are trimmed, so it would never match",
        ),
        ("subjectPrefixes: ['']", "spec.subjectPrefixes[0]: '' must not be blank"),
        (
            "subjectPrefixes: [' 10.']",
            "spec.subjectPrefixes[0]: ' 10.' must not begin with white space: events are trimmed, so "
            "it would never match",
        ),
        ("relay: 'true'", "spec.relay: must be true or false, not 'true' (leave the quotes out)"),
        ("relay: yes", "spec.relay: must be true or false, not 'yes'"),
        ("paused: true", "spec.paused: unknown field (known in spec: "),
        ("timeout: 5s", "spec.timeout: unknown field (did you mean spec.limits.timeout?)"),
        ("limits: {inflight: 5}", "spec.limits.inflight: unknown field (did you mean inFlight?)"),
        ("limits: {inFlight: 0}", "spec.limits.inFlight: must be at least 1, not 0"),
        ("limits: {inFlight: 17}", "spec.limits.inFlight: must be at most 16, not 17"),
        ("limits: {batchEvents: 10001}", "spec.limits.batchEvents: must be at most 10000, not 10001"),
        ("limits: {batchBytes: 1023}", "spec.limits.batchBytes: must be between 1KiB and 1GiB, not 1023"),
        ("limits: {timeout: 99ms}", "spec.limits.timeout: must be between 100ms and 1h0m0s, not '99ms'"),
        ("limits: {timeout: -30s}", "spec.limits.timeout: must be between 100ms and 1h0m0s, not '-30s'"),
        ("retry: {baseBackoff: 0s}", "spec.retry.baseBackoff: must be between 1ms and 1h0m0s, not '0s'"),
        ("retry: {maxBackoff: 25h}", "spec.retry.maxBackoff: must be between 1ms and 24h0m0s, not '25h'"),
        ("retry: {baseBackoff: 31s}", "spec.retry.maxBackoff: must not be less than baseBackoff"),
    ],
)
def test_a_wrong_field_is_named_with_its_line_and_reason(more: str, problem: str) -> None:
    [found] = wrong(peer(more))
    assert found.startswith(f"8: EventPeer/cloud {problem}")
    assert found == f"8: EventPeer/cloud {problem}" or problem.endswith("in spec: ")


@pytest.mark.parametrize("field", ["groupRef", "nodeName", "endpoint"])
def test_what_is_required_is_missed_where_the_spec_begins(field: str) -> None:
    text = "".join(line for line in PEER.splitlines(keepends=True) if field not in line)
    assert wrong(text) == [f"4: EventPeer/cloud spec.{field}: is required"]


def test_a_group_reference_is_a_name() -> None:
    told = f"5: EventPeer/cloud spec.groupRef: {NAME_RULE}, not 'EventGroup/edge'"
    assert told in wrong(PEER.replace("edge", "EventGroup/edge"))


def vkey(name: str, kind: int, seed: int = 1) -> str:
    return NoteSigner(name, kind, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)).key.text()


LOG = "eventd/edge/cloud/" + "t" * 16
WITNESS = "eventd/edge/cloud/witness"


def test_the_keys_of_a_peers_history_pin_it() -> None:
    keys = f"history: {{logKey: {vkey(LOG, LOG_KEY)}, witnessKey: {vkey(WITNESS, WITNESS_KEY, 2)}}}"
    pinned = effective(rows(f"{GROUP}---\n{peer(keys)}"))["edge"].history_pins
    assert [*pinned] == [("cloud", "log"), ("cloud", "witness")]
    assert len(set(pinned.values())) == 2
    [found] = wrong(peer(keys, node="hub"))[:1]
    assert found.startswith(
        "8: EventPeer/cloud spec.history.logKey: is not a key of hub: its name is eventd/edge/cloud/"
    )
    [found] = wrong(peer(f"history: {{witnessKey: {vkey(LOG, LOG_KEY)}}}"))
    assert "spec.history.witnessKey" in found
    assert "type" in found


def test_a_peer_and_its_group_declare_one_key_of_a_history() -> None:
    def declared(seed: int) -> str:
        key = vkey("eventd/edge/cloud/" + "s" * 16, LOG_KEY, seed)
        return f"history: {{keys: [{{node: cloud, logKey: {key}}}]}}"

    pinning = peer(f"history: {{logKey: {vkey(LOG, LOG_KEY)}}}")
    assert problems(pinning, rows(group(declared(1)))) == [], "one key of two trees"
    assert problems(pinning, rows(group(declared(2)))) == [
        "8: EventPeer/cloud spec.history.logKey: EventGroup/edge declares another one of cloud"
        " (leave out the wrong one)"
    ]
    [found] = problems(group(declared(2)), rows(f"{GROUP}---\n{pinning}"))
    assert "spec.history.keys[0].logKey: EventPeer/cloud declares another one of cloud" in found
