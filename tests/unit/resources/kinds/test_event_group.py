from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.resources.group_configuration import group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner
from tests.unit.resources.samples import GROUP, accepted, group, problems

KEYS = "auth:\n  secretFile: /k\n  keys:\n  - "


PRIVATE = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
PLAIN = {"certFile": "", "keyFile": "", "clientCaFile": "", "minVersion": "1.2"}


def spec_of(text: str) -> dict[str, Any]:
    [resource] = accepted(text)
    return resource.effective()


def test_the_smallest_group_has_every_default() -> None:
    assert spec_of(GROUP) == {
        "nodeName": "onprem",
        "listen": {"address": "", "port": 0, "tls": PLAIN},
        "auth": {"mode": "hmac", "secretFile": "/etc/eventd/edge.key", "keys": []},
        "protocols": ["v1", "v2"],
        "replayWindow": "5m0s",
        "retention": {"maxEvents": 0, "maxAge": "0s", "undelivered": "keep", "maxBytes": "0", "ids": "24h0m0s"},
        "limits": {
            "maxEventBytes": "1MiB",
            "maxBatchBytes": "8MiB",
            "maxBatchEvents": 10000,
            "maxHops": 8,
            "maxWaitingBytes": "64MiB",
        },
        "history": {"mode": "record", "maxBytes": "1GiB", "keys": []},
        "status": {"share": "links"},
    }


def test_a_group_that_only_says_who_we_are_needs_no_key() -> None:
    assert problems(group(auth=False)) == []


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        ("listen: {address: 10.99.0.6, port: 8787}", "listen", {"address": "10.99.0.6", "port": 8787, "tls": PLAIN}),
        ("listen: {address: '0:0::1', port: 1}", "listen", {"address": "::1", "port": 1, "tls": PLAIN}),
        ("listen: {address: LocalHost, port: 65535}", "listen", {"address": "localhost", "port": 65535, "tls": PLAIN}),
        ("listen: {address: '', port: 0}", "listen", {"address": "", "port": 0, "tls": PLAIN}),
        ("listen:", "listen", {"address": "", "port": 0, "tls": PLAIN}),
        ("protocols: [v2]", "protocols", ["v2"]),
        ("protocols: [v2, v1, v2]", "protocols", ["v1", "v2"]),
        ("replayWindow: 1.5h", "replayWindow", "1h30m0s"),
        ("replayWindow: 0", "replayWindow", "5m0s"),
        ("replayWindow: -1s", "replayWindow", "5m0s"),
    ],
)
def test_a_field_is_read(more: str, path: str, value: object) -> None:
    assert spec_of(group(more))[path] == value


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("maxEvents: 1000", "maxEvents", 1000),
        ("maxAge: 24h", "maxAge", "24h0m0s"),
        ("maxAge: -1h", "maxAge", "0s"),
        ("undelivered: drop", "undelivered", "drop"),
        ("maxBytes: 10GiB", "maxBytes", "10GiB"),
        ("maxBytes: 1000", "maxBytes", "1000"),
        ("ids: 0s", "ids", "0s"),
    ],
)
def test_a_field_of_the_retention_is_read(more: str, field: str, value: object) -> None:
    assert spec_of(group(f"retention: {{{more}}}"))["retention"][field] == value


