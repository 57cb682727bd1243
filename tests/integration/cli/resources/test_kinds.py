"""Every kind on the command line: subscriptions, plugins, policies, and kinds of other programs."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import EDGE, Control

DYNAMIC = """
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {name: claim}
spec: {executable: /usr/libexec/claim, capabilities: [propose.dynamicConfig]}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventSubscription
metadata: {name: claims}
spec:
  groupRef: edge
  match: {types: ["routerd.client.*"]}
  trigger: {pluginRef: claim, debounce: 2s}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: billing}
spec:
  source: {groupRef: edge}
  url: https://billing.example/hooks?key=a
  signing: {keys: [{id: new, secretFile: /k}, {id: next, state: pending, secretFile: /k}]}
---
apiVersion: topic.routerd.net/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {ttlMs: 1h}
---
apiVersion: topic.routerd.net/v1alpha1
kind: TopicRouter
metadata: {name: orders->audit}
spec: {source: orders, dest: audit, filter: [tag, Glob, "a*"]}
---
apiVersion: stream.routerd.net/v1alpha1
kind: StreamTenant
metadata: {name: acme}
spec: {jwksURL: "https://keys.example/acme"}
---
apiVersion: stream.routerd.net/v1alpha1
kind: StreamCache
metadata: {name: acme-sessions}
spec: {tenant: acme, name: sessions, maxEntries: 5, maxTTL: 1h}
---
apiVersion: federation.routerd.net/v1alpha1
kind: FederationSLO
metadata: {name: edge-slo}
spec: {groupRef: edge, delivery: {lagWarnSeconds: 30}}
---
apiVersion: plugin.routerd.net/v1alpha1
kind: DynamicConfigSource
metadata: {name: claim-source}
spec: {pluginRef: claim, ttl: 300s}
---
apiVersion: config.routerd.net/v1alpha1
kind: DynamicOverridePolicy
metadata: {name: masks}
spec:
  allow:
    - source: EventSubscription/claims
      operations: [mask]
      targets: [{apiVersion: net.routerd.net/v1alpha1, kind: IPv4Route, name: fallback}]
"""

ROUTER = """
apiVersion: routerd.net/v1alpha1
kind: Router
metadata: {name: demo}
spec:
  resources:
    - apiVersion: federation.routerd.net/v1alpha1
      kind: EventGroup
      metadata: {name: edge}
      spec: {nodeName: onprem}
    - apiVersion: net.routerd.net/v1alpha1
      kind: IPv4Route
      metadata: {name: fallback}
      spec: {destination: 10.88.60.0/24, gateway: 10.99.0.254, metric: null, via: []}
      status: {phase: Applied}
    - apiVersion: net.example/v1
      kind: IPv4Route
      metadata: {name: 10.0.0.0/8}
      spec: {}
