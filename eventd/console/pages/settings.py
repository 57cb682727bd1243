"""Settings: the values with which the node runs, and where each comes from."""

from __future__ import annotations

from eventd.console.pages.visit import ShownPage, Visit


async def show_settings(visit: Visit) -> ShownPage:
    """Show the settings of one `origin`, and those with `q` of the query in their names; secrets only as set or not."""
    known = (await visit.view.call("node.settings"))["settings"]
    origin, text = visit.asked("origin"), visit.asked("q").casefold()
    shown = [
        one for one in known if origin in ("", one["origin"]) and text in f"{one['name']} {one['variable']}".casefold()
    ]
    origins = sorted({one["origin"] for one in known})
    return ShownPage("Settings", "settings.html", {"settings": shown, "all": len(known), "origins": origins})
