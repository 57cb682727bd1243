"""`routerctl`: works on a node, through its database or its API."""

from __future__ import annotations

import typer

from eventd.cli import (
    copies,
    declaring,
    doctor,
    dynamic,
    facts,
    flow,
    keys,
    letters,
    plugins,
    routers,
    subscriptions,
    topic_records,
    topic_watch,
    topics,
    topology,
)
from eventd.cli.command_line import CommandLine, program
from eventd.cli.exits import run


def _commands(help: str) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True)


app = typer.Typer(
    name="routerctl",
    cls=CommandLine,
    help="Work on a node of a federated event bus: on its database, whether it is up or down, or on its API.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
federation = _commands("Events, deliveries and links.")
event = _commands("Emit and look at events.")
deliveries = _commands("What deliveries add up to.")
dead_letters = _commands("What peers refused for good.")
subscription = _commands("What subscriptions do with events.")
plugin = _commands("Programs and functions that turn events into proposals.")
dynamic_config = _commands("What plugins have derived, and the effective configuration.")
topic = _commands("Topics: what is written to them is kept in order, and read from anywhere.")
router = _commands("What of one topic is copied to another.")
topology_commands = _commands("How topics and routers hang together.")
key = _commands("Keys to the API.")
db = _commands("Copies of the node's database.")

app.callback()(program)
app.command()(declaring.apply)
app.command()(declaring.diff)
app.command()(declaring.get)
app.command()(declaring.describe)
app.command()(declaring.delete)
app.command()(doctor.doctor)
app.add_typer(federation, name="federation")
app.add_typer(federation, name="fed", hidden=True)

federation.add_typer(event, name="event")
federation.add_typer(deliveries, name="deliveries")
federation.add_typer(dead_letters, name="dead-letters")
federation.command()(flow.status)
federation.command()(flow.links)
federation.command()(flow.gaps)
federation.command("peers", hidden=True)(flow.links)
federation.command()(flow.redeliver)
federation.command()(flow.pause)
federation.command()(flow.resume)

event.command()(facts.emit)
event.command("list")(facts.list_events)
event.command("deliveries")(facts.deliveries)
event.command()(facts.prune)
deliveries.command()(flow.summary)
dead_letters.command("list")(letters.list_letters)
dead_letters.command()(letters.retry)
dead_letters.command()(letters.drop)

app.add_typer(subscription, name="subscription")
federation.add_typer(subscription, name="subscription", hidden=True)
subscription.command("list")(subscriptions.list_states)
subscription.command()(subscriptions.runs)
subscription.command()(subscriptions.retry)
subscription.command()(subscriptions.reset)
subscription.command()(subscriptions.pause)
subscription.command()(subscriptions.resume)

app.add_typer(plugin, name="plugin")
plugin.command()(plugins.init)
plugin.command("list")(plugins.list_plugins)
plugin.command()(plugins.check)
plugin.command()(plugins.run)
plugin.command()(plugins.runs)
plugin.command()(plugins.logs)

app.add_typer(dynamic_config, name="dynamic")
dynamic_config.command("list")(dynamic.list_parts)
dynamic_config.command()(dynamic.describe)
dynamic_config.command()(dynamic.render)
dynamic_config.command()(dynamic.diff)
dynamic_config.command()(dynamic.delete)

app.add_typer(topic, name="topic")
topic.command()(topics.put)
topic.command("set")(topics.set_fields)
topic.command()(topics.get)
topic.command("list")(topics.list_topics)
topic.command()(topics.describe)
topic.command()(topics.delete)
topic.command()(topic_records.write)
topic.command()(topic_records.read)
topic.command()(topics.purge)
app.command()(topic_watch.watch)

app.add_typer(router, name="router")
router.command()(routers.put)
router.command()(routers.get)
router.command("list")(routers.list_routers)
router.command()(routers.delete)
app.add_typer(topology_commands, name="topology")
topology_commands.command()(topology.check)

app.add_typer(key, name="key")
key.command()(keys.create)
key.command("list")(keys.list_keys)
key.command()(keys.revoke)

app.add_typer(db, name="db")
db.command()(copies.backup)
db.command()(copies.restore)


def main() -> None:
    """Entry of the command."""
    run(app, "routerctl")


if __name__ == "__main__":
    main()