"""


def test_every_kind_is_listed_described_and_applied_again(routerctl: Control) -> None:
    routerctl("apply", "-f", routerctl.file(EDGE), "-f", routerctl.file(DYNAMIC, "dynamic.yaml"))
    assert routerctl("get", "all", "-o", "name").lines == [
        "eventgroup/edge",
        "eventpeer/to-cloud",
        "plugin/claim",
        "eventsubscription/claims",
        "topic/orders",
        "topicrouter/orders->audit",
        "eventcallback/billing",
        "streamtenant/acme",
        "streamcache/acme-sessions",
        "federationslo/edge-slo",
        "dynamicconfigsource/claim-source",
        "dynamicoverridepolicy/masks",
    ]
    rows = [line.split() for line in routerctl("get", "all").lines]
    assert ["plugin/claim", "/usr/libexec/claim", "10s", "propose.dynamicConfig"] in [row[:4] for row in rows]
    assert ["eventsubscription/claims", "edge", "claim", "routerd.client.*"] in [row[:4] for row in rows]
    assert ["eventcallback/billing", "group:edge", "https://billing.example/hooks?key=a", "standard", "new"] in [
        row[:5] for row in rows
    ]
    assert ["topic/orders", "log", "disk", "3600000", "none"] in [row[:5] for row in rows]
    assert ["topicrouter/orders->audit", "orders", "audit", "tag", "Glob", "a*", "no"] in [row[:7] for row in rows]
    assert ["streamtenant/acme", "https://keys.example/acme", "-"] in [row[:3] for row in rows]
    assert ["streamcache/acme-sessions", "acme", "default", "sessions", "64MiB"] in [row[:5] for row in rows]
    assert ["federationslo/edge-slo", "edge", "30", "180"] in [row[:4] for row in rows]
    assert ["dynamicconfigsource/claim-source", "claim", "5m0s"] in [row[:3] for row in rows]
    assert ["dynamicoverridepolicy/masks", "EventSubscription/claims"] in [row[:2] for row in rows]
    for kind, name in (
        ("sub", "claims"),
        ("ec", "billing"),
        ("topic", "orders"),
        ("router", "orders->audit"),
        ("tenant", "acme"),
        ("cache", "acme-sessions"),
        ("slo", "edge-slo"),
        ("plugin", "claim"),
        ("dop", "masks"),
    ):
        assert f"Name:        {name}" in routerctl("describe", kind, name).out
    assert "debounce: 2s" in routerctl("describe", "EventSubscription", "claims").out
    again = routerctl.file(routerctl("get", "all", "-o", "yaml").out, "again.yaml")
    assert {line.split()[1] for line in routerctl("apply", "-f", again).lines} == {"unchanged"}


def test_what_a_subscription_refers_to_stays_as_long_as_it(routerctl: Control) -> None:
    routerctl("apply", "-f", routerctl.file(EDGE), "-f", routerctl.file(DYNAMIC, "dynamic.yaml"))
    told = routerctl("delete", "plugin", "claim", code=1)
    assert told.err.startswith(
        "error: Plugin/claim is still used: DynamicConfigSource/claim-source, EventSubscription/claims (delete those"
    )
    path = routerctl.file(EDGE)
    assert routerctl("apply", "-f", path, "--prune").lines == [
        "eventgroup/edge unchanged",
        "eventpeer/to-cloud unchanged",
        "dynamicoverridepolicy/masks deleted",
        "dynamicconfigsource/claim-source deleted",
        "federationslo/edge-slo deleted",
        "streamcache/acme-sessions deleted",
        "streamtenant/acme deleted",
        "eventcallback/billing deleted",
        "topicrouter/orders->audit deleted",
        "topic/orders deleted",
        "eventsubscription/claims deleted",
        "plugin/claim deleted",
    ]


CALLBACK = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: stock}
spec:
  source: {topic: orders}
  url: https://stock.example/records
  format: records
"""


def test_a_callback_of_a_topic_needs_the_topic(routerctl: Control) -> None:
    path = routerctl.file(CALLBACK)
    problem = "topic orders does not exist (create it first: routerctl topic put orders)"
    for command in ("apply", "diff"):
        assert (
            f"edge.yaml:6: EventCallback/stock spec.source.topic: {problem}"
            in routerctl(command, "-f", path, code=1).err
        )
    routerctl("topic", "put", "orders")
    assert "+  format: records" in routerctl("diff", "-f", path).lines
    assert routerctl("apply", "-f", path).lines == ["eventcallback/stock created"]
    assert routerctl("apply", "-f", path).lines == ["eventcallback/stock unchanged"]
    table = [line.split() for line in routerctl("get", "webhooks", "-o", "wide").lines]
    assert table[0][:5] == ["NAME", "SOURCE", "URL", "FORMAT", "KEYS"]
    assert table[1][:5] == ["stock", "orders", "https://stock.example/records", "records", "-"]
    described = routerctl("describe", "callback", "stock").out
    for line in ("maxEvents: 100", "State:", "Waiting:", "nothing", "Order:", "strict"):
        assert line in described
    shown = routerctl("describe", "callback", "stock", "-o", "json").json
    assert shown["status"]["callback"]["state"] == "running"
    changed = routerctl.file(CALLBACK.replace("format: records", "format: batch"), "changed.yaml")
    assert "+  format: batch" in routerctl("diff", "-f", changed).lines
    assert routerctl("apply", "-f", changed).lines == ["eventcallback/stock configured"]
    assert routerctl("delete", "ec", "stock").lines == ["eventcallback/stock deleted"]


TOPICS = """
apiVersion: topic.routerd.net/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {capRecords: 5}
---
apiVersion: topic.routerd.net/v1alpha1
kind: TopicRouter
metadata: {name: orders->audit}
spec: {source: orders, dest: audit}
"""


