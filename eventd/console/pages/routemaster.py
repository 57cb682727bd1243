"""The Routemaster surface: its topics, its subscribers, and the tokens of its clients. A token is shown once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import Invalid, NotFound

_HAND_OVER, _RELEASE = "hand it over to the client below", "release it: the next publisher claims the topic"
CALLBACK: Final = "rm/"
"""Beginning of the names of the callbacks that send to subscribers."""
_NO_PAGE: Final[dict[str, Any]] = {"rows": [], "matching": 0, "all": 0}


async def show_surface(visit: Visit) -> ShownPage:
    """Show topics, subscribers and tokens, or those with `q` of the query in their names."""
    readable = visit.view.sees("")
    data = {"topics": _NO_PAGE, "subscribers": _NO_PAGE, "tokens": None, "readable": readable, "most": MOST_ROWS}
    if readable:
        topics = (await visit.view.call("routemaster.topics"))["topics"]
        subscribers = (await visit.view.call("routemaster.subscribers"))["subscribers"]
        data["topics"] = _page(visit, topics, lambda one: f"{one['name']} {one['publisher'] or ''}")
        data["subscribers"] = _page(visit, subscribers, lambda one: f"{one['subscriber']} {' '.join(one['topics'])}")
    if readable and visit.view.may("routemaster.tokens"):
        tokens = (await visit.view.call("routemaster.tokens"))["tokens"]
        data["tokens"] = _page(visit, tokens, lambda one: f"{one['handle']} {one['name']} {one['identity']}")
    return ShownPage("Routemaster", "routemaster.html", data | {"callback": CALLBACK})


def _page(visit: Visit, found: list[dict[str, Any]], words: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    text = visit.asked("q").casefold()
    shown = [one for one in found if text in words(one).casefold()]
    return {"rows": shown[:MOST_ROWS], "matching": len(shown), "all": len(found)}


async def ask_claim(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask to whom the claim of a topic is handed over. Raises NotFound."""
    name = params.get("name", "")
    known = (await visit.view.call("routemaster.topics"))["topics"]
    one = next((one for one in known if one["name"] == name), None)
    if one is None:
        raise NotFound(f"the surface has no topic {name[:80]!r}", hint="the page Routemaster shows all of them")
    owner = f"{one['publisher']} publishes to it now." if one["publisher"] else "It has no publisher now."
    lines = (f"{owner} Only the publisher of a topic may publish to it; requests of others are refused.",)
    fields = (
        FormField("what", "The claim", choices=(_HAND_OVER, _RELEASE)),
        FormField("to", "New publisher", "The name of a client's token, or its handle; not for a release."),
    )
    return Question(f"Change the claim of {name}?", lines, fields=fields)


def _claimed(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    name, what = form.get("name", ""), form.get("what")
    if what == _RELEASE:
        return {"name": name, "release": True}
    if what != _HAND_OVER or not form.get("to"):
        raise Invalid("name the new publisher, or choose to release the claim")
    return {"name": name, "to": form["to"]}


async def ask_sign(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the keys that sign the requests to a subscriber."""
    client = params.get("client", "")
    if not client:
        raise NotFound("choose a subscriber first", hint="the page Routemaster shows all of them")
    field = FormField(
        "keys", "Keys", "Each as ID=FILE, with blanks between; the files are on the node. Empty: not signed."
    )
    lines = ("They replace the present ones. While a secret is rotated, name the old key and the new one.",)
    return Question(f"Set the signing keys of {client}?", lines, fields=(field,))


async def ask_create(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the name of a new token."""
    field = FormField("name", "Name", "1 to 30 of a-z, 0-9, : _ and -; need not be unique.", required=True)
    lines = ("The next page shows the token, once: it cannot be shown again.",)
    return Question("Create a token?", lines, fields=(field,))


async def _token(visit: Visit, params: dict[str, Any]) -> dict[str, Any]:
    handle = params.get("handle", "")
    for one in (await visit.view.call("routemaster.tokens"))["tokens"]:
        if one["handle"] == handle:
            found: dict[str, Any] = one
            return found
    raise NotFound(f"there is no token {handle[:80]!r}", hint="the page Routemaster shows all of them")


async def ask_rotate(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask how long the present tokens of a client stay valid. Raises NotFound."""
    one = await _token(visit, params)
    lines = (
        f"The client {one['identity']} gets a new token, which the next page shows once.",
        "Its present tokens end after the time below; requests with them are refused then.",
    )
    field = FormField("grace", "Present tokens end after", "Such as 1h, which counts if it is empty; 0s: at once.")
    return Question(f"Rotate the token {one['name']}?", lines, fields=(field,))


async def ask_revoke(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a token is deleted. Raises NotFound."""
    one = await _token(visit, params)
    lines = (f"Requests of the client {one['identity']} with it are refused at once.",)
    return Question(f"Revoke the token {one['name']}?", lines)


def show_token(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Show a new token."""
    return ShownPage(f"Token {answer['name']}", "token_created.html", {"one": answer}, live=False)


ACTIONS: Final = {
    "routemaster.claim": PageAction(
        "Change the claim", "The claim is changed.", ask_claim, danger=True, prepare=_claimed
    ),
    "routemaster.sign": PageAction(
        "Set signing keys", "The signing keys are set.", ask_sign, danger=True, lists=("keys",)
    ),
    "routemaster.create_token": PageAction("Create a token", "The token is created.", ask_create, show=show_token),
    "routemaster.rotate_token": PageAction(
        "Rotate", "The token is replaced.", ask_rotate, danger=True, show=show_token
    ),
    "routemaster.revoke_token": PageAction("Revoke", "The token is deleted.", ask_revoke, danger=True),
}
