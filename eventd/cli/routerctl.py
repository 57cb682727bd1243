"""`routerctl`: works on a node, through its database or its API."""

from __future__ import annotations

from typing import Final

import typer

from eventd.cli.program.command_line import program
from eventd.cli.program.exits import run
from eventd.cli.program.tree import Branch, Leaf, grow

_SUBSCRIPTION: Final = Branch(
    "What subscriptions do with events.",
    {
        "list": Leaf("federation.subscriptions.list_states"),
        "runs": Leaf("federation.subscriptions.runs"),
        "retry": Leaf("federation.subscriptions.retry"),
        "reset": Leaf("federation.subscriptions.reset"),
        "pause": Leaf("federation.subscriptions.pause"),
        "resume": Leaf("federation.subscriptions.resume"),
    },
)
_FEDERATION: Final = Branch(
    "Events, deliveries and links.",
    {
        "status": Leaf("federation.links.status"),
        "links": Leaf("federation.links.links"),
        "gaps": Leaf("federation.links.gaps"),
        "peers": Leaf("federation.links.links", hidden=True),
        "redeliver": Leaf("federation.links.redeliver"),
        "pause": Leaf("federation.links.pause"),
        "resume": Leaf("federation.links.resume"),
        "event": Branch(
            "Emit and look at events.",
            {
                "emit": Leaf("federation.events.emit"),
                "list": Leaf("federation.events.list_events"),
                "deliveries": Leaf("federation.events.deliveries"),
                "prune": Leaf("federation.events.prune"),
            },
        ),
        "deliveries": Branch("What deliveries add up to.", {"summary": Leaf("federation.links.summary")}),
        "dead-letters": Branch(
            "What peers refused for good.",
            {
                "list": Leaf("federation.dead_letters.list_letters"),
                "retry": Leaf("federation.dead_letters.retry"),
                "drop": Leaf("federation.dead_letters.drop"),
            },
        ),
        "subscription": _SUBSCRIPTION._replace(hidden=True),
    },
)
_TOPIC: Final = Branch(
    "Topics: what is written to them is kept in order, and read from anywhere.",
    {
        "put": Leaf("topics.topics.put"),
        "set": Leaf("topics.topics.set_fields"),
        "get": Leaf("topics.topics.get"),
        "list": Leaf("topics.topics.list_topics"),
        "describe": Leaf("topics.topics.describe"),
        "delete": Leaf("topics.topics.delete"),
        "write": Leaf("topics.records.write"),
        "read": Leaf("topics.records.read"),
        "purge": Leaf("topics.topics.purge"),
    },
)
COMMANDS: Final[dict[str, Leaf | Branch]] = {
    "apply": Leaf("resources.resources.apply"),
    "diff": Leaf("resources.resources.diff"),
    "get": Leaf("resources.resources.get"),
    "describe": Leaf("resources.resources.describe"),
    "delete": Leaf("resources.resources.delete"),
    "doctor": Leaf("node.doctor.doctor"),
    "verify": Leaf("federation.verify.verify"),
    "watch": Leaf("topics.watch.watch"),
    "federation": _FEDERATION,
    "fed": _FEDERATION._replace(hidden=True),
    "subscription": _SUBSCRIPTION,
    "plugin": Branch(
        "Programs and functions that turn events into proposals.",
        {
            "init": Leaf("plugins.plugins.init"),
            "list": Leaf("plugins.plugins.list_plugins"),
            "check": Leaf("plugins.plugins.check"),
            "run": Leaf("plugins.plugins.run"),
            "runs": Leaf("plugins.plugins.runs"),
            "logs": Leaf("plugins.plugins.logs"),
        },
    ),
    "dynamic": Branch(
        "What plugins have derived, and the effective configuration.",
        {
            "list": Leaf("resources.dynamic.list_parts"),
            "describe": Leaf("resources.dynamic.describe"),
            "render": Leaf("resources.dynamic.render"),
            "diff": Leaf("resources.dynamic.diff"),
            "delete": Leaf("resources.dynamic.delete"),
        },
    ),
    "topic": _TOPIC,
    "router": Branch(
        "What of one topic is copied to another.",
        {
            "put": Leaf("topics.routers.put"),
            "get": Leaf("topics.routers.get"),
            "list": Leaf("topics.routers.list_routers"),
            "delete": Leaf("topics.routers.delete"),
        },
    ),
    "topology": Branch("How topics and routers hang together.", {"check": Leaf("topics.topology.check")}),
    "key": Branch(
        "Keys to the API.",
        {"create": Leaf("node.keys.create"), "list": Leaf("node.keys.list_keys"), "revoke": Leaf("node.keys.revoke")},
    ),
    "lake": Branch(
        "What was shipped to the lake.",
        {
            "status": Leaf("lake.lake.status"),
            "check": Leaf("lake.lake.check"),
            "compact": Leaf("lake.lake.compact"),
            "retain": Leaf("lake.lake.retain"),
            "close": Leaf("lake.lake.close"),
        },
    ),
    "audit": Branch(
        "The books of all nodes, balanced.",
        {
            "run": Leaf("audit.audit.run"),
            "stream": Leaf("audit.audit.stream"),
            "generate": Leaf("audit.audit.generate"),
        },
    ),
    "bench": Branch(
        "Measure nodes: what they take, how soon it arrives, and that all of it does.",
        {
            "ingest": Leaf("bench.bench.ingest"),
            "federation": Leaf("bench.bench.federation"),
            "latency": Leaf("bench.bench.latency"),
            "fanout": Leaf("bench.bench.fanout"),
            "watch": Leaf("bench.bench.watch"),
            "routers": Leaf("bench.bench.routers"),
            "subscriptions": Leaf("bench.bench.subscriptions"),
            "mixed": Leaf("bench.bench.mixed"),
        },
    ),
    "db": Branch(
        "Copies of the node's database.", {"backup": Leaf("node.db.backup"), "restore": Leaf("node.db.restore")}
    ),
}

app = typer.Typer(
    name="routerctl",
    cls=grow(COMMANDS),
    help="Work on a node of a federated event bus: on its database, whether it is up or down, or on its API.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback()(program)


def main() -> None:
    """Entry of the command."""
    run(app, "routerctl")


if __name__ == "__main__":
    main()
