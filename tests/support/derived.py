"""Subscriptions, plugins and programs for tests that derive configuration from events."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.support.declared import API_VERSION

PLUGIN_API = "plugin.routerd.net/v1alpha1"
ROUTE_API = "net.routerd.net/v1alpha1"
OBSERVED, EXPIRED = "routerd.client.ipv4.observed", "routerd.client.ipv4.expired"

ANSWER = """
import json, os, sys, time
request = json.load(sys.stdin)
events = request["spec"].get("events", [])
def route(event):
    return {"apiVersion": "net.routerd.net/v1alpha1", "kind": "IPv4Route",
            "metadata": {"name": "claim-" + (event.get("subject") or event["id"])
                         .split("/")[0].replace(".", "-")},
            "spec": {"destination": event.get("subject", ""), "payload": event.get("payload", {})}}
def answer(resources=None, ttl="10m", **status):
    status = {"observedAt": request["spec"]["now"], "ttl": ttl, "resources": resources or []} | status
    print(json.dumps({"apiVersion": request["apiVersion"], "kind": "PluginResult",
                      "metadata": request["metadata"], "status": status}))
"""
"""What every program of these tests begins with: the request, and words for an answer."""

ROUTES = "answer([route(event) for event in events])"
"""One route for each event."""


def program(directory: Path, code: str, *, name: str = "plugin", beginning: str = ANSWER) -> Path:
    """An executable file that runs this Python code."""
    file = directory / name
    fresh = file.with_suffix(".new")
    fresh.write_text(f"#!{sys.executable} -IS\n{beginning}\n{code}\n")
    fresh.chmod(0o755)
    os.replace(fresh, file)  # a running one keeps its own
    return file


def plugin(executable: Path | str = "", *, name: str = "routes", **spec: Any) -> dict[str, Any]:
    """A Plugin that may propose configuration, unless `spec` says otherwise."""
    found = {"capabilities": ["propose.dynamicConfig"], "timeout": "10s", **spec}
    if executable:
        found["executable"] = str(executable)
    return {"apiVersion": PLUGIN_API, "kind": "Plugin", "metadata": {"name": name}, "spec": found}


def subscription(
    *types: str, name: str = "claims", group: str = "edge", plugin: str = "routes", **spec: Any
) -> dict[str, Any]:
    """An EventSubscription that tries again soon. `trigger` and `match` are merged with what is given here."""
    found = {
        "groupRef": group,
        "retry": {"baseBackoff": "20ms", "maxBackoff": "100ms"},
        **spec,
        "match": {"types": list(types or [OBSERVED]), **spec.get("match", {})},
        "trigger": {"pluginRef": plugin, **spec.get("trigger", {})},
    }
    return {"apiVersion": API_VERSION, "kind": "EventSubscription", "metadata": {"name": name}, "spec": found}
