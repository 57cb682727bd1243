"""Takes the pictures of the console that the documentation shows: `python -m tests.support.console_tour FOLDER`.

Five nodes of a federation exchange events; one is killed, and a plugin fails on some of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.browser import Visitor, Visitors, running_browser
from tests.support.console import ConsoleNode, sign_in
from tests.support.console_worlds import CALLBACKS
from tests.support.declared import API_VERSION, group, peer
from tests.support.plugins import write_program
from tests.support.processes import Processes
from tests.support.waiting import wait_for

HUB: Final = "fra1"
SITES: Final = ("ams1", "lon1", "nyc1", "sgp1")
LOST: Final = "sgp1"
"""The node that is killed."""
EVENTS: Final = 240
FAILING: Final = 12
"""The plugin fails on one event in this number."""
PLUGIN: Final = """import json, sys
routes = []
for event in json.load(sys.stdin)["spec"]["events"]:
    if event["payload"].get("port") == "ge-0/0/11":
        sys.exit("no route for " + event["subject"])
    route = {"apiVersion": "net.example/v1", "kind": "IPv4Route", "metadata": {"name": event["subject"].split("/")[0]}}
    routes.append({**route, "spec": {"destination": event["subject"], "via": event["sourceNode"]}})
status = {"ttl": "10m", "resources": routes}
print(json.dumps({"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}))
"""


class Picture(NamedTuple):
    """A picture: the name of its file, the page below /console, and how it is taken."""

    name: str
    path: str
    dark: bool = False
    height: int = 900


PICTURES: Final = (
    Picture("overview", "/", height=1200),
    Picture("overview-dark", "/", dark=True, height=1200),
    Picture("link", "/links/edge/ams1", height=620),
    Picture("event", "/events/edge/client-0001", height=860),
    Picture("dead-letters", "/dead-letters", height=620),
    Picture("effective", "/parts/effective", height=760),
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.console_tour", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running_browser() as browser:
        processes, visitors = Processes(Path(scratch)), Visitors(browser)
        try:
            hub = make_federation(processes)
            for picture in PICTURES:
                photograph(visitors(dark=picture.dark, height=picture.height), hub, picture, folder)
            visitors.close()
        finally:
            processes.close()


def make_federation(processes: Processes) -> ConsoleNode:
    """Start the nodes, let them exchange events, and kill one; return the hub."""
    hub = ConsoleNode(processes, HUB, **CALLBACKS)
    sites = [ConsoleNode(processes, name) for name in SITES]
    for site in sites:
        site.join(hub)
    hub.apply(
        group(HUB, port=hub.port, secret=hub.secret),
        *(peer(site.name, site.port) for site in sites),
        *_subscription(processes),
    )
    hub.wait_listening()
    for site in sites:
        site.emit(f"{site.name}-up", subject=site.name, payload={"version": "0.1.0"})
    events = [_event(number) for number in range(EVENTS)]
    for start in range(0, EVENTS, 20):
        hub.ask("POST", "/groups/edge/events", {"events": events[start : start + 20]})
    hub.wait_sent(*SITES)
    hub.wait_holds({f"{site.name}-up" for site in sites})
    wait_for(lambda: _letters(hub) >= EVENTS // FAILING, "the plugin to have failed on some events", seconds=120)
    sites[SITES.index(LOST)].kill9()
    hub.ask("POST", "/groups/edge/events", {"events": [_event(number) for number in range(EVENTS, EVENTS + 5)]})
    hub.wait_link(LOST, "backing-off")
    return hub


def _event(number: int) -> dict[str, Any]:
    return {
        "id": f"client-{number:04d}",
        "type": "routerd.client.ipv4.observed",
        "subject": f"10.88.{number // 250}.{number % 250}/32",
        "payload": {"port": f"ge-0/0/{number % FAILING}", "vlan": "88"},
        "ttl": "1h",
    }


def _subscription(processes: Processes) -> list[dict[str, Any]]:
    program = write_program(processes.directory, PLUGIN, "client-routes")
    plugin = {"executable": str(program), "capabilities": ["propose.dynamicConfig"]}
    spec = {
        "groupRef": "edge",
        "match": {"types": ["routerd.client.*"]},
        "trigger": {"pluginRef": "client-routes"},
        "retry": {"maxAttempts": 1, "baseBackoff": "1ms", "maxBackoff": "1ms"},
    }
    kind = {"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "Plugin", "metadata": {"name": "client-routes"}}
    return [
        {**kind, "spec": plugin},
        {"apiVersion": API_VERSION, "kind": "EventSubscription", "metadata": {"name": "routes"}, "spec": spec},
    ]


def _letters(node: ConsoleNode) -> int:
    return sum(one["count"] for one in node.ask("GET", "/dead-letters")["groups"])


def photograph(visitor: Visitor, node: ConsoleNode, picture: Picture, folder: Path) -> None:
    """Take one picture of the window."""
    sign_in(visitor, node, path=picture.path)
    visitor.page.locator("#live.on").wait_for()
    visitor.page.screenshot(path=folder / f"{picture.name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
