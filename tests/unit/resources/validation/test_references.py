from __future__ import annotations

import difflib

import pytest

from tests.unit.resources.samples import (
    BACKING,
    CALLBACK,
    EVERYTHING,
    FEDERATION,
    GROUP,
    PEER,
    PLUGIN,
    SUBSCRIPTION,
    callback,
    group,
    peer,
    problems,
    rows,
    subscription,
)


def both(*texts: str) -> str:
    return "---\n".join(texts)


def test_a_group_and_its_peers_hold_together_in_any_order_and_in_parts() -> None:
    assert problems(EVERYTHING) == []
    assert problems(both(PEER, GROUP)) == []
    assert problems(PEER, rows(GROUP)) == []
    assert problems(GROUP, rows(EVERYTHING)) == []


def test_a_peer_without_its_group_is_refused() -> None:
    message = "6: EventPeer/cloud spec.groupRef: EventGroup edge is not declared"
    assert problems(f"\n{PEER}") == [f"{message} (declare it in the same input, or apply it first)"]
    assert problems(f"\n{PEER}", rows(group(name="edge1"))) == [f"{message} (did you mean edge1?)"]


def test_a_callback_without_its_group_is_refused() -> None:
    message = "6: EventCallback/billing spec.source.groupRef: EventGroup edge is not declared"
    assert problems(f"\n{CALLBACK}") == [f"{message} (declare it in the same input, or apply it first)"]
    assert problems(f"\n{CALLBACK}", rows(group(name="edge1"))) == [f"{message} (did you mean edge1?)"]
    assert problems(both(CALLBACK, GROUP)) == []
    assert problems(callback(source="{topic: edge}")) == []


def test_with_pruning_a_stored_group_does_not_count() -> None:
    assert problems(PEER, rows(GROUP), prune=True) == [
        "5: EventPeer/cloud spec.groupRef: EventGroup edge is not declared "
        "(declare it in the same input, or apply it first)"
    ]


def test_nothing_is_called_missing_while_something_could_not_be_read() -> None:
    assert [problem.partition(":")[0] for problem in problems(both(PEER, "kind: [\n"))] == ["10"]
    found = problems(both(PEER, GROUP.replace("EventGroup", "EventGrop")))
    assert found == ["10: EventGrop/edge kind: unknown kind EventGrop (did you mean EventGroup?)"]


def test_a_group_that_is_wrong_in_itself_is_not_missing() -> None:
    found = problems(both(GROUP.replace("onprem", "''"), PEER))
    assert found == ["5: EventGroup/edge spec.nodeName: is required"]


def test_a_peer_that_is_wrong_in_itself_is_still_held_against_the_others() -> None:
    found = problems(both(GROUP, PEER.replace("http:", "ftp:"), peer(name="again")))
    assert found == [
        "14: EventPeer/cloud spec.endpoint: must begin with http:// or https:// (for example http://10.99.0.7:8787)",
        "21: EventPeer/again spec.nodeName: EventPeer/cloud already is node cloud of group edge",
    ]


def test_two_peers_with_one_node_name_are_refused_in_one_group_only() -> None:
    again = peer(name="again")
    message = "EventPeer/again spec.nodeName: EventPeer/cloud already is node cloud of group edge"
    assert problems(both(EVERYTHING, again)) == [f"21: {message}"]
    assert problems(again, rows(EVERYTHING)) == [f"6: {message}"]
    assert problems(both(again.replace("groupRef: edge", "groupRef: far"), group(name="far")), rows(EVERYTHING)) == []
    assert problems(both(peer(name="one", node="a"), peer(name="two", node="b")), rows(GROUP)) == []


def test_a_stored_peer_may_take_over_a_name_that_is_given_up() -> None:
    swapped = both(peer(name="one", node="b"), peer(name="two", node="a"))
    stored = rows(both(GROUP, peer(name="one", node="a"), peer(name="two", node="b")))
    assert problems(swapped, stored) == []


def test_a_peer_is_another_node() -> None:
    assert problems(peer(node="onprem"), rows(GROUP)) == [
        "6: EventPeer/cloud spec.nodeName: onprem is this node in group edge (name another node)"
    ]


def test_a_group_cannot_take_the_name_of_a_stored_peer() -> None:
    assert problems(GROUP.replace("onprem", "cloud"), rows(EVERYTHING)) == [
        "5: EventGroup/edge spec.nodeName: cloud is also the node of EventPeer/cloud "
        "(EventPeer/cloud would make the node send to itself)"
    ]


