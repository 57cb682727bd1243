"""Links: all of the node, and one in detail."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.drawing.map_links import silent_nodes, table_rows
from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.link_charts import read_charts
from eventd.console.pages.link_problems import list_findings
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit, unfit_page
from eventd.errors import EventdError, NotFound, Unavailable
from eventd.text.quoting import quoted

_VERIFICATIONS = 5
"""Maximum number of verifications that the page of a link shows."""
_HELD: Final = ("blocked", "failed", "backing-off")
_OTHERS = 20
"""Maximum number of links of other nodes that the page of a link shows."""
_GAPS = 10
"""Maximum number of gaps that the page of a link shows."""
_SECONDS = 2
"""How long a button waits for the result of a comparison: it continues in the background, and its page shows it."""


async def show_links(visit: Visit) -> ShownPage:
    """Show the links of all groups, or of `group` in the query, and of one `state`."""
    groups = await visit.group_names()
    chosen = [group for group in groups if visit.asked("group") in ("", group)]
    found, unread = await visit.ask_groups("links.status", chosen)
    outbound = [link for links in found for link in links["outbound"]]
    states = sorted({link["state"] for link in outbound})
    state, text = visit.asked("state"), visit.asked("q").casefold()
    shown = [
        link
        for link in outbound
        if state in ("", link["state"]) and text in f"{link['group']} {link['peer']}".casefold()
    ]
    all_senders = [sender for links in found for sender in links["inbound"]]
    senders = [one for one in all_senders if text in f"{one['group']} {one['node']}".casefold()]
    data = {
        "groups": groups,
        "unread": unread,
        "states": states,
        "outbound": sorted(shown, key=_urgency)[:MOST_ROWS],
        "shown": len(shown),
        "inbound": senders[:MOST_ROWS],
        "senders": len(senders),
        "all_senders": len(all_senders),
        "all": len(outbound),
        "problem": "",
    }
    if not chosen and groups:
        asked = visit.asked("group")
        error = NotFound(f"there is no group {quoted(asked)} here", hint="choose another, or all")
        return unfit_page("Links", "links.html", data, error)
    return ShownPage("Links", "links.html", data)


def _urgency(link: dict[str, Any]) -> tuple[int, str, str]:
    """Return the sort key of a link: those that need attention first."""
    order = ("blocked", "failed", "backing-off", "paused", "running")
    rank = order.index(link["state"]) if link["state"] in order else len(order)
    return rank, link["group"], link["peer"]


async def show_link(visit: Visit) -> ShownPage:
    """Show one link in both directions. Raises NotFound."""
    group, peer = visit.names["group"], visit.names["peer"]
    charts = await read_charts(visit, group, peer)
    try:
        links = await visit.view.call("links.status", group=group, peer=peer)
    except NotFound:
        if not charts["charts"]:
            raise
        links = {"outbound": [], "inbound": []}  # it sends over v1, which leaves no mark
    gaps = await visit.view.call("links.gaps", group=group, node=peer, newest=True, limit=_GAPS)
    history = await visit.view.call("links.verifications", group=group, peer=peer, limit=_VERIFICATIONS)
    link = links["outbound"][0] if links["outbound"] else None
    known = await _read_map(visit, group)
    data = {
        "group": group,
        "peer": peer,
        "verifications": history["verifications"],
        "link": link,
        "resource": _resource_of(visit, link),
        "findings": [] if known is None else _findings_about(known, peer),
        "others": [] if known is None else _others_about(known, peer, link),
        "sender": links["inbound"][0] if links["inbound"] else None,
        "gaps": gaps["gaps"],
        **charts,
    }
    return ShownPage(f"Link to {peer}", "link.html", data)


def _resource_of(visit: Visit, link: dict[str, Any] | None) -> str:
    """Return the name of the EventPeer that declares a link; empty if the visitor may not see it."""
    if link is None or not visit.view.sees("") or not visit.view.may("resources.list"):
        return ""
    return str(link["resource"])


async def _read_map(visit: Visit, group: str) -> dict[str, Any] | None:
    """Return the map of a group, for which the node asks its peers; None if the visitor may not see it."""
    if not visit.view.may("map.show", group):
        return None
    try:
        shown: dict[str, Any] = await visit.view.call("map.show", group=group)
    except EventdError:
        return None
    return shown


def _findings_about(shown: dict[str, Any], peer: str) -> list[dict[str, Any]]:
    """Return where the two ends of the links to and from a peer disagree, each with its remedy."""
    links = [link for link in shown["links"] if {link["from"], link["to"]} == {shown["node"], peer}]
    return list_findings({**shown, "links": links, "nodes": []})


def _others_about(shown: dict[str, Any], peer: str, link: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the links of other nodes to and from the peer, if this node cannot send to it: is it the peer, or the
    way?"""
    if link is None or link["state"] not in _HELD:
        return []
    found = [one for one in shown["links"] if peer in (one["from"], one["to"]) and shown["node"] not in one.values()]
    return table_rows(found[:_OTHERS], silent_nodes(shown))


