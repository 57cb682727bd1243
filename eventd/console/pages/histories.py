"""Histories: the trees of the groups, how far each is sealed, and the keys that verify them."""

from __future__ import annotations

from eventd.console.pages.visit import ShownPage, Visit


async def show_histories(visit: Visit) -> ShownPage:
    """Show the trees of all groups, the newest first of each, with the public key of each tree."""
    groups = (await visit.view.call("history.status"))["groups"]
    kept = [group for group in groups if group["trees"] or group["mode"] == "record"]
    keys = dict[str, str]()
    for group in kept:
        found = await visit.view.call("history.keys", group=group["group"])
        keys |= {tree["origin"]: tree["key"] for tree in found["trees"]}
    return ShownPage("Histories", "histories.html", {"groups": kept, "keys": keys}, live=True)
