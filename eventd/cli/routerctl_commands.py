"""The commands of `routerctl`."""

from __future__ import annotations

from typing import Any, Final

import typer

from eventd.cli.federation_commands import FEDERATION, SUBSCRIPTION
from eventd.cli.gateway.options import flags
from eventd.cli.history_commands import HISTORY
from eventd.cli.program.command_line import Branch, CommandLine, Leaf, program
from eventd.cli.program.shell_completion import OPTIONS, CompletionOption, named_shell
from eventd.cli.topic_commands import STREAM, TOPIC

COMMANDS: Final[dict[str, Leaf | Branch]] = {
    "apply": Leaf("resources.resources.apply", "Apply resources from files, atomically."),
    "diff": Leaf("resources.resources.diff", "Show what `apply` would change, as a unified diff."),
    "get": Leaf("resources.resources.get", "Show declared resources."),
    "describe": Leaf(
        "resources.resources.describe", "Show one resource with defaults, link state, lag and recent errors."
    ),
    "delete": Leaf("resources.resources.delete", "Delete a resource, or all resources in files."),
    "edit": Leaf("resources.editing.edit", "Change a resource in an editor, and apply it."),
    "wait": Leaf(
        "resources.waiting.wait",
        "Wait until a condition is met.",
    ),
    "api-resources": Leaf(
        "resources.explaining.api_resources",
        "List the kinds of resources, with the names that commands accept for each.",
    ),
    "explain": Leaf(
        "resources.explaining.explain", "Show the fields of a kind: what each means, its type and its default."
    ),
    "top": Leaf(
        "top.top.top",
        "Show rates, lag and backlog of links, topics, queues or callbacks, the largest first, until q or Ctrl-C.",
    ),
    "status": Leaf(
        "federation.node_status.status",
        "Show the node on one screen: its process, its groups, the links that do not run, and what doctor warns of.",
    ),
    "doctor": Leaf(
        "node.doctor.doctor", "Check the node and its links; without --watch, exits with status 4 if a check fails."
    ),
    "support-bundle": Leaf(
        "support.bundle.support_bundle",
        "Write settings, states, metrics and logs of a node to one archive, without secrets and payloads.",
    ),
    "job": Branch(
        "Retry or drop many dead letters with jobs in the node.",
        {
            "start": Leaf("node.jobs.start", "Retry or drop all dead letters that match, with a job in the node."),
            "list": Leaf("node.jobs.list_jobs", "List bulk jobs, the newest first."),
            "get": Leaf("node.jobs.get", "Show a bulk job and its progress; -o wide adds its results by reason."),
            "wait": Leaf(
                "node.jobs.wait",
                "Wait for the end of a bulk job, and show its results; exits with status 4 unless it is done.",
            ),
            "cancel": Leaf("node.jobs.cancel", "Cancel a bulk job before its next step; what it has done stays done."),
        },
    ),
    "actions": Leaf(
        "node.actions.actions",
        "Show the record of actions: who did what, to what, with which result; the newest first.",
    ),
    "verify": Leaf(
        "federation.verify.verify",
        "Compare a peer's events with this node's delivery ledger; exits with status 4 if they differ.",
    ),
    **HISTORY,
    "watch": Leaf(
        "topics.watch.watch",
        "Show the records of topics, then new ones as they are written, until Ctrl-C or until all topics are deleted.",
    ),
    "federation": FEDERATION,
    "fed": FEDERATION._replace(hidden=True),
    "subscription": SUBSCRIPTION,
    "callback": Branch(
        "Manage callbacks, which push events to HTTP endpoints: their state, attempts, dead letters and secrets.",
        {
            "list": Leaf(
                "callbacks.callbacks.list_callbacks",
                "List callbacks with their state, backlog, last success and next attempt.",
            ),
            "describe": Leaf(
                "callbacks.callbacks.describe", "Show a callback with its limits, keys and newest attempts."
            ),
            "attempts": Leaf(
                "callbacks.callbacks.attempts",
                "List the requests to a callback's endpoint with status and duration, the newest first.",
            ),
            "test": Leaf(
                "callbacks.callbacks.test",
                "Send a signed test message, which is not stored, and show the answer; exits with status 4 unless it is"
                " 2xx.",
            ),
            "pause": Leaf(
                "callbacks.callbacks.pause",
                "Pause a callback; its events wait until it is resumed, unless they expire or are evicted.",
            ),
            "resume": Leaf(
                "callbacks.callbacks.resume",
                "Resume a callback at once, whether it is paused, disabled by the node, backing off or blocked.",
            ),
            "reset": Leaf(
                "callbacks.callbacks.reset",
                "Move a callback to the oldest stored event, or to where --since or --latest points.",
            ),
            "resend": Leaf(
                "callbacks.resends.resend",
                "Send events again, by id; their requests have the header `routerd-repair: 1`.",
            ),
            "replay": Leaf(
                "callbacks.resends.replay",
                "Send a range of events again, beside the callback's own deliveries.",
            ),
            "dead-letters": Branch(
                "Manage the dead letters of a callback.",
                {
                    "list": Leaf(
                        "callbacks.resends.list_letters",
                        "List the dead letters of a callback, with the reason of each, the newest first.",
                    ),
                    "retry": Leaf(
                        "callbacks.resends.retry",
                        "Send the events of dead letters again, and delete these dead letters; those that cannot be"
                        " sent stay.",
                    ),
                    "drop": Leaf("callbacks.resends.drop", "Delete dead letters."),
                },
            ),
            "secret": Branch(
                "Manage the secrets of callbacks.",
                {
                    "new": Leaf(
                        "callbacks.signing.new_secret",
                        "Create a secret that signs callbacks, and print it: it is not stored.",
                    )
                },
            ),
            "sign": Leaf(
                "callbacks.signing.sign",
                "Sign a body as a node does, and print the headers in the form that `curl -H @-` reads.",
            ),
            "verify": Leaf(
                "callbacks.signing.verify",
                "Verify a received request: exits with status 4 and names the wrong part if it is not valid.",
            ),
        },
    ),
    "plugin": Branch(
        "Develop, check and run plugins.",
        {
            "init": Leaf(
                "plugins.plugins.init",
                "Create a folder with a new plugin that works as it is, its test, and the resources that use it.",
            ),
            "list": Leaf("plugins.plugins.list_plugins", "List declared plugins."),
            "check": Leaf(
                "plugins.plugins.check",
                "Check a plugin with sample requests; exits with status 4 if it breaks the contract.",
            ),
            "run": Leaf("plugins.plugins.run", "Run a plugin once, without events, and store its proposal."),
            "runs": Leaf("plugins.plugins.runs", "List runs of plugins, the latest first."),
            "logs": Leaf(
                "plugins.plugins.logs", "Show the output of a plugin's run: error, standard error, traceback."
            ),
        },
    ),
    "dynamic": Branch(
        "Show and delete parts that plugins proposed; render the effective configuration.",
        {
            "list": Leaf(
                "resources.dynamic.list_parts",
                "List the parts that plugins proposed, the latest first, with the reason why one is left out.",
            ),
            "describe": Leaf(
                "resources.dynamic.describe",
                "Show a part, or all parts of an owner: EventSubscription/NAME or Plugin/NAME.",
            ),
            "render": Leaf(
                "resources.dynamic.render",
                "Print the effective configuration: the declared resources, minus those masked, plus those of parts.",
            ),
            "diff": Leaf(
                "resources.dynamic.diff",
                "Show how parts change the declared resources, and which parts have no effect.",
            ),
            "delete": Leaf(
                "resources.dynamic.delete",
                "Delete a part: its resources and masks end, until a plugin proposes them again.",
            ),
        },
    ),
    "topic": TOPIC,
    "router": Branch(
        "Manage routers, which copy records between topics.",
        {
            "put": Leaf(
                "topics.routers.put",
                "Create a router, which copies new records of one topic to another, or replace all its options.",
            ),
            "get": Leaf("topics.routers.get", "Show a router, its lag and how many records it has copied."),
            "list": Leaf("topics.routers.list_routers", "List routers, sorted by name."),
            "delete": Leaf("topics.routers.delete", "Delete a router."),
        },
    ),
    "queue": Branch(
        "Show queues and their leases, end delays, and retry dead letters.",
        {
            "list": Leaf(
                "topics.queues.list_queues",
                "List queues by name: their ready, leased and delayed jobs, and when the oldest ready one was written.",
            ),
            "leases": Leaf(
                "topics.queues.leases", "List the leased and delayed jobs of a queue, those first that end first."
            ),
            "release": Leaf(
                "topics.queues.release",
                "Make delayed jobs of a queue ready at once, instead of at the end of their delay.",
            ),
            "retry": Leaf("topics.queues.retry", "Return dead letters of a queue to it as new jobs."),
        },
    ),
    "stream": STREAM,
    "cache": Branch(
        "Store and read values of caches over QUIC.",
        {
            "put": Leaf("streams.caching.put", "Store a value in a cache, in place of an earlier one."),
            "get": Leaf("streams.caching.get", "Print a value of a cache; exits with status 3 if there is none."),
        },
    ),
    "topology": Branch(
        "Check the routing graph.",
        {
            "check": Leaf(
                "topics.topology.check", "Show the routing graph and check it; exits with status 4 if a check fails."
            )
        },
    ),
    "console": Leaf(
        "console.console.console",
        "Serve the console of one node or many on this machine, over their APIs, until Ctrl-C.",
    ),
    "context": Branch(
        "Manage contexts: nodes by name, and how to connect to them.",
        {
            "add": Leaf("node.contexts.add", "Store a node under a name: its address and how to connect to it."),
            "use": Leaf("node.contexts.use", "Make a context the one that commands use."),
            "list": Leaf("node.contexts.list_contexts", "List contexts, sorted by name."),
            "current": Leaf("node.contexts.current", "Show the context in use; exits with status 3 if there is none."),
            "remove": Leaf("node.contexts.remove", "Remove a context."),
        },
    ),
    "key": Branch(
        "Manage API keys.",
        {
            "create": Leaf("node.keys.create", "Create an API key and print it: it cannot be shown again."),
            "list": Leaf("node.keys.list_keys", "List the keys that `key create` made, without their secrets."),
            "revoke": Leaf("node.keys.revoke", "Revoke a key at once, and close every connection that is using it."),
        },
    ),
    "session": Branch(
        "Manage the sessions of the console.",
        {
            "list": Leaf(
                "node.sessions.list_sessions",
                "List the sessions of the console that have not ended, the newest first.",
            ),
            "end": Leaf("node.sessions.end", "End a session of the console: its browser must sign in again."),
        },
    ),
    "routemaster": Branch(
        "Show the Routemaster surface; manage its claims and tokens.",
        {
            "topics": Leaf(
                "routemaster.routemaster.topics",
                "List the topics of the Routemaster surface with their publishers and counts.",
            ),
            "subscribers": Leaf(
                "routemaster.routemaster.subscribers",
                "List the subscribers of the Routemaster surface, and how many events wait for each.",
            ),
            "sign": Leaf(
                "routemaster.routemaster.sign",
                "Set the keys that sign the requests to a subscriber, or stop signing them.",
            ),
            "topic": Branch(
                "Manage the claims of topics.",
                {
                    "claim": Leaf(
                        "routemaster.routemaster.claim",
                        "Hand the claim of a topic over to another client, or release it.",
                    )
                },
            ),
            "token": Branch(
                "Manage the tokens of clients.",
                {
                    "create": Leaf(
                        "routemaster.routemaster.create_token",
                        "Create a token and print it: it cannot be shown again.",
                    ),
                    "list": Leaf(
                        "routemaster.routemaster.list_tokens",
                        "List the tokens of the Routemaster surface by their handles.",
                    ),
                    "rotate": Leaf(
                        "routemaster.routemaster.rotate_token",
                        "Give a client a new token, and print it; its subscription and its claims stay.",
                    ),
                    "revoke": Leaf(
                        "routemaster.routemaster.revoke_token",
                        "Delete a token at once, and with a client's last one its subscription and waiting events.",
                    ),
                },
            ),
        },
    ),
    "lake": Branch(
        "Show, check and maintain the lake.",
        {
            "status": Leaf(
                "lake.lake.status",
                "Show how far each table of the node's delivery ledger is shipped to the lake, and what blocks it.",
            ),
            "check": Leaf("lake.lake.check", "Check a whole lake: list what each node has shipped, and the problems."),
            "compact": Leaf("lake.lake.compact", "Merge the segments of past days into few files of the archive."),
            "retain": Leaf(
                "lake.lake.retain", "Mark segments older than AGE as expired; a run at least 24 h later deletes them."
            ),
            "close": Leaf(
                "lake.lake.close", "Close a node that is out of service: audits expect nothing more from it."
            ),
        },
    ),
    "audit": Branch(
        "Audit event delivery across all nodes.",
        {
            "run": Leaf(
                "audit.run.run",
                "Audit the delivery ledgers of all nodes in a lake; write findings to report.json, "
                "report.html and tables.",
            ),
            "stream": Leaf(
                "audit.stream.stream",
                "Keep the audit of a lake up to date as nodes ship data, until Ctrl-C or a condition of --fail-on.",
            ),
            "sql": Leaf("audit.sql.sql", "Query the ledgers of all nodes in a lake with SQL."),
            "acknowledge": Branch(
                "Acknowledge findings that are known; they stay in reports.",
                {
                    "add": Leaf("audit.acknowledge.add", "Acknowledge findings of a report, with the reason."),
                    "list": Leaf("audit.acknowledge.list_acknowledgements", "List the acknowledgements of a lake."),
                    "remove": Leaf("audit.acknowledge.remove", "Withdraw an acknowledgement, with the reason."),
                },
            ),
            "prepare": Leaf("audit.prepare.prepare", "Store what lets Spark start fast for this user (about 160 MB)."),
            "schema": Leaf("audit.schema.schema", "Print the JSON Schema of report.json."),
            "verify-report": Leaf(
                "audit.verify_report.verify_report",
                "Verify the signature of a report offline: exits with status 4 if a file is not as it was signed.",
            ),
            "generate": Leaf(
                "audit.generate.generate",
                "Generate the delivery ledgers of an imaginary federation, with known faults, to practise "
                "the audit on.",
            ),
        },
    ),
    "bench": Branch(
        "Measure throughput and latency of nodes, and verify that nothing is lost.",
        {
            "ingest": Leaf(
                "bench.bench.ingest",
                "Measure how many events per second a node accepts over its API, and the latency of a request.",
            ),
            "federation": Leaf(
                "bench.bench.federation",
                "Measure how many events per second a node receives while it catches up with another one.",
            ),
            "latency": Leaf(
                "bench.bench.latency",
                "Measure the latency of single events, from the request at one node to a watcher at the other.",
            ),
            "fanout": Leaf(
                "bench.bench.fanout", "Measure how fast one node sends events to many peers, some of them dead."
            ),
            "watch": Leaf("bench.bench.watch", "Measure how soon the watchers of a topic receive a record."),
            "routers": Leaf(
                "bench.bench.routers",
                "Measure how fast routers copy one topic to others, and how soon a watcher receives a copy.",
            ),
            "subscriptions": Leaf(
                "bench.bench.subscriptions",
                "Measure how soon an event changes the effective configuration, through a plugin.",
            ),
            "callbacks": Leaf(
                "bench.bench.callbacks",
                "Measure how fast a node pushes signed events to HTTP endpoints, and how soon a single event arrives.",
            ),
            "stream": Leaf(
                "bench.bench.stream",
                "Measure how soon records that are published over QUIC are delivered, and how many per second.",
            ),
            "cache": Leaf("bench.bench.cache", "Measure how fast a cache answers over QUIC."),
            "mixed": Leaf(
                "bench.bench.mixed", "Measure emitting, sending to another node and watching a topic at the same time."
            ),
        },
    ),
    "db": Branch(
        "Back up, restore and move the node's database.",
        {
            "backup": Leaf("node.db.backup", "Back up a SQLite database to a file, node up or down."),
            "restore": Leaf(
                "node.db.restore", "Replace a SQLite database with a backup and start a new epoch of the log."
            ),
            "copy": Leaf(
                "node.db_copy.copy",
                "Copy the node's database into an empty one, SQLite or Postgres, and compare both.",
            ),
        },
    ),
    "assets": Branch(
        "List and write the files that are installed with the program: units, manifests, manual pages and others.",
        {
            "list": Leaf(
                "assets.assets.list_assets",
                "List the assets: sets of files that come with the program, such as units, manifests and manual pages.",
            ),
            "write": Leaf(
                "assets.assets.write",
                "Write files that are installed with the program to a folder.",
            ),
        },
    ),
}