NAME_RULE = "letters, digits or '.', '_', ':', '@', '-', beginning with a letter or a digit"
SECRET_RULE = (
    "must be an absolute path to a file, or credential:NAME (credential:NAME is the file NAME in "
    "$CREDENTIALS_DIRECTORY; never write the secret itself here)"
)
ADDRESS_RULE = "must be an IP address or a host name"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            "listen: {address: 10.0.0.1}",
            "spec.listen.port: is required when an address is set (write a port between 1 and 65535)",
        ),
        (
            "listen: {address: 10.0.0.1, port: 0}",
            "spec.listen.port: is required when an address is set (write a port between 1 and 65535)",
        ),
        (
            "listen: {port: 8787}",
            "spec.listen.address: is required when a port is set (write 0.0.0.0 to listen on every interface)",
        ),
        ("listen: {address: 10.0.0.1, port: 65536}", "spec.listen.port: must be at most 65535, not 65536"),
        ("listen: {address: 10.0.0.1, port: -1}", "spec.listen.port: must be at least 0, not -1"),
        (
            "listen: {address: 10.0.0.1, port: '8787'}",
            "spec.listen.port: must be a whole number, not '8787' (leave the quotes out)",
        ),
        ("listen: {address: 10.0.0.1, port: 80.5}", "spec.listen.port: must be a whole number, not 80.5"),
        ("listen: {address: 10.0.0.1, port: true}", "spec.listen.port: must be a whole number, not True"),
        (
            "listen: {address: 10.0.0.256, port: 1}",
            "spec.listen.address: must be an IP address or a host name, not '10.0.0.256' (for example 10.99.0.6 or ::)",
        ),
        (
            "listen: {address: a b, port: 1}",
            "spec.listen.address: must be an IP address or a host name, not 'a b' (for example 10.99.0.6 or ::)",
        ),
        (
            "listen: {address: '10.0.0.1:80', port: 80}",
            "spec.listen.address: must be an IP address or a host name, not "
            "'10.0.0.1:80' (write the port in spec.listen.port)",
        ),
        (
            "listen: {address: '[::1]', port: 80}",
            "spec.listen.address: must be an IP address or a host name, not '[::1]' "
            "(write the port in spec.listen.port)",
        ),
        ("listen: 10.0.0.1", "spec.listen: must be a mapping of fields, not '10.0.0.1'"),
        ("listn: {}", "spec.listn: unknown field (did you mean listen?)"),
        ("port: 80", "spec.port: unknown field (did you mean spec.listen.port?)"),
        ("secretfile: /k", "spec.secretfile: unknown field (did you mean spec.auth.secretFile?)"),
        (
            "zebra: 1",
            "spec.zebra: unknown field "
            "(known in spec: nodeName, listen, auth, protocols, replayWindow, retention, limits, history, status)",
        ),
        (
            "peersFrom:\n- resource: SAMNodeSet/x",
            "spec.peersFrom: is not supported yet (declare each peer as an EventPeer)",
        ),
        ("when: {}", "spec.when: is not supported yet (leave it out until it is supported)"),
        ("protocols: []", "spec.protocols: must name at least one of v1 and v2"),
        ("protocols: [v3]", "spec.protocols[0]: must be v1 or v2, not 'v3'"),
        (
            "protocols: v2",
            "spec.protocols: must be a list, not 'v2' (write [...] around it, or each value on a line, after a dash)",
        ),
        (
            "replayWindow: 300",
            "spec.replayWindow: '300' is not a duration; write 30s, 5m or 168h (a unit is missing: 300s?)",
        ),
        (
            "replayWindow: 1w",
            "spec.replayWindow: '1w' is not a duration; write 30s, 5m or 168h (weeks are not a unit; write 7d)",
        ),
        ("replayWindow: [5m]", "spec.replayWindow: must be text"),
        ("retention: {maxEvents: -1}", "spec.retention.maxEvents: must be at least 0, not -1"),
        (
            "retention: {maxEvents: 99999999999999999999}",
            "spec.retention.maxEvents: must be at most 9223372036854775807, not 99999999999999999999",
        ),
        (
            "retention: {undelivered: drops}",
            "spec.retention.undelivered: must be keep or drop, not 'drops' (did you mean drop?)",
        ),
        (
            "retention: {maxBytes: 10M}",
            "spec.retention.maxBytes: '10M' is not a size; write a number of bytes, or 512KiB, 8MiB "
            "or 1GiB (did you mean 10MiB?)",
        ),
        (
            "retention: {maxBytes: -1}",
            "spec.retention.maxBytes: '-1' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB",
        ),
        ("retention: {ids: -1s}", "spec.retention.ids: must be between 0s and 2562047h47m16.854775s, not '-1s'"),
        ("limits: {maxEventBytes: 1}", "spec.limits.maxEventBytes: must be between 1KiB and 64MiB, not 1"),
        ("limits: {maxBatchBytes: 2GiB}", "spec.limits.maxBatchBytes: must be between 1KiB and 1GiB, not '2GiB'"),
        ("limits: {maxBatchEvents: 0}", "spec.limits.maxBatchEvents: must be at least 1, not 0"),
        ("limits: {maxBatchEvents: 100001}", "spec.limits.maxBatchEvents: must be at most 100000, not 100001"),
        ("status: {share: some}", "spec.status.share: must be links or none, not 'some'"),
        ("limits: {maxHops: 65}", "spec.limits.maxHops: must be at most 64, not 65"),
        ("limits: {maxWaitingBytes: 1B}", "spec.limits.maxWaitingBytes: must be between 1KiB and 16GiB, not '1B'"),
        (
            "limits: {maxBatchBytes: 2KiB}",
            "spec.limits.maxBatchBytes: must not be less than maxEventBytes: the largest event would never fit",
        ),
        (
            "limits: {maxWaitingBytes: 1MiB}",
            "spec.limits.maxWaitingBytes: must not be less than maxBatchBytes: the largest batch could not wait",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_line_and_reason(more: str, problem: str) -> None:
    assert problems(group(more)) == [f"7: EventGroup/edge {problem}"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("", "is required"),
        ("' '", "is required"),
        ("12", "must be text, not 12 (put it in quotes)"),
        ("[a]", "must be text"),
        (
            "-a",
            "must be 1 to 253 letters, digits or '.', '_', ':', '@', '-', beginning with a letter or a digit, not '-a'",
        ),
        (
            "a b",
            "must be 1 to 253 letters, digits or '.', '_', ':', '@', '-', beginning with a letter or "
            "a digit, not 'a b'",
        ),
        (
            "a" * 254,
            "must be 1 to 253 letters, digits or '.', '_', ':', '@', '-', beginning with a letter or "
            "a digit, not 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'",
        ),
    ],
)
def test_a_node_name_follows_the_rule(node: str, message: str) -> None:
    assert problems(GROUP.replace("onprem", node)) == [f"5: EventGroup/edge spec.nodeName: {message}"]