def listening(name: str, address: str, port: int = 8787) -> str:
    return group(f"listen: {{address: '{address}', port: {port}}}", name=name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "10.0.0.1"),
        ("10.0.0.1", "::"),
        ("::1", "0:0::1"),
        ("localhost", "127.0.0.1"),
        ("::1", "LOCALHOST"),
        ("a.example", "A.example"),
        ("a.example", "0.0.0.0"),
    ],
)
def test_two_groups_cannot_listen_on_one_address_and_port(one: str, other: str) -> None:
    hint = "(each group needs an address or a port of its own)"
    assert problems(both(listening("a", one), listening("b", other))) == [
        f"15: EventGroup/b spec.listen.port: EventGroup/a already listens on {one} port 8787 {hint}"
    ]
    assert problems(listening("b", other), rows(listening("a", one))) == [
        f"7: EventGroup/b spec.listen.port: EventGroup/a already listens on {one} port 8787 {hint}"
    ]


def test_groups_may_share_an_address_or_a_port() -> None:
    assert problems(both(listening("a", "10.0.0.1"), listening("b", "10.0.0.1", 8788))) == []
    assert problems(both(listening("a", "10.0.0.1"), listening("b", "10.0.0.2"))) == []
    assert problems(both(listening("a", "10.0.0.1"), listening("b", ""))) == [
        "15: EventGroup/b spec.listen.address: is required when a port is set "
        "(write 0.0.0.0 to listen on every interface)"
    ]


LISTEN = "listen: {address: '::1', port: 8787}"


def test_a_group_that_listens_needs_a_key() -> None:
    assert problems(group(LISTEN, auth=False)) == [
        "4: EventGroup/edge spec.auth.secretFile: is required: the group listens (or write auth.keys)"
    ]
    assert problems(group(f"{LISTEN}\nauth: {{secretFile: ' '}}", auth=False)) == [
        "7: EventGroup/edge spec.auth.secretFile: is required: the group listens (or write auth.keys)"
    ]


def test_a_group_with_peers_needs_a_key() -> None:
    assert problems(both(group(auth=False), PEER)) == [
        "4: EventGroup/edge spec.auth.secretFile: is required: EventPeer/cloud belongs to the group "
        "(or write auth.keys)"
    ]
    assert problems(group(auth=False), rows(EVERYTHING)) == [
        "4: EventGroup/edge spec.auth.secretFile: is required: EventPeer/cloud belongs to the group "
        "(or write auth.keys)"
    ]


def test_a_peer_of_a_stored_group_without_a_key_is_refused_at_the_peer() -> None:
    assert problems(PEER, rows(group(auth=False))) == [
        "5: EventPeer/cloud spec.groupRef: EventGroup/edge has neither auth.secretFile nor auth.keys, "
        "so nothing could be sent (give the group a key first)"
    ]


def keyed(*keys: str, more: str = "") -> str:
    ring = "".join(f"\n  - {{id: k{at}, {key}}}" for at, key in enumerate(keys))
    return group(f"{LISTEN}\n{more}\nauth:\n  keys:{ring}", auth=False)


@pytest.mark.parametrize(
    "key",
    [
        "owner: onprem, secretFile: /a",
        "owner: '*', secretFile: /a",
        "node: onprem, secretFile: /a",
        "owner: onprem, algorithm: ed25519, secretFile: /a",
    ],
)
def test_an_active_key_of_ones_own_is_enough(key: str) -> None:
    assert problems(both(keyed(key), PEER)) == []


@pytest.mark.parametrize(
    "key",
    [
        "owner: cloud, secretFile: /a",
        "owner: onprem, secretFile: /a, state: pending",
        "owner: onprem, secretFile: /a, state: revoked",
    ],
)
def test_keys_that_cannot_sign_are_not_enough(key: str) -> None:
    assert problems(keyed(key)) == [
        "9: EventGroup/edge spec.auth.keys: contain no active key of this node, onprem, so it could not sign: "
        "the group listens (add one, or write auth.secretFile)"
    ]


