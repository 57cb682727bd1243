"""What the pages of the console show in tests: a node with nothing, one with everything, one where everything fails."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.support.console import ConsoleNode
from tests.support.declared import API_VERSION, callback, group, peer
from tests.support.plugins import write_program
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import ApiError

EVENTS = 120
CALLBACKS = {"EVENTD_CALLBACK_ALLOW": "127.0.0.0/8"}
ROUTES = """import json
route = {"apiVersion": "net.example/v1", "kind": "IPv4Route", "metadata": {"name": "client"}, "spec": {"via": "site-a"}}
status = {"ttl": "10m", "resources": [route]}
print(json.dumps({"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}))
"""
HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "quotes": "\"' autofocus onfocus=alert(3) x='",
    "template": "{{ 7654321 * 3 }}{% raw %}",
    "right to left": "abc\u202egnp.exe",
    "long": "x" * 253,
    "emoji": "👩‍👩‍👧‍👦 ☠️ é",
    "url": "javascript:alert(4)",
}
"""Texts that must be shown as they are, wherever a name or a text of others is shown."""


def make_empty(processes: Processes) -> ConsoleNode:
    """Start a node without a group."""
    return ConsoleNode(processes, "empty")


def make_full(processes: Processes) -> ConsoleNode:
    """Start a node with a link that runs, events, a subscription, a callback, topics and a router."""
    node, far = ConsoleNode(processes, "site-a", **CALLBACKS), ConsoleNode(processes, "site-b")
    far.join(node)
    node.apply(
        group("site-a", port=node.port, secret=node.secret),
        peer("site-b", far.port),
        *_subscription(processes, ROUTES),
        callback("billing", url=f"http://127.0.0.1:{free_port()}/hooks", allowPlain=True),
    )
    node.wait_listening()
    _write(node)
    node.wait_sent("site-b")
    return node


def make_broken(processes: Processes) -> ConsoleNode:
    """Start a node whose peer, plugin and endpoint fail, and whose events say what must not be believed."""
    node = ConsoleNode(processes, "site-c", **CALLBACKS)
    failing = "import sys\nprint('<b>no</b>', file=sys.stderr)\nsys.exit(3)"
    node.apply(
        group("site-c", port=node.port, secret=node.secret),
        peer("gone", free_port()),
        peer("a-name-as-long-as-names-of-nodes-may-be-" + "x" * 20, free_port()),
        *_subscription(processes, failing),
        callback("billing", url=f"http://127.0.0.1:{free_port()}/hooks", allowPlain=True),
    )
    node.wait_listening()
    _write(node)
    for text in HOSTILE.values():
        _insist(lambda text=text: node.emit(f"id-{text}"[:64], subject=text, payload={text[:60]: text}))  # type: ignore[misc]
        _insist(lambda text=text: node.emit("hostile-" + text[:9].strip(), type=text))  # type: ignore[misc]
        record = {"data": {"text": text}, "tag": text[:60]}
        body = {"node": text[:60], "records": [record]}
        _insist(lambda body=body: node.request("POST", "/v0/topics/orders", body))  # type: ignore[misc]
        _insist(lambda text=text: node.ask("POST", "/keys", {"name": text, "scopes": ["read"]}))  # type: ignore[misc]
    node.wait_link("gone", "backing-off")
    return node


def _subscription(processes: Processes, body: str) -> list[dict[str, Any]]:
    program = write_program(processes.directory, body, f"plugin{abs(hash(body))}")
    plugin = {"executable": str(program), "capabilities": ["propose.dynamicConfig"]}
    spec = {"groupRef": "edge", "match": {"types": ["*"]}, "trigger": {"pluginRef": "routes"}}
    return [
        {
            "apiVersion": "plugin.routerd.net/v1alpha1",
            "kind": "Plugin",
            "metadata": {"name": "routes"},
            "spec": plugin,
        },
        {"apiVersion": API_VERSION, "kind": "EventSubscription", "metadata": {"name": "clients"}, "spec": spec},
    ]


def _write(node: ConsoleNode) -> None:
    node.emit(*[f"e{number}" for number in range(EVENTS)], subject="10.0.0.1/32", payload={"port": "ge-0/0/7"})
    records = [{"data": {"item": number}, "tag": "eu:new"} for number in range(60)]
    node.request("POST", "/v0/topics/orders", {"node": "shop", "records": records})
    for source, dest in (("orders", "audit"), ("left", "right"), ("right", "left")):
        ends = {"source": source, "dest": dest, "allow_cycle": source != "orders"}
        node.request("PUT", f"/v0/routers/{quote(f'{source}->{dest}')}", ends)
    node.request("PUT", "/v0/topics/todo", {"type": "queue", "dead_letter": "undone", "lease_ms": 86_400_000})
    node.request("POST", "/v0/topics/todo", {"node": "shop", "records": records[:5]})
    node.request("POST", "/v0/topics/todo/claim", {"node": "worker", "max": 2})
    node.request("POST", f"/v0/topics/{quote('stream:t1:default:orders')}", {"records": records[:5]})


def _insist(call: Any) -> None:
    try:
        call()
    except ApiError as error:
        if error.status >= 500:
            raise  # a name that is refused is no danger to a page