HELP: Final = """Operate a node of a federated event bus, through its database (node up or down) or its API.

Without options it is the node of the context in use, or else the one on this machine, whose folder is ./eventd-data or
EVENTD_DATA_DIR; --context NAME, --server URL or --data-dir PATH name another. See `routerctl COMMAND --help` for the
options of a command, and `routerctl explain KIND` for what `apply` takes.
"""
HEADINGS: Final[dict[str, tuple[str, ...]]] = {
    "Resources": ("apply", "diff", "get", "describe", "delete", "edit", "wait", "api-resources", "explain"),
    "State of a node": ("status", "doctor", "top", "actions", "support-bundle", "console"),
    "Events": ("federation", "verify", "job", "subscription", "plugin", "dynamic", "callback", "routemaster"),
    "Topics": ("topic", "router", "queue", "watch", "topology", "stream", "cache"),
    "Audit": ("lake", "audit", "prove", "log"),
    "Access and administration": ("context", "key", "session", "db", "assets", "bench"),
}
"""The commands under the headings of the help."""


class Routerctl(CommandLine):
    """All commands of `routerctl`."""

    tree = COMMANDS
    headings = HEADINGS
    shared = flags()

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the program; those of completion take the name of a shell."""
        made = self.__dict__.setdefault("_completion", {name: CompletionOption(name) for name in OPTIONS})
        return [made.get(param.opts[-1], param) for param in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else named_shell(args))


app = typer.Typer(
    name="routerctl",
    cls=Routerctl,
    help=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback()(program)
