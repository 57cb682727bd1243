"""Which part of the configuration a plugin sees, and which it never sees."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.plugins.run.context import context_of, redact
from eventd.resources.validation.resource import ResourceRef
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW
from tests.support.plugins import plugin_config

FEDERATION = "federation.routerd.net/v1alpha1"


def stored(name: str, spec: dict[str, Any], kind: str = "EventGroup") -> StoredResource:
    return StoredResource(FEDERATION, kind, name, {"note": "kept here"}, spec, 1, NOW, NOW)


def test_nothing_is_shown_that_is_not_named() -> None:
    assert context_of(plugin_config(), [stored("edge", {"nodeName": "a"})]) == []


def test_what_is_named_is_shown_in_that_order_and_what_is_missing_is_passed_over() -> None:
    names = ("south", "gone", "north")
    config = plugin_config(context=tuple(ResourceRef(FEDERATION, "EventGroup", name) for name in names))
    rows = [stored("north", {"nodeName": "n"}), stored("other", {}), stored("south", {"nodeName": "s"})]
    assert context_of(config, rows) == [
        {"apiVersion": FEDERATION, "kind": "EventGroup", "name": "south", "spec": {"nodeName": "s"}},
        {"apiVersion": FEDERATION, "kind": "EventGroup", "name": "north", "spec": {"nodeName": "n"}},
    ]


def test_the_same_name_in_another_kind_or_version_is_another_resource() -> None:
    references = (ResourceRef(FEDERATION, "EventPeer", "edge"), ResourceRef("other/v1", "EventGroup", "edge"))
    assert context_of(plugin_config(context=references), [stored("edge", {})]) == []


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({"auth": {"secretFile": "/etc/k", "replayWindow": "5m"}}, {"auth": {"replayWindow": "5m"}}),
        ({"auth": {"keys": [{"id": "a", "publicKeyFile": "/p"}]}}, {"auth": {"keys": [{"id": "a"}]}}),
        ({"adminPasswordFile": ["/a"]}, {}),
        ({"PASSWORD": "hunter2", "user": "u"}, {"PASSWORD": "", "user": "u"}),
        ({"apiToken": 12345}, {"apiToken": ""}),
        ({"clientSecret": {"value": "s"}}, {}),
        ({"tokens": ["a", "b"]}, {"tokens": ""}),
        ({"wireguardPrivateKey": "x", "presharedKey": "y"}, {"wireguardPrivateKey": "", "presharedKey": ""}),
        ({"psk": "x", "sshPassphrase": "y"}, {"psk": "", "sshPassphrase": ""}),
        ({"bgpAuthKey": "x", "credentialName": "y"}, {"bgpAuthKey": "", "credentialName": ""}),
        ({"keyFrom": {"file": "/k"}}, {}),
        ({"keyFrom": {"File": "/k", "base64": ""}}, {}),
        ({"valueFrom": {"env": "X", "note": "n"}}, {"valueFrom": {"env": "X", "note": "n"}}),
        ({"allowFrom": "10.0.0.0/8"}, {"allowFrom": "10.0.0.0/8"}),
        ({"peers": [{"name": "a", "secret": None}]}, {"peers": [{"name": "a", "secret": ""}]}),
        ({"list": [[{"token": "t"}]]}, {"list": [[{"token": ""}]]}),
        ({"private_key": "x", "apiKey": "y", "passwd": "z"}, {"private_key": "", "apiKey": "", "passwd": ""}),
        ({"pre-shared-key": "x", "Pre Shared Key": "y"}, {"pre-shared-key": "", "Pre Shared Key": ""}),
        ({"key": "x", "pwd": "y"}, {"key": "", "pwd": ""}),
        ({"publicKey": "z", "keyId": "k", "monkey": "m"}, {"publicKey": "z", "keyId": "k", "monkey": "m"}),
        ({"private_key_file": "/k", "Secret-File": "/s"}, {}),
        ({"url": "http://user:pw@h:1/p?q=a@b"}, {"url": "http://h:1/p?q=a@b"}),
        ({"remotes": ["ssh://token@h/x", "http://h/@x"]}, {"remotes": ["ssh://h/x", "http://h/@x"]}),
        ({"dsn": "host=h user=u password=hunter2 port=1"}, {"dsn": "host=h user=u password= port=1"}),
        ({"query": "a=1&api_key=K;x=2"}, {"query": "a=1&api_key=;x=2"}),
        ({"pem": "a\n-----BEGIN EC PRIVATE KEY-----\nMHc"}, {"pem": ""}),
        ({"env": [{"name": "DB_PASSWORD", "value": "x"}]}, {"env": [{"name": "DB_PASSWORD", "value": ""}]}),
        ({"env": [{"name": "MONKEY", "value": "x"}]}, {"env": [{"name": "MONKEY", "value": "x"}]}),
    ],
)  # fmt: skip
def test_secrets_and_the_ways_to_them_are_left_out(spec: dict[str, Any], shown: dict[str, Any]) -> None:
    before = repr(spec)
    assert redact(spec) == shown
    assert repr(spec) == before
