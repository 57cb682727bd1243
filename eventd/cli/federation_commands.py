"""The commands of `routerctl federation` and `routerctl subscription`."""

from __future__ import annotations

from typing import Final

from eventd.cli.program.command_line import Branch, Leaf

SUBSCRIPTION: Final = Branch(
    "Manage subscriptions, which run plugins on events.",
    {
        "list": Leaf(
            "federation.subscriptions.list_states", "List subscriptions with phase, backlog, dead letters and last run."
        ),
        "runs": Leaf(
            "federation.subscriptions.runs",
            "List the runs of a subscription, the newest first, one row per event; also those of a "
            "deleted subscription.",
        ),
        "retry": Leaf(
            "federation.subscriptions.retry", "End the back-off or block of a subscription, and retry its dead letters."
        ),
        "reset": Leaf(
            "federation.subscriptions.reset",
            "Restart a subscription at the oldest stored event, or as --since or --latest says.",
        ),
        "pause": Leaf(
            "federation.subscriptions.pause",
            "Pause a subscription; its events wait until it is resumed, unless they expire or are evicted.",
        ),
        "resume": Leaf(
            "federation.subscriptions.resume",
            "Resume a subscription at once, whether it is paused, backing off or blocked.",
        ),
    },
)
FEDERATION: Final = Branch(
    "Emit events, follow their deliveries, manage links to peers.",
    {
        "status": Leaf("federation.links.status", "Show an overview of all groups: sizes, peers, link states."),
        "links": Leaf(
            "federation.links.links",
            "List links with state, reason, backlog and lag, and up to which of its positions each "
            "peer's events arrived.",
        ),
        "map": Leaf(
            "federation.map.show_map", "Show the nodes and links of a group, as both ends of each link report it."
        ),
        "rates": Leaf(
            "federation.rates.show_rates",
            "Show the rates of the last 15 minutes: of the node, its groups and links, and the busiest callbacks and"
            " topics.",
        ),
        "gaps": Leaf(
            "federation.links.gaps",
            "List gaps: ranges of a sender's positions whose events did not arrive, or are no longer in its log.",
        ),
        "peers": Leaf("federation.links.links", hidden=True),
        "redeliver": Leaf("federation.links.redeliver", "Send events to a peer again, by id, range or time span."),
        "pause": Leaf("federation.links.pause", "Stop sending to a peer."),
        "resume": Leaf(
            "federation.links.resume",
            "Resume the link to a peer at once, whether it is paused, backing off, blocked or failed.",
        ),
        "event": Branch(
            "Emit, list and prune events, and free their ids.",
            {
                "emit": Leaf(
                    "federation.events.emit", "Store an event durably; the node then sends it to the group's peers."
                ),
                "list": Leaf(
                    "federation.events.list_events", "List the newest events, one row per id; the newest comes last."
                ),
                "search": Leaf("federation.event_search.search", "Search the events of a group, the newest first."),
                "find": Leaf("federation.event_search.find", "Find an event by its id in all groups."),
                "describe": Leaf(
                    "federation.event_search.describe",
                    "Show an event with its payload, deliveries, runs, parts and dead letters.",
                ),
                "deliveries": Leaf(
                    "federation.events.deliveries",
                    "List deliveries of the newest events: the state of each event at each peer; the newest come last.",
                ),
                "prune": Leaf("federation.events.prune", "Apply the group's retention now."),
                "release": Leaf(
                    "history.id_release.release",
                    "Free an id that another source has taken, for the event that FILE proves.",
                ),
            },
        ),
        "deliveries": Branch(
            "Summarize deliveries.",
            {"summary": Leaf("federation.links.summary", "Count deliveries per peer and state.")},
        ),
        "dead-letters": Branch(
            "Manage dead letters: events that a peer has refused.",
            {
                "list": Leaf("federation.dead_letters.list_letters", "List dead letters with the reason of each."),
                "retry": Leaf(
                    "federation.dead_letters.retry",
                    "Send the events of dead letters again, and delete these dead letters; those that cannot "
                    "be sent stay.",
                ),
                "drop": Leaf("federation.dead_letters.drop", "Delete dead letters."),
            },
        ),
        "subscription": SUBSCRIPTION._replace(hidden=True),
    },
)