async def ask_pause(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a link is paused."""
    if not params.get("group") or not params.get("peer"):
        raise NotFound("choose a link first", hint="the page Links shows all of them")
    links = await visit.view.call("links.status", group=params["group"], peer=params["peer"])
    if not links["outbound"]:
        raise NotFound(f"this node has no link to {params['peer']} in group {params['group']}")
    waiting = sum(link["lagEvents"] for link in links["outbound"])
    lines = (
        f"The node sends nothing more to {params['peer']} in group {params['group']} until the link is resumed.",
        f"Now {waiting:,} events wait for it. Nothing is lost: the link continues where it stopped.",
    )
    return Question(
        f"Pause the link to {params['peer']}?",
        lines,
        fields=(FormField("by", "Reason", "Shown with the link, such as your name or a ticket."),),
    )


async def show_comparison(visit: Visit) -> ShownPage:
    """Show how far the comparison `run` of the query is, or its result. Raises NotFound.

    The node continues it: a page acts on nothing.
    """
    group, peer, run = visit.names["group"], visit.names["peer"], visit.asked("run")
    if not run:
        raise NotFound("choose a comparison first", hint="the page of the link begins one")
    links = (await visit.view.call("links.status", group=group, peer=peer))["outbound"]
    selects = next((_narrowing(link) for link in links), "")
    data: dict[str, Any] = {"group": group, "peer": peer, "run": run, "selects": selects}
    data |= {"progress": None, "result": None, "late": "", "background": True}
    try:
        answer = await visit.view.call("links.verify", group=group, peer=peer, run=run, look=True)
        data |= {"progress": answer["progress"], "background": answer.get("background", False)}
    except Unavailable as error:
        data["late"] = error.message
    except NotFound:  # it has ended
        pass
    if data["progress"] is None and not data["late"]:
        found = (await visit.view.call("links.verifications", group=group, peer=peer))["verifications"]
        data["result"] = next((one for one in found if one["run"] == run), None)
        if data["result"] is None:
            raise NotFound(f"there is no comparison {run[:40]!r} with {peer}", hint="the page of the link begins one")
    return ShownPage(f"Comparison with {peer}", "comparison.html", data)


def _narrowing(link: dict[str, Any]) -> str:
    """Return in words which events the filter of a link selects; empty if it selects all types and subjects."""
    known = link.get("filter", {})  # older nodes do not report it
    return str(known["words"]) if known.get("types") or known.get("subjectPrefixes") else ""


def _compared(form: dict[str, Any]) -> dict[str, Any]:
    asked = {name: form[name] for name in ("group", "peer", "run") if name in form}
    return asked | {"seconds": _SECONDS, "background": True}


def show_compared(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Redirect to the page of a comparison."""
    way = visit.urls.to("links", answer["group"], answer["peer"], "comparison", run=answer["run"])
    return ShownPage("Comparison", "comparison.html", target=way)


ACTIONS: Final = {
    "links.pause": PageAction("Pause", "The link is paused.", ask_pause, danger=True),
    "links.resume": PageAction("Resume", "The link resumes at once."),
    "links.verify": PageAction(
        "Verify", "The peer is compared with the delivery ledger.", prepare=_compared, show=show_compared
    ),
}
