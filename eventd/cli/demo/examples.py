"""The examples on one node of the demo besides events: a plugin that refuses one event, and orders that become
jobs."""

from __future__ import annotations

import json
import sys
from typing import Final

from eventd.cli.demo.nodes import GROUP, DemoNode, Stage

NODE: Final = "site-a"
FILE: Final = "examples.yaml"
FOREIGN: Final = "192.0.2.7/32"
"""The address of a client that the plugin refuses until its network is declared."""
_NETWORKS, _CLIENTS = "10.88.0.0/16", 9
_PLUGIN: Final = '''\
"""Proposes a route for each client whose address is in one of NETWORKS, and refuses events of others."""
import ipaddress, json, os, sys

networks = [ipaddress.ip_network(text) for text in os.environ["NETWORKS"].replace(",", " ").split()]
routes = []
for event in json.load(sys.stdin)["spec"].get("events", []):
    client = ipaddress.ip_network(event["subject"])
    if not any(client.subnet_of(network) for network in networks):
        fix = "add its network to env.NETWORKS of the Plugin, after a comma"
        sys.exit(f"{client} is in none of {os.environ['NETWORKS']}: {fix}")
    name = "client-" + str(client.network_address).replace(".", "-")
    spec = {"destination": str(client), "via": event.get("sourceNode")}
    routes.append({"apiVersion": "net.example/v1", "kind": "IPv4Route", "metadata": {"name": name}, "spec": spec})
status = {"ttl": "10m", "resources": routes}
print(json.dumps({"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}))
'''
_DECLARED: Final = """\
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {{name: routes}}
spec:
  executable: {program}
  capabilities: [propose.dynamicConfig]
  env:
    NETWORKS: {networks}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventSubscription
metadata: {{name: clients}}
spec:
  groupRef: {group}
  match: {{types: [client.seen]}}
  trigger: {{pluginRef: routes}}
  retry: {{maxAttempts: 1}}
---
apiVersion: topic.routerd.net/v1alpha1
kind: Topic
metadata: {{name: orders}}
spec: {{capRecords: 1000}}
---
apiVersion: topic.routerd.net/v1alpha1
kind: Topic
metadata: {{name: parcels}}
spec: {{type: queue, capRecords: 1000, maxDeliveries: 3, deadLetter: lost-parcels}}
---
apiVersion: topic.routerd.net/v1alpha1
kind: TopicRouter
metadata: {{name: packing}}
spec: {{source: orders, dest: parcels}}
"""


def write_examples(stage: Stage) -> None:
    """Write the plugin, and the file with the resources, to the folder of the demo."""
    program = stage.folder / "routes"
    program.write_text(f"#!{sys.executable}\n{_PLUGIN}")
    program.chmod(0o700)
    declared = _DECLARED.format(program=json.dumps(str(program)), networks=_NETWORKS, group=GROUP)
    (stage.folder / FILE).write_text(declared)


async def add_example(stage: Stage, node: DemoNode, number: int) -> None:
    """Emit an event for the plugin, and write an order. The first event is the one that the plugin refuses."""
    subject = FOREIGN if number == 0 else f"10.88.60.{number % _CLIENTS + 1}/32"
    await stage.emit(node, {"type": "client.seen", "subject": subject})
    order = {"data": {"order": number + 1, "item": ("bolt", "nut", "washer")[number % 3]}, "tag": "eu:new"}
    await stage.post(node, "/v0/topics/orders", {"node": "shop", "records": [order]})
