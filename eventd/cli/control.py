"""`routerctl`: works on a node, through its database or its API."""

from __future__ import annotations

from typing import Final

import typer

from eventd.cli.command_line import program
from eventd.cli.exits import run
from eventd.cli.tree import Branch, Leaf, grow

_SUBSCRIPTION: Final = Branch(
    "What subscriptions do with events.",
    {
        "list": Leaf("subscriptions.list_states"),
        "runs": Leaf("subscriptions.runs"),
        "retry": Leaf("subscriptions.retry"),
        "reset": Leaf("subscriptions.reset"),
        "pause": Leaf("subscriptions.pause"),
        "resume": Leaf("subscriptions.resume"),
    },
)
_FEDERATION: Final = Branch(
    "Events, deliveries and links.",
    {
        "status": Leaf("flow.status"),
        "links": Leaf("flow.links"),
        "gaps": Leaf("flow.gaps"),
        "peers": Leaf("flow.links", hidden=True),
        "redeliver": Leaf("flow.redeliver"),
        "pause": Leaf("flow.pause"),
        "resume": Leaf("flow.resume"),
        "event": Branch(
            "Emit and look at events.",
            {
                "emit": Leaf("facts.emit"),
                "list": Leaf("facts.list_events"),
                "deliveries": Leaf("facts.deliveries"),
                "prune": Leaf("facts.prune"),
            },
        ),
        "deliveries": Branch("What deliveries add up to.", {"summary": Leaf("flow.summary")}),
        "dead-letters": Branch(
            "What peers refused for good.",
            {
                "list": Leaf("letters.list_letters"),
                "retry": Leaf("letters.retry"),
                "drop": Leaf("letters.drop"),
            },
        ),
        "subscription": _SUBSCRIPTION._replace(hidden=True),
    },
)
_TOPIC: Final = Branch(
    "Topics: what is written to them is kept in order, and read from anywhere.",
    {
        "put": Leaf("topics.put"),
        "set": Leaf("topics.set_fields"),
        "get": Leaf("topics.get"),
        "list": Leaf("topics.list_topics"),
        "describe": Leaf("topics.describe"),
        "delete": Leaf("topics.delete"),
        "write": Leaf("topic_records.write"),
        "read": Leaf("topic_records.read"),
        "purge": Leaf("topics.purge"),
    },
)
COMMANDS: Final[dict[str, Leaf | Branch]] = {
    "apply": Leaf("declaring.apply"),
    "diff": Leaf("declaring.diff"),
    "get": Leaf("declaring.get"),
    "describe": Leaf("declaring.describe"),
    "delete": Leaf("declaring.delete"),
    "doctor": Leaf("doctor.doctor"),
    "verify": Leaf("verify.verify"),
    "watch": Leaf("topic_watch.watch"),
    "federation": _FEDERATION,
    "fed": _FEDERATION._replace(hidden=True),
    "subscription": _SUBSCRIPTION,
    "plugin": Branch(
        "Programs and functions that turn events into proposals.",
        {
            "init": Leaf("plugins.init"),
            "list": Leaf("plugins.list_plugins"),
            "check": Leaf("plugins.check"),
            "run": Leaf("plugins.run"),
            "runs": Leaf("plugins.runs"),
            "logs": Leaf("plugins.logs"),
        },
    ),
    "dynamic": Branch(
        "What plugins have derived, and the effective configuration.",
        {
            "list": Leaf("dynamic.list_parts"),
            "describe": Leaf("dynamic.describe"),
            "render": Leaf("dynamic.render"),
            "diff": Leaf("dynamic.diff"),
            "delete": Leaf("dynamic.delete"),
        },
    ),
    "topic": _TOPIC,
    "router": Branch(
        "What of one topic is copied to another.",
        {
            "put": Leaf("routers.put"),
            "get": Leaf("routers.get"),
            "list": Leaf("routers.list_routers"),
            "delete": Leaf("routers.delete"),
        },
    ),
    "topology": Branch("How topics and routers hang together.", {"check": Leaf("topology.check")}),
    "key": Branch(
        "Keys to the API.",
        {"create": Leaf("keys.create"), "list": Leaf("keys.list_keys"), "revoke": Leaf("keys.revoke")},
    ),
    "lake": Branch(
        "What was shipped to the lake.",
        {
            "status": Leaf("lake.status"),
            "check": Leaf("lake.check"),
            "compact": Leaf("lake.compact"),
            "retain": Leaf("lake.retain"),
            "close": Leaf("lake.close"),
        },
    ),
    "audit": Branch(
        "The books of all nodes, balanced.",
        {"run": Leaf("audit.run"), "stream": Leaf("audit.stream"), "generate": Leaf("audit.generate")},
    ),
    "bench": Branch(
        "Measure nodes: what they take, how soon it arrives, and that all of it does.",
        {
            "ingest": Leaf("bench.ingest"),
            "federation": Leaf("bench.federation"),
            "latency": Leaf("bench.latency"),
            "fanout": Leaf("bench.fanout"),
            "watch": Leaf("bench.watch"),
            "routers": Leaf("bench.routers"),
            "subscriptions": Leaf("bench.subscriptions"),
            "mixed": Leaf("bench.mixed"),
        },
    ),
    "db": Branch(
        "Copies of the node's database.", {"backup": Leaf("copies.backup"), "restore": Leaf("copies.restore")}
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