def test_a_peer_speaks_what_its_group_speaks() -> None:
    assert problems(both(peer("protocol: v1"), group("protocols: [v2]"))) == [
        "8: EventPeer/cloud spec.protocol: group edge does not speak v1"
    ]
    assert problems(group("protocols: [v2]"), rows(both(GROUP, peer("protocol: v1")))) == [
        "7: EventGroup/edge spec.protocols: EventPeer/cloud needs v1"
    ]
    assert problems(both(peer("protocol: v2"), group("protocols: [v2]"))) == []
    assert problems(both(PEER, group("protocols: [v2]"))) == []


def test_v1_needs_a_shared_secret() -> None:
    own = "owner: onprem, algorithm: ed25519, secretFile: /a"
    assert problems(both(keyed(own), peer("protocol: v1"))) == [
        "19: EventPeer/cloud spec.protocol: v1 needs a shared secret, and group edge has none "
        "(write auth.secretFile in the group)"
    ]
    assert problems(both(keyed(own, "owner: '*', secretFile: /b"), peer("protocol: v1"))) == []
    assert problems(both(keyed(own), peer("protocol: v2"))) == []


def test_what_is_stored_and_untouched_is_not_judged_again() -> None:
    stored = [*rows(EVERYTHING), *(row for row in rows(both(GROUP, peer(name="again"))) if row.name == "again")]
    assert problems(group(name="other"), stored) == []


def test_a_subscription_needs_its_group_and_its_plugin() -> None:
    hint = "(declare it in the same input, or apply it first)"
    assert problems(SUBSCRIPTION) == [
        f"5: EventSubscription/claims spec.groupRef: EventGroup edge is not declared {hint}",
        f"7: EventSubscription/claims spec.trigger.pluginRef: Plugin claim is not declared {hint}",
    ]
    assert problems(both(SUBSCRIPTION, PLUGIN), rows(GROUP)) == []
    assert problems(SUBSCRIPTION, rows(BACKING)) == []
    assert problems(SUBSCRIPTION.replace("pluginRef: claim", "pluginRef: clam"), rows(BACKING)) == [
        "7: EventSubscription/claims spec.trigger.pluginRef: Plugin clam is not declared (did you mean claim?)"
    ]


def test_with_pruning_a_stored_plugin_does_not_count() -> None:
    [told] = problems(both(SUBSCRIPTION, GROUP), rows(BACKING), prune=True)
    assert told.startswith("7: EventSubscription/claims spec.trigger.pluginRef: Plugin claim is not declared")


def test_an_objective_and_a_source_need_what_they_refer_to() -> None:
    objective = "apiVersion: federation.routerd.net/v1alpha1\nkind: FederationSLO\nmetadata: {name: a}\n"
    source = "apiVersion: plugin.routerd.net/v1alpha1\nkind: DynamicConfigSource\nmetadata: {name: a}\n"
    text = both(f"{objective}spec: {{groupRef: edge}}\n", f"{source}spec: {{pluginRef: claim, ttl: 1m}}\n")
    hint = "(declare it in the same input, or apply it first)"
    assert problems(text) == [
        f"4: FederationSLO/a spec.groupRef: EventGroup edge is not declared {hint}",
        f"9: DynamicConfigSource/a spec.pluginRef: Plugin claim is not declared {hint}",
    ]
    assert problems(text, rows(BACKING)) == []


def test_every_problem_of_every_kind_is_said_at_once() -> None:
    text = both(
        subscription("retry: {maxAttempts: 0}", match="{types: ['a*']}"),
        PLUGIN.replace("/usr", "usr"),
        PEER,
    )
    assert [problem.split(": ")[0:2] for problem in problems(text)] == [
        ["5", "EventSubscription/claims spec.groupRef"],
        ["6", "EventSubscription/claims spec.match.types[0]"],
        ["8", "EventSubscription/claims spec.retry.maxAttempts"],
        ["14", "Plugin/claim spec.executable"],
        ["20", "EventPeer/cloud spec.groupRef"],
    ]


def test_of_very_many_problems_the_first_hundred_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *_: compared.append(name) or [])
    peers = [peer(name=f"p{number}", node=f"n{number}") for number in range(150)]
    assert len(problems(both(*peers))) == 100
    assert len(compared) == 100


def test_no_close_name_is_looked_for_among_very_many() -> None:
    groups = [
        f"apiVersion: {FEDERATION}\nkind: EventGroup\nmetadata: {{name: edge{n}}}\nspec: {{nodeName: n{n}}}\n"
        for n in range(1_001)
    ]
    [problem] = problems(PEER, rows(both(*groups)))
    assert "declare it in the same input" in problem