def test_a_declared_topic_is_managed_by_its_resource_and_deleted_with_its_records(routerctl: Control) -> None:
    path = routerctl.file(TOPICS)
    routerctl("topic", "put", "orders")
    refused = routerctl("apply", "-f", path, code=1).err
    assert "Topic/orders exists already, made through the API (routerctl apply --adopt takes it over)" in refused
    assert "Managed:      api" in routerctl("topic", "describe", "orders").lines
    assert "+  capRecords: 5" in routerctl("diff", "-f", path, "--adopt").lines
    assert routerctl("apply", "-f", path, "--adopt").lines == [
        "topic/orders created, adopted",
        "topicrouter/orders->audit created",
    ]
    assert routerctl("topic", "get", "orders", "-o", "json").json["managed"] == "declared"
    assert routerctl("router", "get", "orders->audit", "-o", "json").json["managed"] == "declared"
    assert routerctl("topic", "get", "audit", "-o", "json").json["managed"] == "api"
    managed = {row["topic"]: row["managed"] for row in routerctl("topic", "list", "-o", "json").json}
    assert managed == {"audit": "api", "orders": "declared"}
    assert [row["managed"] for row in routerctl("router", "list", "-o", "json").json] == ["declared"]
    assert "MANAGED" in routerctl("router", "list").lines[0].split()
    assert routerctl("topic", "list").lines[2].split()[-1] == "declared"
    told = routerctl("topic", "set", "orders", "cap_records=6", code=1).err
    assert "the topic 'orders' is declared by Topic/orders and cannot be configured here" in told
    routerctl("topic", "write", "orders", "1")
    described = routerctl("describe", "Topic", "orders").out
    assert "capRecords: 5" in described
    assert "Records:" in described
    assert "orders->audit" in described
    assert "Forwarded:" in routerctl("describe", "TopicRouter", "orders->audit").out
    doomed = routerctl("delete", "-f", path, "--dry-run")
    assert doomed.lines == ["topicrouter/orders->audit deleted (dry run)", "topic/orders deleted (dry run)"]
    assert "note: 1 stored record of topic orders would be deleted with it" in doomed.err
    assert routerctl("apply", "-f", routerctl.file(EDGE, "edge2.yaml"), "--prune").lines[2:] == [
        "topicrouter/orders->audit deleted",
        "topic/orders deleted",
    ]


