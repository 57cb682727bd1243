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
"""The first lines of each plugin program of these tests: read the request, and a function to answer."""

ROUTES = "answer([route(event) for event in events])"
"""A program that answers one route for each event."""


def program(directory: Path, code: str, *, name: str = "plugin", beginning: str = ANSWER) -> Path:
    """Write an executable file that runs this Python code; return its path."""
    file = directory / name
    fresh = file.with_suffix(".new")
    fresh.write_text(f"#!{sys.executable} -IS\n{beginning}\n{code}\n")
    fresh.chmod(0o755)
    os.replace(fresh, file)  # a process that runs the old file keeps it
    return file


def plugin(executable: Path | str = "", *, name: str = "routes", **spec: Any) -> dict[str, Any]:
    """Return a Plugin that may propose everything, unless `spec` overrides that."""
    found = {"capabilities": ["propose.dynamicConfig"], "timeout": "10s", **spec}
    if executable:
        found["executable"] = str(executable)
    return {"apiVersion": PLUGIN_API, "kind": "Plugin", "metadata": {"name": name}, "spec": found}


def subscription(
    *types: str, name: str = "claims", group: str = "edge", plugin: str = "routes", **spec: Any
) -> dict[str, Any]:
    """Return an EventSubscription that retries soon. `trigger` and `match` are merged with the defaults."""
    found = {
        "groupRef": group,
        "retry": {"baseBackoff": "20ms", "maxBackoff": "100ms"},
        **spec,
        "match": {"types": list(types or [OBSERVED]), **spec.get("match", {})},
        "trigger": {"pluginRef": plugin, **spec.get("trigger", {})},
    }
    return {"apiVersion": API_VERSION, "kind": "EventSubscription", "metadata": {"name": name}, "spec": found}