def test_a_missing_node_name_is_reported_where_the_spec_begins() -> None:
    assert problems(GROUP.replace("  nodeName: onprem\n", "")) == ["4: EventGroup/edge spec.nodeName: is required"]


@pytest.mark.parametrize("node", ["a", "'0'", "edge-1.example:7@site_2", "a" * 253, "no"])
def test_a_node_name_may_hold_what_the_rule_allows(node: str) -> None:
    assert spec_of(GROUP.replace("onprem", node))["nodeName"] == node.strip("'")


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ("secretFile: edge.key", f"secretFile: {SECRET_RULE}"),
        ("secretFile: ~/edge.key", f"secretFile: {SECRET_RULE}"),
        ("secretFile: /etc/", f"secretFile: {SECRET_RULE}"),
        ("secretFile: hunter2hunter2", f"secretFile: {SECRET_RULE}"),
        ("secretFile: 12345", "secretFile: must be text"),
        (
            "secretFile: 'credential:../x'",
            "secretFile: must name a credential by letters, digits, '.', '_' or '-' (for example credential:edge.key)",
        ),
        (
            "secretFile: 'credential:'",
            "secretFile: must name a credential by letters, digits, '.', '_' or '-' (for example credential:edge.key)",
        ),
        ("mode: ed25519", "mode: must be blank or hmac"),
        ("secretRef: x", "secretRef: is not supported and would be ignored (write auth.secretFile)"),
        ("keys: {a: b}", "keys: must be a list"),
        ("keys: [5]", "keys[0]: must be a mapping of fields"),
        ("secrtFile: /k", "secrtFile: unknown field (did you mean secretFile?)"),
    ],
)
def test_wrong_auth_is_named_and_no_value_is_repeated(auth: str, problem: str) -> None:
    [found] = problems(group(f"auth: {{{auth}}}", auth=False))
    assert found == f"6: EventGroup/edge spec.auth.{problem}"
    assert "hunter2" not in found
    assert "12345" not in found