def test_a_callback_to_a_forbidden_address_is_refused(routerctl: Control) -> None:
    routerctl("topic", "put", "orders")
    told = routerctl("apply", "-f", routerctl.file(CALLBACK.replace("stock.example", "10.0.0.1")), code=1)
    assert "edge.yaml:7: EventCallback/stock spec.url: 10.0.0.1 is a private address (10.0.0.0/8): allow it" in told.err
    assert routerctl("get", "all", "-o", "json").json == []


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_setting_allows_an_address(routerctl: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    routerctl("topic", "put", "orders")
    monkeypatch.setenv("EVENTD_CALLBACK_ALLOW", "10.0.0.0/8")
    path = routerctl.file(CALLBACK.replace("stock.example", "10.0.0.1"))
    assert routerctl("apply", "-f", path).lines == ["eventcallback/stock created"]


def test_a_router_with_resources_of_other_programs_is_applied_as_a_whole(routerctl: Control) -> None:
    path = routerctl.file(ROUTER)
    assert routerctl("apply", "-f", path).lines == [
        "eventgroup/edge created",
        "ipv4route/fallback created",
        "ipv4route/10.0.0.0/8 created",
    ]
    assert {line.split()[1] for line in routerctl("apply", "-f", path).lines} == {"unchanged"}
    assert routerctl("diff", "-f", path).out == ""
    table = [line.split() for line in routerctl("get", "IPv4Route").lines]
    assert table[0] == ["NAME", "KIND", "APIVERSION", "CREATED"]
    assert [row[:3] for row in table[1:]] == [
        ["10.0.0.0/8", "IPv4Route", "net.example/v1"],
        ["fallback", "IPv4Route", "net.routerd.net/v1alpha1"],
    ]
    shown = routerctl("get", "ipv4route", "fallback", "-o", "json").json
    assert shown["spec"] == {"destination": "10.88.60.0/24", "gateway": "10.99.0.254", "metric": None, "via": []}
    assert "status" not in shown
    described = routerctl("describe", "IPv4Route", "fallback").out
    assert "Version:     net.routerd.net/v1alpha1" in described
    assert "gateway: 10.99.0.254" in described
    again = routerctl.file(routerctl("get", "all", "-o", "yaml").out, "again.yaml")
    assert {line.split()[1] for line in routerctl("apply", "-f", again).lines} == {"unchanged"}
    changed = routerctl.file(ROUTER.replace("10.99.0.254", "10.99.0.253"), "changed.yaml")
    assert "-  gateway: 10.99.0.254" in routerctl("diff", "-f", changed).lines
    assert routerctl("apply", "-f", changed).lines[1] == "ipv4route/fallback configured"


def test_one_problem_anywhere_keeps_all_of_a_router_out(routerctl: Control) -> None:
    bad = routerctl.file(ROUTER.replace("nodeName: onprem", "nodeName: ''").replace("metric: null", "metric: .nan"))
    told = routerctl("apply", "-f", bad, code=1)
    assert [line.strip().partition(": ")[2] for line in told.err.splitlines()[1:]] == [
        "EventGroup/edge spec.nodeName: is required",
        "IPv4Route/fallback spec.metric: must be a finite number",
    ]
    assert routerctl("get", "all", "-o", "json").json == []


def test_resources_of_other_programs_are_deleted_by_name_by_file_and_by_pruning(routerctl: Control) -> None:
    path = routerctl.file(ROUTER)
    routerctl("apply", "-f", path)
    assert routerctl("delete", "IPv4Route", "fallback", "--dry-run").lines == ["ipv4route/fallback deleted (dry run)"]
    assert routerctl("delete", "IPv4Route", "fallback").lines == ["ipv4route/fallback deleted"]
    assert routerctl("delete", "ipv4route", "10.0.0.0/8").lines == ["ipv4route/10.0.0.0/8 deleted"]
    assert routerctl("delete", "IPv4Route", "fallback", code=3).err.startswith("error: unknown kind IPv4Route")
    routerctl("apply", "-f", path)
    group = routerctl.file(ROUTER.partition("    - apiVersion: net.routerd.net")[0], "group.yaml")
    assert routerctl("apply", "-f", group, "--prune").lines == [
        "eventgroup/edge unchanged",
        "ipv4route/10.0.0.0/8 deleted",
        "ipv4route/fallback deleted",
    ]
    routerctl("apply", "-f", path)
    assert routerctl("delete", "-f", path).lines == [
        "ipv4route/10.0.0.0/8 deleted",
        "ipv4route/fallback deleted",
        "eventgroup/edge deleted",
    ]


@pytest.mark.parametrize("command", ["get", "describe", "delete"])
def test_of_two_kinds_with_one_name_it_is_asked_which(routerctl: Control, command: str) -> None:
    routerctl("apply", "-f", routerctl.file(ROUTER.replace("name: 10.0.0.0/8", "name: fallback")))
    assert routerctl(command, "IPv4Route", "fallback", code=1).err == (
        "error: IPv4Route/fallback exists in net.example/v1 and in net.routerd.net/v1alpha1 "
        "(name one, for example IPv4Route.v1.net.example)\n"
    )
    for word in ("IPv4Route.v1.net.example", "ipv4route.net.example"):
        assert routerctl("get", word, "fallback", "-o", "json").json["apiVersion"] == "net.example/v1"
    routerctl(command, "IPv4Route.v1.net.example", "fallback")
    left = routerctl("get", "IPv4Route", "-o", "json").json
    kept = ["net.example/v1"] * (command != "delete")
    assert [row["apiVersion"] for row in left] == [*kept, "net.routerd.net/v1alpha1"]


def test_a_kind_that_is_not_there_is_told_which_may_be_meant(routerctl: Control) -> None:
    routerctl("apply", "-f", routerctl.file(ROUTER))
    assert routerctl("get", "IPv4Rout", code=3).err == "error: unknown kind IPv4Rout (did you mean IPv4Route?)\n"
    told = routerctl("get", "IPv4Route", "fallbak", code=3).err
    assert told == "error: IPv4Route/fallbak does not exist (declared: 10.0.0.0/8, fallback)\n"


def test_the_longest_name_is_stored_and_found(routerctl: Control) -> None:
    name = "\N{MATHEMATICAL DOUBLE-STRUCK SMALL X}" * 512  # four bytes each
    text = f"apiVersion: net.example/v1\nkind: IPv4Route\nmetadata: {{name: {name}}}\nspec: {{}}\n"
    routerctl("apply", "-f", routerctl.file(text))
    assert routerctl("get", "IPv4Route", name, "-o", "name").lines == [f"ipv4route/{name}"]
    assert routerctl("delete", "IPv4Route", name).lines == [f"ipv4route/{name} deleted"]
