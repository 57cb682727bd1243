"""Resources for tests: `declare(group(…), peer(…))` returns text to apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

API_VERSION = "federation.routerd.net/v1alpha1"
TOPICS_VERSION = "topic.routerd.net/v1alpha1"
PLAIN_GROUP: dict[str, Any] = {"history": {"mode": "off"}}
"""Fields of a group without a history: retention waits for no seal, and peers are asked for nothing but events."""


def group(node: str, *, port: int = 0, secret: Path | str = "", name: str = "edge", **spec: Any) -> dict[str, Any]:
    """Return an EventGroup. Without `port` the node only sends; `spec` holds further fields."""
    found: dict[str, Any] = {"nodeName": node, **spec}
    if port:
        found["listen"] = {"address": "127.0.0.1", "port": port}
    if secret:
        found["auth"] = {**found.get("auth", {}), "secretFile": str(secret)}
    return {"apiVersion": API_VERSION, "kind": "EventGroup", "metadata": {"name": name}, "spec": found}


def peer(node: str, port: int, *, group: str = "edge", **spec: Any) -> dict[str, Any]:
    """Return an EventPeer on this machine. It retries soon unless `spec` overrides that."""
    found = {
        "groupRef": group,
        "nodeName": node,
        "endpoint": f"http://127.0.0.1:{port}",
        "retry": {"baseBackoff": "50ms", "maxBackoff": "1s"},
        **spec,
    }
    return {"apiVersion": API_VERSION, "kind": "EventPeer", "metadata": {"name": f"{group}-{node}"}, "spec": found}


def callback(
    name: str, *, group: str = "edge", topic: str = "", url: str = "https://billing.example/hooks", **spec: Any
) -> dict[str, Any]:
    """Return an EventCallback for the records of a `topic`, or else the events of a group."""
    found = {"source": {"topic": topic} if topic else {"groupRef": group}, "url": url, **spec}
    return {"apiVersion": API_VERSION, "kind": "EventCallback", "metadata": {"name": name}, "spec": found}


def topic(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Topic."""
    return {"apiVersion": TOPICS_VERSION, "kind": "Topic", "metadata": {"name": name}, "spec": spec}


def topic_router(source: str, dest: str, **spec: Any) -> dict[str, Any]:
    """Return a TopicRouter."""
    made = topic(f"{source}->{dest}", source=source, dest=dest, **spec)
    return {**made, "kind": "TopicRouter"}


def declare(*documents: dict[str, Any]) -> str:
    """Return the resources as one text: every line is JSON, hence YAML."""
    return "\n---\n".join(json.dumps(document) for document in documents)