@pytest.mark.parametrize("path", ["/etc/edge.key", "credential:edge.key", "/a b/ü"])
def test_a_secret_is_a_file_or_a_credential(path: str) -> None:
    assert spec_of(group(f"auth: {{secretFile: '{path}', mode: ''}}", auth=False))["auth"] == {
        "mode": "hmac",
        "secretFile": path,
        "keys": [],
    }


def test_a_key_has_every_default() -> None:
    auth = spec_of(group(f"{KEYS}{{id: k1, owner: onprem, secretFile: /a}}", auth=False))["auth"]
    assert auth["keys"] == [
        {
            "id": "k1",
            "owner": "onprem",
            "algorithm": "hmac-sha256",
            "state": "active",
            "secretFile": "/a",
            "publicKeyFile": "",
            "speaksFor": None,
        }
    ]


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("id: k, node: cloud, secretFile: /a", "owner", "cloud"),
        ("id: k, owner: '*', secretFile: /a", "owner", "*"),
        ("id: k, owner: cloud, secretFile: /a, speaksFor: '*'", "speaksFor", "*"),
        ("id: k, owner: cloud, secretFile: /a, speaksFor: ['*']", "speaksFor", "*"),
        ("id: k, owner: cloud, secretFile: /a, speaksFor: [cloud, far]", "speaksFor", ["cloud", "far"]),
        ("id: k, owner: cloud, algorithm: ed25519, publicKeyFile: /a", "publicKeyFile", "/a"),
        ("id: k, owner: onprem, algorithm: ed25519, secretFile: /a", "secretFile", "/a"),
        ("id: k, owner: cloud, state: revoked, secretFile: /a", "state", "revoked"),
    ],
)
def test_a_key_is_read(key: str, field: str, value: object) -> None:
    [found] = spec_of(group(f"{KEYS}{{{key}}}", auth=False))["auth"]["keys"]
    assert found[field] == value


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("owner: cloud, secretFile: /a", ".id: is required"),
        ("id: 'k 1', owner: cloud, secretFile: /a", f".id: must be 1 to 127 {NAME_RULE}"),
        ("id: k, secretFile: /a", ".owner: is required"),
        ("id: k, node: '', secretFile: /a", ".node: is required"),
        ("id: k, owner: a, node: a, secretFile: /a", ": owner and node are two names of one field (leave node out)"),
        ("id: shared, owner: cloud, secretFile: /a", ".id: the key id shared belongs to auth.secretFile"),
        ("id: k, owner: cloud", ".secretFile: is required for an hmac-sha256 key"),
        ("id: k, owner: cloud, state: revoked", ".secretFile: is required for an hmac-sha256 key"),
        ("id: k, owner: cloud, secretFile: a", f".secretFile: {SECRET_RULE}"),
        (
            "id: k, owner: cloud, publicKeyFile: /a",
            ".publicKeyFile: an hmac-sha256 key has no public half (write secretFile)",
        ),
        ("id: k, owner: cloud, publicKeyFile: a", f".publicKeyFile: {SECRET_RULE}"),
        (
            "id: k, owner: cloud, secretFile: /a, state: actve",
            ".state: must be pending, active, retiring or revoked (did you mean active?)",
        ),
        ("id: k, owner: cloud, secretFile: /a, algorithm: rsa", ".algorithm: must be hmac-sha256 or ed25519"),
        (
            "id: k, owner: cloud, secretFile: /a, speaksFor: []",
            ".speaksFor: must name at least one node (leave it out to mean the owner)",
        ),
        ("id: k, owner: cloud, secretFile: /a, speaksFor: ['*', a]", ".speaksFor: must be either * or a list of nodes"),
        ("id: k, owner: cloud, secretFile: /a, speaksFor: [a b]", f".speaksFor[0]: must be 1 to 253 {NAME_RULE}"),
        (
            "id: k, owner: cloud, secretFile: /a, speaksFor: cloud",
            ".speaksFor: must be a list (write [...] around it, or each value on a line, after a dash)",
        ),
        (
            "id: k, owner: cloud, secretFile: /a, speaksFor: [cloud, onprem]",
            ".speaksFor: no other node's key may speak for this node, onprem",
        ),
        ("id: k, owner: cloud, algorithm: ed25519", ".publicKeyFile: is required to verify the signatures of cloud"),
        (
            "id: k, owner: cloud, algorithm: ed25519, secretFile: /a",
            ".secretFile: is the private key of cloud: it must not be on this node (write publicKeyFile)",
        ),
        (
            "id: k, owner: onprem, algorithm: ed25519, publicKeyFile: /a",
            ".secretFile: is required: this node signs with its own private key",
        ),
        (
            "id: k, owner: onprem, algorithm: ed25519, secretFile: /a, publicKeyFile: /b",
            ".publicKeyFile: only one of secretFile and publicKeyFile can be given",
        ),
        (
            "id: k, owner: '*', algorithm: ed25519, secretFile: /a",
            ".owner: an ed25519 key belongs to one node, not to all",
        ),
    ],
)
def test_a_wrong_key_is_named_with_its_place_in_the_ring(key: str, problem: str) -> None:
    assert problems(group(f"{KEYS}{{{key}}}", auth=False)) == [f"9: EventGroup/edge spec.auth.keys[0]{problem}"]


