"""The commands of `routerctl`."""

from __future__ import annotations

from typing import Final

import typer

from eventd.cli.gateway.options import flags
from eventd.cli.program.command_line import Branch, CommandLine, Leaf, program

_SUBSCRIPTION: Final = Branch(
    "Manage subscriptions, which run plugins on events.",
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
    "Emit events, follow their deliveries, manage links to peers.",
    {
        "status": Leaf("federation.links.status"),
        "links": Leaf("federation.links.links"),
        "gaps": Leaf("federation.links.gaps"),
        "peers": Leaf("federation.links.links", hidden=True),
        "redeliver": Leaf("federation.links.redeliver"),
        "pause": Leaf("federation.links.pause"),
        "resume": Leaf("federation.links.resume"),
        "event": Branch(
            "Emit, list and prune events.",
            {
                "emit": Leaf("federation.events.emit"),
                "list": Leaf("federation.events.list_events"),
                "deliveries": Leaf("federation.events.deliveries"),
                "prune": Leaf("federation.events.prune"),
            },
        ),
        "deliveries": Branch("Summarize deliveries.", {"summary": Leaf("federation.links.summary")}),
        "dead-letters": Branch(
            "Manage dead letters: events that a peer has refused.",
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
    "Manage topics; write and read their records.",
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
        "Develop, check and run plugins.",
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
        "Show and delete parts that plugins proposed; render the effective configuration.",
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
        "Manage routers, which copy records between topics.",
        {
            "put": Leaf("topics.routers.put"),
            "get": Leaf("topics.routers.get"),
            "list": Leaf("topics.routers.list_routers"),
            "delete": Leaf("topics.routers.delete"),
        },
    ),
    "topology": Branch("Check the routing graph.", {"check": Leaf("topics.topology.check")}),
    "key": Branch(
        "Manage API keys.",
        {"create": Leaf("node.keys.create"), "list": Leaf("node.keys.list_keys"), "revoke": Leaf("node.keys.revoke")},
    ),
    "lake": Branch(
        "Show, check and maintain the lake.",
        {
            "status": Leaf("lake.lake.status"),
            "check": Leaf("lake.lake.check"),
            "compact": Leaf("lake.lake.compact"),
            "retain": Leaf("lake.lake.retain"),
            "close": Leaf("lake.lake.close"),
        },
    ),
    "audit": Branch(
        "Audit event delivery across all nodes.",
        {
            "run": Leaf("audit.audit.run"),
            "stream": Leaf("audit.audit.stream"),
            "generate": Leaf("audit.audit.generate"),
        },
    ),
    "bench": Branch(
        "Measure throughput and latency of nodes, and verify that nothing is lost.",
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
        "Back up and restore the node's database.",
        {"backup": Leaf("node.db.backup"), "restore": Leaf("node.db.restore")},
    ),
}


class Routerctl(CommandLine):
    """All commands of `routerctl`."""

    tree = COMMANDS
    shared = flags()


app = typer.Typer(
    name="routerctl",
    cls=Routerctl,
    help="Operate a node of a federated event bus, through its database (node up or down) or its API.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback()(program)