def test_two_keys_of_one_name_and_two_active_keys_of_one_owner_are_refused() -> None:
    keys = """\
auth:
  keys:
  - {id: a, owner: onprem, secretFile: /a}
  - {id: a, owner: cloud, secretFile: /b}
  - {id: b, owner: cloud, secretFile: /c}
  - {id: c, owner: cloud, secretFile: /d, state: retiring}
  - {id: d, owner: cloud, algorithm: ed25519, publicKeyFile: /e}
  - {id: e, owner: "*", secretFile: /f}
  - {id: f, owner: "*", secretFile: /g}
"""
    remedy = "(make one of them pending or retiring)"
    assert problems(group(keys, auth=False)) == [
        "9: EventGroup/edge spec.auth.keys[1].id: the key id a is used twice, first in keys[0]",
        f"10: EventGroup/edge spec.auth.keys[2].state: cloud already has the active hmac-sha256 key a {remedy}",
        f"14: EventGroup/edge spec.auth.keys[6].state: the group already has the active hmac-sha256 key e {remedy}",
    ]


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    more = "listen: {port: 80}\nreplayWindow: soon\nretention: {maxEvents: x}\nlimits: {maxHops: 0}\nwhat: 1"
    found = problems(group(more).replace("name: edge", "name: '-'").replace("onprem", "''"))
    assert [problem.split(": ")[0:2] for problem in found] == [
        ["3", "EventGroup/- metadata.name"],
        ["5", "EventGroup/- spec.nodeName"],
        ["7", "EventGroup/- spec.listen.address"],
        ["8", "EventGroup/- spec.replayWindow"],
        ["9", "EventGroup/- spec.retention.maxEvents"],
        ["10", "EventGroup/- spec.limits.maxHops"],
        ["11", "EventGroup/- spec.what"],
    ]


def test_declared_keys_of_histories_are_verifier_keys_of_their_node() -> None:
    log = NoteSigner("eventd/edge/cloud/" + "t" * 16, LOG_KEY, PRIVATE).key.text()
    cosigns = NoteSigner("eventd/edge/cloud/witness", WITNESS_KEY, PRIVATE).key.text()

    def faults(*keys: dict[str, str]) -> str:
        return "; ".join(problems(group(f"history: {{keys: {json.dumps(list(keys))}}}")))

    good = {"node": "cloud", "logKey": log, "witnessKey": cosigns}
    assert faults(good) == ""
    public = PRIVATE.public_key().public_bytes_raw()
    pinned = EventGroupSpec.model_validate({"nodeName": "onprem", "history": {"keys": [good]}})
    assert group_of("edge", pinned).history_pins == {("cloud", "log"): public, ("cloud", "witness"): public}
    assert "spec.history.keys[0].logKey: is required, or else witnessKey" in faults({"node": "cloud"})
    assert f"is not a key of b: its name is {log.partition('+')[0]}" in faults(good | {"node": "b"})
    assert "has type 4" in faults(good | {"logKey": cosigns})
    assert "keys[1].node: cloud is listed twice, first in keys[0]" in faults(good, good)
